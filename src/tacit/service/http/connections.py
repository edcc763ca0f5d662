"""Connections whose requests begin in time and within bounds, and whose frequent answers are written at once.

uvicorn bounds idle connections, and the application bounds bodies; between the two is the head of a request, which a
client could send one byte an hour.

ASGI sends the head of an answer and its body one after the other, each in a write of its own, and a write to a socket
costs as much as a decision.  ``answer_at_once`` sends both in one.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

LONGEST_HEAD: Final = 64 << 10
WHOLE: Final = "tacit.whole"
"""In the scope of a request all of whose body is there: nobody needs to watch for how long it takes."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 by httptools; knows since when it waits for the head of a request, and how long that is."""

    head_since: float | None = None
    """Time of the event loop; None while no head is waited for."""
    head_bytes = 0
    """Of the head, without those that came together with its first one."""
    _piece = 0
    """Bytes that came together last."""
    _at_most = 0
    """Bytes of the head, and of whatever came together with its first one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client that connects is expected to say something."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head, whose end has not been seen."""
        self._piece = len(data)
        if self.head_since is not None:
            self.head_bytes += len(data)
            self._at_most += len(data)
        super().data_received(data)
        if self.head_since is not None and self.head_bytes > LONGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there, and can be measured where it may be too long."""
        self.head_since = None
        if self._at_most > LONGEST_HEAD and self._head_size() > LONGEST_HEAD:
            raise ValueError("the head of the request is too long")  # which uvicorn answers with 400
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of the request is there."""
        super().on_message_complete()
        self.scope[WHOLE] = True  # type: ignore[typeddict-unknown-key]

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _expect_head(self) -> None:
        self.head_since, self.head_bytes, self._at_most = self.loop.time(), 0, self._piece

    def close_if_late(self, before: float) -> None:
        """Close the connection if its head has been waited for since before this time."""
        if self.head_since is not None and self.head_since < before and not self.transport.is_closing():
            self.transport.close()


def answer_at_once(send: Any, status: int, headers: bytes, body: bytes) -> bool:
    """Answer the request that ``send`` belongs to; False where it must be answered by ``send`` itself.

    That is so under another server, where the client is slow to read, or where an answer has begun.
    """
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle) or cycle.flow.write_paused:
        return False
    if cycle.response_started or cycle.disconnected:
        return False
    cycle.response_started, cycle.waiting_for_100_continue = True, False
    usual = b"".join([b"%s: %s\r\n" % pair for pair in cycle.default_headers])
    end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
    head = b"%s%s%scontent-length: %d\r\n%s" % (STATUS_LINE[status], usual, headers, len(body), end)
    cycle.transport.write(head + body)
    cycle.response_complete = True
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


def close_late(connections: Any, now: float, seconds: float) -> None:
    """Close all connections whose heads have not come in time."""
    for connection in list(connections):
        if isinstance(connection, BoundedProtocol):
            connection.close_if_late(now - seconds)
