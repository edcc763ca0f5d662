"""Requests from one process of a deployment to another: HTTP/1.1, with connections that are used again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httptools

from tacit.service.http.receiving import ASGIScope

HOP: Final = b"tacit-hop"
"""Header of a request that one process sends to another."""
BROKEN: Final = (OSError, EOFError, httptools.HttpParserError, TimeoutError)
"""What happens when the other process goes away in the middle."""
_OF_ONE_CONNECTION: Final = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade", b"expect", b"proxy-connection")
)
_MADE_ANEW: Final = _OF_ONE_CONNECTION | {b"host", b"content-length", HOP}
_IDLE: Final = 5.0
"""Seconds after which a connection is not used again: its other end may be about to close it."""
_ANSWERED_IN: Final = 30.0
"""Seconds that the other process has for the beginning of an answer."""
_CONNECTED_IN: Final = 2.0
_CHUNK: Final = 1 << 16
_MOST_IDLE: Final = 100


class Unreachable(Exception):  # noqa: N818 - the caller may ask another process
    """No connection could be made: nothing was sent."""


class Exchange:
    """Connections to other processes."""

    def __init__(self) -> None:
        self._idle: dict[str, list[_Connection]] = {}

    @contextlib.asynccontextmanager
    async def answering(self, address: str, scope: ASGIScope, body: bytes) -> AsyncIterator[AsyncIterator[Any]]:
        """The answer of another process to the same request, as parts that an ASGI application would send."""
        connection = await self._connection(address)
        async with connection.answering(_request(scope, body, connection.host), scope["method"]) as parts:
            yield parts
        idle = self._idle.setdefault(address, [])
        if connection.reusable and len(idle) < _MOST_IDLE:
            idle.append(connection)

    async def _connection(self, address: str) -> _Connection:
        idle = self._idle.get(address, [])
        while idle:
            known = idle.pop()
            if time.monotonic() - known.used < _IDLE and not known.reader.at_eof():
                return known
            known.writer.close()
        found = urlsplit(address)
        opening = asyncio.open_connection(found.hostname, found.port)
        try:
            reader, writer = await asyncio.wait_for(opening, _CONNECTED_IN)
        except (OSError, TimeoutError) as error:
            self._idle.pop(address, None)
            raise Unreachable from error
        return _Connection(found.netloc.encode(), reader, writer)


def _request(scope: ASGIScope, body: bytes, host: bytes) -> bytes:
    """The same request for another process."""
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode(), target), b"host: " + host, HOP + b": 1"]
    lines += [name + b": " + value for name, value in scope["headers"] if name not in _MADE_ANEW]
    if body or scope["method"] not in ("GET", "HEAD"):
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@dataclass
class _Parsed:
    """What has come of an answer; filled by its parser."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: list[bytes] = field(default_factory=list)
    begun: bool = False
    complete: bool = False
    lasts: bool = False
    """Whether the connection may be used again; the parser has forgotten it when the answer is complete."""

    def __post_init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in _OF_ONE_CONNECTION:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.begun, self.lasts = True, self.parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        self.complete = True


@dataclass
class _Connection:
    """A connection to another process."""

    host: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    reusable: bool = False
    used: float = 0.0

    @contextlib.asynccontextmanager
    async def answering(self, request: bytes, method: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The answer to a request; unless all of it is read, the connection is closed."""
        self.reusable = False
        parts = self._parts(request, method)
        try:
            yield parts
        finally:
            await parts.aclose()
            if not self.reusable:
                self.writer.close()

    async def _parts(self, request: bytes, method: str) -> Any:
        self.writer.write(request)
        await self.writer.drain()
        parsed = _Parsed()
        parser = parsed.parser
        async with asyncio.timeout(_ANSWERED_IN):
            while not parsed.begun:
                parser.feed_data(await self._read())
        yield {"type": "http.response.start", "status": parser.get_status_code(), "headers": parsed.headers}
        over = method == "HEAD"
        while not (over or parsed.complete):
            if parsed.body:
                yield {"type": "http.response.body", "body": b"".join(parsed.body), "more_body": True}
                parsed.body.clear()
            parser.feed_data(await self._read())
        self.reusable, self.used = not over and parsed.lasts, time.monotonic()
        yield {"type": "http.response.body", "body": b"".join(parsed.body), "more_body": False}

    async def _read(self) -> bytes:
        data = await self.reader.read(_CHUNK)
        if not data:
            raise EOFError("the other end has closed the connection")
        return data
