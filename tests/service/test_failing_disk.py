"""A disk that fails: nothing is answered that was not committed, and the next start has all that was."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw
import pytest

from tacit.errors import StoreFailed
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Group
from tests.service.crash_states import DONE, Recording, Work, begin, contents, end, lose_power, reopen
from tests.service.recorded_disk import Disk, Event

STEPS = 34
"""Enough for a compaction, checkpoints and a start in between."""


@pytest.fixture
def folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        yield Path(place)


class Faults:
    """The n-th event of a kind fails, and all later ones if the disk does not recover."""

    def __init__(self, kind: str, first: int, error: type[apsw.Error], code: int, lasting: bool) -> None:
        self.kind, self.left, self.error, self.code, self.lasting = kind, first, error, code, lasting

    def __call__(self, event: Event) -> None:
        if event.kind != self.kind:
            return
        self.left -= 1
        if self.left == 0 or (self.left < 0 and self.lasting):
            error = self.error("injected")
            error.extendedresult = self.code  # type: ignore[attr-defined]
            raise error


def work_until_it_fails(recording: Recording, disk: Disk) -> tuple[int, str]:
    """Steps that were acknowledged, and the words of the failure; none if the work came to its end."""
    work, done = Work(random.Random(3)), 0
    store = None
    try:
        store = reopen(recording, disk)
        for number in range(STEPS):
            store = work.step(store, number, lambda: reopen(recording, disk))
            done += 1
            recording.states.append(work.contents())
    except StoreFailed as error:
        if store is not None:
            check_silent(store)
        return done, str(error)
    finally:
        if store is not None:
            store.close()
    return done, ""


def check_silent(store: SQLiteStore) -> None:
    """After a failure nothing is answered any more, not even questions."""
    creates = partial(store.create, "c", b"", b"first")
    for call in (store.journals, lambda: store.settings(""), lambda: store.read("a"), creates):
        with pytest.raises(StoreFailed):
            call()


def all_states() -> list[dict[str, object]]:
    """What the store holds after each step of a work without failures."""
    with tempfile.TemporaryDirectory() as place:
        recording, disk = begin(Path(place) / "store")
        assert work_until_it_fails(recording, disk) == (STEPS, "")
        return recording.states


KINDS = {
    "sync": ("sync", apsw.IOError, apsw.SQLITE_IOERR_FSYNC, 1),
    "write": ("write", apsw.IOError, apsw.SQLITE_IOERR_WRITE, 13),
    "full": ("write", apsw.FullError, apsw.SQLITE_FULL, 13),
    "truncate": ("truncate", apsw.IOError, apsw.SQLITE_IOERR_TRUNCATE, 1),
}


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("fault", KINDS)
def test_every_failure_is_told_and_loses_nothing(folder: Path, fault: str, lasting: bool) -> None:
    """The n-th sync, write or truncation fails, for all n or every 13th, until the work has fewer of them."""
    kind, error, code, stride = KINDS[fault]
    states, failures = all_states(), 0
    for run in range(1000):
        recording, disk = begin(folder / f"store {run}")
        disk.fault = Faults(kind, 1 + run * stride, error, code, lasting)
        done, words = work_until_it_fails(recording, disk)
        store = SQLiteStore(recording.folder, synchronous="OFF")  # the disk is well again
        assert contents(store) in states[done : done + 2]
        store.close()
        failures += bool(words)
        assert not words or re.search("check the disk", words)
        if disk.fault.left > 0:
            break
    assert failures > (0 if fault == "truncate" else 15)


def test_failed_disk_that_stays_so_is_refused_with_words(folder: Path) -> None:
    recording, disk = begin(folder / "store")
    store = reopen(recording, disk)
    store.create("a", b"", b"first")
    disk.fault = Faults("sync", 1, apsw.IOError, apsw.SQLITE_IOERR_FSYNC, lasting=True)
    with pytest.raises(StoreFailed, match="end this process"):
        store.append("a", 0, Group([b"1"]))
    store.close()
    with pytest.raises(StoreFailed, match="check the disk"):
        reopen(recording, disk)
    disk.fault = None
    reopen(recording, disk).close()


def after_failed_sync(folder: Path, renews: bool) -> tuple[Recording, int]:
    """Work whose last group was written and not synced, and the start after that."""
    recording, disk = begin(folder)
    work = Work(random.Random(5))
    store = reopen(recording, disk)
    for number in range(12):
        work.step(store, number, lambda: reopen(recording, disk))  # too few of them to begin anew
        disk.events.append(DONE)
        recording.states.append(work.contents())
    seq = len(work.models["a"].entries)
    first = len(disk.events)
    disk.fault = Faults("sync", 1, apsw.IOError, apsw.SQLITE_IOERR_FSYNC, lasting=False)
    with pytest.raises(StoreFailed):
        store.append("a", seq, work.group(12, many=True))
    disk.events.append(Event("sync failed", "tacit.db-wal"))
    store.close()
    disk.renews = renews
    store = reopen(recording, disk)
    disk.events.append(DONE)  # a process that begins now has seen the group
    recording.states.append(contents(store))
    end(store, orderly=False)
    return recording, first


def test_start_after_a_failed_sync_survives_a_power_loss(folder: Path) -> None:
    """What could not be synced can still be read: a start that relied on it could be cut short between old and new."""
    recording, first = after_failed_sync(folder / "store", renews=True)
    assert recording.states[-1] != recording.states[-2]  # the group is there, although it was never acknowledged
    assert lose_power(recording, 150, seed=1, first=first).lost == []
    recording, first = after_failed_sync(folder / "careless", renews=False)
    assert lose_power(recording, 150, seed=1, first=first).lost != []


UNKNOWN_OUTCOME = """
import pathlib, sqlite3, sys
from tacit.errors import StoreError
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Group

class Loses(sqlite3.Connection):
    lost = False
    def execute(self, statement, values=()):
        found = super().execute(statement, values)
        if statement == "COMMIT" and Loses.lost:
            raise sqlite3.OperationalError("the answer was lost")
        return found

folder = pathlib.Path(sys.argv[1])
store = SQLiteStore(
    folder, connect=lambda path: sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Loses)
)
store.create("a", b"", b"first")
store.append("a", 0, Group([b"1"]))
Loses.lost = True
again = lambda: SQLiteStore(folder).close()
for call in (lambda: store.append("a", 1, Group([b"2"])), store.journals, store.close, again):
    try:
        call()
        print("done")
    except StoreError as error:
        print(type(error).__name__)
"""


def test_commit_of_unknown_outcome(tmp_path: Path) -> None:
    """SQLite committed and the answer was lost: nothing more is answered, and the next process finds the group."""
    command = [sys.executable, "-c", UNKNOWN_OUTCOME, str(tmp_path / "store")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    again = "done" if sys.version_info >= (3, 12) else "StoreInUse"  # it cannot let go before the process ends
    assert result.stdout.split() == ["StoreFailed", "StoreFailed", "done", again]
    store = SQLiteStore(tmp_path / "store")
    assert list(store.read("a").entries) == [b"1", b"2"]
    store.close()


FULL_DISK = """
import pathlib, resource, signal, sys
from tacit.errors import StoreFailed
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Group
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SQLiteStore(pathlib.Path(sys.argv[1]))
store.create("a", b"", b"first")
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
seq = 0
try:
    while True:
        seq = store.append("a", seq, Group([bytes([seq % 251]) * 5000]))
        print(seq, flush=True)
except StoreFailed as error:
    sys.exit(str(error))
"""


def test_full_disk_of_a_real_system(tmp_path: Path) -> None:
    """No file can grow beyond a limit; the process says why it ends, and what it acknowledged is there."""
    folder = tmp_path / "store"
    command = [sys.executable, "-c", FULL_DISK, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    acknowledged = int(result.stdout.split()[-1])
    assert acknowledged > 20
    assert result.returncode == 1
    assert "check the disk and its free space" in result.stderr
    store = SQLiteStore(folder)
    entries = list(store.read("a").entries)
    assert len(entries) in (acknowledged, acknowledged + 1)
    assert all(entry == bytes([number % 251]) * 5000 for number, entry in enumerate(entries))
    assert store.append("a", len(entries), Group([b"goes on"])) == len(entries) + 1
    store.close()
