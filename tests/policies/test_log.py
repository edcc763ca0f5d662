"""Logs: releases, decisions and rewards, applied again, give the same state, to the bit in all that is public."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import AlreadyRewarded, CorruptState, InvalidInput
from tacit.policies.log import Decided, LogEntry, Released, Rewarded, from_parts, to_parts
from tacit.policies.policy import Policy
from tacit.policies.registry import POLICIES
from tacit.policies.state import flatten
from tests.contracts.policies import ARMS, PRIVATE, make, rounds


def _walk(policy: Policy, count: int, seed: int = 3, first: int = 0) -> None:
    """Decisions one by one and in groups; rewards at once, late, or never."""
    contexts, rewards = rounds(count, seed)
    rng, waiting = np.random.default_rng(seed), []
    for t in range(first, count):
        if t % 11 == 10:
            policy.select_batch(contexts[t - 2 : t])
        decision = policy.select(contexts[t])
        waiting.append((decision, float(rewards[t, decision.arm])))
        while waiting and rng.random() < 0.55:
            policy.update(*waiting.pop(int(rng.integers(len(waiting)))))


def _logged(name: str, count: int, **changes: Any) -> tuple[Policy, Policy, list[LogEntry]]:
    """A policy, its twin from before the log began, and the log."""
    policy = make(name, **changes)
    _walk(policy, 40, seed=1)
    twin, log = tacit.restore(policy.snapshot()), list[LogEntry]()
    policy.keep_log(log.append)
    _walk(policy, count)
    return policy, twin, log


def _through_json(entry: LogEntry) -> LogEntry:
    """As a store would keep it."""
    header, arrays = to_parts(entry)
    return from_parts(json.loads(json.dumps(header)), {key: np.array(array) for key, array in arrays.items()})


def _same_public_state(first: Policy, second: Policy) -> None:
    assert first.decisions == second.decisions
    if first.private:
        assert first.public_fingerprint() == second.public_fingerprint()
    else:
        assert first.fingerprint() == second.fingerprint()


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_replayed_log_gives_the_same_public_state_and_the_policy_goes_on(name: str) -> None:
    policy, twin, log = _logged(name, 150)
    twin.replay(map(_through_json, log))
    _same_public_state(policy, twin)
    for path, array in flatten(policy.state).items():
        np.testing.assert_allclose(flatten(twin.state)[path], array, rtol=1e-9, atol=1e-9, err_msg=path)
    # Seeded generators are where they were: both decide alike from here on, up to rounding in noise buffers.
    policy.keep_log(None)
    contexts, _ = rounds(30, seed=8)
    assert [policy.select(arms).arm for arms in contexts] == [twin.select(arms).arm for arms in contexts]


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("horizon", [None, 60])
def test_epochs_and_ends_of_horizons_are_replayed(name: str, horizon: int | None) -> None:
    short = {"first_epoch": 8} if name in ("stream-glm", "joint-glm", "joint-linucb") else {}
    policy, twin, log = _logged(name, 120, horizon=horizon, seed=None, **short)
    twin.replay(log)
    _same_public_state(policy, twin)


@pytest.mark.parametrize("name", ["stream-glm", "joint-glm", "joint-linucb"])
def test_integers_are_replayed_to_the_bit(name: str) -> None:
    """With the tree every sum is one of contributions: secret ones are equal too, noise and all."""
    policy, twin, log = _logged(name, 100, seed=None, factorization="tree", noise="secure")
    twin.replay(log)
    mine, theirs = flatten(policy.state.stream), flatten(twin.state.stream)
    for path, array in mine.items():
        assert np.array_equal(array, theirs[path]), path


def test_the_log_holds_releases_and_no_noise() -> None:
    policy, twin, log = _logged("stream-glm", 30)
    releases = [entry for entry in log if isinstance(entry, Released)]
    decisions = [entry for entry in log if isinstance(entry, Decided)]
    assert 0 < len(releases) <= len(decisions)  # a leaf at most for each tick, before its decisions
    assert np.array_equal(releases[-1].values["released"], policy.state.stream.mechanism.observed)
    assert sum(len(entry.arms) for entry in decisions) == policy.decisions - twin.decisions
    assert all(0 <= arm < ARMS for entry in decisions for arm in entry.arms)
    assert any(isinstance(entry, Rewarded) for entry in log)


def test_a_log_is_applied_in_order_and_once() -> None:
    _, twin, log = _logged("stream-glm", 20)
    decided = next(entry for entry in log if isinstance(entry, Decided))
    with pytest.raises(CorruptState, match="no release there"):
        twin.replay([decided])
    _, twin, log = _logged("stream-glm", 20)
    later = [entry for entry in log if isinstance(entry, Decided)][3]
    with pytest.raises(CorruptState, match="not the next one"):
        twin.replay([later])
    _, twin, log = _logged("stream-glm", 20)
    twin.replay(log)
    with pytest.raises(AlreadyRewarded):
        twin.replay([next(entry for entry in log if isinstance(entry, Rewarded))])


def test_a_leaf_without_a_release_never_shows_its_raw_sum() -> None:
    """A damaged log must not close a leaf without noise."""
    _, twin, log = _logged("stream-glm", 20)
    before = twin.state.stream.released.copy()
    twin.replay([Released("leaf", {})])
    with pytest.raises(CorruptState, match="leaf without a release"):
        twin.replay([next(entry for entry in log if isinstance(entry, Decided))])
    assert np.array_equal(twin.state.stream.released, before)


def test_releases_that_do_not_happen_again_are_an_error() -> None:
    _, twin, log = _logged("stream-glm", 20)
    twin.replay([log[0], log[0]])
    with pytest.raises(CorruptState, match="did not happen again"):
        twin.replay([next(entry for entry in log if isinstance(entry, Decided))])


@pytest.mark.parametrize("header", [{}, {"entry": "Other"}, {"entry": "Rewarded"}, {"entry": "Decided", "first": "x"}])
def test_what_is_no_entry_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(CorruptState, match="not an entry of a log"):
        from_parts(header, {})


def test_rounds_that_are_played_together_cannot_be_logged() -> None:
    policy = make("stream-glm")
    policy.keep_log(lambda entry: None)
    with pytest.raises(InvalidInput, match="use select and update"):
        policy.play(*rounds(3))
