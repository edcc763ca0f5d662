"""Requests from one process to another: connections are used again as long as both ends want to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tacit.service.http.exchange import Exchange, Unreachable
from tests.service.http.test_writer import until

SCOPE: dict[str, Any] = {"method": "PUT", "raw_path": b"/a", "query_string": b"q=1", "headers": [(b"te", b"x")]}


class Other:
    """A process that counts connections, remembers what it was asked, and answers with these headers."""

    def __init__(self, headers: bytes) -> None:
        self.headers, self.connections, self.ended, self.asked = headers, 0, 0, list[bytes]()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while head := await _head(reader):
            self.asked.append(head + await reader.readexactly(2))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n" + self.headers + b"\r\nok")
            if self.headers:
                break
        writer.close()
        await writer.wait_closed()
        self.ended += 1


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


@pytest.mark.parametrize(("headers", "connections"), [(b"", 1), (b"connection: close\r\n", 3)])
def test_connections_are_used_again_unless_they_end(headers: bytes, connections: int) -> None:
    async def scenario() -> None:
        other = Other(headers)
        server = await asyncio.start_server(other, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        exchange = Exchange()
        for _ in range(3):
            async with exchange.answering(address, SCOPE, b"{}") as parts:
                start, *rest = [part async for part in parts]
            assert start["status"] == 200
            assert b"".join(part["body"] for part in rest) == b"ok"
        assert other.connections == connections
        assert all(each.startswith(b"PUT /a?q=1 HTTP/1.1\r\n") for each in other.asked)
        assert all(b"tacit-hop: 1\r\n" in each and b"te: x" not in each for each in other.asked)
        server.close()
        for idle in exchange._idle.values():
            for connection in idle:
                connection.writer.close()
        await until(lambda: other.ended == connections)

    asyncio.run(scenario())


def test_process_that_is_not_there_was_sent_nothing() -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(Unreachable):
            async with Exchange().answering(f"http://127.0.0.1:{port}", SCOPE, b""):
                pytest.fail("nobody listens")

    asyncio.run(scenario())
