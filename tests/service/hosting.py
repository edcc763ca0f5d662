"""A served policy for tests: on a quick store, under a clock that is set by hand, dropped and found again at will."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tacit.service.deployment import Deployment, Served
from tacit.service.events import EVENTS, Event
from tacit.service.host import Answer, Decide, Host, Refusal, Request, Reward, SetMode
from tacit.service.store import Store
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
    """One policy, served; ``crash`` forgets everything in memory and begins anew from the store."""

    def __init__(self, folder: Path, policy: str = "joint-linucb", **changes: Any) -> None:
        self.clock = Clock()
        self.store = FaultyStore(quick_store(folder))
        self.learned: list[tuple[bytes, float]] = []
        """What the policy learned from, in order: row and reward; nothing of it by replay."""
        self._open(self.store)
        self.deployment.put("p", body(policy, horizon=None) | changes)
        self._watch()

    def _open(self, store: Store) -> None:
        self.deployment = Deployment(store, clock=self.clock)

    @property
    def served(self) -> Served:
        return self.deployment.get("p")

    @property
    def host(self) -> Host:
        return self.served.host

    def _watch(self) -> None:
        policy = self.host.journal.policy
        usual = policy._learn

        def learn(memo: FloatArray, reward: float) -> None:
            self.learned.append((memo[:DIM].tobytes(), reward))
            usual(memo, reward)

        policy._learn = learn  # type: ignore[method-assign]

    def crash(self) -> None:
        """The process is gone; another one claims the journal.  What it was doing to the store is over."""
        self.store = FaultyStore(self.store.inner)
        self._open(self.store)
        self._watch()

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
        return [Event.unpack(row.value) for row in self.store.scan(self.host.journal.lease, EVENTS, 0, 10**6)]

    def close(self) -> None:
        self.store.close()
