"""A request's body, within bounds of size and time; nothing is done before all of it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from tacit.service.http.options import Options
from tacit.service.http.problems import too_large, too_slow, wrong_media_type

ASGIScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApplication = Callable[[ASGIScope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]
_JSON: Final = b"application/json"
_DRAINED: Final = 8
"""Bodies of up to this many times the bound are read to their end, so that their senders see the answer."""


class Disconnected(Exception):  # noqa: N818 - it is no fault
    """The caller has gone in the middle of a request: nobody is there to be answered, and nothing was done."""


def header(headers: Headers, wanted: bytes) -> bytes | None:
    """The value of a header, whose name is in small letters."""
    for name, value in headers:
        if name == wanted:
            return value
    return None


async def json_body(headers: Headers, receive: Receive, options: Options, *, whole: bool = False) -> bytes:
    """All bytes of a body that says that it is JSON; ``whole`` where they have arrived already."""
    for name, value in headers:
        if name == b"content-type":
            _check_media_type(value)
        elif name == b"content-encoding":
            raise wrong_media_type()
        elif name == b"content-length" and int(value) > _DRAINED * options.body_bytes:  # the parser knows it a number
            raise too_large(options.body_bytes)
    if whole:
        return await _whole(receive, options.body_bytes)
    try:
        async with asyncio.timeout(options.body_seconds):
            return await _whole(receive, options.body_bytes)
    except TimeoutError:
        raise too_slow(options.body_seconds) from None


def _check_media_type(kind: bytes) -> None:
    if kind != _JSON and kind.partition(b";")[0].strip().lower() != _JSON:
        raise wrong_media_type()


async def _whole(receive: Receive, bound: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Disconnected
        part: bytes = message.get("body", b"")
        size += len(part)
        if size <= bound:
            parts.append(part)
        if size > _DRAINED * bound:
            raise too_large(bound)
        if not message.get("more_body", False):
            break
    if size > bound:
        raise too_large(bound)
    return parts[0] if len(parts) == 1 else b"".join(parts)
