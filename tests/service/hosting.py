"""A served policy for tests: on a quick store, under a clock that is set by hand, dropped and found again at will."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tacit.policies.log import ReplayingPublisher
from tacit.policies.policy import Policy
from tacit.service.deployment import Deployment, Served
from tacit.service.events import EVENTS, Event
from tacit.service.host import Answer, Decide, Host, Refusal, Request, Reward, SetMode
from tacit.service.journal import PolicyJournal
from tacit.service.store import Store, Tail
from tacit.service.terms import Mode
from tacit.typing import FloatArray
from tests.contracts.policies import DIM
from tests.service.parts import Clock, FaultyStore, body, quick_store


def arms_of(number: int, arms: int = 4) -> FloatArray:
    """Arms that no other number has, each shorter than 1."""
    rows = np.random.default_rng(number).standard_normal((arms, DIM))
    return np.asarray(0.9 * rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float64)


def _number(event: str) -> int:
    return zlib.crc32(event.encode())


class Bench:
    """One policy, served; ``crash`` forgets everything in memory and begins anew from the store.

    With several ``processes`` each has a memory of its own; ``switch`` says which one is asked from then on.
    """

    def __init__(self, folder: Path, policy: str = "joint-linucb", *, processes: int = 1, **changes: Any) -> None:
        self.clock = Clock()
        self.store = FaultyStore(quick_store(folder), shared=processes > 1)
        self.learned: list[tuple[bytes, float]] = []
        """What the policy learned from, in order: row and reward; nothing of it by replay."""
        self._processes = processes
        Deployment(self.store, clock=self.clock).put("p", body(policy, horizon=None) | changes)
        self._open(self.store)

    def _open(self, store: Store) -> None:
        self.deployments = [Deployment(store, clock=self.clock) for _ in range(self._processes)]
        self.switch(0)
        for deployment in self.deployments:
            self._watch(deployment.get("p").host.journal)

    def switch(self, process: int) -> None:
        """Ask this process from now on."""
        self.deployment = self.deployments[process]

    @property
    def served(self) -> Served:
        return self.deployment.get("p")

    @property
    def host(self) -> Host:
        return self.served.host

    def _watch(self, journal: PolicyJournal) -> None:
        """Also when the policy begins anew from a snapshot of another process."""
        take_in = journal._take_in

        def watched(tail: Tail) -> None:
            take_in(tail)
            if tail.snapshot is not None:
                self._watch_policy(journal.policy)

        journal._take_in = watched  # type: ignore[method-assign]
        self._watch_policy(journal.policy)

    def _watch_policy(self, policy: Policy) -> None:
        usual = policy._learn

        def learn(memo: FloatArray, reward: float) -> None:
            if not isinstance(policy.publisher, ReplayingPublisher):
                self.learned.append((memo[:DIM].tobytes(), reward))
            usual(memo, reward)

        policy._learn = learn  # type: ignore[method-assign]

    def crash(self) -> None:
        """All processes are gone; others go on from the store.  What they were doing to it is over."""
        self.store = FaultyStore(self.store.inner, shared=self.store.shared)
        self._open(self.store)

    # Requests

    def asks(self, event: str, number: int | None = None, *, user: str | None = None, namespace: str = "n") -> Decide:
        """For an arm of those with this number, by default one of the event's own."""
        contexts = arms_of(_number(event) if number is None else number)
        return self.served.intake.decision(namespace, contexts=contexts.tolist(), event_id=event, user_id=user)[1]

    def reports(self, event: str, reward: float | None, *, arm: int | None = None, namespace: str = "n") -> Reward:
        """A reward, or None for a decision that is given up."""
        return self.served.intake.reward(namespace, event, reward=reward, abandoned=reward is None, arm=arm)

    def process(self, *requests: Request) -> list[Answer | Refusal]:
        return self.host.process(requests)

    def decide(self, event: str, number: int | None = None, *, user: str | None = None) -> Answer | Refusal:
        return self.process(self.asks(event, number, user=user))[0]

    def reward(self, event: str, reward: float | None, *, arm: int | None = None) -> Answer | Refusal:
        return self.process(self.reports(event, reward, arm=arm))[0]

    def mode(self, mode: Mode) -> None:
        self.process(SetMode(mode))

    def arm(self, event: str, number: int | None = None, *, user: str | None = None) -> int:
        """The arm of a decision that is made now."""
        found = self.decide(event, number, user=user)
        assert isinstance(found, Answer)
        assert found.new
        return found.arm

    def wait(self, seconds: float) -> None:
        """Time passes, and the service looks whether anything is due."""
        self.clock.now += seconds
        self.host.tick()

    def row(self, event: str, arm: int) -> bytes:
        """What a decision contributes."""
        return bytes(arms_of(_number(event))[arm].tobytes())

    def note(self) -> bytes:
        """What the store keeps of the clock."""
        return next(journal.note for journal in self.store.journals() if journal.name == "p")

    @property
    def decisions(self) -> int:
        return self.host.journal.policy.decisions

    def events(self) -> list[Event]:
        """All rows of the table of events."""
        return [Event.unpack(row.value) for row in self.store.scan(self.host.journal.name, EVENTS, 0, 10**6)]

    def close(self) -> None:
        self.store.close()
