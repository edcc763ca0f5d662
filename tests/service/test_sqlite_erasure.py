"""The store in a folder: after a compaction no file of it has a byte of what is gone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tacit.service.sqlite_store import SQLiteStore
from tests.contracts.stores import entries_of
from tests.service.erasure import check_erasure
from tests.service.sqlite_folders import filled


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_compaction_leaves_no_byte_of_what_is_gone(folder: Path) -> None:
    store = SQLiteStore(folder, synchronous="OFF")
    check_erasure(store, lambda: bytes_of(folder))
    store.close()


def test_interrupted_erasure_is_finished_at_the_next_start(folder: Path) -> None:
    """The snapshot is committed, and the process dies before the file was written anew."""
    entries = filled(folder)
    connection = sqlite3.connect(folder / "tacit.db", isolation_level=None)
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("DELETE FROM rows")
    connection.execute("UPDATE meta SET value = 1 WHERE name = 'erasing'")
    connection.close()
    assert b"value of the row" in bytes_of(folder)
    store = SQLiteStore(folder)
    assert b"value of the row" not in bytes_of(folder)
    assert entries_of(store, "a") == entries
    store.close()
    connection = sqlite3.connect(folder / "tacit.db")
    assert connection.execute("SELECT value FROM meta WHERE name = 'erasing'").fetchall() == [(0,)]
    connection.close()
