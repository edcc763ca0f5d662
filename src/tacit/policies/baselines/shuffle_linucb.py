"""`shuffle-linucb`: Chowdhury and Zhou, "Shuffle private linear contextual bandits", ICML 2022, arXiv 2202.05567.

Their Algorithm 1: batches of about T^{3/5} users, the same LinUCB index for a whole batch, then one shuffled vector
sum each of x x' and r x, added to what earlier batches released. Rewards are taken for linear whatever the link is: a
reward that is not costs a bias, never privacy.

Formal guarantee
----------------
(epsilon, delta)-shuffle differential privacy. Adjacency: one user's whole row is replaced, which moves the sum of x
x' by at most sqrt(2) in Frobenius norm and that of r x by at most 2 R. A batch's two sums are calibrated together by
the project's exact binomial accounting and charged to the batch's own cohort: users of different batches are
disjoint (docs/theory.md#private-peers). A batch closes after a public number of decisions, whoever's reward has come:
a user without one reports a contribution of 0, so that neither time nor number of reports tells of anybody. Ours: that
calibration in place of their constants, and the scale of radius and shift. The sums are drawn directly, which has the
distribution of the three roles: whoever runs this process sees the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit._validate import integer_at_least, nonnegative, positive, probability
from tacit.errors import InvalidInput
from tacit.policies.arms import remember_arm
from tacit.policies.baselines._kernels import optimistic_arm
from tacit.policies.baselines._private_linear import linear_constants, solve_noisy
from tacit.policies.rows import RowBuffer, RowPolicy, append_row, grow_flag, make_rows
from tacit.policies.shuffled import check_source, device_generator, shuffle_warnings
from tacit.policies.steps import register_steps
from tacit.privacy.report import Model
from tacit.shuffle.domains import Ball, OuterProducts
from tacit.shuffle.planning import BatchPlan, Request, plan_batch
from tacit.shuffle.sums import sample_sum
from tacit.typing import FloatArray, IntArray, Secret

RELEASE = 1
"""Event of a batch's end."""
_BATCH_WITHOUT_HORIZON = 512


class ShuffleLinState(NamedTuple):
    """The open batch's rows, and the sums that were released."""

    rows: Secret[RowBuffer]
    gram: FloatArray
    moment: FloatArray
    theta: FloatArray
    inverse: FloatArray
    radius: FloatArray
    released: FloatArray
    """Variances of the noise in ``gram`` and ``moment``, users whose rows they hold, batches."""
    counts: IntArray
    """Decisions so far, users of a batch."""
    constants: FloatArray
    """See `linear_constants`."""


@kernel
def _advance(state: ShuffleLinState, fresh: bool) -> int:
    decisions, size = state.counts
    state.counts[0] = decisions + 1
    flag = grow_flag(state.rows)
    if decisions > 0 and decisions % size == 0:
        flag |= RELEASE
    return flag


@kernel
def _batch(state: ShuffleLinState) -> int:
    """The batch of the newest decision: a function of the clock."""
    return int((state.counts[0] - 1) // state.counts[1])


@kernel
def batch_mark(batch: int) -> int:
    """Tells rows of neighbouring batches apart, in the byte that a row has for it."""
    return batch % 251


@kernel
def _choose(state: ShuffleLinState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    arm = optimistic_arm(contexts, state.theta, state.inverse, state.radius[0])
    remember_arm(contexts, arm, memo)
    memo[contexts.shape[1]] = _batch(state)
    return arm


@kernel
def _learn(state: ShuffleLinState, memo: FloatArray, reward: float) -> None:
    # A reward that comes after its batch closed is dropped: its user has sent a contribution of 0.
    if memo[state.theta.shape[0]] == _batch(state):
        append_row(state.rows, memo, reward, batch_mark(_batch(state)))


register_steps(ShuffleLinState, _advance, _choose, _learn)


@dataclass(frozen=True)
class ShuffleLinOptions:
    """``scale`` multiplies the radius, ``shift`` the bound on the noise that is added to the Gram matrix.

    The defaults are those of `joint-linucb`, calibrated there. ``batch_size`` of None is T^(3/5), the paper's order.
    """

    scale: float = 0.3
    shift: float = 0.3
    ridge: float = 1.0
    batch_size: int | None = None
    failure_probability: float = 0.02
    max_bits: int = 1024

    def __post_init__(self) -> None:
        nonnegative("scale", self.scale)
        nonnegative("shift", self.shift)
        positive("ridge", self.ridge)
        probability("failure_probability", self.failure_probability)
        integer_at_least("max_bits", self.max_bits, 2)
        if self.batch_size is not None:
            integer_at_least("batch_size", self.batch_size, 1)


class ShuffleLinUcb(RowPolicy):
    """Batched LinUCB with shuffled sums."""

    name: ClassVar[str] = "shuffle-linucb"
    guarantee: ClassVar[Model] = "shuffle"
    options_type = ShuffleLinOptions
    shares_ticks = False  # batches count users

    @property
    def memo_size(self) -> int:
        return self.setting.dim + 1

    def plan(self) -> BatchPlan:
        """The two sums of a batch, calibrated to the whole budget at the batch's size."""
        budget, setting = self.setting.budget, self.setting
        assert budget is not None
        requests = (
            Request("gram", OuterProducts(setting.dim)),
            Request("moment", Ball(setting.dim, setting.reward_bound)),
        )
        return plan_batch(
            int(self.state.counts[1]), budget.epsilon, budget.delta, requests, accounting="renyi",
            max_bits=self.options.max_bits,
        )  # fmt: skip

    def _warnings(self) -> tuple[str, ...]:
        return shuffle_warnings(self.noise)

    def _on_event(self, flag: int) -> None:
        if flag & RELEASE:
            self._release()
        if flag & ~RELEASE:
            super()._on_event(flag & ~RELEASE)

    def _release(self) -> None:
        """Take the batch's rows out, charge it, release its sums.

        In this order: whatever interrupts it, a batch is released at most once, and its rows are in no other.
        """
        state: ShuffleLinState = self.state
        features, vectors = self._taken_rows()
        users = features.shape[0]
        state.released[3] += 1
        if self._batch_plan is None:
            state.gram[:] += features.T @ features
            state.moment[:] += np.sum(vectors, axis=0)
        else:
            assert self.ledger is not None
            cohort = self._cohort(f"batch {int(state.released[3])}")
            for event in self._batch_plan.events():
                self.ledger.charge(event, cohort)
            rng = device_generator(self.noise)
            for position, (name, rows, total) in enumerate(
                (("gram", features, state.gram), ("moment", vectors, state.moment))
            ):
                protocol = self._batch_plan[name].protocol
                aggregate = self.publisher.shuffled(protocol, rows, partial(sample_sum, protocol, rows, rng))
                total[:] += aggregate.decoded()
                state.released[position] += aggregate.noise_sd**2
        state.released[2] += users
        state.radius[0] = solve_noisy(
            state.gram, state.moment, math.sqrt(state.released[0]), math.sqrt(state.released[1]), state.released[2],
            state.constants, state.theta, state.inverse,
        )  # fmt: skip

    def _taken_rows(self) -> tuple[FloatArray, FloatArray]:
        """x and r x of the batch that is full, a line of zeros for each user without a reward; none of them are kept.

        Rows of an earlier batch, whose release was interrupted before it began, are dropped.
        """
        rows, size = self.state.rows, int(self.state.counts[1])
        batch = (int(self.state.counts[0]) - 1) // size - 1
        chosen = np.flatnonzero(rows.mask[: int(rows.count[0])] == batch_mark(batch))
        features, vectors = np.zeros((size, self.setting.dim)), np.zeros((size, self.setting.dim))
        features[: chosen.size] = rows.features[chosen]
        vectors[: chosen.size] = rows.rewards[chosen, None] * rows.features[chosen]
        rows.count[0] = 0
        return features, vectors

    def _build(self) -> None:
        setting, options, dim = self.setting, self.options, self.setting.dim
        budget = setting.budget
        assert budget is not None
        assert self.ledger is not None
        if budget.rounds_per_user != 1:
            raise InvalidInput("shuffle-linucb is calibrated for one round per user: rounds_per_user must be 1")
        if not budget.unlimited:
            check_source(self.noise)
        size = options.batch_size
        if size is None:
            size = _BATCH_WITHOUT_HORIZON if setting.horizon is None else math.ceil(setting.horizon**0.6)
        self.state = ShuffleLinState(
            rows=make_rows(dim),
            gram=np.zeros((dim, dim)),
            moment=np.zeros(dim),
            theta=np.zeros(dim),
            inverse=np.eye(dim) / options.ridge,
            radius=np.full(1, options.scale * setting.theta_bound * math.sqrt(options.ridge)),
            released=np.zeros(4),
            counts=np.array([0, size], dtype=np.int64),
            constants=linear_constants(
                setting, options.scale, options.shift, options.ridge, options.failure_probability
            ),
        )
        self._batch_plan = None if budget.unlimited else self.plan()
        if self._batch_plan is None:
            self.ledger.charge(self.noise.event("sums", math.sqrt(2.0), 0.0, size=0))
