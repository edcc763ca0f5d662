"""A store in a PostgreSQL database: any number of processes take turns, and the row of a journal's head is the lock."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.errors import UndefinedTable
from psycopg.pq import TransactionStatus

from tacit.errors import JournalExists, StoreFailed, UnknownJournal
from tacit.service import postgres_tables as statements
from tacit.service.postgres_session import connect, open_tables, place
from tacit.service.postgres_tables import Generation
from tacit.service.seals import damaged, place_of, row_from, row_values, seal, unseal
from tacit.service.store import NOTHING, Behind, Group, Journal, Row, Store, Swap, Tail
from tacit.service.store_parts import (
    Entries,
    Guard,
    check_ends,
    checked_entries,
    journal_from,
    lost,
    snapshot_from,
)

_MOST_BEHIND: Final = 1_000
"""Entries of others that are read, and replayed, under the lock; more of them are read before it is taken."""
Found = list[tuple[Any, ...]]
Values = Sequence[Any] | Mapping[str, Any]


class _Turn(NamedTuple):
    """Who has the lock of which journal, and the tables of the journal meanwhile."""

    thread: int
    name: str
    tables: Generation


class PostgresStore(Store):
    """A store in a database, in a schema of its own (``tacit``), which is made if it is missing.

    Promised to whoever gets an answer: the group was committed by a server that syncs (``fsync``, ``full_page_writes``,
    ``synchronous_commit``; others are refused), in a turn.  After the first failure this object answers nothing more,
    since a commit whose answer was lost may have happened; a new one goes on from the store.  A process that pauses in
    its turn loses its session, and with it the turn.  Refused: a standby, a copy, tables of a later version, servers
    before version 14.

    There are two connections: one for turns, and one for all else, so that rewards never wait for decisions.

    **Erasure.**  When ``compact`` returns, no file of a table or index has the bytes of the journal's erased entries,
    of its earlier snapshots, or of rows that were deleted or replaced before.  Not covered: the server's write-ahead
    log, standbys, backups and logs; the disk itself; files that a server leaves behind that crashes in the middle of
    ``compact``; earlier notes of the journal, and settings that were deleted or replaced, which are overwritten when
    PostgreSQL needs their space.

    Connect to the server itself, or through a pooler that keeps a connection for the whole session.

    Without ``make`` a database without tables is refused.  ``moved_too`` opens a copy too, for `tacit backup`, which
    releases nothing.
    """

    shared = True

    def __init__(self, url: str, *, make: bool = True, moved_too: bool = False) -> None:
        where = place(url)
        self._guard = Guard(f"the store in {where}", "the database server", self._abandon)
        self._turning = threading.RLock()
        """Whoever uses the connection for turns has this; for the other one it is the mutex of the guard."""
        self._turn: _Turn | None = None
        """The one that is under way."""
        self._generations: dict[str, Generation] = {}
        """Tables of each journal, as they were last seen."""
        self._connection = connect(url)
        try:
            open_tables(self._connection, where, make=make, moved_too=moved_too)
            self._turns = connect(url)
        except BaseException:
            self._connection.close()
            raise

    def journals(self) -> list[Journal]:
        with self._reading():
            return [journal_from(*row) for row in self._rows(statements.HEADS)]

    def create(self, name: str, config: bytes, snapshot: bytes, note: bytes = b"", rows: Group | None = None) -> None:
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
            if rows is not None and rows.rows:
                self._run(tables.put(), _put_values(number, rows))

    def read(self, name: str, after: int = NOTHING) -> Tail:
        tables: Generation | None = None
        with self._reading():
            while True:
                with contextlib.suppress(UndefinedTable), self._connection.transaction():
                    self._run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    tables, journal = self._head(name, gone=tables)
                    return self._read(tables, journal, after)

    def _read(self, tables: Generation, journal: Journal, after: int) -> Tail:
        if after >= journal.snapshot_seq:
            return Tail(journal, None, self._entries(tables, journal, after))
        sealed = self._rows(tables.snapshot, (journal.snapshot_seq,))
        snapshot = snapshot_from(tables.journal, journal, sealed[0][0] if sealed else None)
        check_ends(journal, *self._rows(tables.ends, (journal.snapshot_seq,))[0])
        return Tail(journal, snapshot, self._entries(tables, journal, journal.snapshot_seq))

    # Turns

    @contextmanager
    def turn(self, name: str, after: int) -> Iterator[Tail]:
        with self._guard.entered(self._turning):
            try:
                with self._failing():
                    tables, tail = self._locked(name, after)
                self._turn = _Turn(threading.get_ident(), name, tables)
                yield tail
            finally:
                self._turn = None
                with self._failing():
                    if self._turns.info.transaction_status is not TransactionStatus.IDLE:
                        self._turns.execute("ROLLBACK")

    def _locked(self, name: str, after: int) -> tuple[Generation, Tail]:
        """Lock the head and read what follows; not in one statement, which would see the new head and the old log.

        Both are sent in one message of the simple protocol: after it the server waits, and the timer runs that ends a
        session which pauses.  With a pipeline it does not (``idle_in_transaction_session_timeout``).
        """
        tables = self._tables(name)
        while True:
            lock, tail = statements.LOCK.format(tables.journal), tables.tail.format(after, _MOST_BEHIND)
            try:
                found = self._turns.execute(f"BEGIN; {lock}; {tail}".encode(), prepare=False)
                break
            except UndefinedTable:  # somebody has written a snapshot
                self._turns.execute("ROLLBACK")
                tables = self._tables(name, gone=tables)
        found.nextset()
        ((seq, snapshot_seq, note),) = found.fetchall()
        if after < snapshot_seq or seq - after > _MOST_BEHIND:
            raise Behind
        found.nextset()
        journal = Journal(name, b"", unseal(name.encode(), note, "the note of {!r}", name), seq, snapshot_seq)
        entries = checked_entries(tables.journal, journal, after, _once(found.fetchall()))
        return tables, Tail(journal, None, entries)

    def append(self, name: str, seq: int, group: Group) -> int:
        with self._in_turn(name) as tables:
            change, values = _change(tables, seq, group)
            note = None if group.note is None else seal(name.encode(), group.note)
            values |= {"journal": tables.journal, "seq": seq, "count": len(group.entries), "note": note}
            if not self._turns.execute(change, values, binary=True).fetchall():
                lost(name, seq)
            self._commit()
        return seq + len(group.entries)

    def compact(self, name: str, seq: int, snapshot: bytes) -> None:
        with self._in_turn(name) as tables:
            following, compared = tables.following(), {"journal": tables.journal, "seq": seq}
            if not self._turns.execute(statements.COMPACT, compared).fetchall():
                lost(name, seq)
            for statement in tables.follow():
                self._turns.execute(statement)
            self._turns.execute(following.begin, (seq, seal(place_of(tables.journal, seq), snapshot)))
            self._commit()
            self._generations[name] = following

    def _commit(self) -> None:
        """End the turn.  A transaction that has failed answers COMMIT with ROLLBACK, and no error."""
        self._turn = None
        if self._turns.execute("COMMIT").statusmessage != "COMMIT":
            raise psycopg.OperationalError("the transaction of a turn was rolled back")

    @contextmanager
    def _in_turn(self, name: str) -> Iterator[Generation]:
        turn = self._own_turn(name)
        if turn is None:
            raise StoreFailed(f"journal {name!r} is changed in turns, and this is none")
        with self._guard.entered(self._turning), self._failing():
            yield turn.tables

    def _own_turn(self, name: str) -> _Turn | None:
        """The turn of this thread on a journal."""
        turn = self._turn
        return turn if turn is not None and (turn.thread, turn.name) == (threading.get_ident(), name) else None

    # Rows

    def find(self, name: str, table: str, keys: Iterable[bytes]) -> dict[bytes, Row]:
        wanted = list(dict.fromkeys(keys))
        found, journal = self._looked_up(name, "find", (wanted, table))
        return {row[0]: row_from(journal, table, *row) for row in found}

    def scan(self, name: str, table: str, after: int, limit: int) -> list[Row]:
        found, journal = self._looked_up(name, "scan", (table, after, limit))
        return [row_from(journal, table, *row) for row in found]

    def _looked_up(self, name: str, query: str, values: Values) -> tuple[Found, int]:
        """What a query on rows finds, and the number of the journal; in a turn the rows are locked."""
        if self._own_turn(name):
            with self._in_turn(name) as tables:
                text = getattr(tables, query)(lock=True)
                return self._turns.execute(text, values, binary=True).fetchall(), tables.journal
        with self._reading():
            return self._on_rows(name, lambda tables: getattr(tables, query)(lock=False), lambda number: values)

    def _on_rows(
        self, name: str, query: Callable[[Generation], str], values: Callable[[int], Values]
    ) -> tuple[Found, int]:
        """A statement on the rows of a journal, whose tables another process may replace at any time."""
        tables = self._tables(name)
        while True:
            try:
                return self._rows(query(tables), values(tables.journal)), tables.journal
            except UndefinedTable:
                tables = self._tables(name, gone=tables)

    def swap(self, name: str, table: str, swaps: Sequence[Swap], beside: str = "") -> set[bytes]:
        with self._reading():
            done, _ = self._on_rows(name, Generation.swap, lambda number: _swap_values(number, table, swaps, beside))
        return {key for (key,) in done}

    def settings(self, prefix: str) -> Mapping[str, bytes]:
        with self._reading():
            found = self._rows(statements.SETTINGS, (prefix,))
        return {name: unseal(name.encode(), value, "the setting {!r}", name) for name, value in found}

    def change_settings(self, put: Mapping[str, bytes], delete: Sequence[str] = (), *, replace: bool = True) -> None:
        with self._transaction():
            self._run(statements.DELETE_SETTINGS, (list(delete),))
            for name, value in put.items():
                statement = statements.PUT_SETTING if replace else statements.ADD_SETTING
                self._run(statement, (name, seal(name.encode(), value)))

    def close(self) -> None:
        """Let go of the database; in a forked process nothing happens, since it never had it."""
        if not self._guard.forked:
            with self._turning, self._guard.mutex:
                self._guard.end()
                self._abandon()

    # The connection

    def _run(self, statement: str, values: Values = ()) -> None:
        self._connection.execute(statement, values)

    def _rows(self, query: str, values: Values = ()) -> Found:
        return self._connection.execute(query, values, binary=True).fetchall()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever the server cannot do, or is interrupted in, ends the use of this object."""
        try:
            yield
        except (psycopg.Error, OSError, KeyboardInterrupt, SystemExit) as error:
            self._guard.fail(error)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._guard.entered(), self._failing():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Several statements, each waited for: the server ends a transaction whose caller pauses in the middle."""
        with self._reading(), self._connection.transaction():
            yield

    def _abandon(self) -> None:
        """End the sessions, but for one that another thread uses just now: ``close`` waits for that."""
        for mutex, connection in ((self._turning, self._turns), (self._guard.mutex, self._connection)):
            if mutex.acquire(blocking=False):
                with contextlib.suppress(Exception):
                    connection.close()
                mutex.release()

    # Journals

    def _tables(self, name: str, gone: Generation | None = None) -> Generation:
        """The tables of a journal, as they were last seen; looked up anew where these are gone."""
        tables = self._generations.get(name)
        if tables is None or (gone is not None and tables.generation == gone.generation):
            with self._reading():
                tables, _ = self._head(name, gone)
        return tables

    def _head(self, name: str, gone: Generation | None) -> tuple[Generation, Journal]:
        """A journal and its tables, which are others than those that are gone: a snapshot replaces both together."""
        found = self._rows(statements.HEAD, (name,))
        if not found:
            raise UnknownJournal(f"{self._guard.where} has no journal {name!r}")
        number, generation, *stored = found[0]
        if gone is not None and generation == gone.generation:
            damaged(f"tables of {name!r} are missing")
        tables = self._generations[name] = Generation(number, generation)
        return tables, journal_from(name, *stored)

    def _entries(self, tables: Generation, journal: Journal, after: int) -> Iterator[bytes]:
        def read(last: int) -> Entries:
            with self._reading():
                try:
                    return self._rows(tables.entries, (last,))
                except UndefinedTable:
                    raise Behind from None

        return checked_entries(tables.journal, journal, after, read)


def _once(entries: Entries) -> Callable[[int], Entries]:
    """Gives entries that were read at once; a second time there are none."""
    left = [entries]
    return lambda last: left.pop() if left else []


def _put_values(journal: int, group: Group) -> dict[str, Any]:
    """Columns of the rows that a group puts."""
    put = [row_values(journal, table, row) for table, rows in group.rows.items() for row in rows.values()]
    columns = zip(*put, strict=True) if put else iter([()] * 5)
    return dict(zip(("journals", "names", "keys", "positions", "values"), map(list, columns), strict=True))


def _change(tables: Generation, seq: int, group: Group) -> tuple[str, dict[str, Any]]:
    """The statement that makes the changes of a group, and its values."""
    entries = {
        number: seal(place_of(tables.journal, number), entry) for number, entry in enumerate(group.entries, seq + 1)
    }
    values: dict[str, Any] = {"numbers": list(entries), "entries": list(entries.values())}
    for index, (table, position) in enumerate(group.forget.items()):
        values |= {f"table_{index}": table, f"last_{index}": position}
    dropped = [(table, key) for table, keys in group.drop.items() for key in keys]
    values |= {"drop_names": [table for table, _ in dropped], "drop_keys": [key for _, key in dropped]}
    values |= _put_values(tables.journal, group)
    text = tables.change(
        entries=bool(entries), forgotten=len(group.forget), dropped=bool(dropped), rows=bool(values["keys"])
    )
    return text, values


def _swap_values(journal: int, table: str, swaps: Sequence[Swap], beside: str) -> dict[str, Any]:
    also = [row_values(journal, beside, other) for _, _, other in swaps if other is not None]
    return {
        "table": table,
        "keys": [old.key for old, _, _ in swaps],
        "olds": [row_values(journal, table, old)[-1] for old, _, _ in swaps],
        "news": [row_values(journal, table, new)[-1] for _, new, _ in swaps],
        "beside": beside,
        "beside_keys": [key for _, _, key, _, _ in also],
        "positions": [position for _, _, _, position, _ in also],
        "values": [value for *_, value in also],
    }
