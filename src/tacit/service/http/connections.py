"""Connections are bounded in number, and in the time for which their clients are waited for.

When all places are taken, a new connection gets the place of one that waits for its client and has shown no key.  A
connection that has shown a key, or is being answered, is never closed for another one.

A request's body has bounds of size and time too, and nothing is done before all of it is there.

ASGI sends the head of an answer and its body one after the other, each in a write of its own, and a write to a socket
costs as much as a decision.  ``answer_at_once`` sends both in one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tacit.service.http.options import Options
from tacit.service.http.problems import COMMON, MEDIA_TYPE, Problem, too_large, too_many_connections, wrong_media_type

ASGIScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApplication = Callable[[ASGIScope, Receive, Send], Awaitable[None]]
LONGEST_HEAD: Final = 64 << 10
_PIECE: Final = 256 << 10
"""Most bytes that the transport hands over at once."""
_WHOLE: Final = "tacit.whole"
"""In the scope of a request all of whose body is there: it needs no timer."""
CONNECTION: Final = "tacit.connection"
"""In the scope of a request: the connection that it came on, a `BoundedProtocol`."""
_JSON: Final = b"application/json"
_DRAINED: Final = 8
"""Bodies of up to this many times the bound are read to their end, so that their senders see the answer."""
_NEWCOMERS: Final = 8
"""One of so many places is kept for connections that have not shown a key yet."""


def open_files(wanted: int) -> int:
    """Raise this process's limit of open files as far as allowed; return how many it may open, at most ``wanted``."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if 0 <= soft < allowed:  # an infinite one may be -1
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


class Places:
    """The places of connections to a server, and which connection leaves when all of them are taken."""

    def __init__(self, options: Options, most: int) -> None:
        self.options, self.most, self.spare = options, most, max(1, most // _NEWCOMERS)
        self.taken: dict[BoundedProtocol, None] = {}
        """Connections that have a place, in the order in which they came."""
        self.keyed: set[BoundedProtocol] = set()
        self._leaving: list[tuple[float, BoundedProtocol]] = []
        """Connections in the order in which they leave, the first one last, and since when their clients were waited
        for; some may have gone or asked meanwhile."""

    def take(self, newcomer: BoundedProtocol) -> None:
        """Let a connection in, and close one that has shown no key where there are too many."""
        self.taken[newcomer] = None
        if len(self.taken) > self.most:
            leaving = self._next()
            del self.taken[leaving]
            if leaving is newcomer:
                leaving.refuse(too_many_connections())
            else:
                leaving.transport.abort()

    def _next(self) -> BoundedProtocol:
        """Return the connection that leaves next: the longest silent, then the one whose request began to come first.

        The last silent ones stay while there are slow ones: a newcomer is silent until its request comes, and would
        otherwise be closed for the next one.
        """
        while self._leaving:
            since, connection = self._leaving.pop()
            if connection.since == since and self._may_leave(connection):
                return connection
        waiting = sorted(filter(self._may_leave, self.taken), key=lambda connection: connection.since)
        silent = [connection for connection in waiting if not connection.coming]
        slow = [connection for connection in waiting if connection.coming]
        order = silent[: -self.spare] + slow + silent[-self.spare :]
        self._leaving = [(connection.since, connection) for connection in reversed(order)]
        return self._leaving.pop()[1]

    def _may_leave(self, connection: BoundedProtocol) -> bool:
        """Return whether a connection waits for its client, to ask or to read an answer, and has shown no key."""
        waits = connection.awaited() != "" or connection.flow.write_paused
        return waits and connection in self.taken and connection not in self.keyed

    def show_key(self, connection: BoundedProtocol, known: bool) -> None:
        """Note whether the last request had a key; refuse it where others with a key have all places that they may."""
        if not known:
            self.keyed.discard(connection)
        elif connection in self.taken and connection not in self.keyed:
            if len(self.keyed) >= max(1, self.most - self.spare):
                raise too_many_connections()
            self.keyed.add(connection)

    def close_late(self, now: float) -> None:
        """Close all connections whose clients have been waited for too long."""
        for connection in list(self.taken):
            option = connection.awaited()
            if option and now - connection.since > getattr(self.options, option):
                connection.transport.abort()


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 by httptools; knows what it waits for, and how long the head of a request is."""

    places: ClassVar[Places]
    since = 0.0
    """Time of the event loop from which on the client is waited for."""
    coming = ""
    """The option for the part of a request that has begun to come and is not complete; empty where there is none."""
    _piece = 0
    """Bytes that were handed over last."""
    _at_most = 0
    """Bytes of the head, and of all that was handed over with its first one."""

    def awaited(self) -> str:
        """Return the option with the seconds for which the client is waited for; empty while it is being answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            return ""
        return self.coming or ("head_seconds" if self.cycle is None else "idle_seconds")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, and begin to wait for the first request."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self.places.take(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place."""
        super().connection_lost(exc)
        self.places.taken.pop(self, None)
        self.places.keyed.discard(self)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head until its end has come."""
        self._piece = len(data)
        self._at_most += len(data)
        super().data_received(data)
        endless = self.coming == "head_seconds" and self._at_most > LONGEST_HEAD + _PIECE
        if endless and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """Begin to wait for a head: its first byte has come."""
        self.coming, self._at_most, self.since = "head_seconds", self._piece, self.loop.time()
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        """Begin to wait for a body; refuse a head that is too long."""
        self.coming = "body_seconds"
        if self._at_most > LONGEST_HEAD:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > LONGEST_HEAD:
                raise ValueError("the head of the request is too long")  # uvicorn answers it with 400
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that all of the request is there."""
        self.coming = ""
        super().on_message_complete()
        self.scope[_WHOLE] = True  # type: ignore[typeddict-unknown-key]

    def on_response_complete(self) -> None:
        """Wait for the client again: all of an answer was written."""
        self.since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self.refuse(Problem(400, "not-http", msg, {"Connection": "close"}))

    def refuse(self, problem: Problem) -> None:
        """Answer with a problem without reading on, and close the connection."""
        headers = COMMON | {"Content-Type": MEDIA_TYPE} | problem.headers
        lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self.transport.write(_answer(problem.status, self.server_state.default_headers + lines, problem.body()))
        self.transport.close()


def answer_at_once(send: Any, status: int, headers: bytes, body: bytes) -> bool:
    """Answer the request that ``send`` belongs to; return False where it must be answered by ``send`` itself.

    That is so under another server, where the client is slow to read, or where an answer has begun.
    """
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle):
        return False
    if cycle.flow.write_paused or cycle.response_started or cycle.disconnected:
        return False
    cycle.response_started, cycle.waiting_for_100_continue = True, False
    headers += b"" if cycle.keep_alive else b"connection: close\r\n"
    cycle.transport.write(_answer(status, cycle.default_headers, body, headers))
    cycle.response_complete = True
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


def _answer(status: int, headers: list[tuple[bytes, bytes]], body: bytes, lines: bytes = b"") -> bytes:
    """Return the bytes of an answer; ``lines`` are further headers."""
    head = b"".join([b"%s: %s\r\n" % pair for pair in headers])
    return b"%s%s%scontent-length: %d\r\n\r\n%s" % (STATUS_LINE[status], head, lines, len(body), body)


class Disconnected(Exception):  # noqa: N818 - it is no fault
    """The caller has gone in the middle of a request; nothing was done."""


def header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes | None:
    """Return the value of a header, whose name is in small letters; None where there is none."""
    return next((value for name, value in headers if name == wanted), None)


async def json_body(scope: ASGIScope, receive: Receive, options: Options) -> bytes:
    """Return all bytes of a request's body, which must say that it is JSON."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            if value != _JSON and value.partition(b";")[0].strip().lower() != _JSON:
                raise wrong_media_type()
        elif name == b"content-encoding":
            raise wrong_media_type()
        elif name == b"content-length" and int(value) > _DRAINED * options.body_bytes:  # the parser takes numbers alone
            raise too_large(options.body_bytes)
    if _WHOLE in scope:
        return await _read(receive, options.body_bytes)
    try:
        async with asyncio.timeout(options.body_seconds):
            return await _read(receive, options.body_bytes)
    except TimeoutError:
        detail = f"a body must arrive within {options.body_seconds:g} seconds"
        raise Problem(408, "too-slow", detail, {"Connection": "close"}) from None


async def _read(receive: Receive, bound: int) -> bytes:
    """Return a body of at most ``bound`` bytes; one that is not much longer is read to its end and refused."""
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= _DRAINED * bound:
        message = await receive()
        if message["type"] != "http.request":
            raise Disconnected
        part: bytes = message.get("body", b"")
        size += len(part)
        if size <= bound:
            parts.append(part)
        more = message.get("more_body", False)
    if size > bound:
        raise too_large(bound)
    return b"".join(parts)
