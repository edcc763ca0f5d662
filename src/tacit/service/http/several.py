"""`serve` on a PostgreSQL database: one of several processes owns the policies, the others pass requests on to it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tacit._compile import compiling_now
from tacit.errors import InvalidInput
from tacit.service.cluster import Cluster
from tacit.service.deployment import Deployment
from tacit.service.http.app import App
from tacit.service.http.keys import Keyring, first_key
from tacit.service.http.logs import Log
from tacit.service.http.options import ADDRESS_FILE, Options
from tacit.service.http.receiving import ASGIApplication, ASGIScope, Receive, Send
from tacit.service.http.relay import Relay
from tacit.service.http.server import Server, address_of, listen
from tacit.service.http.state import Service
from tacit.service.http.threads import finished_in
from tacit.service.http.writer import Writer, end_process
from tacit.service.journal import described
from tacit.service.postgres_store import PostgresStore
from tacit.service.warming import warm

_MODE: Final = 0o700
_EVERYWHERE: Final = ("0.0.0.0", "::")
_LOOK: Final = 0.05
"""Seconds between looks at whether somebody answers."""


@dataclass
class Process:
    """One process on the database: it stands by first, and may own the policies later."""

    options: Options
    log: Log
    address: str
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        reached = reached_at(self.options, self.address)
        self._cluster = Cluster(self.options.database, reached, self._take_over, self._fail)
        self._app: ASGIApplication = Relay(lambda: self._cluster.owner, self.stopping, self.options)
        self._deployment: Deployment | None = None
        self._writer: Writer | None = None
        self._ready = threading.Event()

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        await self._app(scope, receive, send)

    def start(self) -> None:
        """Join the others; returns when this process, or another one, answers."""
        self._cluster.start()
        while not self._ready.wait(_LOOK) and self._cluster.owner is None:
            pass

    def _take_over(self) -> None:
        """In a thread: claim all policies, and answer from now on.

        Kernels of policies that are younger than this process begin interpreted, as those of new policies do.
        """
        store = PostgresStore(self.options.database, application=self._cluster.application)
        deployment = self._deployment = Deployment(store, most_arms=self.options.most_arms)
        keyring = Keyring(store)
        path = first_key(keyring, Path(self.options.data))
        if path is not None:
            self.log.say("an admin key was made", file=str(path))
        writer = self._writer = Writer(deployment, self.log, self.options.most_waiting)
        service = Service(deployment, keyring, writer, self.log, self.options, stopping=self.stopping)
        writer.start()
        self._app = App(service)
        self._ready.set()
        self.log.say("owns the policies")

    def _fail(self, error: BaseException) -> None:
        end_process(self.log, error)

    def end(self) -> None:
        """Finish what was taken, write snapshots, and let another process own the policies."""
        if self._writer is not None:
            self._writer.stop()
        if self._deployment is not None and not finished_in(self.options.stop_seconds, self._deployment.close):
            self.log.say("stopped without a snapshot; what was answered is kept")
        self._cluster.leave()


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
    folder, log = Path(options.data), Log(requests=options.log_requests)
    folder.mkdir(mode=_MODE, exist_ok=True)
    try:
        with compiling_now():
            _warm(options.database)
        process = Process(options, log, address_of(listener, options))
        process.start()
        try:
            Server(process, process, process.address).run([listener])
        finally:
            process.end()
    finally:
        listener.close()
        (folder / ADDRESS_FILE).unlink(missing_ok=True)
    log.say("stopped")


def _warm(database: str) -> None:
    """Compile the kernels of all policies before anybody waits for them: a takeover takes seconds."""
    store = PostgresStore(database)
    try:
        for journal in store.journals():
            warm(*described(journal.config))
    finally:
        store.close()
