"""`shuffle-linucb`: Chowdhury and Zhou, "Shuffle private linear contextual bandits", ICML 2022, arXiv 2202.05567.

Their Algorithm 1: batches of about T^{3/5} users, the same LinUCB index for a whole batch, then one shuffled vector
sum each of x x' and r x, added to what earlier batches released. Rewards are taken for linear with every link: a
reward that is not costs a bias, never privacy. With a base rate b, what is summed and fitted is r - b.

Formal guarantee
----------------
(epsilon, delta)-shuffle differential privacy. Adjacency: one user's whole row is replaced, which moves the sum of x
x' by at most sqrt(2) in Frobenius norm and that of r x by at most 2 R (2 max(b, R - b) with a base rate). A batch's two
sums are calibrated together by the project's exact binomial accounting and charged to the batch's own cohort: users of
different batches are disjoint (docs/theory.md#private-peers). A batch closes after a public number of decisions,
with or without their rewards: a user without one reports a contribution of 0, so that neither time nor number of
reports depends on a user. Ours: that calibration in place of their constants, and the scale of radius and shift. The
sums are drawn directly, which has the distribution of the three roles: the process that runs this policy sees the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tacit.errors import InvalidInput
from tacit.policies.baselines._private_linear import (
    LinearConfig,
    NoisySums,
    response_bound,
    solve_noisy,
    subtracted_rate,
)
from tacit.policies.batch_policy import BatchPolicy, Sums
from tacit.policies.batches import (
    BatchClock,
    BatchRows,
    keep_rows,
    make_batch_rows,
    make_clock,
    most_users,
    remember_arms,
    tick_batch,
)
from tacit.policies.beliefs import PointBelief, most_promising, quadratics
from tacit.policies.config import at_least, configuration, option
from tacit.policies.steps import Steps
from tacit.privacy.noise import NoiseSource
from tacit.shuffle.domains import Ball, OuterProducts
from tacit.shuffle.planning import BatchPlan, SumRequest, plan_batch
from tacit.typing import Count, FloatArray, IntArray, Scalar, Secret, count, scalar

_BATCH_WITHOUT_HORIZON = 512


@configuration
class ShuffleLinConfig(LinearConfig):
    """Configuration of `shuffle-linucb`; defaults of scale and shift are those calibrated for `joint-linucb`."""

    batch_size: int | None = option(
        "Users of a batch; T^(3/5) by default, the paper's order, and 512 without a horizon.",
        default=None,
        check=at_least(1),
    )
    max_bits: int = option("Most bits of a message for each coordinate of a sum.", default=1024, check=at_least(2))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds_per_user != 1:
            raise InvalidInput("shuffle-linucb is calibrated for one round per user: rounds_per_user must be 1")
        if self.batch_size is not None and self.batch_size > most_users(self.dim):
            most = most_users(self.dim)
            raise InvalidInput(f"batch_size must be at most {most:,} with dim={self.dim}, got {self.batch_size}")


class ShuffleLinState(NamedTuple):
    """The batches' clock and rows, the sums that were released, and what is computed from them."""

    batch: BatchClock
    rows: Secret[BatchRows]
    """Rows of the open batch."""
    gram: FloatArray
    """Noisy sum of x x' over all batches."""
    moment: FloatArray
    """Noisy sum of r x."""
    gram_variance: Scalar
    """Variance of the noise in ``gram``."""
    moment_variance: Scalar
    """Variance of the noise in ``moment``."""
    users: Count
    """Users of the batches that the sums hold."""
    theta: FloatArray
    inverse: FloatArray
    """Inverse of the shifted Gram matrix."""
    radius: Scalar
    """Radius of the confidence set around ``theta``, in the metric of ``inverse``."""


def _advance(state: ShuffleLinState, fresh: bool, users: int) -> int:
    return tick_batch(state.batch, users)


def _choose(state: ShuffleLinState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the arm of the largest <x, theta> + radius ||x||_inverse for each of N users."""
    rows = contexts.reshape(-1, contexts.shape[2])
    squares = quadratics(rows, state.radius[()] ** 2 * state.inverse)
    arms = most_promising(rows.dot(state.theta), squares, len(contexts))
    remember_arms(state.batch, contexts, arms, memos)
    return arms


def _learn(state: ShuffleLinState, memos: FloatArray, rewards: FloatArray) -> None:
    keep_rows(state.batch, state.rows, memos, rewards)


class ShuffleLinUcb(BatchPolicy):
    """Batched LinUCB with shuffled sums."""

    name: ClassVar[str] = "shuffle-linucb"
    config_type = ShuffleLinConfig
    config: ShuffleLinConfig
    state: ShuffleLinState
    _steps = Steps(_choose, _learn, _advance)
    _charged_when_opened = False  # all batches have one plan: what is given up before it is full need not be paid for

    def _make_state(self) -> ShuffleLinState:
        setting, config, dim = self.setting, self.config, self.setting.dim
        return ShuffleLinState(
            batch=make_clock(),
            rows=make_batch_rows(dim, 0),
            gram=np.zeros((dim, dim)),
            moment=np.zeros(dim),
            gram_variance=scalar(),
            moment_variance=scalar(),
            users=count(),
            theta=np.zeros(dim),
            inverse=np.eye(dim) / config.ridge,
            radius=scalar(config.scale * setting.theta_bound * math.sqrt(config.ridge)),
        )

    @property
    def belief(self) -> PointBelief:
        return PointBelief(self._state.theta)

    @property
    def _bit_source(self) -> NoiseSource:
        return self.randomness.ticks

    def _next_size(self) -> int:
        """Users of a batch, which all batches have in common."""
        if self.config.batch_size is not None:
            return self.config.batch_size
        horizon = self.setting.horizon
        wanted = _BATCH_WITHOUT_HORIZON if horizon is None else math.ceil(horizon**0.6)
        return min(wanted, most_users(self.setting.dim))

    def _requests(self, users: int) -> Sequence[SumRequest]:
        dim = self.setting.dim
        return SumRequest("gram", OuterProducts(dim)), SumRequest(
            "moment", Ball(dim, response_bound(self.setting, self.config))
        )

    def _calibrated(self, users: int) -> BatchPlan:
        return self._every_plan

    @cached_property
    def _every_plan(self) -> BatchPlan:
        """The two sums of any batch, calibrated to the whole budget."""
        users, budget = self._next_size(), self.setting.budget
        return plan_batch(
            users, budget.epsilon, budget.delta, self._requests(users), accounting="renyi",
            max_bits=self.config.max_bits,
        )  # fmt: skip

    def _learn_from(self, rows: BatchRows, sums: Sums) -> None:
        state = self.state
        features = rows.features
        gram = sums("gram", 0, rows.padded(features))
        moment = sums("moment", 0, rows.padded((rows.rewards - subtracted_rate(self.config))[:, None] * features))
        state.gram[:] += gram.values
        state.moment[:] += moment.values
        state.gram_variance[()] += gram.noise_sd**2
        state.moment_variance[()] += moment.noise_sd**2
        state.users[()] += rows.users
        released = NoisySums(
            state.gram,
            state.moment,
            math.sqrt(state.gram_variance[()]),
            math.sqrt(state.moment_variance[()]),
            float(state.users[()]),
        )
        fit = solve_noisy(released, self.setting, self.config)
        state.theta[:], state.inverse[:], state.radius[()] = fit
