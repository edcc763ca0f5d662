"""Bytes that no client library sends: too slow, too much, cut off, badly framed, and what HTTP allows and nobody uses.

`CASES` has them by name.  Each is for a policy and a key that there are, and must be refused, or answered without a
change: `tests/service/http/test_raw.py` sends each of them, `workloads/fuzz_service.py` all of them at the same time.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

LONG: Final = 200_000
REFUSED: Final = frozenset((400, 401, 404, 405, 408, 413, 415, 422, 431))
PAUSE: Final = 0.02
"""Seconds between two bytes of a slow request."""


@dataclass(frozen=True)
class Target:
    """Where the bytes go."""

    port: int
    key: str
    policy: str

    def head(self, line: str, more: str = "") -> bytes:
        """A request line and headers, with the key."""
        return f"{line}\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n{more}".encode("latin-1")

    def posted(self, body: bytes, more: str = "", *, length: str | None = None, version: str = "1.1") -> bytes:
        """A request for a decision."""
        line = f"POST /v1/policies/{self.policy}/decisions HTTP/{version}"
        return self.head(line, f"{more}Content-Length: {length or len(body)}\r\n\r\n") + body

    def chunked(self, *chunks: bytes, more: str = "") -> bytes:
        """The same in chunks, each with its size and line ends."""
        line = f"POST /v1/policies/{self.policy}/decisions HTTP/1.1"
        return self.head(line, f"{more}Transfer-Encoding: chunked\r\n\r\n") + b"".join(chunks)

    def got(self, path: str, *, method: str = "GET", version: str = "1.1") -> bytes:
        """A request without a body."""
        return self.head(f"{method} {path} HTTP/{version}", "Connection: close\r\n\r\n")


@dataclass(frozen=True)
class Raw:
    """Bytes to be sent on a connection of their own."""

    data: Callable[[Target], bytes]
    allowed: frozenset[int] = REFUSED
    """Statuses of answers; a connection that is closed without one is always right."""
    slow: bool = False
    """One byte at a time."""
    half: bool = False
    """Nothing more is sent afterwards, and the other end is told so."""
    gone: bool = False
    """The caller goes away without waiting for an answer."""


Data = Callable[[Target], bytes]


def _head(line: str, more: str = "") -> Data:
    return lambda to: to.head(line, more)


def _posted(body: bytes, more: str = "", *, length: str | None = None, version: str = "1.1") -> Data:
    return lambda to: to.posted(body, more, length=length, version=version)


def _chunked(*chunks: bytes, more: str = "") -> Data:
    return lambda to: to.chunked(*chunks, more=more)


def _got(path: str, *, method: str = "GET", version: str = "1.1") -> Data:
    """``{}`` in the path stands for the policy."""
    return lambda to: to.got(path.replace("{}", to.policy), method=method, version=version)


def _rewarded(event: str) -> Data:
    line = "PUT /v1/policies/{}/decisions/" + event + "/reward HTTP/1.1"
    return lambda to: to.head(line.replace("{}", to.policy), "Content-Length: 15\r\n\r\n") + b'{"reward": 1.0}'


def _replaced(data: Data, old: bytes, new: bytes) -> Data:
    return lambda to: data(to).replace(old, new)


def _cut(share: float) -> Data:
    """A good request for a decision, and then not all of it."""
    whole = _posted(b'{"contexts": [[1.0, 0.0], [0.0, 1.0]], "event_id": "cut"}')
    return lambda to: whole(to)[: int(share * len(whole(to)))]


def _number(text: bytes) -> Raw:
    return Raw(_posted(b'{"contexts": [[%s, 0]]}' % text), half=True)


def _lengths() -> Iterator[tuple[str, Raw]]:
    ends = [("negative", "-1"), ("signed", "+5"), ("a float", "1e3"), ("empty", " "), ("beyond 64 bits", "9" * 30)]
    for name, length in ends:
        yield f"length: {name}", Raw(_posted(b"{}", length=length), half=True)
    yield "two lengths that differ", Raw(_posted(b"{}", "Content-Length: 1\r\n"), half=True)
    yield "two lengths that agree", Raw(_posted(b"{}", "Content-Length: 2\r\n"), half=True)
    both = _chunked(b"2\r\n{}\r\n0\r\n\r\n", more="Content-Length: 2\r\n")
    yield "length and chunks", Raw(both, half=True)
    for name, size in (("no number", b"zz"), ("negative", b"-1"), ("beyond 64 bits", b"f" * 20), ("empty", b"")):
        yield f"chunk size: {name}", Raw(_chunked(size + b"\r\n{}\r\n"), half=True)
    yield "chunk longer than it says", Raw(_chunked(b"1\r\n{}\r\n0\r\n\r\n"), half=True)


def _heads() -> Iterator[tuple[str, Raw]]:
    yield "unknown coding", Raw(_head("POST /v1/keys HTTP/1.1", "Transfer-Encoding: gzip\r\n\r\n"), half=True)
    yield "header without colon", Raw(_head("GET /v1/policies HTTP/1.1", "nonsense\r\n\r\n"), half=True)
    yield "folded header", Raw(_head("GET /v1/none HTTP/1.1", "A: b\r\n c\r\n\r\n"), half=True)
    yield "null byte in a header", Raw(_head("GET /v1/none HTTP/1.1", "A: \0\r\n\r\n"), half=True)
    yield "bare line feeds", Raw(_replaced(_got("/v1/none"), b"\r\n", b"\n"), half=True)
    yield "long header", Raw(_head("GET /v1/policies HTTP/1.1", f"A: {'a' * LONG}\r\n\r\n"))
    yield "thousands of headers", Raw(_head("GET /v1/policies HTTP/1.1", "A: b\r\n" * 30_000 + "\r\n"))
    yield "long path", Raw(_got("/v1/policies/" + "a" * LONG))
    yield "long query", Raw(_got("/v1/none?" + "a" * LONG))


def _sizes() -> Iterator[tuple[str, Raw]]:
    yield "body over the bound", Raw(_posted(b" " * (2 << 20)))
    yield "length over the bound", Raw(_posted(b"", length=str(1 << 40)), half=True)
    yield "chunks without an end", Raw(_chunked(*[b"10000\r\n" + b" " * 65_536 + b"\r\n"] * 160))
    yield "chunks of one byte", Raw(_chunked(*[b"1\r\n \r\n"] * 20_000, b"0\r\n\r\n"), half=True)
    yield "deep lists", Raw(_posted(b'{"contexts": ' + b"[" * LONG + b"]" * LONG + b"}"), half=True)
    yield "deep objects", Raw(_posted(b'{"user": ' * 50_000 + b"1" + b"}" * 50_000), half=True)
    yield "a quarter of a million arms", Raw(_posted(b'{"contexts": [' + b"[1]," * 250_000 + b"[1]]}"), half=True)
    yield "as many records", Raw(_posted(b'{"user": {}, "arms": [' + b"{}," * 300_000 + b"{}]}"), half=True)
    batch = _posted(b'{"requests": [' + b"1," * 500_000 + b"1]}")
    yield "half a million requests", Raw(_replaced(batch, b"/decisions ", b"/decisions:batch "), half=True)
    yield "number of many digits", _number(b"1" * 5_000)
    yield "number of many decimals", _number(b"0." + b"3" * 9_000 + b"e400")
    for word in (b"1e999", b"NaN", b"Infinity", b"-Infinity", b"0x1", b"01", b"1_0"):
        yield f"number {word.decode()}", _number(word)


def _cuts() -> Iterator[tuple[str, Raw]]:
    for share in (0.1, 0.5, 0.99):
        yield f"gone after {share:.0%}", Raw(_cut(share), gone=True)
        yield f"half closed after {share:.0%}", Raw(_cut(share), half=True)
    yield "slow head", Raw(_posted(b"{}", f"A: {'a' * 300}\r\n"), slow=True)
    yield "slow body", Raw(_posted(b'{"contexts": [[1.0, 0.0]]}' + b" " * 300), slow=True)
    yield "slow chunks", Raw(_chunked(*[b"1\r\n \r\n"] * 300), slow=True)


def _versions() -> Iterator[tuple[str, Raw]]:
    read = REFUSED | {200}
    yield "HTTP/1.0", Raw(_got("/v1/policies", version="1.0"), read)
    yield "HTTP/1.0 with a bad body", Raw(_posted(b"[]", version="1.0"), half=True)
    yield "HTTP/1.0 in chunks", Raw(_replaced(_chunked(b"zz\r\n"), b"HTTP/1.1", b"HTTP/1.0"), half=True)
    yield "HTTP/0.9", Raw(lambda to: b"GET /v1/policies\r\n", half=True)
    yield "HTTP/9.9", Raw(_got("/v1/policies", version="9.9"), read, half=True)
    yield "another protocol", Raw(lambda to: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), half=True)
    told = REFUSED | {100}
    yield "expects to be told to go on", Raw(_posted(b"[]", "Expect: 100-continue\r\n"), told, half=True)
    yield "expects what there is not", Raw(_posted(b"[]", "Expect: miracles\r\n"), half=True)
    yield "whole address as target", Raw(_got("http://elsewhere/v1/policies"), read)
    yield "asterisk as target", Raw(_got("*", method="OPTIONS"))
    for method in ("PATCH", "DELETE", "TRACE", "OPTIONS", "CONNECT", "post", "M-SEARCH", "NOTHING"):
        yield f"method {method}", Raw(_got("/v1/policies/{}/decisions", method=method), half=True)


def _texts() -> Iterator[tuple[str, Raw]]:
    for path in ("\xff", "%ff", "%00", "\0", "%zz"):
        yield f"policy {path!r}", Raw(_got(f"/v1/policies/{path}"), half=True)
    for event in ("%ff", "%00", "%2e%2e%2f", "..", "%25", "a" * 300, "%F0%9F%98%80", "%ED%A0%80", "%2F%2F"):
        yield f"event {event[:20]}", Raw(_rewarded(event), half=True)
    for name, body in (("null byte", b'{"event_id": "\0"}'), ("not UTF-8", b'{"event_id": "\xff"}'), ("nothing", b"")):
        yield f"body: {name}", Raw(_posted(body), half=True)
    yield "body: half a surrogate", Raw(_posted(b'{"contexts": [[1]], "event_id": "\\ud800"}'), half=True)
    yield "body: twice the same field", Raw(_posted(b'{"contexts": [[9]], "contexts": [[1]]}'), half=True)
    yield "body: compressed", Raw(_posted(b"\x1f\x8b\x08", "Content-Encoding: gzip\r\n"), half=True)


CASES: Final[dict[str, Raw]] = dict([*_lengths(), *_heads(), *_sizes(), *_cuts(), *_versions(), *_texts()])


def sent(case: Raw, to: Target, patience: float = 20.0) -> list[int]:
    """The statuses of all answers until the service closes the connection, or has said something and waits."""
    data = case.data(to)
    with socket.create_connection(("127.0.0.1", to.port), timeout=patience) as connection:
        try:
            for start in range(0, len(data), 1 if case.slow else len(data)):
                connection.sendall(data[start : start + 1] if case.slow else data)
                if case.slow:
                    time.sleep(PAUSE)
            if case.half:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was refused before all of it was sent
        return [] if case.gone else statuses(_received(connection))


def _received(connection: socket.socket) -> bytes:
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
            if b"\r\n\r\n" in found and not found.startswith(b"HTTP/1.1 100"):
                connection.settimeout(0.5)  # an answer is there: more come at once, or none
    except OSError:
        pass
    return found


def statuses(answers: bytes) -> list[int]:
    """The statuses of answers that came one after the other."""
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]
