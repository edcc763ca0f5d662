"""The compiled steps of every policy keep to the contract, and steps that do not are found out."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from tacit._compile import allocating_kernel, kernel
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
from tests.contracts.policies import DIM, HORIZON, PRIVATE, make
from tests.contracts.steps import (
    NEIGHBOURS,
    Make,
    check_choose_keeps_the_state,
    check_choose_reads_no_secrets,
    check_clocks_tell_nothing,
    check_memos_are_as_large_as_declared,
    check_only_declared_randomness_is_read,
    check_rewards_change_nothing_public,
    check_the_same_releases_look_the_same,
)

every_policy = pytest.mark.parametrize("name", list(POLICIES))
private_policy = pytest.mark.parametrize("name", PRIVATE)

OWN = {"local-glm": slice(DIM, 2 * DIM)}
"""`local-glm` hands the noise of the deciding user's device to that user's memo: nobody else's secret."""
DRIVEN = {"joint-glm": frozenset({"explore.calls", "exploit.calls", "ledger"})}
"""Calls of `joint-glm`'s optimizers are asked for by released matrices, and charged then."""
REPORTED = {"local-glm": NEIGHBOURS[:1]}
"""A missing report shows in the local model: the number of reports is not protected there."""


@every_policy
def test_choose_keeps_the_state(name: str) -> None:
    check_choose_keeps_the_state(partial(make, name))


@every_policy
def test_only_declared_randomness_is_read(name: str) -> None:
    check_only_declared_randomness_is_read(partial(make, name))


@every_policy
def test_memos_are_as_large_as_declared(name: str) -> None:
    check_memos_are_as_large_as_declared(partial(make, name))


@private_policy
def test_choose_reads_no_secrets(name: str) -> None:
    check_choose_reads_no_secrets(partial(make, name), OWN.get(name, slice(0, 0)))


@pytest.mark.parametrize("name", [name for name in PRIVATE if name != "local-glm"])
def test_rewards_change_nothing_public(name: str) -> None:
    """Not `local-glm`, whose report is a release, made when the reward comes."""
    check_rewards_change_nothing_public(partial(make, name))


@private_policy
def test_clocks_tell_nothing(name: str) -> None:
    check_clocks_tell_nothing(partial(make, name), DRIVEN.get(name, frozenset()), REPORTED.get(name, NEIGHBOURS))


@private_policy
def test_the_same_releases_look_the_same(name: str) -> None:
    check_the_same_releases_look_the_same(partial(make, name), REPORTED.get(name, NEIGHBOURS))


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


def faulty(fault: int) -> Make:
    def make_faulty() -> Faulty:
        return Faulty(dim=DIM, horizon=HORIZON, epsilon=4.0, delta=0.01, seed=3, fault=fault)

    return make_faulty


CHECKS: tuple[Callable[[Make], Any], ...] = (
    check_choose_keeps_the_state,
    check_only_declared_randomness_is_read,
    check_choose_reads_no_secrets,
    check_memos_are_as_large_as_declared,
    check_rewards_change_nothing_public,
    check_clocks_tell_nothing,
    check_the_same_releases_look_the_same,
)


@pytest.mark.parametrize("check", CHECKS)
def test_a_policy_without_fault_passes(check: Callable[[Make], None]) -> None:
    check(faulty(NONE))


@pytest.mark.parametrize(
    ("fault", "check", "message"),
    [
        (COUNTS_CHOICES, check_choose_keeps_the_state, r"choose changed the state: \['counts'\]"),
        (UNDECLARED_COIN, check_only_declared_randomness_is_read, "read coins beyond its 0"),
        (UNDECLARED_NOISE, check_only_declared_randomness_is_read, "read noise beyond its 3 numbers"),
        (READS_RAW_SUMS, check_choose_reads_no_secrets, "choose read one of .*stream.leaf"),
        (LONG_MEMO, check_memos_are_as_large_as_declared, "wrote beyond the memo's 4 numbers"),
        (SHORT_MEMO, check_memos_are_as_large_as_declared, "left some of the memo's 4 numbers"),
        (LEARNS_BEYOND_MEMO, check_memos_are_as_large_as_declared, "learn read beyond the memo's 4 numbers"),
        (MOVED_BY_REWARD, check_rewards_change_nothing_public, r"without a release: \['theta'\]"),
        (COUNTS_REWARDS, check_rewards_change_nothing_public, r"without a release: \['counts'\]"),
        (CLOSES_ON_REWARD, check_clocks_tell_nothing, "'stream.closed'.* depend on one user's row"),
        (SKIPS_EMPTY_LEAF, check_clocks_tell_nothing, "'stream.closed'.* depend on one user's row"),
        (CLOSES_ON_REWARD, check_the_same_releases_look_the_same, "'stream.closed'.* beside releases"),
        (COUNTS_REWARDS, check_the_same_releases_look_the_same, "'counts'.* beside releases"),
        (READS_RAW_SUMS, check_the_same_releases_look_the_same, "the arm of another user"),
    ],
)  # fmt: skip
def test_a_fault_is_found(fault: int, check: Callable[[Make], None], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(faulty(fault))
