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

from tacit._validate import positive
from tacit.design.g_optimal import g_optimal_designs
from tacit.glm.likelihood import weighted_outers
from tacit.glm.links import Link
from tacit.glm.rows import RowBuffer, Selection, append_rows, make_room, make_rows, selected
from tacit.policies.admission import remember_rows
from tacit.policies.baselines._shared import (
    MARK,
    inverse_or_keep,
    refit,
    ruled_out,
    scale_option,
    scores,
    squared_spreads,
)
from tacit.policies.clock import NO_END, Span
from tacit.policies.config import Config, at_least, configuration, option
from tacit.policies.policy import Policy
from tacit.policies.steps import Steps
from tacit.threads import one_blas_thread
from tacit.typing import BoolArray, Count, FloatArray, IntArray, count

WARM_UP = 0
"""Number of the first batch, whose estimate theta_w weighs the rows of all later ones."""


@configuration
class BatchedGlinConfig(Config):
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
    """Public numbers that the steps of `b-glincb` read."""

    link: Link
    ridge: float
    theta_bound: float
    reward_bound: float
    first_width: float
    """gamma sqrt(kappa), for the bounds of the first batch."""
    later_width: float
    """gamma, for the bounds of later batches."""


class BatchState(NamedTuple):
    """State of `b-glincb`: all rows, marked with their batch, and an estimate for each finished batch."""

    rows: RowBuffer
    thetas: FloatArray
    inverses: FloatArray
    """For each finished batch an inverse: of V for the first, of H_k for the others."""
    ends: IntArray
    """Decisions at which batches end."""
    decisions: Count
    """Decisions so far."""
    finished: Count
    """Batches that have ended."""
    unfinished: Count
    """Fits that did not converge, and matrices that rounding left without an inverse: the last one stayed."""
    constants: BatchConstants


def row_weights(state: BatchState, contexts: FloatArray) -> FloatArray:
    """mu'(<x, theta_w>) / beta(x) of every arm, shape (N, K): a lower bound on mu' at theta*, by self-concordance.

    The first batch gives w; its own rows weigh 1.
    """
    constants = state.constants
    if state.finished[()] == WARM_UP:
        return np.ones(contexts.shape[:2])
    reach = constants.first_width * np.sqrt(squared_spreads(contexts, state.inverses[WARM_UP]))
    shrink = np.exp(-constants.reward_bound * np.minimum(2.0 * constants.theta_bound, reach))
    return constants.link.derivative(scores(contexts, state.thetas[WARM_UP])) * shrink


def advance(state: BatchState, fresh: bool, users: int) -> int:
    """Finish the batch that has ended, if one has, and count the decisions of ``users``."""
    batch = int(state.finished[()])
    if batch < state.ends.size and state.decisions[()] >= state.ends[batch]:
        _finish_batch(state, batch)
    state.decisions[()] += users
    return 0


def _finish_batch(state: BatchState, batch: int) -> None:
    constants, rows, theta = state.constants, state.rows, state.thetas[batch]
    features, _ = selected(Selection(rows, batch))
    with one_blas_thread():
        hessian = weighted_outers(features, row_weights(state, features[np.newaxis])[0])
        hessian.flat[:: theta.size + 1] += constants.ridge
        theta[:] = state.thetas[max(0, batch - 1)]  # warm start
        refit(constants.link, rows, batch, constants.ridge, constants.theta_bound, state.unfinished, theta)
        inverse_or_keep(hessian, state.inverses[batch], state.unfinished)
    state.finished[()] = batch + 1


def choose(state: BatchState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Draw an arm from the G-optimal design of those that no finished batch rules out, for each of N users.

    A coin leaves the probability of its arm.
    """
    out = _ruled_out(state, contexts)
    scaled = np.sqrt(np.where(out, 0.0, row_weights(state, contexts)))[:, :, np.newaxis] * contexts
    weights = g_optimal_designs(scaled, 0.0).weights
    nothing = ~scaled.any(axis=(1, 2))  # arms of zeros alone are left: the first of them
    weights[nothing] = np.arange(out.shape[1]) == out[nothing].argmin(axis=1, keepdims=True)
    reached = weights.cumsum(axis=1)
    reached /= reached[:, -1:]
    arms: IntArray = (reached > coins).argmax(axis=1)
    coins[:, 0] = weights[np.arange(arms.size), arms]
    remember_rows(contexts, arms, memos)
    memos[:, MARK] = state.finished[()]
    return np.asarray(arms)


def _ruled_out(state: BatchState, contexts: FloatArray) -> BoolArray:
    """Arms that some finished batch rules out; each batch judges those that the ones before it left."""
    out = np.zeros(contexts.shape[:2], dtype=np.bool_)
    for batch in range(int(state.finished[()])):
        width = state.constants.first_width if batch == WARM_UP else state.constants.later_width
        reach = width * np.sqrt(squared_spreads(contexts, state.inverses[batch]))
        out = ruled_out(scores(contexts, state.thetas[batch]), reach, out)
    return out


def learn(state: BatchState, memos: FloatArray, rewards: FloatArray) -> None:
    """Keep N rows, each marked with the batch of its decision."""
    append_rows(state.rows, memos[:, :MARK], rewards, memos[:, MARK].astype(np.uint8))


def batch_ends(horizon: int, batches: int) -> IntArray:
    """Return the ends of all batches but the last, of B_1 = B_2 = alpha and then alpha sqrt(B_{k-1}) decisions."""
    alpha = horizon ** (0.5 / (1.0 - 2.0 ** (1 - batches)))
    length, end, ends = alpha, 0, []
    for index in range(batches):
        end += math.ceil(length)
        if end >= horizon:
            break
        ends.append(end)
        length = alpha if index == 0 else alpha * math.sqrt(length)
    return np.array(ends, dtype=np.int64)


class BatchedGlinCB(Policy):
    """B-GLinCB: a handful of policy changes for the whole horizon."""

    name: ClassVar[str] = "b-glincb"
    config_type = BatchedGlinConfig
    config: BatchedGlinConfig
    _steps = Steps(choose, learn, advance, make_room)
    _coin_count = 1
    _states_propensity = True
    _chooses_by_releases = True

    @property
    def _memo_size(self) -> int:
        """Numbers of a memo: the arm's features and the batch of the row."""
        return self.setting.dim + 1

    def _counted(self, users: int) -> int:
        """All users count, also where rewards have a minimum age: batches end by the number of decisions."""
        return users

    @property
    def _users_at_once(self) -> int:
        """Most users that one call of ``choose`` may serve: those up to the end of a batch."""
        return self._next_span().ticks

    def _next_span(self) -> Span:
        """The decisions up to the end of a batch, where all that they choose by changes; `state` has all rewards."""
        state = self.state
        batch, decisions = int(state.finished[()]), int(state.decisions[()])
        later = state.ends[batch:][state.ends[batch:] > decisions]
        return Span(int(later[0]) - decisions if later.size else NO_END, 0, 0.0, rare=True)

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
            link=setting.link,
            ridge=config.ridge,
            theta_bound=setting.theta_bound,
            reward_bound=setting.reward_bound,
            first_width=gamma * math.sqrt(setting.kappa),
            later_width=gamma,
        )
