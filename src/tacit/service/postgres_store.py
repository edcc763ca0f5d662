"""A store in a PostgreSQL database: any number of processes take turns, and the row of a journal's head is the lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from psycopg.errors import LockNotAvailable, UndefinedTable
from psycopg.pq import TransactionStatus

from tacit.errors import StoreFailed
from tacit.service.packing import damaged, place_of, seal, unseal
from tacit.service.postgres_session import PAUSE, Connection, connect, identity, open_tables, place
from tacit.service.postgres_tables import Generation, Values
from tacit.service.store import NOTHING, Behind, Entries, Group, GuardedStore, Journal, Row, Swap, Tail

_MOST_BEHIND: Final = 200
"""Entries of others that are read, and replayed, under the lock; more of them are read before it is taken."""
_ALIVE_EVERY: Final = PAUSE / 4.0
"""Seconds between signs of life in a turn that takes long, such as a release of a thousand features."""
_LONGEST_TURN: Final = 60.0
"""Seconds after which a turn gives no more signs of life: something hangs, and others are to go on."""
_READERS: Final = "200ms"
"""How long a snapshot waits for those who read the tables that it replaces; others wait behind it."""
_HEAD = "SELECT version, id, generation, name, config, note, seq, snapshot_seq FROM journals JOIN heads ON journal = id"
_Query = Callable[[Generation, bool], str]
_Result = TypeVar("_Result")


class _Turn(NamedTuple):
    """Which thread has the lock of which journal, and the tables of the journal meanwhile."""

    thread: int
    name: str
    tables: Generation
    began: float


class PostgresStore(GuardedStore):
    """A store in a database, in a schema of its own (``tacit``), which is made if it is missing.

    When a change returns, it was committed by a server that syncs (``fsync``, ``full_page_writes``,
    ``synchronous_commit``; others are refused), in a turn.  After the first failure this object answers nothing more,
    since a commit whose answer was lost may have happened; a new one goes on from the store.  A process that pauses in
    its turn loses its session, and with it the turn.  Refused: a standby, a copy, tables of a later version, servers
    before version 14.

    There are three connections: one for turns, one for rewards (`find` and `swap` without a turn), and one for all
    else.  So rewards never wait for decisions, and nothing waits for rewards.  A turn that takes long gives signs of
    life: the server ends the session of a process that has stopped, and not of one that is at work.

    **Erasure.**  When ``compact`` returns, no file of a table or index has the bytes of the journal's erased entries,
    of its earlier snapshots, or of rows that were deleted or replaced before.  Not covered: the server's write-ahead
    log, standbys, backups and logs; the disk itself; files that a server leaves behind that crashes in the middle of
    ``compact``; earlier notes of the journal, and settings that were deleted or replaced, which are overwritten when
    PostgreSQL needs their space.

    Connect to the server itself, or through a pooler that keeps a connection for the whole session.

    Without ``make`` a database without tables is refused.  ``moved_too`` opens a copy too, for `tacit backup` and
    `tacit adopt`.
    """

    shared = True

    def __init__(self, url: str, *, make: bool = True, moved_too: bool = False) -> None:
        super().__init__(f"the store in {place(url)}", "the database server")
        self._turning = threading.RLock()
        """The mutex of the connection for turns; that of the other connection is the store's."""
        self._turn: _Turn | None = None
        """The one that is under way."""
        self._swapping = threading.RLock()
        """The mutex of the connection for rewards."""
        self._generations: dict[str, Generation] = {}
        """Tables of each journal, as they were last seen."""
        self._connection = connect(url)
        try:
            open_tables(self._connection, place(url), make=make, moved_too=moved_too)
            self._turns, self._swaps = connect(url), connect(url)
        except BaseException:
            self._connection.close()
            raise
        self._closed = threading.Event()
        threading.Thread(target=self._give_signs_of_life, name="tacit-turns", daemon=True).start()

    def journals(self) -> list[Journal]:
        with self._reading():
            return [Journal(*stored).unsealed() for _, _, _, *stored in self._rows(f"{_HEAD} ORDER BY name")]

    def create(self, name: str, config: bytes, snapshot: bytes, note: bytes = b"", rows: Group | None = None) -> None:
        add = "INSERT INTO journals (name, config) VALUES (%s, %b) ON CONFLICT DO NOTHING RETURNING id"
        run = self._connection.execute
        with self._reading(), self._connection.transaction():
            ((number,),) = self._rows(add, (name, seal(name.encode(), config))) or self._exists(name)
            run("INSERT INTO heads VALUES (%s, 0, 0, 0, %b)", (number, seal(name.encode(), note)))
            tables = Generation(number, 0)
            for statement in (*tables.tables(), *tables.indexes()):
                run(statement)
            run(tables.begin, (0, seal(place_of(number, 0), snapshot)))
            if rows is not None:
                run(*tables.change(name, 0, Group(rows=rows.rows)))

    def read(self, name: str, after: int = NOTHING) -> Tail:
        def tail(_: Generation) -> Tail:
            with self._connection.transaction():
                self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                tables, journal = self._head(name)
                start = partial(self._rows, tables.start, {"seq": journal.snapshot_seq})
                return journal.tail(tables.journal, after, start, partial(self._entries, tables))

        with self._reading():
            return self._on_tables(name, tail)

    def _entries(self, tables: Generation, last: int) -> Entries:
        """Some entries after a number, while their table is there."""
        with self._reading(), suppress(UndefinedTable):
            return self._rows(tables.entries, (last,))
        raise Behind

    # Turns

    def _give_signs_of_life(self) -> None:
        """In a thread of its own: say something in turns that take long, so that the server does not end the session.

        The timer of the server (``idle_in_transaction_session_timeout``) begins anew with every statement.
        """
        while not self._closed.wait(_ALIVE_EVERY):
            turn = self._turn
            if turn is not None and time.monotonic() - turn.began < _LONGEST_TURN:
                with suppress(psycopg.Error):  # the thread that has the turn will find out, too
                    self._turns.execute("SELECT")

    @contextmanager
    def turn(self, name: str, after: int) -> Iterator[Tail]:
        with self._entered(self._turning):
            try:
                with self._failing():
                    tables, tail = self._locked(name, after)
                self._turn = _Turn(threading.get_ident(), name, tables, time.monotonic())
                yield tail
            finally:
                self._turn = None
                with self._failing():
                    self._roll_back()

    def _roll_back(self) -> None:
        if self._turns.info.transaction_status is not TransactionStatus.IDLE:
            self._turns.execute("ROLLBACK")

    def _locked(self, name: str, after: int) -> tuple[Generation, Tail]:
        """Lock the head and read what follows; not in one statement, which would see the new head and the old log.

        Both are sent in one message of the simple protocol: after it the server waits, and the timer runs that ends a
        session which pauses.  With a pipeline it does not (``idle_in_transaction_session_timeout``).
        """

        def lock(tables: Generation) -> tuple[Generation, psycopg.Cursor[Any]]:
            self._roll_back()  # after an attempt on tables that are gone
            statement = f"BEGIN; {tables.lock}; {tables.tail.format(f'{after:d}', _MOST_BEHIND)}"
            return tables, self._turns.execute(statement.encode(), prepare=False)

        tables, found = self._on_tables(name, lock)
        found.nextset()
        ((version, seq, snapshot_seq, note),) = found.fetchall()
        self._check_version(name, version)
        if after < snapshot_seq or seq - after > _MOST_BEHIND:
            raise Behind
        found.nextset()
        entries = found.fetchall()
        journal = Journal(name, b"", unseal(name.encode(), note, "the note of {!r}", name), seq, snapshot_seq)
        checked = journal.checked_entries(tables.journal, after, lambda last: [e for e in entries if e[0] > last])
        return tables, Tail(journal, None, checked)

    def append(self, name: str, seq: int, group: Group) -> int:
        with self._in_turn(name) as tables:
            self._change(tables, name, seq, group)
            self._commit()
        return seq + len(group.entries)

    def _change(self, tables: Generation, name: str, seq: int, group: Group) -> None:
        if not self._turns.execute(*tables.change(name, seq, group), binary=True).fetchall():
            self._lost(name, seq)

    def erasable(self, name: str) -> bool:
        with self._in_turn(name) as tables:
            self._turns.execute(f"SET LOCAL lock_timeout = '{_READERS}'; SAVEPOINT readers")
            with suppress(LockNotAvailable):
                self._turns.execute(tables.lock_all)
                self._turns.execute("ROLLBACK TO readers")
                return True
            self._turns.execute("ROLLBACK TO readers")
            return False

    def compact(self, name: str, seq: int, snapshot: bytes, group: Group | None = None) -> bool:
        advance = "UPDATE heads SET snapshot_seq = seq, generation = generation + 1 WHERE journal = %s"
        last, group = seq + len(group.entries if group else ()), group or Group()
        with self._in_turn(name) as tables:
            following, lock, statements = tables.follow()
            self._turns.execute(f"SET LOCAL lock_timeout = '{_READERS}'")
            try:
                self._turns.execute(lock)  # first: a reward that is being kept leaves nothing the group does not see
                self._change(tables, name, seq, group)
                self._turns.execute(advance, (tables.journal,))
                for statement in statements:
                    self._turns.execute(statement)
            except LockNotAvailable:  # the turn is over, and has changed nothing
                return False
            self._turns.execute(following.begin, (last, seal(place_of(tables.journal, last), snapshot)))
            self._commit()
            self._generations[name] = following
        return True

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
        with self._entered(self._turning), self._failing():
            yield turn.tables

    def _own_turn(self, name: str) -> _Turn | None:
        """The turn of this thread on a journal."""
        turn = self._turn
        return turn if turn is not None and (turn.thread, turn.name) == (threading.get_ident(), name) else None

    # Rows and settings

    def find(self, name: str, table: str, keys: Iterable[bytes]) -> dict[bytes, Row]:
        wanted = list(dict.fromkeys(keys))
        return {row.key: row for row in self._looked_up(name, table, Generation.find, (wanted, table), self._swaps)}

    def scan(self, name: str, table: str, after: int, limit: int) -> list[Row]:
        return self._looked_up(name, table, Generation.scan, (table, after, limit), self._connection)

    def _looked_up(self, name: str, table: str, query: _Query, values: Values, outside: Connection) -> list[Row]:
        """Rows of a table that a query finds; in a turn of this thread they are locked, else ``outside`` looks."""
        if self._own_turn(name):
            with self._in_turn(name) as tables:
                found = self._turns.execute(query(tables, True), values, binary=True).fetchall()
        else:
            found = self._beside_turns(name, lambda tables: (query(tables, False), values), outside)
        return [Row(*row).unsealed(self._generations[name].journal, table) for row in found]

    def swap(self, name: str, table: str, swaps: Sequence[Swap], beside: str = "") -> set[bytes]:
        return {key for (key,) in self._beside_turns(name, lambda on: on.swap(table, swaps, beside), self._swaps)}

    def settings(self, prefix: str) -> Mapping[str, bytes]:
        with self._reading():
            found = self._rows("SELECT name, value FROM settings WHERE starts_with(name, %s) ORDER BY name", (prefix,))
        return {name: unseal(name.encode(), value, "the setting {!r}", name) for name, value in found}

    def change_settings(self, put: Mapping[str, bytes], delete: Sequence[str] = (), *, replace: bool = True) -> None:
        known = "DO UPDATE SET value = excluded.value" if replace else "DO NOTHING"
        statement = f"INSERT INTO settings VALUES (%s, %b) ON CONFLICT (name) {known}"
        with self._reading(), self._connection.transaction():
            self._connection.execute("DELETE FROM settings WHERE name = ANY(%s)", (list(delete),))
            for name, value in put.items():
                self._connection.execute(statement, (name, seal(name.encode(), value)))

    def adopt(self) -> None:
        with self._reading():
            change = "UPDATE meta SET value = %s WHERE name = 'identity'"
            self._connection.execute(change, (identity(self._connection),))

    def close(self) -> None:
        """Let go of the database; in a forked process nothing happens, since it never had it."""
        if not self._forked:
            with self._turning, self._swapping, self._mutex:
                self._end()
                self._abandon()

    # The connections

    def _rows(self, query: str, values: Values = ()) -> list[Any]:
        """All rows that a query finds."""
        return self._connection.execute(query, values, binary=True).fetchall()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """An error of the server, or an interruption, ends the use of this object."""
        try:
            yield
        except (psycopg.Error, OSError, KeyboardInterrupt, SystemExit) as error:
            self._fail(error)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Use the connection for all that is neither a turn nor a change of rows beside turns."""
        with self._entered(), self._failing():
            yield

    def _beside_turns(self, name: str, query: Callable[[Generation], tuple[str, Values]], by: Connection) -> list[Any]:
        """What a query on the rows of a journal finds without a turn; it waits while their table is locked."""
        with self._entered(self._swapping if by is self._swaps else self._mutex), self._failing():
            return self._on_tables(name, lambda tables: by.execute(*query(tables), binary=True).fetchall())

    def _abandon(self) -> None:
        """End the sessions, but for one that another thread uses just now: ``close`` waits for that."""
        self._closed.set()
        connections = (self._turning, self._turns), (self._swapping, self._swaps), (self._mutex, self._connection)
        for mutex, connection in connections:
            if mutex.acquire(blocking=False):
                with suppress(Exception):
                    connection.close()
                mutex.release()

    # Journals

    def _on_tables(self, name: str, work: Callable[[Generation], _Result]) -> _Result:
        """The result of work on the tables of a journal; done again where a snapshot has replaced them meanwhile."""
        tables = self._generations.get(name) or self._head(name)[0]
        while True:
            try:
                return work(tables)
            except UndefinedTable:
                gone, (tables, _) = tables, self._head(name)
                if tables.generation == gone.generation:
                    damaged(f"tables of {name!r} are missing")

    def _head(self, name: str) -> tuple[Generation, Journal]:
        """A journal and its tables: a snapshot replaces both together."""
        with self._reading():
            found = self._rows(f"{_HEAD} WHERE name = %s", (name,)) or self._unknown(name)
        version, number, generation, *stored = found[0]
        self._check_version(name, version)
        tables = self._generations[name] = Generation(number, generation)
        return tables, Journal(*stored).unsealed()
