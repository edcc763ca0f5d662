"""A store in a PostgreSQL database: several processes may have it open, and each journal has one owner at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.errors import UndefinedTable

from tacit.errors import JournalExists, UnknownJournal
from tacit.service import postgres_tables as statements
from tacit.service.postgres_session import Connection, connect, open_tables, place
from tacit.service.postgres_tables import Generation
from tacit.service.seals import place_of, row_from, row_values, seal, unseal
from tacit.service.store import Group, Journal, Lease, Recovery, Row, Store
from tacit.service.store_parts import (
    Entries,
    Guard,
    check_ends,
    checked_entries,
    journal_from,
    lost,
    not_owned,
    snapshot_from,
)

Found = list[tuple[Any, ...]]
Values = Sequence[Any] | Mapping[str, Any]


class PostgresStore(Store):
    """A store in a database, in a schema of its own (``tacit``), which is made if it is missing.

    Promised to whoever gets an answer: the group was committed by a server that syncs (``fsync``, ``full_page_writes``,
    ``synchronous_commit``; others are refused), under the epoch of its owner.  After the first failure this object
    answers nothing more, since a commit whose answer was lost may have happened; a new one goes on from the store.
    Refused: a standby, a copy, tables of a later version, servers before version 14.

    **Erasure.**  When ``compact`` returns, no file of a table or index has the bytes of the journal's erased entries,
    of its earlier snapshots, or of rows that were deleted or replaced before.  Not covered: the server's write-ahead
    log, standbys, backups and logs; the disk itself; files that a server leaves behind that crashes in the middle of
    ``compact``; earlier notes of the journal, and settings that were deleted or replaced, which are overwritten when
    PostgreSQL needs their space.

    Connect to the server itself, or through a pooler that keeps a connection for the whole session.

    Without ``make`` a database without tables is refused.  ``moved_too`` opens a copy too, for `tacit backup`, which
    releases nothing.  ``application`` is how the server's list of sessions calls this one.
    """

    def __init__(self, url: str, *, make: bool = True, moved_too: bool = False, application: str = "tacit") -> None:
        where = place(url)
        self._connection = connect(url, application)
        try:
            open_tables(self._connection, where, make=make, moved_too=moved_too)
        except BaseException:
            self._connection.close()
            raise
        self._guard = Guard(f"the store in {where}", "the database server", self._abandon)
        self._generations: dict[Lease, Generation] = {}

    def journals(self) -> list[Journal]:
        with self._reading():
            return [journal_from(*row) for row in self._rows(statements.HEADS)]

    def create(self, name: str, config: bytes, snapshot: bytes, note: bytes = b"") -> None:
        at = name.encode()
        with self._transaction():
            found = self._rows(statements.ADD_JOURNAL, (name, seal(at, config)))
            if not found:
                raise JournalExists(f"{self._guard.where} has a journal {name!r} already")
            number = int(found[0][0])
            self._run(statements.ADD_HEAD, (number, seal(at, note)))
            tables = Generation(number, 0)
            for statement in tables.build():
                self._run(statement)
            self._run(tables.begin, (0, seal(place_of(number, 0), snapshot)))

    def claim(self, name: str) -> Recovery:
        with self._writing():
            found = self._rows(statements.CLAIM, {"name": name})
            if not found:
                raise UnknownJournal(f"{self._guard.where} has no journal {name!r}")
            number, generation, *stored = found[0]
            journal, tables = journal_from(name, *stored), Generation(number, generation)
            lease, at = Lease(name, journal.epoch), (journal.snapshot_seq, journal.epoch)
            self._keep(lease, tables)
            snapshot = snapshot_from(number, journal, self._read(lease, tables.snapshot, at)[0][0])
            first, last = self._read(lease, tables.ends, at)[0]
        check_ends(journal, first, last)
        return Recovery(lease, journal, snapshot, self._entries(lease, tables, journal))

    def append(self, lease: Lease, seq: int, group: Group) -> int:
        with self._writing():
            tables = self._tables(lease)
            change, values = _change(tables, seq, group)
            note = None if group.note is None else seal(lease.journal.encode(), group.note)
            values |= _compared(lease, seq) | {"count": len(group.entries), "note": note}
            if not self._owned_rows(lease, change, values):
                lost(lease, seq)
        return seq + len(group.entries)

    def find(self, lease: Lease, table: str, keys: Iterable[bytes]) -> dict[bytes, Row]:
        wanted = list(dict.fromkeys(keys))
        with self._reading():
            tables = self._tables(lease)
            found = self._read(lease, tables.find, (wanted, table, lease.epoch))
        return {row[0]: row_from(tables.journal, table, *row) for row in _present(found)}

    def scan(self, lease: Lease, table: str, after: int, limit: int) -> list[Row]:
        with self._reading():
            tables = self._tables(lease)
            found = self._read(lease, tables.scan, (table, after, limit, lease.epoch))
        return [row_from(tables.journal, table, *row) for row in _present(found)]

    def compact(self, lease: Lease, seq: int, snapshot: bytes) -> None:
        with self._transaction():
            found = self._rows(statements.COMPACT, _compared(lease, seq))
            if not found:
                lost(lease, seq)
            journal, generation = found[0]
            for statement in Generation(journal, generation - 1).follow():
                self._run(statement)
            following = Generation(journal, generation)
            self._run(following.begin, (seq, seal(place_of(journal, seq), snapshot)))
        self._keep(lease, following)

    def settings(self, prefix: str) -> Mapping[str, bytes]:
        with self._reading():
            return settings_of(self._connection, prefix)

    def change_settings(self, put: Mapping[str, bytes], delete: Sequence[str] = ()) -> None:
        with self._transaction():
            self._run(statements.DELETE_SETTINGS, (list(delete),))
            for name, value in put.items():
                self._run(statements.PUT_SETTING, (name, seal(name.encode(), value)))

    def close(self) -> None:
        """Let go of the database; in a forked process nothing happens, since it never had it."""
        if not self._guard.forked:
            with self._guard.mutex:
                if self._guard.end():
                    self._connection.close()

    # The connection

    def _run(self, statement: str, values: Values = ()) -> None:
        self._connection.execute(statement, values)

    def _rows(self, query: str, values: Values = ()) -> Found:
        return self._connection.execute(query, values, binary=True).fetchall()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Whatever the server cannot do ends the use of this object."""
        with self._guard.entered():
            try:
                yield
            except (psycopg.Error, OSError) as error:
                self._guard.fail(error)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The same for changes, which may have happened where waiting for them was interrupted."""
        with self._reading():
            try:
                yield
            except (KeyboardInterrupt, SystemExit) as error:
                self._guard.fail(error)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Several statements, each waited for: the server ends a transaction whose caller pauses in the middle."""
        with self._writing(), self._connection.transaction():
            yield

    def _abandon(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()

    # Journals

    def _keep(self, lease: Lease, tables: Generation) -> None:
        """Remember the tables of a lease, which change with its own snapshots alone; of each journal one."""
        kept = {known: tables for known, tables in self._generations.items() if known.journal != lease.journal}
        self._generations = kept | {lease: tables}

    def _tables(self, lease: Lease) -> Generation:
        tables = self._generations.get(lease)
        if tables is None:
            found = self._rows(statements.GENERATION, (lease.journal, lease.epoch))
            if not found:
                not_owned(lease)
            tables = Generation(*found[0])
            self._keep(lease, tables)
        return tables

    def _owned_rows(self, lease: Lease, query: str, values: Values) -> Found:
        """What is found in a journal's tables: no row where somebody has claimed it later, nulls where it is empty."""
        try:
            return self._rows(query, values)
        except UndefinedTable:  # a later owner has written a snapshot
            if self._rows(statements.GENERATION, (lease.journal, lease.epoch)):
                raise
            return []

    def _read(self, lease: Lease, query: str, values: Values) -> Found:
        """The same for those who only read."""
        found = self._owned_rows(lease, query, values)
        if not found:
            not_owned(lease)
        return found

    def _entries(self, lease: Lease, tables: Generation, journal: Journal) -> Iterator[bytes]:
        def read(after: int) -> Entries:
            with self._reading():
                return _present(self._read(lease, tables.entries, (after, lease.epoch)))

        return checked_entries(tables.journal, journal, read)


def settings_of(connection: Connection, prefix: str) -> dict[str, bytes]:
    """All settings in a database whose names begin so."""
    found = connection.execute(statements.SETTINGS, (prefix,), binary=True).fetchall()
    return {name: unseal(name.encode(), value, "the setting {!r}", name) for name, value in found}


def _present(found: Found) -> Found:
    """Rows that are not all nulls."""
    return [row for row in found if row[0] is not None]


def _compared(lease: Lease, seq: int) -> dict[str, Any]:
    """What a journal must be for a change to be made."""
    return {"name": lease.journal, "epoch": lease.epoch, "seq": seq}


def _change(tables: Generation, seq: int, group: Group) -> tuple[str, dict[str, Any]]:
    """The statement that makes the changes of a group, and its values."""
    entries = {
        number: seal(place_of(tables.journal, number), entry) for number, entry in enumerate(group.entries, seq + 1)
    }
    put = [row_values(tables.journal, table, row) for table, rows in group.rows.items() for row in rows.values()]
    values: dict[str, Any] = {"numbers": list(entries), "entries": list(entries.values())}
    for index, (table, position) in enumerate(group.forget.items()):
        values |= {f"table_{index}": table, f"last_{index}": position}
    columns = zip(*put, strict=True) if put else iter([()] * 5)
    values |= dict(zip(("journals", "names", "keys", "positions", "values"), map(list, columns), strict=True))
    return tables.change(entries=bool(entries), forgotten=len(group.forget), rows=bool(put)), values
