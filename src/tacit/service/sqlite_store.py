"""A store in a folder, by SQLite: one process, every group synced to the disk before it is acknowledged."""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import JournalExists, StoreDamaged, StoreFailed, UnknownJournal
from tacit.service.seals import place_of, row_from, row_values, seal, unseal
from tacit.service.sqlite_database import Connect, Database, erase, is_damage
from tacit.service.sqlite_files import FolderLock, prepare_folder
from tacit.service.sqlite_opening import open_database
from tacit.service.store import NOTHING, Behind, Group, Journal, Row, Store, Swap, Tail
from tacit.service.store_parts import (
    CHUNK,
    Entries,
    Guard,
    check_ends,
    checked_entries,
    journal_from,
    lost,
    snapshot_from,
)

KEYS = (1, 8, 64, 512)
"""Numbers of keys in a query: few of them, so that SQLite keeps the compiled statements."""
_PAGE = 4096
"""Bytes of a page."""
LOG_PAGES = 16_000
"""Pages in the log, about, from which on they are moved into the database; those that changed often go once."""
HEAD = "SELECT id, config, note, seq, snapshot_seq FROM journals JOIN heads ON journal = id WHERE name = ?"
NUMBER = "SELECT id FROM journals WHERE name = ?"
ADVANCE = "UPDATE heads SET seq = seq + ?, note = coalesce(?, note) WHERE journal = ? AND seq = ?"
COMPACT = "UPDATE heads SET snapshot_seq = seq WHERE journal = ? AND seq = ?"
SNAPSHOT = "SELECT snapshot FROM snapshots WHERE journal = ?"
ENDS = "SELECT min(seq), max(seq) FROM entries WHERE journal = ?"
ERASED = "SELECT snapshot_seq FROM heads WHERE journal = ?"
ENTRIES = f"SELECT seq, entry FROM entries WHERE journal = ? AND seq > ? ORDER BY seq LIMIT {CHUNK}"
ROWS = "SELECT key, position, value FROM rows WHERE journal = ? AND name = ?"
SCAN = f"{ROWS} AND position > ? ORDER BY position, key LIMIT ?"
FIND = {count: f"{ROWS} AND key IN ({', '.join('?' * count)})" for count in KEYS}
PUT = (
    "INSERT INTO rows VALUES (?, ?, ?, ?, ?) ON CONFLICT (journal, name, key)"
    " DO UPDATE SET position = excluded.position, value = excluded.value"
)
ADD = "INSERT INTO rows VALUES (?, ?, ?, ?, ?) ON CONFLICT (journal, name, key) DO NOTHING"
SWAP = "UPDATE rows SET value = ? WHERE journal = ? AND name = ? AND key = ? AND value = ?"


class SQLiteStore(Store):
    """A store in a folder of its own, which is made if it is missing.

    Promised to whoever gets an answer: the group was written and synced (write-ahead log, ``synchronous`` FULL), so
    that it survives the death of process and machine on a disk that keeps what it has synced.  After the first failure
    nothing more is answered.  Refused: a folder that another process has open, a copy, a network file system, a
    database that is damaged or newer.

    ``moved_too`` opens a copy too, for `tacit backup`, which releases nothing.  ``synchronous`` and ``connect`` are for
    tests: the one shows that less than FULL loses acknowledged groups, the other puts a failing disk under the store.
    """

    def __init__(
        self, folder: Path, *, moved_too: bool = False, synchronous: str = "FULL", connect: Connect = Database
    ) -> None:
        self.folder = folder
        self._guard = Guard(f"the store in {folder}", "the disk and its free space", lambda: self._database.abandon())
        self._pages = 0  # in the log, about
        prepare_folder(folder)
        lock = FolderLock(folder)
        try:
            self._database = open_database(folder, connect, synchronous, moved_too=moved_too)
        except BaseException:
            lock.release()
            raise
        self._folder_lock = lock
        _OPEN.add(self)

    def journals(self) -> list[Journal]:
        with self._reading():
            names = [name for (name,) in self._database.rows("SELECT name FROM journals ORDER BY name")]
            return [self._head(name)[1] for name in names]

    def create(self, name: str, config: bytes, snapshot: bytes, note: bytes = b"", rows: Group | None = None) -> None:
        with self._transaction():
            if self._database.rows(HEAD, (name,)):
                raise JournalExists(f"the store in {self.folder} has a journal {name!r} already")
            place = name.encode()
            self._database.run("INSERT INTO journals (name, config) VALUES (?, ?)", (name, seal(place, config)))
            number = int(self._database.rows("SELECT last_insert_rowid()")[0][0])
            self._database.run("INSERT INTO heads VALUES (?, 0, 0, ?)", (number, seal(place, note)))
            self._put_snapshot(number, 0, snapshot)
            self._put_rows(number, rows or Group())
        self._pages += 5 + len(snapshot) // _PAGE

    def read(self, name: str, after: int = NOTHING) -> Tail:
        with self._reading():
            number, journal = self._head(name)
            if after >= journal.snapshot_seq:
                return Tail(journal, None, self._entries(number, journal, after))
            snapshot = self._snapshot(number, journal)
            check_ends(journal, *self._database.rows(ENDS, (number,))[0])
            return Tail(journal, snapshot, self._entries(number, journal, journal.snapshot_seq))

    @contextmanager
    def turn(self, name: str, after: int) -> Iterator[Tail | None]:
        """Nothing to read: all turns are those of this process, which takes one at a time."""
        yield None

    def append(self, name: str, seq: int, group: Group) -> int:
        note = None if group.note is None else seal(name.encode(), group.note)
        with self._transaction():
            journal = self._number(name)
            if not self._database.run(ADVANCE, (len(group.entries), note, journal, seq)):
                lost(name, seq)
            entries = (
                (journal, n, seal(place_of(journal, n), entry)) for n, entry in enumerate(group.entries, seq + 1)
            )
            self._database.run_many("INSERT INTO entries VALUES (?, ?, ?)", entries)
            forget = ((journal, table, position) for table, position in group.forget.items())
            self._database.run_many("DELETE FROM rows WHERE journal = ? AND name = ? AND position <= ?", forget)
            drop = ((journal, table, key) for table, keys in group.drop.items() for key in keys)
            self._database.run_many("DELETE FROM rows WHERE journal = ? AND name = ? AND key = ?", drop)
            self._put_rows(journal, group)
        self._pages += _pages(group)
        return seq + len(group.entries)

    def compact(self, name: str, seq: int, snapshot: bytes) -> None:
        with self._guard.mutex:
            with self._transaction():
                journal = self._number(name)
                if not self._database.run(COMPACT, (journal, seq)):
                    lost(name, seq)
                self._put_snapshot(journal, seq, snapshot)
                self._database.run("DELETE FROM entries WHERE journal = ? AND seq <= ?", (journal, seq))
                self._database.run("UPDATE meta SET value = 1 WHERE name = 'erasing'")
            with self._writing():
                erase(self._database)

    def find(self, name: str, table: str, keys: Iterable[bytes]) -> dict[bytes, Row]:
        wanted = list(dict.fromkeys(keys))
        found: dict[bytes, Row] = {}
        with self._reading():
            journal = self._number(name)
            for start in range(0, len(wanted), KEYS[-1]):
                part = wanted[start : start + KEYS[-1]]
                count = next(size for size in KEYS if size >= len(part))
                part += part[-1:] * (count - len(part))
                for row in self._database.rows(FIND[count], (journal, table, *part)):
                    found[row[0]] = row_from(journal, table, *row)
        return found

    def scan(self, name: str, table: str, after: int, limit: int) -> list[Row]:
        with self._reading():
            journal = self._number(name)
            return [row_from(journal, table, *row) for row in self._database.rows(SCAN, (journal, table, after, limit))]

    def swap(self, name: str, table: str, swaps: Sequence[Swap], beside: str = "") -> set[bytes]:
        done: set[bytes] = set()
        with self._transaction():
            journal = self._number(name)
            for old, new, other in swaps:
                before, after = row_values(journal, table, old)[-1], row_values(journal, table, new)[-1]
                if self._database.run(SWAP, (after, journal, table, old.key, before)):
                    done.add(old.key)
                    if other is not None:
                        self._database.run(ADD, row_values(journal, beside, other))
        self._pages += 5 + 2 * len(done)
        return done

    @property
    def upkeep_due(self) -> bool:
        return self._pages >= LOG_PAGES

    def tend(self) -> None:
        with self._writing():
            self._database.rows("PRAGMA wal_checkpoint(PASSIVE)")
            self._pages = 0

    def settings(self, prefix: str) -> Mapping[str, bytes]:
        with self._reading():
            query = "SELECT name, value FROM settings WHERE substr(name, 1, ?) = ? ORDER BY name"
            found = self._database.rows(query, (len(prefix), prefix))
            return {name: unseal(name.encode(), value, "the setting {!r}", name) for name, value in found}

    def change_settings(self, put: Mapping[str, bytes], delete: Sequence[str] = (), *, replace: bool = True) -> None:
        with self._transaction():
            self._database.run_many("DELETE FROM settings WHERE name = ?", ((name,) for name in delete))
            sealed = ((name, seal(name.encode(), value)) for name, value in put.items())
            kept = "REPLACE" if replace else "IGNORE"
            self._database.run_many(f"INSERT OR {kept} INTO settings VALUES (?, ?)", sealed)

    def close(self) -> None:
        """Let go of the folder; in a forked process nothing happens, since it never had it."""
        if self._guard.forked:
            return
        with self._guard.mutex:
            try:
                if self._guard.end():
                    self._database.close()
            finally:
                self._folder_lock.release()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Whatever SQLite cannot do ends the use of the store."""
        with self._guard.entered():
            try:
                yield
            except (sqlite3.Error, OSError) as error:
                self._guard.fail(error, StoreDamaged if is_damage(error) else StoreFailed)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The same for changes, whose failure always means that nobody knows how far they came."""
        with self._reading():
            try:
                yield
            except (sqlite3.Error, OSError, StoreFailed) as error:
                self._guard.fail(error)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Changes that are made, and synced, together; or, when something is raised in between, not at all."""
        with self._writing():
            self._database.run("BEGIN IMMEDIATE")
            try:
                yield
            except (sqlite3.Error, OSError):
                raise  # it has failed; SQLite may have rolled back by itself
            except BaseException:
                self._database.run("ROLLBACK")
                raise
            self._database.run("COMMIT")

    def _number(self, name: str) -> int:
        """The number of a journal."""
        found = self._database.rows(NUMBER, (name,))
        if not found:
            raise UnknownJournal(f"the store in {self.folder} has no journal {name!r}")
        return int(found[0][0])

    def _put_rows(self, journal: int, group: Group) -> None:
        for table, rows in group.rows.items():
            self._database.run_many(PUT, (row_values(journal, table, row) for row in rows.values()))

    def _head(self, name: str) -> tuple[int, Journal]:
        found = self._database.rows(HEAD, (name,))
        if not found:
            raise UnknownJournal(f"the store in {self.folder} has no journal {name!r}")
        number, *stored = found[0]
        return number, journal_from(name, *stored)

    def _put_snapshot(self, journal: int, seq: int, snapshot: bytes) -> None:
        sealed = seal(place_of(journal, seq), snapshot)
        self._database.run("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (journal, sealed))

    def _snapshot(self, number: int, journal: Journal) -> bytes:
        found = self._database.rows(SNAPSHOT, (number,))
        return snapshot_from(number, journal, found[0][0] if found else None)

    def _entries(self, number: int, journal: Journal, after: int) -> Iterator[bytes]:
        def read(last: int) -> Entries:
            with self._reading():
                if self._database.rows(ERASED, (number,))[0][0] > last:
                    raise Behind
                return self._database.rows(ENTRIES, (number, last))

        return checked_entries(number, journal, after, read)


def _pages(group: Group) -> int:
    """About how many pages a group adds to the log: rows are anywhere in their table and its index."""
    rows = sum(map(len, (*group.rows.values(), *group.drop.values())))
    return 5 + 2 * rows + sum(len(entry) + 32 for entry in group.entries) // _PAGE


_OPEN: weakref.WeakSet[SQLiteStore] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """In a forked process: neither keep the lock beyond the parent's life, nor ever close its connection."""
    for store in _OPEN:
        store._database.keep_forever()
        store._folder_lock.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
