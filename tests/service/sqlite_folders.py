"""Stores on disk for tests, and ways to change them behind their back."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Group, Row


def filled(folder: Path, count: int = 50) -> list[bytes]:
    """A store with a journal ``a`` of so many entries, closed; returns these."""
    entries = [b"entry %d " % number + bytes(100) for number in range(count)]
    store = SQLiteStore(folder)
    store.create("a", b"config", b"first")
    store.append("a", 0, Group(entries, {"t": {b"k": Row(b"k", 1, b"value of the row")}}))
    store.close()
    return entries


def change(folder: Path, statement: str, *values: object) -> None:
    """Change the database behind the store's back."""
    connection = sqlite3.connect(folder / "tacit.db")
    with connection:
        connection.execute(statement, values)
    connection.close()
