"""The store in a folder: who may have it, and where it may be."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.errors import (
    OneLife,
    StoreError,
    StoreFailed,
    StoreInUse,
    StoreMoved,
)
from tacit.service import sqlite_store
from tacit.service.sqlite_files import DATABASE, network_mount
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Group
from tests.contracts.stores import entries_of
from tests.service.sqlite_folders import filled

MOUNTS = r"""
/dev/sda1 / ext4 rw,relatime 0 0
server:/export /srv nfs4 rw 0 0
/dev/sdb1 /srv/local xfs rw 0 0
//host/share /mnt/with\040space cifs rw 0 0
me@host:/ /home/me/remote fuse.sshfs rw 0 0
server:/deep /srv/local/covered nfs rw 0 0
tmpfs /srv/local/covered tmpfs rw 0 0
broken line
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


# who may have it


def test_second_process_is_refused_while_the_first_lives(folder: Path) -> None:
    code = "import sys, pathlib; from tacit.service.sqlite_store import SQLiteStore\n"
    code += "s = SQLiteStore(pathlib.Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreInUse, match=f"process {other.pid} works on the store in {folder}"):
            SQLiteStore(folder)
        other.kill()  # takeover after its death needs nothing else
        other.wait()
    SQLiteStore(folder).close()


def test_other_programs_cannot_open_the_database(folder: Path) -> None:
    store = SQLiteStore(folder)
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('SELECT * FROM journals')"
    result = subprocess.run(
        [sys.executable, "-c", code, folder / "tacit.db"], capture_output=True, text=True, check=False
    )
    assert "database is locked" in result.stderr
    store.close()


def test_one_process_cannot_open_it_twice(folder: Path) -> None:
    store = SQLiteStore(folder)
    with pytest.raises(StoreInUse, match="this process") as refused:
        SQLiteStore(folder)
    assert isinstance(refused.value, OneLife)
    store.create("a", b"", b"first")
    store.close()
    store.close()
    with pytest.raises(StoreFailed, match="was closed"):
        store.journals()
    SQLiteStore(folder).close()


def in_fork(work: Callable[[], object]) -> str:
    """What a forked process, which ends like any other, says about it."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which the test runner may have
        child = os.fork()
    if not child:
        try:
            work()
            answer = "done"
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return answer


def test_fork_can_neither_use_nor_unlock_nor_finish_it(folder: Path) -> None:
    store = SQLiteStore(folder)
    store.create("a", b"", b"first")
    assert "StoreInUse" in in_fork(store.journals)
    assert "StoreInUse" in in_fork(lambda: store.append("a", 0, Group([b"x"])))
    assert in_fork(store.close) == "done"
    assert "StoreInUse" in in_fork(lambda: SQLiteStore(folder))
    assert store.append("a", 0, Group([b"1"])) == 1
    store.close()
    store = SQLiteStore(folder)
    assert entries_of(store, "a") == [b"1"]
    store.close()


def test_fork_that_ends_in_order_leaves_the_log_alone(folder: Path) -> None:
    """Python closes connections at its end, which would delete the log that the parent goes on writing."""
    code = """
import os, sys, pathlib
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Group
store = SQLiteStore(pathlib.Path(sys.argv[1]))
store.create("a", b"", b"first")
store.append("a", 0, Group([b"1"]))
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
store.append("a", 1, Group([b"2"]))
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(folder)], check=False)
    store = SQLiteStore(folder)
    assert entries_of(store, "a") == [b"1", b"2"]
    store.close()


def test_fork_that_outlives_its_parent_does_not_keep_the_lock(folder: Path) -> None:
    code = """
import os, sys, pathlib
from tacit.service.sqlite_store import SQLiteStore
store = SQLiteStore(pathlib.Path(sys.argv[1]))
reader, writer = os.pipe()
if os.fork():
    os.read(reader, 1)
    os._exit(0)
os.write(writer, b"x")
os.read(0, 1)  # until the test is over
print("alive", flush=True)
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.wait() == 0
        SQLiteStore(folder).close()
        assert parent.communicate("x")[0] == "alive\n"


# where it is


def test_only_the_owner_may_read_it(folder: Path) -> None:
    store = SQLiteStore(folder)
    store.create("a", b"", b"first")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"tacit.db": 0o600, "tacit.db-wal": 0o600, "tacit.lock": 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    store.close()


def test_missing_parent_and_wrong_kinds_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="make its parent first"):
        SQLiteStore(tmp_path / "missing" / "store")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="not a folder"):
        SQLiteStore(tmp_path / "file")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/data", None),
        ("/srv/data", "nfs4"),
        ("/srvdata", None),
        ("/srv/local/data", None),
        ("/srv/local/covered/data", None),
        ("/mnt/with space/data", "cifs"),
        ("/home/me/remote", "fuse.sshfs"),
    ],
)
def test_network_file_systems_are_known(path: str, kind: str | None) -> None:
    assert network_mount(Path(path), MOUNTS) == kind


def test_nothing_is_known_without_a_list_of_mounts() -> None:
    assert network_mount(Path("/srv"), "") is None


def test_copy_is_refused_and_the_original_goes_on(folder: Path, tmp_path: Path) -> None:
    entries = filled(folder)
    shutil.copytree(folder, tmp_path / "copy")
    for _ in range(2):
        with pytest.raises(StoreMoved, match="tacit restore") as refused:
            SQLiteStore(tmp_path / "copy")
    assert isinstance(refused.value, OneLife)
    folder.rename(tmp_path / "renamed")  # the same files: still the original
    store = SQLiteStore(tmp_path / "renamed")
    assert entries_of(store, "a") == entries
    store.close()


# how large its log becomes


def test_log_stays_short_where_the_store_is_tended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "LOG_PAGES", 60)
    store = SQLiteStore(folder, synchronous="OFF")
    store.create("a", b"", b"first")
    seq, sizes, tended = 0, list[int](), 0
    log = folder / (DATABASE + "-wal")
    for _ in range(400):
        seq = store.append("a", seq, Group(entries=[bytes(3000)]))
        if store.upkeep_due:
            store.tend()
            tended += 1
            assert not store.upkeep_due
        sizes.append(log.stat().st_size)
    assert tended >= 5
    assert max(sizes) < 2 * 60 * 4096
    assert len(entries_of(store, "a")) == 400
    store.close()


def test_store_of_an_earlier_version_is_migrated(folder: Path) -> None:
    """Before 0.3 heads had a column of epochs."""
    entries = filled(folder)
    database = sqlite3.connect(folder / DATABASE)
    database.execute("ALTER TABLE heads ADD COLUMN epoch INTEGER NOT NULL DEFAULT 5")
    database.execute("PRAGMA user_version = 1")
    database.commit()
    database.close()
    for _ in range(2):
        store = SQLiteStore(folder)
        assert entries_of(store, "a") == entries
        assert store._rows("PRAGMA user_version") == [(2,)]
        store.close()
