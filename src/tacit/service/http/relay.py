"""Passing a request on to the process that owns its policy, as it came, with the caller's own key.

A request is passed on once: one that was passed on before is answered with 503 where the policy is not owned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from tacit.service.http.exchange import BROKEN, HOP, Exchange, Unreachable
from tacit.service.http.problems import Problem, no_owner
from tacit.service.http.receiving import ASGIScope, Receive, Send, header

_ELSEWHERE: Final = b"tacit-elsewhere"
"""Header of an answer by which a process says that it does not own the policy, and has done nothing."""
_LOOK: Final = 0.2
"""Seconds between looks at whether the other process is still there."""
_LAST: Final = 2.0
"""Seconds that answers have when this process stops."""


class Elsewhere(Exception):  # noqa: N818 - the caller may ask another process
    """The process that was asked does not own the policy, or is gone; nothing was done, and nothing answered."""


def cut_off() -> Problem:
    """The owner went away in the middle of a request."""
    detail = "the owner of the policy went away in the middle of this request: send it again, with the same event id"
    return Problem(503, "owner-lost", detail, {"Retry-After": "1"})


@dataclass(frozen=True)
class Passed:
    """A request about a policy of another process, all of which has come."""

    name: str
    scope: ASGIScope
    body: bytes
    receive: Receive
    send: Send

    @property
    def passed_on(self) -> bool:
        """Whether another process has passed it on to this one."""
        return header(self.scope["headers"], HOP) is not None

    def again(self) -> Receive:
        """For an application that wants to receive it."""
        parts = [{"type": "http.request", "body": self.body, "more_body": False}]

        async def receive() -> MutableMapping[str, Any]:
            return parts.pop() if parts else await self.receive()

        return receive

    def refusal(self) -> Problem:
        """Where nobody owns the policy."""
        problem = no_owner()
        if self.passed_on:
            problem.headers[_ELSEWHERE.decode()] = "1"
        return problem


class _Passage:
    """An answer on its way from the owner to a caller."""

    def __init__(self, send: Send) -> None:
        self._send, self._begun = send, False

    async def send(self, part: dict[str, Any]) -> None:
        if not self._begun and any(name == _ELSEWHERE for name, _ in part["headers"]):
            raise Elsewhere
        self._begun = True
        await self._send(part)

    def broken(self) -> Exception:
        """An answer that has begun cannot be taken back, only cut off."""
        return RuntimeError("an answer was cut off") if self._begun else cut_off()


class Relay:
    """Passes requests on."""

    def __init__(self, exchange: Exchange, stopping: asyncio.Event) -> None:
        self._exchange, self._stopping = exchange, stopping

    async def pass_on(self, address: str, there: Callable[[], bool], request: Passed) -> None:
        """Pass on until the answer has come, the owner is gone, or this process has stopped for a while.

        ``there`` says whether the owner is taken to be alive: it may be paused with the request in its hands.
        """
        passage = _Passage(request.send)
        try:
            async with asyncio.timeout(None) as patience:
                watch = _Watch(there, self._stopping, patience)
                try:
                    await self._answer(passage, address, request)
                finally:
                    watch.end()
        except TimeoutError:
            raise passage.broken() from None

    async def _answer(self, passage: _Passage, address: str, request: Passed) -> None:
        try:
            async with self._exchange.answering(address, request.scope, request.body) as parts:
                async for part in parts:
                    await passage.send(part)
        except Unreachable:
            raise Elsewhere from None
        except BROKEN:
            raise passage.broken() from None


class _Watch:
    """Looks now and then whether an answer is still worth waiting for; a timer costs less than a task."""

    def __init__(self, there: Callable[[], bool], stopping: asyncio.Event, patience: asyncio.Timeout) -> None:
        self._there, self._stopping, self._patience = there, stopping, patience
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_LOOK, self._look)

    def _look(self) -> None:
        if not self._there():
            self._patience.reschedule(self._loop.time())
        elif self._stopping.is_set():
            self._patience.reschedule(self._loop.time() + _LAST)
        else:
            self._timer = self._loop.call_later(_LOOK, self._look)

    def end(self) -> None:
        """The answer has come, or never will."""
        self._timer.cancel()
