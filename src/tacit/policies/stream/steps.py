"""State and compiled steps of `stream-glm`.

One continual stream releases matrix and score of a linearised regression; the estimate is post-processing of it, made
anew while it still changes.  Nothing else is released.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit._compile import inlined_kernel, kernel
from tacit.estimation.linearised import blended_weight
from tacit.glm.links import mean
from tacit.linalg.packing import unpack
from tacit.linalg.projection import project_ball
from tacit.linalg.solve import cholesky, dot, invert_cholesky, quadratic_form
from tacit.policies.arms import remember_arm
from tacit.policies.steps import close_stream, register_steps
from tacit.policies.stream.filter import MEAN, LeafFilter, filter_step
from tacit.privacy.continual import Stream, contribute_outer, contribute_vector, released_variance
from tacit.privacy.streaming import coefficients
from tacit.typing import Count, FloatArray


class StreamConstants(NamedTuple):
    """Public numbers that the steps read; docs/theory.md derives them."""

    link: int
    blend: float
    """Share of the secant in the weight of a row."""
    scale: float
    """s: size of the score next to the matrix."""
    theta_bound: float
    dispersion: float
    """phi: the largest variance of a reward per unit of weight."""
    prior: float
    """p = d / S^2: precision of theta before the first row."""
    width: float
    """Standard deviations of optimism."""
    patience: float
    """The estimate is solved anew when rows have grown by one part in so many."""
    filtered: bool
    """Whether sums are estimated by the filter or are the released prefixes."""


class SolveRoom(NamedTuple):
    """Room for what `solve` computes on its way, so that it need not allocate."""

    h: FloatArray
    score: FloatArray
    spread: FloatArray
    """phi' H + tau^2 I."""
    gram: FloatArray
    """M, then its Cholesky factor."""
    inverse: FloatArray
    """Of M."""


def make_room(dim: int) -> SolveRoom:
    """Room for matrices of this size."""
    h, spread, gram, inverse = (np.zeros((dim, dim)) for _ in range(4))
    return SolveRoom(h, np.zeros(dim), spread, gram, inverse)


class StreamState(NamedTuple):
    """State of `stream-glm`: the stream, what is made of it, and public constants."""

    stream: Stream
    """w x x', packed, and s y x behind it."""
    filter: LeafFilter
    theta: FloatArray
    covariance: FloatArray
    """Of theta, from the released statistics and the known noise: the width of the bonus."""
    ticks: Count
    solve_at: Count
    """The tick at which the estimate is solved anew."""
    unsolved: Count
    """Times that rounding kept it from being solved; a function of releases, like the estimate."""
    work: SolveRoom
    constants: StreamConstants


_FLOOR = 0.3
"""Keeps H^2 + p (phi H + tau^2 I) positive definite for every symmetric H: above 1/4 its discriminant is negative."""


@kernel
def _advance(state: StreamState, fresh: bool) -> int:
    if not fresh:
        return 0
    stream = state.stream
    if state.constants.filtered:
        decay, weight = coefficients(stream.mechanism)
        filter_step(state.filter, stream.released, decay, weight, stream.noise_sd[()])
    ticks = state.ticks[()] + 1
    state.ticks[()] = ticks
    if ticks >= state.solve_at[()]:
        # Statistics change by 1 / t a round: a solve for each percent of change keeps the cost of a round flat.
        state.solve_at[()] = ticks + 1 + int(ticks / state.constants.patience)
        solve(state)
    return 0


@inlined_kernel
def solve(state: StreamState) -> None:
    """Posterior mean and covariance of theta given the released H and b.

    b - H theta* has covariance phi' H from rewards and tau^2 I from privacy noise, tau^2 = Var b + Var H |theta|^2 /
    2 across theta.  With the prior N(0, I / p), p = d / S^2, and everything commuting with H up to the noise,

        M = H^2 + p (phi' H + tau^2 I),   theta = M^-1 H b,   Cov = (phi' H + tau^2 I) M^-1.
    """
    constants, dim, theta = state.constants, state.theta.shape[0], state.theta
    h, score, spread, gram, inverse = state.work
    dispersion, variance = _read_statistics(state, h, score)
    tau = variance * (1.0 / (constants.scale * constants.scale) + 0.5 * dot(theta, theta))
    tau = max(tau, _FLOOR * constants.prior * dispersion * dispersion)
    for i in range(dim):
        for j in range(dim):
            spread[i, j] = dispersion * h[i, j] + (tau if i == j else 0.0)
            gram[i, j] = dot(h[i], h[j]) + constants.prior * spread[i, j]
    if not cholesky(gram, gram):
        state.unsolved[()] += 1  # positive definite by _FLOOR: should rounding say otherwise, the last estimate stays
        return
    invert_cholesky(gram, inverse)
    for i in range(dim):
        gram[0, i] = dot(h[i], score)
    for i in range(dim):
        theta[i] = dot(inverse[i], gram[0])
        for j in range(dim):
            state.covariance[i, j] = dot(spread[i], inverse[j])
    project_ball(theta, constants.theta_bound)


@inlined_kernel
def _read_statistics(state: StreamState, h: FloatArray, score: FloatArray) -> tuple[float, float]:
    """Write H and b; returns phi' and the variance of an entry of H from privacy noise."""
    constants, dim = state.constants, state.theta.shape[0]
    half = state.stream.released.shape[0] - dim
    ticks = float(state.ticks[()])
    if constants.filtered:
        rows, factor = state.filter, ticks
        sums, variance = rows.mean, ticks * ticks * rows.privacy[MEAN, MEAN]
        # Weights a_i that sum to 1 give a variance of v sum a_i^2: t sum a_i^2 is 1 for a plain sum, more for others.
        uneven = ticks * max(rows.total[MEAN, MEAN] - rows.privacy[MEAN, MEAN], 0.0) / rows.fluctuation
    else:
        sums, factor, uneven, variance = state.stream.released, 1.0, 1.0, released_variance(state.stream)
    unpack(sums[:half], h)
    for i in range(dim):
        score[i] = factor * sums[half + i] / constants.scale
        for j in range(dim):
            h[i, j] *= factor
    return constants.dispersion * uneven, variance


@kernel
def _choose(state: StreamState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    width = state.constants.width * state.constants.width
    arm, best = 0, -np.inf
    for k in range(contexts.shape[0]):
        bonus = math.sqrt(max(0.0, width * quadratic_form(state.covariance, contexts[k])))
        value = dot(contexts[k], state.theta) + bonus
        if value > best:
            arm, best = k, value
    remember_arm(contexts, arm, memo)
    # Behind the features: the score at which the row is linearised.  It is that of the decision, and the same in
    # neighbouring worlds.
    dim = state.theta.shape[0]
    bound = state.constants.theta_bound
    memo[dim] = min(max(dot(memo[:dim], state.theta), -bound), bound)
    return arm


@kernel
def _learn(state: StreamState, memo: FloatArray, reward: float) -> None:
    dim = state.theta.shape[0]
    constants, x, z = state.constants, memo[:dim], float(memo[dim])
    weight = blended_weight(constants.link, constants.blend, z)
    response = reward - mean(constants.link, z) + weight * z
    contribute_outer(state.stream, 0, weight, x)
    contribute_vector(state.stream, state.stream.released.shape[0] - dim, constants.scale * response, x)


register_steps(StreamState, _advance, _choose, _learn, close_stream)
