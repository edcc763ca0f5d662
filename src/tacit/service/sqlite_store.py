"""A store in a folder, by SQLite: one process, every group synced to the disk before it is acknowledged."""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from tacit.errors import StoreDamaged, StoreFailed
from tacit.service.packing import place_of, seal, unseal
from tacit.service.sqlite_files import DATABASE, FolderLock, identity, prepare_folder
from tacit.service.sqlite_opening import Connect, abandon, connected, erase, is_damage, keep_forever, open_database
from tacit.service.store import CHUNK, NOTHING, Behind, Entries, Group, GuardedStore, Journal, Row, Swap, Tail

KEYS: Final = (1, 8, 64, 512)
"""Numbers of keys in a query: few of them, so that SQLite keeps the compiled statements."""
_PAGE: Final = 4096
"""Bytes of a page."""
LOG_PAGES: Final = 16_000
"""Pages in the log, about, from which on they are moved into the database; those that changed often go once."""
HEADS: Final = "SELECT id, name, config, note, seq, snapshot_seq FROM journals JOIN heads ON journal = id"
ROWS: Final = "SELECT key, position, value FROM rows WHERE journal = ? AND name = ?"
FIND: Final = {count: f"{ROWS} AND key IN ({', '.join('?' * count)})" for count in KEYS}
ADD: Final = "INSERT INTO rows VALUES (?, ?, ?, ?, ?) ON CONFLICT (journal, name, key)"
PUT: Final = f"{ADD} DO UPDATE SET position = excluded.position, value = excluded.value"


class SQLiteStore(GuardedStore):
    """A store in a folder of its own, which is made if it is missing.

    When a change returns, it was written and synced (write-ahead log, ``synchronous`` FULL), so that it survives the
    death of process and machine on a disk that keeps what it has synced.  After the first failure nothing more is
    answered.  Refused: a folder that another process has open, a copy, a network file system, a database that is
    damaged or newer.

    ``moved_too`` opens a copy too, for `tacit backup` and `tacit adopt`.  ``synchronous`` and ``connect`` are for
    tests: the one shows that less than FULL loses acknowledged groups, the other puts a failing disk under the store.
    """

    def __init__(
        self, folder: Path, *, moved_too: bool = False, synchronous: str = "FULL", connect: Connect = connected
    ) -> None:
        super().__init__(f"the store in {folder}", "the disk and its free space")
        self.folder = folder
        self._pages = 0  # in the log, about
        prepare_folder(folder)
        self._folder_lock = FolderLock(folder)
        try:
            self._connection = open_database(folder, connect, synchronous, moved_too=moved_too)
        except BaseException:
            self._folder_lock.close(unlock=True)
            raise
        _OPEN.add(self)

    def journals(self) -> list[Journal]:
        with self._using():
            return [Journal(*stored).unsealed() for _, *stored in self._rows(f"{HEADS} ORDER BY name")]

    def create(self, name: str, config: bytes, snapshot: bytes, note: bytes = b"", rows: Group | None = None) -> None:
        with self._transaction():
            add = "INSERT INTO journals (name, config) VALUES (?, ?) ON CONFLICT DO NOTHING"
            if not self._run(add, name, seal(name.encode(), config)):
                self._exists(name)
            number = self._number(name)
            self._run("INSERT INTO heads VALUES (?, 0, 0, ?)", number, seal(name.encode(), note))
            self._put_snapshot(number, 0, snapshot)
            self._put_rows(number, rows or Group())
        self._pages += 5 + len(snapshot) // _PAGE

    def read(self, name: str, after: int = NOTHING) -> Tail:
        def entries(last: int) -> Entries:
            with self._using():
                if self._rows("SELECT snapshot_seq FROM heads WHERE journal = ?", number)[0][0] > last:
                    raise Behind
                query = f"SELECT seq, entry FROM entries WHERE journal = ? AND seq > ? ORDER BY seq LIMIT {CHUNK}"
                return self._rows(query, number, last)

        with self._using():
            found = self._rows(f"{HEADS} WHERE name = ?", name) or self._unknown(name)
            number, journal = found[0][0], Journal(*found[0][1:]).unsealed()
            snapshot = "SELECT snapshot FROM snapshots WHERE journal = ?1"
            start = f"SELECT ({snapshot}), min(seq), max(seq) FROM entries WHERE journal = ?1"
            return journal.tail(number, after, lambda: self._rows(start, number), entries)

    def turn(self, name: str, after: int) -> AbstractContextManager[Tail | None]:
        """Nothing to read: all turns are those of this process, which takes one at a time."""
        return nullcontext()

    def append(self, name: str, seq: int, group: Group) -> int:
        with self._transaction():
            self._change(name, seq, group)
        # rows are anywhere in their table and its index
        changed = sum(map(len, (*group.rows.values(), *group.drop.values())))
        self._pages += 5 + 2 * changed + sum(len(entry) + 32 for entry in group.entries) // _PAGE
        return seq + len(group.entries)

    def _change(self, name: str, seq: int, group: Group) -> int:
        """Make the changes of a group, in a transaction; the number of the journal."""
        many, journal = self._connection.executemany, self._number(name)
        advance = "UPDATE heads SET seq = seq + ?, note = coalesce(?, note) WHERE journal = ? AND seq = ?"
        if not self._run(advance, len(group.entries), group.sealed_note(name), journal, seq):
            self._lost(name, seq)
        entries = group.sealed_entries(journal, seq)
        many("INSERT INTO entries VALUES (?, ?, ?)", ((journal, *entry) for entry in entries))
        forget = "DELETE FROM rows WHERE journal = ? AND name = ? AND position <= ?"
        many(forget, ((journal, *last) for last in group.forget.items()))
        drop = "DELETE FROM rows WHERE journal = ? AND name = ? AND key = ?"
        many(drop, ((journal, *row) for row in group.dropped()))
        self._put_rows(journal, group)
        return journal

    def compact(self, name: str, seq: int, snapshot: bytes, group: Group | None = None) -> bool:
        with self._mutex:
            with self._transaction():
                journal = self._change(name, seq, group or Group())
                self._run("UPDATE heads SET snapshot_seq = seq WHERE journal = ?", journal)
                self._put_snapshot(journal, seq + len(group.entries if group else ()), snapshot)
                self._run("DELETE FROM entries WHERE journal = ?", journal)
                self._run("UPDATE meta SET value = 1 WHERE name = 'erasing'")
            with self._using(changing=True):
                erase(self._connection, self.folder / DATABASE)
        return True

    def find(self, name: str, table: str, keys: Iterable[bytes]) -> dict[bytes, Row]:
        wanted = list(dict.fromkeys(keys))
        found: dict[bytes, Row] = {}
        with self._using():
            journal = self._number(name)
            for start in range(0, len(wanted), KEYS[-1]):
                part = wanted[start : start + KEYS[-1]]
                count = next(size for size in KEYS if size >= len(part))
                part += part[-1:] * (count - len(part))
                for row in self._rows(FIND[count], journal, table, *part):
                    found[row[0]] = Row(*row).unsealed(journal, table)
        return found

    def scan(self, name: str, table: str, after: int, limit: int) -> list[Row]:
        with self._using():
            journal = self._number(name)
            query = f"{ROWS} AND position > ? ORDER BY position, key LIMIT ?"
            return [Row(*row).unsealed(journal, table) for row in self._rows(query, journal, table, after, limit)]

    def swap(self, name: str, table: str, swaps: Sequence[Swap], beside: str = "") -> set[bytes]:
        done: set[bytes] = set()
        replace = "UPDATE rows SET value = ? WHERE journal = ? AND name = ? AND key = ? AND value = ?"
        with self._transaction():
            journal = self._number(name)
            for old, new, other in swaps:
                before, after = old.sealed(journal, table).value, new.sealed(journal, table).value
                if self._run(replace, after, journal, table, old.key, before):
                    done.add(old.key)
                    if other is not None:
                        self._run(f"{ADD} DO NOTHING", journal, beside, *other.sealed(journal, beside))
        self._pages += 5 + 2 * len(done)
        return done

    @property
    def upkeep_due(self) -> bool:
        return self._pages >= LOG_PAGES

    def tend(self) -> None:
        with self._using(changing=True):
            self._rows("PRAGMA wal_checkpoint(PASSIVE)")
            self._pages = 0

    def settings(self, prefix: str) -> Mapping[str, bytes]:
        with self._using():
            query = "SELECT name, value FROM settings WHERE substr(name, 1, ?) = ? ORDER BY name"
            found = self._rows(query, len(prefix), prefix)
            return {name: unseal(name.encode(), value, "the setting {!r}", name) for name, value in found}

    def change_settings(self, put: Mapping[str, bytes], delete: Sequence[str] = (), *, replace: bool = True) -> None:
        with self._transaction():
            for name in delete:
                self._run("DELETE FROM settings WHERE name = ?", name)
            for name, value in put.items():
                kept = "REPLACE" if replace else "IGNORE"
                self._run(f"INSERT OR {kept} INTO settings VALUES (?, ?)", name, seal(name.encode(), value))

    def adopt(self) -> None:
        with self._transaction():
            self._run("UPDATE meta SET value = ? WHERE name = 'identity'", identity(self.folder / DATABASE))

    def close(self) -> None:
        """Let go of the folder; in a forked process nothing happens, since it never had it."""
        if not self._forked:
            with self._mutex:
                try:
                    if self._end():  # in good order: SQLite moves its log into the database and deletes it
                        self._connection.close()
                finally:
                    self._folder_lock.close(unlock=True)

    def _abandon(self) -> None:
        abandon(self._connection)

    @contextmanager
    def _using(self, *, changing: bool = False) -> Iterator[None]:
        """Use the connection; an error of SQLite ends the use of the store.

        A change that has failed is never called damage: it is unknown how far it came.
        """
        with self._entered():
            try:
                yield
            except (sqlite3.Error, OSError, StoreFailed) as error:
                self._fail(error, StoreDamaged if is_damage(error) and not changing else StoreFailed)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Changes that are made, and synced, together; or, when something is raised in between, not at all."""
        with self._using(changing=True):
            self._run("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException as error:
                if not isinstance(error, (sqlite3.Error, OSError)):  # after those SQLite may have rolled back by itself
                    self._run("ROLLBACK")
                raise
            self._run("COMMIT")

    def _run(self, statement: str, *values: Any) -> int:
        """Execute a statement; returns how many rows it changed."""
        return self._connection.execute(statement, values).rowcount

    def _rows(self, query: str, *values: Any) -> list[Any]:
        """All rows that a query finds."""
        return self._connection.execute(query, values).fetchall()

    def _number(self, name: str) -> int:
        """The number of a journal."""
        found = self._rows("SELECT id FROM journals WHERE name = ?", name) or self._unknown(name)
        return int(found[0][0])

    def _put_rows(self, journal: int, group: Group) -> None:
        self._connection.executemany(PUT, ((journal, *row) for row in group.sealed_rows(journal)))

    def _put_snapshot(self, journal: int, seq: int, snapshot: bytes) -> None:
        self._run("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", journal, seal(place_of(journal, seq), snapshot))


_OPEN: weakref.WeakSet[SQLiteStore] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """In a forked process: neither keep the lock beyond the parent's life, nor ever close its connection."""
    for store in _OPEN:
        keep_forever(store._connection)
        store._folder_lock.close(unlock=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
