"""What the routes of one running service share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field

from tacit.service.deployment import Deployment, Served
from tacit.service.http.keys import Keyring
from tacit.service.http.logs import JsonLog
from tacit.service.http.neighbours import Neighbours, Nobody
from tacit.service.http.options import Options
from tacit.service.http.problems import no_owner
from tacit.service.http.rates import Rates
from tacit.service.http.writer import Writer


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
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    live: int = 0
    """Streams of changes that are open."""
    putting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One policy is made at a time."""
    neighbours: Neighbours = field(default_factory=Nobody)
    """Other processes that serve policies of the same deployment."""

    def __post_init__(self) -> None:
        self.rates = Rates(self.options.key_rate)

    def served(self, name: str) -> Served:
        """A policy of this process; refused for now where another one has it, or is about to."""
        if name not in self.deployment.policies and name in self.neighbours.names():
            raise no_owner()
        return self.deployment.get(name)

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
