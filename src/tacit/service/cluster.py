"""Several processes on one PostgreSQL database: one of them owns all policies, the others stand by.

Whoever holds an advisory lock may claim the policies.  The lock belongs to a session and ends with it: when the owner
dies, one of the others gets it at its next beat.  An owner that no longer says that it is there (paused, or cut off)
is taken to be gone after ``LEASE`` seconds, and the server ends its sessions, lock included.

None of this is needed for anything to be right: a claim begins a new epoch, and every group is a compare-and-set on
the epoch of its owner (`tacit.service.store`).  An owner that was taken to be gone and is not finds its sessions ended,
or its claim, and answers nothing more.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg

from tacit.errors import StoreFailed, StoreInUse
from tacit.service.postgres_session import Connection, connect, open_tables, place

BEAT: Final = 0.4
"""Seconds between looks at who is there."""
LEASE: Final = 3.0
"""Seconds without a beat after which an owner is taken to be gone."""
_FORGOTTEN: Final = "60 seconds"
_LOCK: Final = 0x54616370
"""Advisory lock of the owner, beside that of whoever makes the tables."""
_JOIN: Final = (
    "INSERT INTO members VALUES (%(id)s, %(address)s, clock_timestamp(), false)"
    " ON CONFLICT (id) DO UPDATE SET seen = excluded.seen"
)
_OWNER: Final = (
    "SELECT id, address, extract(epoch FROM clock_timestamp() - seen)::float8 FROM members WHERE owner"
    " ORDER BY seen DESC LIMIT 1"
)
_HEARD_OF: Final = (
    "SELECT address FROM members WHERE seen > clock_timestamp() - %s * interval '1 second' ORDER BY seen DESC LIMIT 1"
)
_OWN: Final = "UPDATE members SET owner = (id = %s)"
_END_SESSIONS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = %s AND datname = current_database() AND pid <> pg_backend_pid()"
)


@dataclass(frozen=True)
class Owner:
    """The process that owns the policies, as it was last heard of."""

    id: str
    address: str
    age: float
    """Seconds since then."""


class Cluster:
    """This process among those that serve a database.

    ``address`` is where the others reach it.  ``take_over`` is called once, in a thread of its own, when this process
    may claim the policies; ``fail`` when it no longer knows where it stands: then it must end.
    """

    def __init__(
        self, url: str, address: str, take_over: Callable[[], None], fail: Callable[[BaseException], None]
    ) -> None:
        self.id, self.address = secrets.token_hex(8), address
        self._take_over, self._fail = take_over, fail
        self._where = place(url)
        self._connection = connect(url, self.application)
        try:
            open_tables(self._connection, self._where, moved_too=False)
            self._connection.execute("SET synchronous_commit = off")  # a beat need not outlive the server
        except BaseException:
            self._connection.close()
            raise
        self._owner: Owner | None = None
        self._owns = False
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._live, name="tacit-cluster", daemon=True)

    @property
    def application(self) -> str:
        """How the server's list of sessions calls those of this process."""
        return _application(self.id)

    @property
    def owner(self) -> str | None:
        """The address of another process that owns the policies; None where there is none, or it is this one."""
        known = self._owner
        return known.address if known is not None and known.id != self.id and known.age < LEASE else None

    def start(self) -> None:
        """Begin to say that this process is there."""
        self._beat()
        self._thread.start()

    def leave(self) -> None:
        """Let another process own the policies."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self._connection.execute("DELETE FROM members WHERE id = %s", (self.id,))
        except psycopg.Error:
            pass  # the others find out by themselves
        finally:
            self._connection.close()

    def _live(self) -> None:
        try:
            while not self._leaving.wait(BEAT):
                self._beat()
        except BaseException as error:
            words = f"{self._where} no longer answers ({error}): another process may own the policies by now"
            self._fail(StoreFailed(words))

    def _beat(self) -> None:
        self._connection.execute(_JOIN, {"id": self.id, "address": self.address})
        if not self._owns and _locked(self._connection):
            self._own()
        found = self._connection.execute(_OWNER).fetchone()
        self._owner = None if found is None else Owner(*found)
        if self._owner is not None and self._owner.id != self.id and self._owner.age > LEASE:
            self._end_sessions(self._owner)

    def _own(self) -> None:
        """The lock is here: end what is left of the owner before, and claim the policies."""
        before = self._connection.execute(_OWNER).fetchone()
        if before is not None:
            self._end_sessions(Owner(*before))
        self._connection.execute(_OWN, (self.id,))
        self._connection.execute("DELETE FROM members WHERE seen < clock_timestamp() - %s::interval", (_FORGOTTEN,))
        self._owns = True
        threading.Thread(target=self._claimed, name="tacit-takeover", daemon=True).start()

    def _claimed(self) -> None:
        try:
            self._take_over()
        except BaseException as error:
            self._fail(error)

    def _end_sessions(self, owner: Owner) -> None:
        """Whatever the process has open in this database ends, and with it its transactions and locks."""
        self._connection.execute(_END_SESSIONS, (_application(owner.id),))


@contextmanager
def alone(url: str) -> Iterator[None]:
    """Keep all others from owning the policies meanwhile; refused while a process does."""
    connection = connect(url)
    try:
        if not _locked(connection):
            raise StoreInUse(f"a process serves {place(url)}: end it first, and those that stand by")
        yield
    finally:
        connection.close()


def somebody(url: str) -> str | None:
    """Where a process that serves the database listens, if any was heard of lately; each of them takes any request."""
    connection = connect(url)
    try:
        found = connection.execute(_HEARD_OF, (LEASE,)).fetchone()
        return None if found is None else str(found[0])
    finally:
        connection.close()


def _locked(connection: Connection) -> bool:
    """Whether this session has the owner's lock, now or before."""
    found = connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone()
    return found is not None and bool(found[0])


def _application(identity: str) -> str:
    return f"tacit {identity}"
