"""A log that is applied in large parts gives what it gives entry by entry, to the bit and with the same errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import CorruptState
from tacit.policies.log import Decided, LogEntry, Released, ReplayingPublisher
from tacit.policies.policy import Policy
from tacit.policies.registry import POLICIES, policy_class
from tacit.policies.state import Snapshot
from tacit.privacy.continual import Stream
from tacit.typing import FloatArray
from tests.contracts.policies import make, rounds

CASES: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in POLICIES]
CASES += [(name, {"reward_age": 5}) for name in POLICIES if policy_class(name).guarantee != "shuffle"]
CASES += [
    (name, {"factorization": factorization} | changes)
    for name in ("stream-glm", "joint-glm", "joint-linucb")
    for factorization, changes in (("tree", {"first_epoch": 16}), ("toeplitz", {}), ("geometric", {"reward_window": 9}))
]
CASES += [("shuffle-linucb", {"horizon": None, "batch_size": 20}), ("stream-glm", {"head_start": 0.0})]


def _live(policy: Policy, calls: int, seed: int) -> None:
    """Decisions one by one and in groups; rewards at once, late, given up or never."""
    rng, (contexts, rewards), waiting = np.random.default_rng(seed), rounds(40, seed), list[tuple[int, float]]()
    for _ in range(calls):
        users = rng.integers(len(contexts), size=rng.choice([1, 1, 1, 2, 9]))
        for user, made in zip(users, policy.select_batch(contexts[users]), strict=True):
            assert isinstance(made, tacit.Decision)
            waiting.append((made.id, float(rewards[user, made.arm])))
        while waiting and rng.random() < 0.7:
            identity, reward = waiting.pop(int(rng.integers(max(0, len(waiting) - 5), len(waiting))))
            if identity in policy._pending._memos:
                policy.abandon(identity) if rng.random() < 0.1 else policy.update(identity, reward)


def _logged(policy: Policy, seed: int) -> tuple[Snapshot, list[LogEntry]]:
    """The state before a log of the policy, and the log; with an even seed leaves hold several decisions by then."""
    if seed % 2 == 0:
        policy.play(*rounds(600, seed))
    _live(policy, 20, seed)
    before, log = policy.snapshot(), list[LogEntry]()
    policy.keep_log(log.append)
    _live(policy, 60, seed + 1)
    return before, log


def _one_by_one(policy: Policy, entries: Iterable[LogEntry]) -> None:
    for entry in entries:
        policy.replay([entry])


def _check_cuts(before: Snapshot, log: list[LogEntry], seed: int) -> None:
    for cut in np.random.default_rng(seed).integers(len(log) + 1, size=3):
        first, second = tacit.restore(before), tacit.restore(before)
        for part in (log[:cut], log[cut:]):
            _one_by_one(first, part)
            second.replay(iter(part))
            assert second.fingerprint() == first.fingerprint(), cut
            assert second._clock.ticks_left == first._clock.ticks_left


@pytest.mark.parametrize(("name", "changes"), CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_log_may_be_cut_anywhere(name: str, changes: dict[str, Any], seed: int) -> None:
    _check_cuts(*_logged(make(name, **changes), seed), seed)


@pytest.mark.parametrize("name", ["stream-glm", "joint-glm", "shuffle-glm"])
def test_the_log_of_a_recovered_policy_may_be_cut_anywhere(name: str, tmp_path: Path) -> None:
    policy = make(name)
    _live(policy, 25, seed=7)
    policy.save(tmp_path / "state")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recovered = tacit.load(tmp_path / "state", recover=True)
    _check_cuts(*_logged(recovered, seed=6), seed=6)


@pytest.mark.parametrize("name", ["stream-glm", "joint-linucb", "shuffle-linucb", "local-glm"])
@pytest.mark.parametrize("copies", [0, 2])
def test_a_release_too_few_or_too_many_is_found_at_the_same_entry(name: str, copies: int) -> None:
    before, log = _logged(make(name), seed=4)
    releases = [place for place, entry in enumerate(log) if isinstance(entry, Released)]
    for place in releases[:: max(1, len(releases) // 4)]:
        found = []
        for replay in (_one_by_one, Policy.replay):
            policy, entries = tacit.restore(before), iter(log[:place] + copies * [log[place]] + log[place + 1 :])
            with pytest.raises(CorruptState) as error:
                replay(policy, entries)
            found.append((str(error.value), len(list(entries)), policy.fingerprint()))
        assert found[0] == found[1]


def test_a_decision_with_memos_of_another_size_is_refused() -> None:
    before, log = _logged(make("stream-glm"), seed=5)
    policy, place = tacit.restore(before), next(n for n, entry in enumerate(log) if isinstance(entry, Decided))
    decided = log[place]
    assert isinstance(decided, Decided)
    with pytest.raises(CorruptState, match="memos of shape"):
        policy.replay([*log[:place], Decided(decided.first, decided.arms, decided.memos[:, 1:])])


@pytest.mark.parametrize(("factorization", "together"), [("geometric", True), ("tree", False)])
def test_decisions_between_releases_tick_together(
    factorization: str, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher sees each decision once: those between two releases in one tick, or every entry alone."""
    policy, (contexts, _) = make("stream-glm", factorization=factorization), rounds(1)
    log, seen = list[LogEntry](), list[int]()
    for _ in range(600):
        policy.select(contexts[0])
    before = policy.snapshot()
    policy.keep_log(log.append)
    for _ in range(60):
        policy.select(contexts[0])
    usual = ReplayingPublisher.leaf

    def leaf(self: ReplayingPublisher, stream: Stream, noise: FloatArray, users: int) -> bool:
        seen.append(users)
        return usual(self, stream, noise, users)

    monkeypatch.setattr(ReplayingPublisher, "leaf", leaf)
    tacit.restore(before).replay(log)
    releases = sum(isinstance(entry, Released) for entry in log)
    assert sum(seen) == 60
    assert len(seen) <= 3 * releases + 2 if together else len(seen) == releases == 60
