"""`serve` on a PostgreSQL database: each policy has one owner among several processes, and any of them is asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tacit.errors import InvalidInput
from tacit.service.cluster import Cluster, Read
from tacit.service.deployment import Deployment
from tacit.service.host import Host
from tacit.service.http.app import App
from tacit.service.http.exchange import Exchange
from tacit.service.http.keys import Keyring, first_key
from tacit.service.http.logs import JsonLog
from tacit.service.http.moves import Moves
from tacit.service.http.options import ADDRESS_FILE, Options
from tacit.service.http.others import Others
from tacit.service.http.relay import Relay
from tacit.service.http.routing import Router
from tacit.service.http.server import Server, address_of, listen
from tacit.service.http.state import Service
from tacit.service.http.threads import finished_in
from tacit.service.http.writer import Writer, end_process
from tacit.service.postgres_store import PostgresStore
from tacit.service.sharing import View

_MODE: Final = 0o700
_EVERYWHERE: Final = ("0.0.0.0", "::")
_LOOK: Final = 0.02
"""Seconds between looks at whether everything is served."""
_START: Final = 20.0
"""Seconds after which a start goes on though some policy has no owner; `/readyz` says so."""


class Process:
    """One process on the database."""

    def __init__(self, options: Options, log: JsonLog, address: str) -> None:
        self.options, self.log, self.address = options, log, address
        self._cluster = Cluster(options.database, reached_at(options, address))
        try:
            with self._cluster.first():
                deployment, keyring = self._opened()
        except BaseException:
            self._cluster.leave()
            raise
        exchange, self._writer = Exchange(), Writer(deployment, log, options.most_waiting, quick=0.0)
        self.service = Service(deployment, keyring, self._writer, log, options)
        self.service.neighbours = Others(self._cluster, deployment, exchange)
        relay = Relay(exchange, self.service.stopping)
        self.app = Router(self.service, App(self.service), self._cluster, relay)
        self._moves = Moves(deployment, self._cluster, self, log)

    def _opened(self) -> tuple[Deployment, Keyring]:
        """Nothing is claimed yet; at the very first start of all processes a key is made."""
        store = PostgresStore(self.options.database, application=self._cluster.application)
        try:
            deployment = Deployment(store, most_arms=self.options.most_arms, claim_all=False)
            keyring = Keyring(store)
            path = first_key(keyring, Path(self.options.data))
        except BaseException:
            store.close()
            raise
        if path is not None:
            self.log.say("an admin key was made", file=str(path))
        return deployment, keyring

    async def begin(self, exiting: Callable[[], bool]) -> None:
        """Join the others; returns when every policy has an owner, or this process is told to end."""
        self._loop = asyncio.get_running_loop()
        self._writer.start()
        self._moves.start()
        self._cluster.start(self)
        with suppress(TimeoutError):
            async with asyncio.timeout(_START):
                while not (self.service.neighbours.ready() or exiting()):
                    await asyncio.sleep(_LOOK)

    async def hand_over(self) -> None:
        """Let other processes have all policies, while requests are still taken and passed on."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.stop_seconds):
                await asyncio.wrap_future(self._cluster.resign())
                await asyncio.wrap_future(self._moves.give_all())

    def end(self) -> None:
        """Finish what was taken, write snapshots of what nobody has taken over, and be gone."""
        self._writer.stop()
        if not finished_in(self.options.stop_seconds, self.service.deployment.close):
            self.log.say("stopped without a snapshot; what was answered is kept")
        self._cluster.leave()

    # Duties, in the cluster's thread

    def take(self, name: str) -> None:
        self._moves.take(name)

    def give(self, name: str) -> None:
        self._moves.give(name)

    def looked(self, view: View, read: Read) -> None:
        self.service.keyring.refresh(read)
        self.moved()

    def fail(self, error: BaseException) -> None:
        end_process(self.log, error)

    # What is done while policies move, in the thread for that

    @contextmanager
    def leaving(self, name: str) -> Iterator[None]:
        self._in_loop(self.app.begin_to_leave(name))
        try:
            yield
        finally:
            self.app.leave(name)

    def finish(self, host: Host) -> None:
        """Wait until the writer has carried out all that was asked of a host: a request for nothing comes last."""
        self._in_loop(self._writer.carry_out(host, ()))

    def moved(self) -> None:
        """Wake up requests that wait for an owner."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.app.news.spread)

    def _in_loop(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Server(Server):
    """A server that owns policies between its start and its end."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.app, process.service, process.address)
        self._process = process

    async def announce(self) -> None:
        """Say where requests are taken, once they can be answered."""
        await self._process.begin(lambda: self.should_exit)
        await super().announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Hand everything over before the first request is refused."""
        await self._process.hand_over()
        await super().shutdown(sockets)


def reached_at(options: Options, listening: str) -> str:
    """Where other processes reach this one."""
    given = options.address or listening
    found = urlsplit(given)
    if found.scheme != "http" or not found.hostname or found.port is None:
        raise InvalidInput(f"address must be http://HOST:PORT, as other processes reach this one, not {given!r}")
    if found.hostname in _EVERYWHERE:
        raise InvalidInput(f"address is needed where host is {found.hostname}: how do other processes reach this one?")
    return given


def serve_database(options: Options) -> None:
    """Serve until SIGTERM or SIGINT, beside whoever else serves the database."""
    listener = listen(options)
    folder, log = Path(options.data), JsonLog(requests=options.log_requests)
    folder.mkdir(mode=_MODE, exist_ok=True)
    try:
        process = Process(options, log, address_of(listener, options))
        try:
            _Server(process).run([listener])
        finally:
            process.end()
    finally:
        listener.close()
        (folder / ADDRESS_FILE).unlink(missing_ok=True)
    log.say("stopped")
