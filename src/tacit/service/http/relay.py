"""Passing requests on to the process that owns the policies, as they came, with the caller's own key.

A request is passed on once: one that was passed on before is answered with 503 where it finds no owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httptools

from tacit.service.http.answers import answer, problem_answer
from tacit.service.http.bodies import Health
from tacit.service.http.options import Options
from tacit.service.http.problems import Problem
from tacit.service.http.receiving import ASGIScope, Disconnected, Receive, Send, header, json_body

HOP: Final = b"tacit-hop"
_OF_ONE_CONNECTION: Final = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade", b"expect", b"proxy-connection")
)
_IDLE: Final = 5.0
"""Seconds after which a connection is not used again: its other end may be about to close it."""
_ANSWERED_IN: Final = 30.0
"""Seconds that the owner has for the beginning of an answer."""
_CONNECTED_IN: Final = 2.0
_LOOK: Final = 0.2
"""Seconds between looks at who is the owner."""
_LAST: Final = 2.0
"""Seconds that answers, and streams without an end, have when this process stops."""
_CHUNK: Final = 1 << 16
_MOST_IDLE: Final = 100


def no_owner() -> Problem:
    """Nobody owns the policies at this moment."""
    detail = "no process owns the policies at this moment; one of them takes over within seconds. Nothing was changed"
    return Problem(503, "no-owner", detail, {"Retry-After": "1"})


def cut_off() -> Problem:
    """The owner went away in the middle of a request."""
    detail = "the owner of the policies went away in the middle of this request: send it again, with the same event id"
    return Problem(503, "owner-lost", detail, {"Retry-After": "1"})


class _Passage:
    """An answer on its way from the owner to a caller."""

    def __init__(self, owner: str, send: Send) -> None:
        self.owner, self._send, self._begun = owner, send, False

    async def send(self, part: dict[str, Any]) -> None:
        self._begun = True
        await self._send(part)

    def broken(self) -> Exception:
        """An answer that has begun cannot be taken back, only cut off."""
        return RuntimeError("an answer was cut off") if self._begun else cut_off()


class Relay:
    """An ASGI application that passes on all but questions about this process itself."""

    def __init__(self, owner: Callable[[], str | None], stopping: asyncio.Event, options: Options) -> None:
        self._owner, self._stopping, self._options = owner, stopping, options
        self._idle: list[_Connection] = []

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._answer(scope, receive, send)
        except Disconnected:
            return
        except Problem as problem:
            await problem_answer(problem)(scope, receive, send)

    async def _answer(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        owner = self._owner()
        if scope["path"] == "/healthz":
            await answer(Health("ok"))(scope, receive, send)
        elif scope["path"] == "/readyz":
            ready = owner is not None and not self._stopping.is_set()
            await answer(Health("ok" if ready else "no-owner"), 200 if ready else 503)(scope, receive, send)
        elif owner is None or header(scope["headers"], HOP) is not None:
            raise no_owner()
        else:
            body = await json_body(scope["headers"], receive, self._options)
            await self._pass_on(_Passage(owner, send), scope, body, receive)

    async def _pass_on(self, passage: _Passage, scope: ASGIScope, body: bytes, receive: Receive) -> None:
        """Pass on until the answer has come, caller or owner is gone, or this process has stopped for a while."""
        work = asyncio.ensure_future(self._exchange(passage, scope, body))
        ends = [asyncio.ensure_future(end) for end in (_gone(receive), self._replaced(passage.owner), self._stopped())]
        try:
            await asyncio.wait((work, *ends), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            elif not ends[0].done():
                raise passage.broken()
        finally:
            for task in (work, *ends):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _replaced(self, owner: str) -> None:
        """Wait until somebody else is the owner; this one may be paused with a request in its hands."""
        while self._owner() == owner:
            await asyncio.sleep(_LOOK)

    async def _stopped(self) -> None:
        await self._stopping.wait()
        await asyncio.sleep(_LAST)

    async def _exchange(self, passage: _Passage, scope: ASGIScope, body: bytes) -> None:
        try:
            connection = await self._connection(passage.owner)
            async with connection.answering(_request(scope, body, connection.host), scope["method"]) as parts:
                async for part in parts:
                    await passage.send(part)
            if connection.reusable and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
        except (OSError, EOFError, httptools.HttpParserError, TimeoutError):
            raise passage.broken() from None

    async def _connection(self, owner: str) -> _Connection:
        while self._idle:
            known = self._idle.pop()
            if known.owner == owner and time.monotonic() - known.used < _IDLE and not known.reader.at_eof():
                return known
            known.writer.close()
        found = urlsplit(owner)
        opening = asyncio.open_connection(found.hostname, found.port)
        try:
            reader, writer = await asyncio.wait_for(opening, _CONNECTED_IN)
        except (OSError, TimeoutError):
            raise no_owner() from None
        return _Connection(owner, found.netloc.encode(), reader, writer)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _request(scope: ASGIScope, body: bytes, host: bytes) -> bytes:
    """The same request for another process."""
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode(), target), b"host: " + host, HOP + b": 1"]
    kept = (pair for pair in scope["headers"] if pair[0] not in _OF_ONE_CONNECTION | {b"host", b"content-length", HOP})
    lines += [name + b": " + value for name, value in kept]
    if body or scope["method"] not in ("GET", "HEAD"):
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@dataclass
class _Parsed:
    """What has come of an answer; filled by the parser."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: list[bytes] = field(default_factory=list)
    begun: bool = False
    complete: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in _OF_ONE_CONNECTION:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.begun = True

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        self.complete = True


@dataclass
class _Connection:
    """A connection to the owner."""

    owner: str
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
        parser = httptools.HttpResponseParser(parsed)
        while not parsed.begun:
            parser.feed_data(await asyncio.wait_for(self._read(), _ANSWERED_IN))
        yield {"type": "http.response.start", "status": parser.get_status_code(), "headers": parsed.headers}
        over = method == "HEAD"
        while not (over or parsed.complete):
            if parsed.body:
                yield {"type": "http.response.body", "body": b"".join(parsed.body), "more_body": True}
                parsed.body.clear()
            parser.feed_data(await self._read())
        self.reusable, self.used = not over and parser.should_keep_alive(), time.monotonic()
        yield {"type": "http.response.body", "body": b"".join(parsed.body), "more_body": False}

    async def _read(self) -> bytes:
        data = await self.reader.read(_CHUNK)
        if not data:
            raise EOFError("the other end has closed the connection")
        return data
