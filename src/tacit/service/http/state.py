"""What the routes of one running service share."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Final

from tacit.service.deployment import Deployment, Served
from tacit.service.http.connections import CONNECTION
from tacit.service.http.keys import Key, Keyring
from tacit.service.http.logs import JsonLog
from tacit.service.http.neighbours import Neighbours, Nobody
from tacit.service.http.options import Options
from tacit.service.http.problems import no_key, no_owner
from tacit.service.http.rates import Rates
from tacit.service.http.receiving import ASGIScope, header
from tacit.service.http.writer import Writer

LATENCIES: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Bounds of the groups in which latencies are counted, in seconds; a last group has all that are longer."""


@dataclass(slots=True)
class Latency:
    """How long answers of a route took: how many in each group of `LATENCIES`, and all of them together."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCIES) + 1))
    seconds: float = 0.0

    def note(self, seconds: float) -> None:
        """Count an answer."""
        self.counts[bisect_left(LATENCIES, seconds)] += 1
        self.seconds += seconds


@dataclass
class Service:
    """One process that serves one deployment."""

    deployment: Deployment
    keyring: Keyring
    writer: Writer
    log: JsonLog
    options: Options
    answered: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often each route was answered with each status; what concerns rewards is raw data."""
    latencies: defaultdict[str, Latency] = field(default_factory=lambda: defaultdict(Latency))
    """How long answers of each route took; refusals, which are quick, would hide how long the rest takes."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    live: int = 0
    """Streams of changes that are open."""
    putting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One policy is made at a time."""
    neighbours: Neighbours = field(default_factory=Nobody)
    """Other processes that serve policies of the same deployment."""

    def __post_init__(self) -> None:
        self.rates = Rates(self.options.key_rate)

    def caller(self, scope: ASGIScope) -> Key:
        """The key of a request, whose connection is told; one without a key is refused."""
        key = self.keyring.holder(header(scope["headers"], b"authorization"))
        if CONNECTION in scope:
            scope[CONNECTION].places.show_key(scope[CONNECTION], key is not None)
        if key is None:
            raise no_key()
        return key

    def served(self, name: str) -> Served:
        """A policy of this process; refused for now where another one has it, or is about to."""
        if name not in self.deployment.policies and name in self.neighbours.names():
            raise no_owner()
        return self.deployment.get(name)

    def policies_of(self, key: Key) -> dict[str, Served]:
        """The policies of this process that a key reaches, by name."""
        return {name: served for name, served in self.deployment.policies.items() if key.reaches(name)}

    @property
    def names(self) -> Set[str]:
        """All policies of the deployment, whoever owns them."""
        return self.neighbours.names() | self.deployment.policies.keys()

    @property
    def status(self) -> str:
        """A public code: whether requests are taken."""
        if self.stopping.is_set():
            return "stopping"
        if self.writer.waiting >= self.options.most_waiting:  # which counts no rewards
            return "overloaded"
        return "ok" if self.neighbours.ready() else "no-owner"
