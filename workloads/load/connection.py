"""A client of HTTP/1.1 that costs little: a load generator shares its machine with the service that it measures."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, NamedTuple

from tacit.errors import ServiceUnavailable

HOST: Final = "127.0.0.1"
_LENGTH: Final = b"content-length: "


class Reply(NamedTuple):
    """What was answered."""

    status: int
    body: bytes


class Connection(asyncio.Protocol):
    """Sends one request at a time and waits for its answer, which must state its length."""

    def __init__(self) -> None:
        self._buffer = b""
        self._waiter: asyncio.Future[Reply] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server has accepted."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Wake up whoever waits when an answer is complete."""
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        start = head.index(_LENGTH) + len(_LENGTH)
        stop = head.find(b"\r\n", start)
        length = int(head[start:stop] if stop > 0 else head[start:])
        if len(rest) >= length:
            self._buffer = rest[length:]
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(Reply(int(head[9:12]), rest[:length]))

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody waits for an answer that does not come any more."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ServiceUnavailable("the server has closed a connection in place of an answer"))

    async def ask(self, request: bytes) -> Reply:
        """Send a request and wait for its answer."""
        if self._transport.is_closing():
            raise ServiceUnavailable("the server has closed a connection")
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiter

    def close(self) -> None:
        """Send nothing more."""
        self._transport.close()


async def connect(port: int) -> Connection:
    """A connection to a server on this machine."""
    try:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, HOST, port)
    except OSError as error:
        raise ServiceUnavailable(f"nobody listens on {HOST}:{port}: {error.strerror or error}") from error
    return connection


def request(method: str, path: str, key: str, body: bytes) -> bytes:
    """The bytes of a request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def expect(reply: Reply, *statuses: int) -> Reply:
    """The answer, if it has one of these statuses."""
    if reply.status not in statuses:
        wanted = " or ".join(map(str, statuses))
        words = reply.body[:300].decode(errors="replace")
        raise ServiceUnavailable(f"the server answered {reply.status} in place of {wanted}: {words}")
    return reply


def call(port: int, method: str, path: str, key: str, body: object = None, *, seconds: float = 120.0) -> Reply:
    """One request on a connection of its own."""

    async def once() -> Reply:
        async with asyncio.timeout(seconds):
            connection = await connect(port)
            try:
                return await connection.ask(
                    request(method, path, key, b"" if body is None else json.dumps(body).encode())
                )
            finally:
                connection.close()

    try:
        return asyncio.run(once())
    except TimeoutError as error:
        raise ServiceUnavailable(f"{method} {path} was not answered within {seconds:g} seconds") from error
