"""The compiled steps of every policy keep to the contract, and steps that do not are found out."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from tacit._compile import allocating_kernel, kernel
from tacit.audit.contracts import (
    CONTRACTS,
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
)
from tacit.linalg.solve import dot
from tacit.linalg.vectors import copy_into
from tacit.policies.arms import remember_arm
from tacit.policies.config import configuration, option
from tacit.policies.continual_policy import ContinualConfig, ContinualPolicy
from tacit.policies.registry import POLICIES
from tacit.policies.steps import register_steps
from tacit.privacy.continual import ContinualRelease, Stream, close_leaf, contribute_vector, plan_release
from tacit.privacy.report import Model
from tacit.typing import FloatArray, IntArray
from tests.contracts.policies import DIM, HORIZON, PRIVATE, make, make_private

every_policy = pytest.mark.parametrize("name", list(POLICIES))
private_policy = pytest.mark.parametrize("name", PRIVATE)
BARE = (choose_keeps_the_state, only_declared_randomness_is_read, memos_are_as_large_as_declared)
"""What policies without privacy must keep to as well."""


def subject(name: str) -> Subject:
    return Subject.rehearsed(partial(make, name), longest=HORIZON)


@every_policy
@pytest.mark.parametrize("contract", BARE)
def test_steps_do_what_they_declare(name: str, contract: Contract) -> None:
    assert contract(subject(name)) >= 4


@private_policy
@pytest.mark.parametrize("title", [title for title, contract in CONTRACTS.items() if contract not in BARE])
def test_steps_of_private_policies_keep_secrets(name: str, title: str) -> None:
    if title not in contracts_for(make_private(name)):
        assert name == "local-glm"  # whose report is a release, made when the reward comes
        return
    assert CONTRACTS[title](subject(name)) > 0


@private_policy
def test_states_after_releases_are_looked_at(name: str) -> None:
    looked = subject(name)
    assert looked.releases
    assert looked.states()[-1] > looked.releases[-1]


# A policy with one fault out of many: one state and one set of kernels, since each takes seconds to compile

(
    NONE, COUNTS_CHOICES, UNDECLARED_COIN, UNDECLARED_NOISE, READS_RAW_SUMS, CLOSES_ON_REWARD, SKIPS_EMPTY_LEAF,
    LONG_MEMO, SHORT_MEMO, MOVED_BY_REWARD, COUNTS_REWARDS, LEARNS_BEYOND_MEMO,
) = range(12)  # fmt: skip


class FaultyState(NamedTuple):
    """Sums of r x in a stream, released; the greedy estimate is what was released."""

    stream: Stream
    theta: FloatArray
    counts: IntArray
    """Decisions, then what a fault counts."""
    fault: int


@kernel
def _close(state: FaultyState, noise: FloatArray, users: int) -> bool:
    if state.fault == UNDECLARED_NOISE:
        state.theta[0] = noise[noise.shape[0]]
    if state.fault == SKIPS_EMPTY_LEAF and dot(state.stream.leaf, state.stream.leaf) == 0.0:
        return False
    return close_leaf(state.stream, noise, users)


@kernel
def _advance(state: FaultyState, fresh: bool) -> int:
    state.counts[0] += 1
    if state.fault not in (MOVED_BY_REWARD, UNDECLARED_NOISE):
        copy_into(state.stream.released, state.theta)
    return 0


@kernel
def _raw(stream: Stream) -> float:
    tree: Any = stream.mechanism
    return float(stream.leaf[0] + tree.sums[0, 0])


@kernel
def _choose(state: FaultyState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    fault, arm, best = state.fault, 0, -math.inf
    for k in range(contexts.shape[0]):
        score = dot(contexts[k], state.theta)
        if score > best:
            arm, best = k, score
    if fault == COUNTS_CHOICES:
        state.counts[1] += 1
    elif fault == UNDECLARED_COIN:
        arm = min(int(coins[0] * contexts.shape[0]), contexts.shape[0] - 1)
    elif fault == READS_RAW_SUMS and abs(_raw(state.stream)) > 0.05:
        arm = contexts.shape[0] - 1
    remember_arm(contexts, arm, memo)
    if fault == LONG_MEMO:
        memo[contexts.shape[1] + 1] = 1.0
    if fault != SHORT_MEMO:
        memo[contexts.shape[1]] = float(arm)
    return arm


@allocating_kernel
def _learn(state: FaultyState, memo: FloatArray, reward: float) -> None:
    fault, dim = state.fault, state.theta.shape[0]
    contribute_vector(state.stream, 0, reward, memo[:dim])
    if fault == CLOSES_ON_REWARD and reward > 0.5:
        close_leaf(state.stream, np.zeros(dim), 1)
    elif fault == MOVED_BY_REWARD:
        state.theta[0] += 1e-9 * reward
    elif fault == COUNTS_REWARDS:
        state.counts[1] += 1
    elif fault == LEARNS_BEYOND_MEMO:
        contribute_vector(state.stream, 0, memo[dim + 1], memo[:dim])


register_steps(FaultyState, _advance, _choose, _learn, _close)


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

    @property
    def memo_size(self) -> int:
        return self.setting.dim + 1

    def _plan(self, horizon: int) -> ContinualRelease:
        return plan_release(
            "r x", self.setting.dim, row_bound=2.0, row_norm=1.0, mu=self.total_mu, factorization="tree",
            horizon=horizon, source=self.randomness.ticks,
        )  # fmt: skip

    def _close(self, noise: FloatArray, users: int) -> bool:
        return self.publisher.leaf(
            self.state.stream, noise, users
        )  # the fault of its own `close` is for the other checks

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
        (UNDECLARED_COIN, only_declared_randomness_is_read, "read coins beyond its 0"),
        (UNDECLARED_NOISE, only_declared_randomness_is_read, "read noise beyond its 3 numbers"),
        (READS_RAW_SUMS, choose_reads_no_secrets, "choose read one of .*stream.leaf"),
        (LONG_MEMO, memos_are_as_large_as_declared, "wrote beyond the memo's 4 numbers"),
        (SHORT_MEMO, memos_are_as_large_as_declared, "left some of the memo's 4 numbers"),
        (LEARNS_BEYOND_MEMO, memos_are_as_large_as_declared, "learn read beyond the memo's 4 numbers"),
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
