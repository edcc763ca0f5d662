"""`serve`: a deployment behind HTTP until its end is asked for."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from concurrent.futures import wait
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn

from tacit.errors import InvalidInput
from tacit.service.deployment import Deployment
from tacit.service.http.app import App
from tacit.service.http.connections import ASGIApplication, BoundedProtocol, Places, open_files
from tacit.service.http.keys import ADMIN_FILE, Keyring, first_key
from tacit.service.http.logs import JsonLog
from tacit.service.http.options import ADDRESS_FILE, Options
from tacit.service.http.state import Service, in_thread
from tacit.service.http.writer import QUICK, Writer
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Store

_BACKLOG: Final = 2_048
"""Connections that may wait to be accepted."""
_ACCEPTS: Final = 8
"""Connections that are accepted in a turn of the event loop: uvloop accepts one of each listener, or of its copy."""
_SHARE: Final = 4
"""One of so many open files may be a connection, another one may be about to be; the others are for the store."""


def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT, on a database beside other processes; what was answered is in the store."""
    folder, log = Path(options.data), JsonLog(requests=options.log_requests)
    with listen(options) as listener:
        deployment = _opened(folder, options)
        try:
            keyring = Keyring(deployment.store)
            path = first_key(keyring, folder)
            if path is not None:
                log.say("an admin key was made", file=str(path))
            elif not (folder / ADMIN_FILE).exists():
                log.say("there are keys already: no admin key was made", folder=str(folder))
            _run(deployment, keyring, log, options, listener)
        finally:
            listener.close()
            (folder / ADDRESS_FILE).unlink(missing_ok=True)
            closing = in_thread(deployment.close)
            if not wait([closing], options.stop_seconds).done:
                log.say("stopped without a snapshot, since a policy is still being made; what was answered is kept")
                os._exit(0)
            closing.result()
            log.say("stopped")


def listen(options: Options) -> socket.socket:
    """Return a socket that listens, before anything else is begun: a port that is taken is found out at once."""
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((options.host, options.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        where, reason = f"{options.host}:{options.port}", error.strerror or error
        raise InvalidInput(f"cannot listen on {where}: {reason}; choose another --port") from error


def _opened(folder: Path, options: Options) -> Deployment:
    if options.database:
        from tacit.service.postgres_store import PostgresStore

        folder.mkdir(mode=0o700, exist_ok=True)
        store: Store = PostgresStore(options.database)
    else:
        store = SQLiteStore(folder)
    try:
        return Deployment(store, most_arms=options.most_arms)
    except BaseException:
        store.close()
        raise


def _run(deployment: Deployment, keyring: Keyring, log: JsonLog, options: Options, listener: socket.socket) -> None:
    shared = deployment.store.shared

    def beat(stamp: float) -> None:
        deployment.tick(stamp)
        keyring.refresh()  # other processes may have changed keys

    clock, most = deployment.clock, options.most_waiting
    writer = Writer(beat, clock, log, most, 0.0 if shared else QUICK)
    rewarder = Writer(lambda stamp: None, clock, log, most, 0.0) if shared else writer
    lanes = {writer, rewarder}
    service = Service(deployment, keyring, writer, rewarder, log, options)
    for lane in lanes:
        lane.start()
    gc.collect()
    gc.freeze()  # later searches for garbage leave out what is there now, and stop requests for a shorter while
    try:
        Server(App(service), service, address_of(listener, options)).run([listener])
    finally:
        for lane in lanes:
            lane.stop()


def address_of(listener: socket.socket, options: Options) -> str:
    """Return the URL at which a listener is reached."""
    host, port = options.host, listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn without its own logs, with bounded connections, and with a shutdown that returns to the caller."""

    def __init__(self, app: ASGIApplication, service: Service, address: str) -> None:
        self._service, self._address = service, address
        options = service.options
        files = open_files(_SHARE * max(options.most_connections, _BACKLOG)) // _SHARE
        if files < options.most_connections:
            service.log.say("too few open files for most_connections", connections=files)

        class Protocol(BoundedProtocol):
            places = Places(options, min(options.most_connections, files))

        self._places = Protocol.places
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=min(_BACKLOG, files),
                timeout_keep_alive=round(options.idle_seconds) or 1,
                timeout_graceful_shutdown=round(options.stop_seconds) or 1,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and print the address."""
        asyncio.get_running_loop().set_exception_handler(self._unhandled)
        copies = 0 if sys.platform == "win32" else _ACCEPTS - 1
        await super().startup([*(sockets or ()), *(each.dup() for each in sockets or () for _ in range(copies))])
        (Path(self._service.options.data) / ADDRESS_FILE).write_text(self._address + "\n")
        self._service.log.say("serving", page=f"{self._address}/")
        print(f"listening on {self._address}", flush=True)

    async def on_tick(self, counter: int) -> bool:
        """Write out the log and close late clients, ten times a second, so that few are closed at once."""
        self._service.log.flush()
        self._places.close_late(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, and finish those that were taken."""
        self._service.stopping.set()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End as uvicorn does, but without sending the signal again at the end: the caller has a store to close."""
        self._service.deployment.clock.stop()
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._service.log.failure("an error in the event loop", context.get("exception") or RuntimeError())
