"""What the callers of `workloads/soak.py` share: a pace, a notebook of all that they were told, a live stream."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from workloads.load.connection import HOST, Connection, Reply, request

OTHER: Final = "-"
"""The route of requests that are neither decisions nor rewards."""
_BACKLOG: Final = 0.5
"""Seconds of requests that are made up for after a pause, at most."""
_PATIENCE: Final = 60.0


@dataclass
class Heard:
    """All that callers were told."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often each route was answered with each status."""
    decisions: Counter[str] = field(default_factory=Counter)
    """New decisions that were acknowledged, by policy."""
    unexpected: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    """Seconds, since somebody looked last."""
    waiting: int = 0
    """Decisions and rewards without an answer."""
    waiting_since: float = 0.0
    """When one of them was answered last, or the first of them was sent."""
    pause: float = 0.0
    """Longest time without an answer while any of them waited, since somebody looked last."""
    changes: int = 0
    """Messages of the live stream."""

    def expect(self, right: bool, words: str) -> None:
        """Note what should not be."""
        if not right:
            self.unexpected.append(words)

    def sent(self) -> None:
        """A decision or a reward waits for its answer."""
        if not self.waiting:
            self.waiting_since = time.perf_counter()
        self.waiting += 1

    def answered(self) -> None:
        """One of them has it."""
        now = time.perf_counter()
        self.pause, self.waiting_since = max(self.pause, now - self.waiting_since), now
        self.waiting -= 1

    def since_last_look(self) -> tuple[list[float], float]:
        """Latencies, and the longest pause, which may still last; the next look begins anew."""
        now = time.perf_counter()
        pause = max(self.pause, now - self.waiting_since if self.waiting else 0.0)
        taken, self.latencies, self.pause = self.latencies, [], 0.0
        return taken, pause

    def check(self, reply: Reply, expected: Sequence[int], words: str) -> None:
        """Note a status that should not be."""
        text = f"{words} was answered with {reply.status}, not {expected}: {reply.body[:200]!r}"
        self.expect(reply.status in expected, text)


class Calls:
    """Requests that keep to a number a second together."""

    def __init__(self, ports: Sequence[int], key: str, rate: float) -> None:
        self.heard, self.ports = Heard(), ports
        self._key, self._rate, self._slot = key, rate, time.perf_counter()

    async def ask(
        self,
        connection: Connection,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        route: str = OTHER,
        known: bool = True,
    ) -> Reply:
        """Send a request when it is its turn, and note how it went; ``known`` callers have a key."""
        await self._turn()
        sent = time.perf_counter()
        if route != OTHER:
            self.heard.sent()
        async with asyncio.timeout(_PATIENCE):
            reply = await connection.ask(request(method, path, self._key if known else "nobody", body))
        if route != OTHER:
            self.heard.answered()
        self.heard.statuses[route, reply.status] += 1
        self.heard.latencies.append(time.perf_counter() - sent)
        return reply

    async def _turn(self) -> None:
        now = time.perf_counter()
        self._slot = max(self._slot, now - _BACKLOG) + 1.0 / self._rate
        if self._slot > now:
            await asyncio.sleep(self._slot - now)

    async def watch(self) -> None:
        """Hold a live stream open and count what it says."""
        reader, writer = await asyncio.open_connection(HOST, self.ports[-1])
        try:
            writer.write(request("GET", "/v1/live", self._key, b""))
            self.heard.expect(b" 200 " in await reader.readline(), "the live stream was refused")
            while line := await reader.readline():
                self.heard.changes += line.startswith(b"data: ")
        finally:
            writer.close()
