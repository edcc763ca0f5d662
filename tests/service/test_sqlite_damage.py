"""The store in a folder: what it refuses to read, since it is not what was written."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tacit.errors import (
    CorruptState,
    StoreDamaged,
    StoreError,
    StoreTooNew,
)
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Store
from tests.service.sqlite_folders import change, filled


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_newer_format_is_refused(folder: Path) -> None:
    filled(folder)
    change(folder, "PRAGMA user_version = 7")
    with pytest.raises(StoreTooNew, match="format 7"):
        SQLiteStore(folder)


def test_other_databases_and_other_files_are_refused(folder: Path) -> None:
    filled(folder)
    database = folder / "tacit.db"
    change(folder, "PRAGMA application_id = 1")
    with pytest.raises(StoreDamaged, match="no store of Tacit"):
        SQLiteStore(folder)
    for content in (b"", b"garbage" * 1000, bytes(8192)):
        database.write_bytes(content)
        with pytest.raises(StoreDamaged) as refused:
            SQLiteStore(folder)
        assert isinstance(refused.value, CorruptState)
    database.unlink()
    (folder / "tacit.db-wal").write_bytes(b"log")
    with pytest.raises(StoreDamaged, match="no database beside it"):
        SQLiteStore(folder)


def test_interrupted_first_start_is_begun_anew(folder: Path) -> None:
    folder.mkdir()
    for name in ("tacit.db.new", "tacit.db.new-wal"):
        (folder / name).write_bytes(b"half")
    filled(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["tacit.db", "tacit.lock"]


@pytest.mark.parametrize("size", [100, 4096, 20_000])
def test_truncated_database_is_refused(folder: Path, size: int) -> None:
    filled(folder, 500)
    os.truncate(folder / "tacit.db", size)
    with pytest.raises(StoreDamaged):
        SQLiteStore(folder)


def everything(store: Store) -> object:
    recovery = store.read("a")
    rows = store.scan("a", "t", -1, 10)
    return list(recovery.entries), rows, recovery.journal.config, recovery.journal.note, store.settings("")


def test_no_flipped_byte_goes_unnoticed(folder: Path) -> None:
    """After a change of any byte, what is read is what was written, or the store is damaged."""
    filled(folder, 100)
    store = SQLiteStore(folder)
    expected = everything(store)
    store.close()
    database = folder / "tacit.db"
    sound = database.read_bytes()
    rng, refused = random.Random(1), 0
    for offset in rng.sample(range(100, len(sound)), 250):  # the first 100 bytes are SQLite's own: versions, counters
        database.write_bytes(sound[:offset] + bytes([sound[offset] ^ (1 << rng.randrange(8))]) + sound[offset + 1 :])
        try:
            store = SQLiteStore(folder, synchronous="OFF")
        except StoreError:
            refused += 1
            continue
        try:
            assert everything(store) == expected, offset
        except StoreError:
            refused += 1
        finally:
            store.close()
    assert refused > 50  # others fell on space that is not used


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "UPDATE entries SET entry = (SELECT entry FROM entries WHERE seq = 7) WHERE seq = 8",
            "entry 8 .*does not match",
        ),
        ("DELETE FROM entries WHERE seq = 7", "entry 7 .*is missing"),
        ("DELETE FROM entries WHERE seq = 1", "log of 'a'"),
        ("DELETE FROM entries WHERE seq = 50", "log of 'a'"),
        ("UPDATE heads SET seq = 49", "log of 'a'"),
        ("UPDATE heads SET note = x'00'", "note of 'a'"),
        ("UPDATE journals SET config = x'0000000000000000'", "configuration of 'a'"),
        ("DELETE FROM snapshots", "snapshot of 'a' is missing"),
        ("UPDATE heads SET snapshot_seq = 50", "snapshot of 'a'.*does not match"),
        ("UPDATE rows SET position = 2", "row of table 't'"),
    ],
)
def test_what_was_changed_or_lost_is_named(folder: Path, statement: str, words: str) -> None:
    filled(folder)
    change(folder, statement)
    store = SQLiteStore(folder)
    with pytest.raises(StoreDamaged, match=words):
        everything(store)
    store.close()


def test_damaged_snapshot_is_named(folder: Path) -> None:
    filled(folder)
    store = SQLiteStore(folder)
    store.compact("a", 50, b"snapshot")
    store.close()
    change(folder, "UPDATE snapshots SET snapshot = substr(snapshot, 1, 9)")
    store = SQLiteStore(folder)
    with pytest.raises(StoreDamaged, match="snapshot of 'a'"):
        store.read("a")
    store.close()
