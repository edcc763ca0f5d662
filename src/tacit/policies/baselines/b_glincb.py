"""`b-glincb`: Sawarni, Das, Barman and Sinha, "Generalized linear bandits with limited adaptivity", 2024, arXiv
2404.06831.

For contexts drawn at random. The policy changes only at the ends of M batches. A first batch plays G-optimal designs
and gives theta_w. Later ones drop arms that some earlier batch's bounds rule out, scale the rest by
sqrt(mu'(<x, theta_w>) / e^{R min(2 S, gamma sqrt(kappa) ||x||_{V^-1})}) and play a design on them. The bounds are
<x, theta_w> +- gamma sqrt(kappa) ||x||_{V^-1} of the first batch, and <x, theta_k> +- gamma ||x||_{H_k^-1} after it.

The paper has gamma = 30 R S sqrt(d log T), lambda = 20 R d log T, B_2 = alpha = T^{1 / (2 (1 - 2^{1 - M}))}, B_k =
alpha sqrt(B_{k-1}), and a B_1 that exceeds any practical T. The authors' public code does not have this algorithm, so
they could not be checked. What differs here: B_1 = alpha, the ridge is an option, all batches play G-optimal designs
where the paper learns a distributional design from half of a batch, and estimates lie in the ball of radius S.
Boundaries count decisions. No published figure is compared with this policy.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import allocating_kernel, kernel
from tacit._validate import positive
from tacit.design.g_optimal import g_optimal_design
from tacit.glm.links import LinkForm, derivative
from tacit.linalg.solve import dot, quadratic_form
from tacit.policies.arms import remember_arm
from tacit.policies.baselines._config import scale_option
from tacit.policies.baselines._kernels import MARK, add_outer, inverse_or_keep, refit, rule_out
from tacit.policies.config import Config, at_least, configuration, option
from tacit.policies.row_policy import RowBuffer, RowPolicy, append_row, grow_flag, make_rows
from tacit.policies.steps import register_steps
from tacit.typing import Count, FloatArray, IntArray, count

WARM_UP = 0
"""The first batch, whose estimate theta_w weighs the rows of all others."""


@configuration
class BatchConfig(Config):
    """Configuration of `b-glincb`."""

    horizon: int = option("Number of decisions that are expected, T: batches are made from it.", check=at_least(1))
    scale: float = scale_option(
        "Multiplies gamma. With the paper's gamma nothing is ever dropped at T = 15,000, and regret is that of random "
        "arms. No experiment with this algorithm gives a scale; ours was calibrated (seeds from 1000) to a regret of "
        "the order of RS-GLinUCB's, its sibling's.",
        default=0.001,
    )
    batches: int | None = option(
        "Number of batches, M; log2 log2 T rounded up plus 1 by default.", default=None, check=at_least(2)
    )
    ridge: float = option("Ridge of all matrices and fits.", default=0.5, check=positive)


class BatchConstants(NamedTuple):
    """Public numbers that the steps read."""

    link: LinkForm
    ridge: float
    theta_bound: float
    reward_bound: float
    first_width: float
    """gamma sqrt(kappa), for the bounds of the first batch."""
    later_width: float
    """gamma, for those of the others."""


class BatchState(NamedTuple):
    """Rows (mask: their batch) and one estimate for each finished batch."""

    rows: RowBuffer
    thetas: FloatArray
    inverses: FloatArray
    """Of V for the first batch, of H_k for the others."""
    ends: IntArray
    """Decisions at which batches end."""
    decisions: Count
    """Decisions so far."""
    finished: Count
    """Batches that have ended."""
    unfinished: Count
    """Fits that did not converge, and matrices that rounding left without an inverse: the last one stayed."""
    constants: BatchConstants


@kernel
def _row_weight(constants: BatchConstants, theta_w: FloatArray, inverse_w: FloatArray, x: FloatArray) -> float:
    """mu'(<x, theta_w>) / beta(x): a lower bound on mu' at theta*, by self-concordance; the first batch gives w."""
    reach = constants.first_width * math.sqrt(max(0.0, quadratic_form(inverse_w, x)))
    shrink = math.exp(-constants.reward_bound * min(2.0 * constants.theta_bound, reach))
    return derivative(constants.link, dot(x, theta_w)) * shrink


@allocating_kernel
def _finish_batch(state: BatchState) -> None:
    constants, batch, dim = state.constants, state.finished[()], state.thetas.shape[1]
    rows, hessian = state.rows, np.zeros((dim, dim))
    theta_w, inverse_w = state.thetas[WARM_UP], state.inverses[WARM_UP]
    for i in range(dim):
        hessian[i, i] = constants.ridge
        state.thetas[batch, i] = state.thetas[max(0, batch - 1), i]  # warm start
    for s in range(rows.held[()]):
        if rows.mask[s] == batch:
            weight = 1.0 if batch == 0 else _row_weight(constants, theta_w, inverse_w, rows.features[s])
            add_outer(hessian, rows.features[s], weight)
    ridge, bound = constants.ridge, constants.theta_bound
    refit(constants.link, rows, batch, ridge, bound, state.unfinished, state.thetas[batch])
    inverse_or_keep(hessian, state.inverses[batch], state.unfinished)
    state.finished[()] += 1


@kernel
def _advance(state: BatchState, fresh: bool) -> int:
    batch = state.finished[()]
    if batch < state.ends.shape[0] and state.decisions[()] >= state.ends[batch]:
        _finish_batch(state)
    state.decisions[()] += 1
    return grow_flag(state.rows)


@allocating_kernel
def _survivors(state: BatchState, contexts: FloatArray) -> IntArray:
    """Arms that no finished batch rules out; each batch judges those that the ones before it left."""
    alive = np.ones(contexts.shape[0], dtype=np.bool_)
    for batch in range(state.finished[()]):
        width = state.constants.first_width if batch == 0 else state.constants.later_width
        rule_out(contexts, state.thetas[batch], state.inverses[batch], width, alive)
    arms, left = np.empty(contexts.shape[0], dtype=np.int64), 0
    for k in range(contexts.shape[0]):
        if alive[k]:
            arms[left] = k
            left += 1
    return arms[:left]


@allocating_kernel
def _scaled(state: BatchState, contexts: FloatArray, arms: IntArray) -> FloatArray:
    """The features of ``arms`` as the design sees them: after the first batch, scaled by the root of their weight."""
    out = np.empty((arms.shape[0], contexts.shape[1]))
    constants, theta_w, inverse_w = state.constants, state.thetas[WARM_UP], state.inverses[WARM_UP]
    for k in range(arms.shape[0]):
        x = contexts[arms[k]]
        factor = 1.0 if state.finished[()] == 0 else math.sqrt(_row_weight(constants, theta_w, inverse_w, x))
        for i in range(x.shape[0]):
            out[k, i] = factor * x[i]
    return out


@allocating_kernel
def _choose(state: BatchState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    arms = _survivors(state, contexts)
    weights = np.empty(arms.shape[0])
    g_optimal_design(_scaled(state, contexts, arms), 0.0, weights)
    position, remaining = 0, coins[0] - weights[0]
    while remaining >= 0.0 and position + 1 < arms.shape[0]:
        position += 1
        remaining -= weights[position]
    coins[0] = weights[position]
    remember_arm(contexts, arms[position], memo)
    memo[MARK] = state.finished[()]
    return int(arms[position])


@kernel
def _learn(state: BatchState, memo: FloatArray, reward: float) -> None:
    append_row(state.rows, memo, reward, int(memo[MARK]))


register_steps(BatchState, _advance, _choose, _learn)


def batch_ends(horizon: int, batches: int) -> IntArray:
    """Ends of all batches but the last, which lasts to the horizon: B_1 = B_2 = alpha, then alpha sqrt(B_{k-1})."""
    alpha = horizon ** (0.5 / (1.0 - 2.0 ** (1 - batches)))
    length, end, ends = alpha, 0, []
    for index in range(batches):
        end += math.ceil(length)
        if end >= horizon:
            break
        ends.append(end)
        length = alpha if index == 0 else alpha * math.sqrt(length)
    return np.array(ends, dtype=np.int64)


class BatchedGlinCB(RowPolicy):
    """B-GLinCB: a handful of policy changes for the whole horizon."""

    name: ClassVar[str] = "b-glincb"
    config_type = BatchConfig
    config: BatchConfig
    coin_count = 1
    states_propensity = True

    @property
    def memo_size(self) -> int:
        """The arm's features and the batch of the row."""
        return self.setting.dim + 1

    def _make_state(self) -> BatchState:
        dim, config = self.setting.dim, self.config
        batches = config.batches or 1 + math.ceil(math.log2(max(2.0, math.log2(max(4, config.horizon)))))
        ends = batch_ends(config.horizon, batches)
        estimates = max(1, ends.size)
        return BatchState(
            rows=make_rows(dim),
            thetas=np.zeros((estimates, dim)),
            inverses=np.tile(np.eye(dim) / config.ridge, (estimates, 1, 1)),
            ends=ends,
            decisions=count(),
            finished=count(),
            unfinished=count(),
            constants=self._constants(),
        )

    def _constants(self) -> BatchConstants:
        setting, config = self.setting, self.config
        unit = 30.0 * setting.reward_bound * setting.theta_bound
        gamma = config.scale * unit * math.sqrt(setting.dim * math.log(config.horizon + 1))
        return BatchConstants(
            link=setting.link.form,
            ridge=config.ridge,
            theta_bound=setting.theta_bound,
            reward_bound=setting.reward_bound,
            first_width=gamma * math.sqrt(setting.kappa),
            later_width=gamma,
        )
