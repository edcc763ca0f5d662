"""Two worlds that differ in one user's arms, reward and delay: with the same releases everybody else sees the same.

The second world's policy is made to release the very bytes of the first, by the publisher that also replays logs
(`tacit.policies.replay`); all else must then be equal by itself: what is published, everybody else's answers and
refusals, and the public part of the policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.policies.log import Entry, LoggingPublisher, Released
from tacit.policies.replay import ReplayingPublisher
from tacit.privacy.continual import Stream, leaf_is_due, published
from tacit.service.host import Answer, Refusal
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray
from tests.service.hosting import Bench, arms_of

WAIT = 10.0
USERS = 90
TARGET = 17
"""The user who is replaced."""


class Following(LoggingPublisher):
    """Releases what another world did, and logs it as its own."""

    def __init__(self, sink: Callable[[Entry], None], theirs: Iterator[Released]) -> None:
        super().__init__(sink)
        self._theirs, self._replay = theirs, ReplayingPublisher()

    def _next(self) -> Released:
        entry = next(self._theirs)
        self._replay.expect(entry)
        return entry

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        if not leaf_is_due(stream):
            return self._replay.leaf(stream, noise, users)
        self._next()
        fresh = self._replay.leaf(stream, noise, users)
        self.sink(Released("leaf", {"released": published(stream)} if fresh else {}))
        return fresh

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        entry = self._next()
        released = self._replay.vector(kind, exact, noise, sd)
        self.sink(entry)
        return released

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        entry = self._next()
        total = self._replay.shuffled(protocol, rows, release)
        self.sink(entry)
        return total


class World:
    """One run; ``told`` is all that anybody but the replaced user gets to see, in order."""

    def __init__(self, folder: Path, row: tuple[int, float | None, int], releases: list[Released] | None, **terms: Any):
        self.arms, self.value, self.delay = row
        self.bench = Bench(folder, **terms)
        self.releases: list[Released] = []
        self.told: list[Any] = []
        host = self.bench.host
        policy, sink = host.journal.policy, host.journal._log

        def keep(entry: Entry) -> None:
            if isinstance(entry, Released):
                self.releases.append(entry)
            sink(entry)

        policy.keep_log(keep)
        if releases is not None:
            policy.publisher = Following(keep, iter(releases))

    def run(self) -> None:
        rng = np.random.default_rng(6)
        delays = rng.integers(0, 25, USERS)
        rewards = rng.random(USERS) < 0.5
        for now in range(USERS + 40):
            self.bench.clock.now += 1.0
            if now < USERS:
                self._decide(now)
            for user in range(min(now + 1, USERS)):
                delay = self.delay if user == TARGET else int(delays[user])
                if user + delay == now:
                    self._report(user, float(rewards[user]))
            if now % 7 == 0:
                self.bench.host.tick()
            look = asdict(self.bench.host.published)
            self.told.append((look, self.bench.host.journal.policy.public_fingerprint()))

    def _decide(self, user: int) -> None:
        number = self.arms if user == TARGET else user
        for _ in range(2 if user % 5 == 0 else 1):  # some ask twice
            found = self.bench.decide(f"event {user}", number, user=f"person {user % 60}")
            self._tell(user, found)

    def _report(self, user: int, reward: float) -> None:
        value = self.value if user == TARGET else reward
        if user != TARGET or value is not None:
            self._tell(user, self.bench.reward(f"event {user}", value))
        self._tell(user, self.bench.reward(f"event {user}", 0.25))  # another one afterwards

    def _tell(self, user: int, found: Answer | Refusal) -> None:
        if user != TARGET:
            self.told.append((user, found if isinstance(found, Refusal) else found._asdict()))


ROWS: list[tuple[tuple[int, float | None, int], tuple[int, float | None, int]]] = [
    ((1000, 1.0, 0), (1001, 0.0, 0)),
    ((1000, 1.0, 1), (1000, 1.0, 9)),
    ((1000, 1.0, 2), (1001, 1.0, 1_000_000)),  # which never comes
    ((1000, 0.0, 20), (1002, 1.0, 4)),  # too late, and in time
]
TERMS: list[dict[str, Any]] = [
    {"policy": "joint-linucb"},
    {"policy": "stream-glm", "default_reward": 0.0},
    {"policy": "joint-linucb", "default_reward": 0.5, "hold": False},
    {"policy": "stream-glm", "user_level": True, "rounds_per_user": 1},
    {"policy": "joint-linucb", "user_level": True, "event_memory": 2 * WAIT, "factorization": "tree"},
    {"policy": "joint-glm", "horizon": 200},
    {"policy": "shuffle-linucb", "horizon": 200, "hold": False},
]


@pytest.mark.parametrize("rows", ROWS, ids=["arms-and-reward", "delay", "missing", "late"])
@pytest.mark.parametrize("terms", TERMS, ids=lambda terms: "-".join(map(str, terms.values())))
def test_everybody_else_sees_the_same(
    terms: dict[str, Any], rows: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1.8e9)
    first = World(tmp_path / "0", rows[0], None, reward_wait=WAIT, **terms)
    first.run()
    second = World(tmp_path / "1", rows[1], first.releases, reward_wait=WAIT, **terms)
    second.run()
    assert len(first.releases) > 1
    assert len(first.releases) == len(second.releases)
    for number, (ours, theirs) in enumerate(zip(first.told, second.told, strict=True)):
        assert repr(ours) == repr(theirs), number
    assert {type(told[1]) for told in first.told} >= {Refusal, dict, str}
    first.bench.close()
    second.bench.close()


def test_the_worlds_do_differ_in_what_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: without the first world's releases the second shows others."""
    monkeypatch.setattr(time, "time", lambda: 1.8e9)
    worlds = [World(tmp_path / str(place), row, None, reward_wait=WAIT) for place, row in enumerate(ROWS[0])]
    for world in worlds:
        world.run()
    assert repr(worlds[0].told) != repr(worlds[1].told)
    assert worlds[0].bench.learned != worlds[1].bench.learned
    assert arms_of(1000).tobytes() != arms_of(1001).tobytes()
    for world in worlds:
        world.bench.close()
