"""The steps of every policy keep to the contract, and steps that do not are found out."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from tacit.audit.contracts import (
    CONTRACTS,
    FOR_ALL,
    Broken,
    Contract,
    Subject,
    choose_keeps_the_state,
    choose_reads_no_secrets,
    clocks_tell_nothing,
    contracts_for,
    memos_are_as_large_as_declared,
    only_declared_randomness_is_read,
    rewards_change_nothing_public,
    the_same_releases_look_the_same,
    users_do_not_depend_on_each_other,
)
from tacit.policies.admission import chosen_rows
from tacit.policies.config import configuration, option
from tacit.policies.continual_policy import ContinualConfig, ContinualPolicy
from tacit.policies.registry import POLICIES
from tacit.policies.steps import Steps
from tacit.privacy.continual import ContinualRelease, Stream, close_leaf, contribute, plan_release
from tacit.privacy.report import Model
from tacit.typing import FloatArray, IntArray
from tests.contracts.policies import DIM, HORIZON, PRIVATE, make

every_policy = pytest.mark.parametrize("name", list(POLICIES))
private_policy = pytest.mark.parametrize("name", PRIVATE)


def subject(name: str) -> Subject:
    return Subject.rehearsed(partial(make, name), longest=HORIZON)


@every_policy
def test_the_contracts_of_a_policy_follow_from_its_guarantee(name: str) -> None:
    """That its steps keep them is part of the contract of policies (test_policies.py)."""
    kept = set(contracts_for(make(name)))
    left_out = {"none": CONTRACTS.keys() - FOR_ALL, "local": {"rewards change nothing public"}}
    assert kept == CONTRACTS.keys() - left_out.get(make(name).guarantee, set())


@private_policy
def test_states_after_releases_are_looked_at(name: str) -> None:
    looked = subject(name)
    assert looked.releases
    assert looked.states()[-1] > looked.releases[-1]


# A policy with one fault out of many

(
    NONE, COUNTS_CHOICES, OWN_COIN, OWN_NOISE, READS_RAW_SUMS, CLOSES_ON_REWARD, SKIPS_EMPTY_LEAF, SHORT_MEMO,
    MOVED_BY_REWARD, COUNTS_REWARDS, FOLLOWS_THE_FIRST, LEARNS_RELATIVELY,
) = range(12)  # fmt: skip
OWN_RANDOMNESS = np.random.default_rng(0)
"""What a policy must not have: draws that no tape knows of."""


class FaultyState(NamedTuple):
    """Sums of r x in a stream, released; the greedy estimate is what was released."""

    stream: Stream
    theta: FloatArray
    counts: IntArray
    """Decisions, then what a fault counts."""
    fault: int


def _advance(state: FaultyState, fresh: bool, users: int) -> int:
    state.counts[0] += 1
    if state.fault == OWN_NOISE:
        state.theta[0] = OWN_RANDOMNESS.standard_normal()
    elif state.fault != MOVED_BY_REWARD:
        state.theta[:] = state.stream.released
    return 0


def _raw(stream: Stream) -> float:
    tree: Any = stream.mechanism
    return float(stream.leaf[0] + tree.sums[0, 0])


def _choose(state: FaultyState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    fault, arms = state.fault, np.asarray((contexts @ state.theta).argmax(axis=1))
    if fault == COUNTS_CHOICES:
        state.counts[1] += 1
    elif fault == OWN_COIN:
        arms = OWN_RANDOMNESS.integers(contexts.shape[1], size=arms.size)
    elif fault == READS_RAW_SUMS and abs(_raw(state.stream)) > 0.05:
        arms[:] = contexts.shape[1] - 1
    elif fault == FOLLOWS_THE_FIRST:
        arms[:] = arms[0]
    memos[:, :-1] = chosen_rows(contexts, arms)
    if fault != SHORT_MEMO:
        memos[:, -1] = arms
    return arms


def _learn(state: FaultyState, memos: FloatArray, rewards: FloatArray) -> None:
    responses = rewards - rewards.mean() if state.fault == LEARNS_RELATIVELY else rewards
    contribute(state.stream, 0, responses[:, np.newaxis] * memos[:, :-1])
    if state.fault == CLOSES_ON_REWARD and rewards[0] > 0.5:
        close_leaf(state.stream, np.zeros(state.theta.size), 1)
    elif state.fault == MOVED_BY_REWARD:
        state.theta[0] += 1e-9 * rewards.sum()
    elif state.fault == COUNTS_REWARDS:
        state.counts[1] += rewards.size


@configuration
class FaultyConfig(ContinualConfig):
    """Configuration of `faulty`."""

    fault: int = option("Which fault.", default=NONE)


class Faulty(ContinualPolicy):
    """A small private policy, right or wrong."""

    name: ClassVar[str] = "faulty"
    guarantee: ClassVar[Model] = "joint"
    config_type = FaultyConfig
    config: FaultyConfig
    _steps = Steps(_choose, _learn, _advance)

    @property
    def _memo_size(self) -> int:
        return self.setting.dim + 1

    def _plan(self, horizon: int) -> ContinualRelease:
        return plan_release(
            "r x", self.setting.dim, row_bound=2.0, row_norm=1.0, mu=self._total_mu, factorization="tree",
            horizon=horizon, source=self.randomness.ticks,
        )  # fmt: skip

    def _close(self, noise: FloatArray, users: int) -> bool:
        if self.config.fault == SKIPS_EMPTY_LEAF and not np.any(self.state.stream.leaf):
            return False
        return super()._close(noise, users)

    def _make_state(self) -> FaultyState:
        dim = self.setting.dim
        return FaultyState(self._open_stream(), np.zeros(dim), np.zeros(2, dtype=np.int64), self.config.fault)


def faulty(fault: int) -> Subject:
    def make_faulty() -> Faulty:
        return Faulty(dim=DIM, horizon=HORIZON, epsilon=4.0, delta=0.01, seed=3, fault=fault)

    return Subject(make_faulty, (1, 2, 3))  # a tree releases before every decision


@pytest.mark.parametrize("title", list(CONTRACTS))
def test_a_policy_without_fault_passes(title: str) -> None:
    CONTRACTS[title](faulty(NONE))


@pytest.mark.parametrize(
    ("fault", "check", "message"),
    [
        (COUNTS_CHOICES, choose_keeps_the_state, r"choose changed the state: \['counts'\]"),
        (OWN_COIN, only_declared_randomness_is_read, "drew something beside its 0 coins"),
        (OWN_NOISE, only_declared_randomness_is_read, "drew something beside its 3 numbers of noise"),
        (FOLLOWS_THE_FIRST, users_do_not_depend_on_each_other, "in a group than alone"),
        (LEARNS_RELATIVELY, users_do_not_depend_on_each_other, "depends on who else is learned from"),
        (READS_RAW_SUMS, choose_reads_no_secrets, "choose read one of .*stream.leaf"),
        (SHORT_MEMO, memos_are_as_large_as_declared, "left some of the memo's 4 numbers"),
        (MOVED_BY_REWARD, rewards_change_nothing_public, r"without a release: \['theta'\]"),
        (COUNTS_REWARDS, rewards_change_nothing_public, r"without a release: \['counts'\]"),
        (CLOSES_ON_REWARD, clocks_tell_nothing, "'stream.closed'.* depend on one user's row"),
        (SKIPS_EMPTY_LEAF, clocks_tell_nothing, "'stream.closed'.* depend on one user's row"),
        (CLOSES_ON_REWARD, the_same_releases_look_the_same, "'stream.closed'.* beside releases"),
        (COUNTS_REWARDS, the_same_releases_look_the_same, "'counts'.* beside releases"),
        (READS_RAW_SUMS, the_same_releases_look_the_same, "the arm of another user"),
    ],
)  # fmt: skip
def test_a_fault_is_found(fault: int, check: Contract, message: str) -> None:
    with pytest.raises(Broken, match=message):
        check(faulty(fault))
