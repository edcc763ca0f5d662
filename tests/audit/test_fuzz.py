"""Sequences of good and bad calls against every policy: documented errors only, refused calls change nothing.

``TACIT_FUZZ_CALLS=100000`` makes about as many calls in all; the default is a small share of that.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tacit
from tacit.errors import TacitError
from tacit.policies.decision import Decision
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import POLICIES, make_policy, policy_class

CALLS = int(os.environ.get("TACIT_FUZZ_CALLS", "0"))
STEPS = 40
EXAMPLES = max(2, CALLS // (STEPS * len(POLICIES)))
DIM = 2
WINDOW = 12
COUNT = {"calls": 0}

good_arms = st.integers(1, 5).flatmap(
    lambda k: st.lists(st.tuples(st.floats(-0.7, 0.7), st.floats(-0.7, 0.7)), min_size=k, max_size=k)
)
bad_arms: st.SearchStrategy[Any] = st.sampled_from(
    [
        [[2.0, 0.0]],
        [[math.nan, 0.0]],
        [[math.inf, 0.0]],
        [[0.1, 0.1, 0.1]],
        [],
        [[]],
        "text",
        None,
        3.0,
        [[1.0], [0.0, 1.0]],
        [[-1e308, 1e308]],
        np.zeros((0, DIM)),
        np.zeros((2, 2, DIM)),
        [["a", "b"]],
        [[1.001, 0.0]],
    ]
)
bad_rewards = st.sampled_from([-0.1, 1.0 + 1e-6, math.nan, math.inf, -math.inf, "one", None, [1.0], 1e400])
bad_decisions = st.sampled_from([-1, 10**9, 1.5, None, "0", True, (), 2**70])


class Fuzz(RuleBasedStateMachine):
    """One policy under arbitrary calls."""

    name = "random"

    @initialize(
        seed=st.one_of(st.none(), st.integers(0, 3)),
        horizon=st.sampled_from([None, 30, 200]),
        age=st.sampled_from([None, 1, 5]),
    )
    def make(self, seed: int | None, horizon: int | None, age: int | None) -> None:
        options: dict[str, Any] = {"dim": DIM, "horizon": horizon, "theta_bound": 1.5, "seed": seed}
        self.age = None if policy_class(self.name).guarantee == "shuffle" else age  # which refuses it
        options |= {"reward_window": WINDOW} if self.age is None else {"reward_age": self.age}
        if policy_class(self.name).guarantee != "none":
            options |= {"epsilon": 4.0, "delta": 1e-3}
        try:
            self.policy = make_policy(self.name, **options)
        except TacitError:  # some need a horizon
            self.policy = make_policy(self.name, **(options | {"horizon": 200}))
        self.folder = Path(tempfile.mkdtemp())
        self.waiting: list[int] = []
        self.done: list[int] = []
        self.first = 0
        """Id of the first decision: ids of policies without a seed begin anywhere."""
        self.ticked = 0
        """Decisions before the last tick: those that were as old as ``age`` then have expired."""
        self.spent = 0.0

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def _refused(self, call: Any, *arguments: Any) -> None:
        COUNT["calls"] += 1
        before = self.policy.fingerprint()
        with pytest.raises(TacitError):
            call(*arguments)
        assert self.policy.fingerprint() == before

    def _batch_of_one(self, arms: Any) -> None:
        """A user's bad arms are answered by an error; what is no batch at all raises one."""
        (answer,) = self.policy.select_batch([arms])
        assert isinstance(answer, TacitError)
        raise answer

    @rule(arms=good_arms)
    def select(self, arms: Any) -> None:
        COUNT["calls"] += 1
        self.ticked = self.policy.decisions
        decision = self.policy.select(arms)
        assert 0 <= decision.arm < len(arms)
        self._wait([decision.id])

    @rule(arms=good_arms, users=st.integers(0, 4))
    def select_batch(self, arms: Any, users: int) -> None:
        COUNT["calls"] += 1
        self.ticked = self.policy.decisions if users else self.ticked
        batch = np.tile(np.asarray(arms), (users, 1, 1)) if users else np.zeros((0, 1, DIM))
        self._wait([answer.id for answer in self.policy.select_batch(batch) if isinstance(answer, Decision)])

    def _wait(self, identities: list[int]) -> None:
        if identities:
            self.first = identities[-1] - self.policy.decisions + 1
        self.waiting += identities

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 100), reward=st.floats(0.0, 1.0))
    def update(self, which: int, reward: float) -> None:
        COUNT["calls"] += 1
        identity = self.waiting.pop(which % len(self.waiting))
        if self._has_expired(identity):
            self._refused(self.policy.update, identity, reward)
        else:
            self.policy.update(identity, reward)
        self.done.append(identity)

    def _has_expired(self, identity: int) -> bool:
        number = identity - self.first
        if self.age is not None:
            return number <= self.ticked - self.age
        return number < self.policy.decisions - WINDOW

    @precondition(lambda self: self.done)
    @rule(which=st.integers(0, 100))
    def update_twice(self, which: int) -> None:
        self._refused(self.policy.update, self.done[which % len(self.done)], 0.5)

    @precondition(lambda self: self.waiting)
    @rule(reward=bad_rewards)
    def update_badly(self, reward: Any) -> None:
        self._refused(self.policy.update, self.waiting[-1], reward)

    @rule(decision=bad_decisions)
    def update_unknown(self, decision: Any) -> None:
        self._refused(self.policy.update, decision, 0.5)

    @rule(arms=bad_arms)
    def select_badly(self, arms: Any) -> None:
        self._refused(self.policy.select, arms)
        self._refused(self._batch_of_one, arms)

    @rule(rewards=st.sampled_from([1.5, -1.0, math.nan]))
    def play_badly(self, rewards: float) -> None:
        self._refused(self.policy.play, np.zeros((3, 2, DIM)), np.full((3, 2), rewards))

    @rule(rounds=st.integers(0, 6))
    def play(self, rounds: int) -> None:
        COUNT["calls"] += 1
        self.policy.play(np.full((rounds, 2, DIM), 0.4), np.ones((rounds, 2)))
        self.ticked = self.policy.decisions - 1 if rounds else self.ticked

    @rule(copy=st.booleans())
    def save_and_load(self, copy: bool) -> None:
        COUNT["calls"] += 2
        path = self.folder / "state"
        self.policy.save(path)
        before, stale = self.policy.fingerprint(), self.policy
        if copy:
            shutil.copy(path, self.folder / "copy")
        self.policy = tacit.load(path)
        assert self.policy.fingerprint() == before
        if self.policy.private:
            self._refused(stale.select, np.eye(DIM))
            self._refused(stale.save, self.folder / "other")
            self._refused(tacit.load, self.folder / "copy" if copy else path)

    @rule()
    def load_badly(self) -> None:
        (self.folder / "damaged").write_bytes(b"PK\x03\x04 damaged")
        self._refused(tacit.load, self.folder / "damaged")

    @invariant()
    def the_ledger_only_grows_within_its_budget(self) -> None:
        policy = getattr(self, "policy", None)
        if not isinstance(policy, PrivatePolicy):
            return
        spent = policy.ledger.epsilon_spent
        assert self.spent - 1e-12 <= spent <= 4.0 * (1.0 + 1e-9)
        self.spent = spent


@pytest.mark.parametrize("name", list(POLICIES))
def test_policy_survives_arbitrary_calls(name: str) -> None:
    machine = type(f"Fuzz_{name}", (Fuzz,), {"name": name})
    size = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, database=None, derandomize=True)
    patient = settings(size, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=patient)


def test_as_many_calls_as_asked_for() -> None:
    assert COUNT["calls"] >= CALLS
