"""This process among those that serve one PostgreSQL database: who is there, who owns which policy.

Everything is said by advisory locks of one session for each process, and by beats in a table:

- a process holds a lock of its own, under its id: as long as it has that, it lives;
- it holds a lock for each policy that it owns, under the policy's name: whoever has that may claim the policy;
- it shares a lock with all who serve: whoever wants the database for itself (`alone`) cannot have it meanwhile.

Locks end with their session.  When a process dies the others see it at their next beat, and take over its policies.  A
process that no longer says that it is there (paused, or cut off) is taken to be gone after ``LEASE`` seconds, and the
server ends its sessions, locks included.

None of this is needed for anything to be right: a claim begins a new epoch, and every group is a compare-and-set on
the epoch of its owner (`tacit.service.store`).  An owner that was taken to be gone and is not finds its sessions ended,
or its claim, and answers nothing more.
"""

from __future__ import annotations

import queue
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeVar

import psycopg
from psycopg.errors import LockNotAvailable

from tacit.errors import StoreFailed, StoreInUse
from tacit.service import cluster_tables as tables
from tacit.service.postgres_session import connect, open_tables, place
from tacit.service.postgres_store import settings_of
from tacit.service.sharing import View, handed_over, taken_over

BEAT: Final = 0.4
"""Seconds between looks at who is there."""
_SOON: Final = 0.03
"""Seconds between looks when somebody asks for one, or another process has said that something changed."""

Each = TypeVar("Each")
Read = Callable[[str], Mapping[str, bytes]]
"""The settings of the store whose names begin so."""


class Duties(Protocol):
    """What a process does for the cluster; everything is called in the cluster's thread and must return at once."""

    def take(self, name: str) -> None:
        """Claim a policy: its lock is here."""

    def give(self, name: str) -> None:
        """Close a policy, and let go of its lock."""

    def looked(self, view: View, read: Read) -> None:
        """Somebody may have come, gone or changed a setting."""

    def fail(self, error: BaseException) -> None:
        """Nobody knows any more what this process owns: it must end."""


class Cluster:
    """This process among those that serve a database; ``address`` is where the others reach it."""

    def __init__(self, url: str, address: str) -> None:
        self.id, self.address, self.view = secrets.token_hex(8), address, View()
        self._where = place(url)
        self._connection = connect(url, self.application)
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._bell, self._rope = socket.socketpair()
        self._waiting: queue.SimpleQueue[Future[View]] = queue.SimpleQueue()
        self._held: set[str] = set()
        self._news, self._looked_at = True, 0.0
        self._serves, self._leaving, self._gives = True, False, False
        self._thread = threading.Thread(target=self._live, name="tacit-cluster", daemon=True)
        try:
            self._join()
        except BaseException:
            self._close()
            raise

    def _join(self) -> None:
        open_tables(self._connection, self._where, moved_too=False)
        self._connection.execute("SET synchronous_commit = off")  # a beat need not outlive the server
        self._wait("SELECT pg_advisory_lock_shared(%s)", tables.SERVING)
        tables.lock(self._connection, tables.member_key(self.id))
        self._connection.add_notify_handler(self._told)
        self._connection.execute(f"LISTEN {tables.CHANNEL}")

    def _wait(self, query: str, number: int) -> None:
        """Wait for a lock, as long as anybody may have it who does not serve."""
        try:
            self._connection.execute(query, (number,))
        except LockNotAvailable as error:
            words = (
                f"{self._where} is being backed up, restored or made by somebody else: start again when that is over"
            )
            raise StoreInUse(words) from error

    @property
    def application(self) -> str:
        """How the server's list of sessions calls those of this process."""
        return tables.application(self.id)

    @contextmanager
    def first(self) -> Iterator[None]:
        """Before the start: do what one process alone may do, such as making the first key."""
        self._wait("SELECT pg_advisory_lock(%s)", tables.FIRST)
        try:
            yield
        finally:
            tables.unlock(self._connection, tables.FIRST)

    def start(self, duties: Duties) -> None:
        """Begin to say that this process is there, and to own policies."""
        self._duties = duties
        self._thread.start()

    # From any thread

    def fresh(self) -> Future[View]:
        """What is found by a look that has not yet begun."""
        future: Future[View] = Future()
        self._waiting.put(future)
        self._wake()
        return future

    def reserve(self, name: str) -> Future[bool]:
        """Take the lock of a policy that is to be made; False where another process has it."""
        return self._ordered(lambda: self._hold(name))

    def let_go(self, name: str) -> Future[None]:
        """Let another process have a policy that was closed, or never made."""
        return self._ordered(lambda: self._let_go(name))

    def keep(self) -> Future[None]:
        """Give nothing up just now, though another process should own it."""
        return self._ordered(self._keep)

    def tell(self) -> Future[None]:
        """Say to all processes that something has changed, such as a key."""
        return self._ordered(self._tell)

    def resign(self) -> Future[None]:
        """Take no more policies, and be counted on no longer; those that are here stay until they are let go."""
        return self._ordered(self._resign)

    def leave(self) -> None:
        """End, and let go of everything."""
        self._leaving = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(psycopg.Error):  # the others find out by themselves
            self._connection.execute(tables.LEAVE, (self.id,))
            self._tell()
        self._close()

    def _close(self) -> None:
        for end in (self._connection, self._bell, self._rope):
            end.close()

    def _ordered(self, work: Callable[[], Each]) -> Future[Each]:
        """Do something in the cluster's thread, which alone has the session."""
        future: Future[Each] = Future()
        self._orders.put(lambda: future.set_result(work()) if future.set_running_or_notify_cancel() else None)
        self._wake()
        return future

    def _wake(self) -> None:
        with suppress(OSError):  # as many wait to be heard as there is room for, or the thread has ended
            self._rope.send(b"!", socket.MSG_DONTWAIT)

    # In the cluster's thread

    def _live(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._bell, selectors.EVENT_READ)
                selector.register(self._connection.fileno(), selectors.EVENT_READ)
                while not self._leaving:
                    self._work()
                    if selector.select(max(self._due() - time.monotonic(), 0.0)):
                        self._hear()
        except BaseException as error:
            words = f"{self._where} no longer answers ({error}): another process may own the policies by now"
            self._duties.fail(StoreFailed(words))

    def _due(self) -> float:
        """When to look again."""
        return self._looked_at + (BEAT if self._waiting.empty() and not self._news else _SOON)

    def _hear(self) -> None:
        """Take in what woke this thread: a bell, or words from the server."""
        with suppress(BlockingIOError):
            self._bell.recv(4096, socket.MSG_DONTWAIT)
        self._connection.pgconn.consume_input()
        while self._connection.pgconn.notifies() is not None:
            self._news = True

    def _told(self, message: psycopg.Notify) -> None:
        self._news = True

    def _work(self) -> None:
        for order in _all(self._orders):
            order()
        if time.monotonic() >= self._due():
            self._beat()

    def _beat(self) -> None:
        self._news, self._looked_at = False, time.monotonic()
        asked = [future for future in _all(self._waiting) if future.set_running_or_notify_cancel()]
        if self._serves:
            self._connection.execute(tables.JOIN, {"id": self.id, "address": self.address})
        found = tables.look(self._connection)
        for gone in found.gone:
            if gone != self.id:
                tables.bury(self._connection, gone)
        if self._serves:
            self._share(found.view)
        self.view = found.view
        self._duties.looked(found.view, lambda prefix: settings_of(self._connection, prefix))
        for future in asked:
            future.set_result(found.view)

    def _share(self, view: View) -> None:
        """Take over what nobody owns, and give up what another process should own."""
        taken = [name for name in taken_over(view, self.id) if self._hold(name)]
        for name in taken:
            self._duties.take(name)
        if taken:
            self._tell()
        surplus = handed_over(view, self.id)
        if surplus is not None and not self._gives:
            self._gives = True
            self._duties.give(surplus)

    def _hold(self, name: str) -> bool:
        """Whether the lock of a policy was free, and is here now."""
        if name in self._held or not tables.lock(self._connection, tables.policy_key(name)):
            return False
        self._held.add(name)
        return True

    def _let_go(self, name: str) -> None:
        tables.unlock(self._connection, tables.policy_key(name))
        self._held.discard(name)
        self._keep()
        self._tell()

    def _keep(self) -> None:
        self._gives = False

    def _tell(self) -> None:
        self._connection.execute(f"NOTIFY {tables.CHANNEL}")

    def _resign(self) -> None:
        self._serves = False
        self._connection.execute(tables.LEAVE, (self.id,))
        self._tell()


def _all(waiting: queue.SimpleQueue[Each]) -> Iterator[Each]:
    """Everything that waits by now."""
    with suppress(queue.Empty):
        while True:
            yield waiting.get_nowait()


@contextmanager
def alone(url: str) -> Iterator[None]:
    """Keep all others from serving a database meanwhile; refused while a process does."""
    connection = connect(url)
    try:
        if not tables.lock(connection, tables.SERVING):
            raise StoreInUse(f"a process serves {place(url)}: end it first, and all others that do")
        yield
    finally:
        connection.close()


def somebody(url: str) -> str | None:
    """Where a process that serves the database listens, if any was heard of lately; each of them takes any request."""
    connection = connect(url)
    try:
        return tables.heard_of(connection)
    finally:
        connection.close()
