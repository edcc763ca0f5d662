"""State and compiled steps of `stream-glm`.

One continual stream releases matrix and score of a linearised regression; the estimate is post-processing of it, made
anew while it still changes.  Nothing else is released.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit.estimation.linearised import blended_weight
from tacit.glm.links import mean
from tacit.linalg.packing import unpack
from tacit.linalg.projection import project_ball
from tacit.linalg.solve import cholesky, dot, invert_cholesky, quadratic_form
from tacit.policies.arms import remember_arm
from tacit.policies.steps import close_stream, register_steps
from tacit.policies.stream.filter import RowFilter, filter_step
from tacit.privacy.continual import Stream, contribute_outer, contribute_vector, released_variance
from tacit.typing import FloatArray, IntArray


class StreamState(NamedTuple):
    """State of `stream-glm`: the stream, what is made of it, and public constants."""

    stream: Stream
    """w x x', packed, and s y x behind it."""
    rows: RowFilter
    theta: FloatArray
    covariance: FloatArray
    """Of theta, from the released statistics and the known noise: the width of the bonus."""
    matrix: FloatArray
    """H of the last solve, and work space, shape (4, d, d)."""
    score: FloatArray
    clock: IntArray
    """Ticks, and the tick at which the estimate is solved anew."""
    link: IntArray
    constants: FloatArray
    """See the indices below."""


BLEND, SCALE, THETA_BOUND, DISPERSION, PRIOR, WIDTH, PATIENCE, FILTERED = range(8)
_FLOOR = 0.3
"""Keeps H^2 + p (phi H + tau^2 I) positive definite for every symmetric H: above 1/4 its discriminant is negative."""


@kernel
def _advance(state: StreamState, fresh: bool) -> int:
    if not fresh:
        return 0
    stream, clock = state.stream, state.clock
    if state.constants[FILTERED] > 0.0:
        filter_step(state.rows, stream.released, stream.decay, stream.weight, stream.scale[0])
    clock[0] += 1
    if clock[0] >= clock[1]:
        # Statistics change by 1 / t a round: a solve for each percent of change keeps the cost of a round flat.
        clock[1] = clock[0] + 1 + int(clock[0] / state.constants[PATIENCE])
        solve(state)
    return 0


@kernel
def solve(state: StreamState) -> None:
    """Posterior mean and covariance of theta given the released H and b.

    b - H theta* has covariance phi' H from rewards and tau^2 I from privacy noise, tau^2 = Var b + Var H |theta|^2 /
    2 across theta.  With the prior N(0, I / p), p = d / S^2, and everything commuting with H up to the noise,

        M = H^2 + p (phi' H + tau^2 I),   theta = M^-1 H b,   Cov = (phi' H + tau^2 I) M^-1.
    """
    constants, h, spread = state.constants, state.matrix[0], state.matrix[1]
    gram, inverse = state.matrix[2], state.matrix[3]
    dim = state.theta.shape[0]
    dispersion, variance = _statistics(state)
    squared = dot(state.theta, state.theta)
    tau = variance * (1.0 / constants[SCALE] ** 2 + 0.5 * squared)
    tau = max(tau, _FLOOR * constants[PRIOR] * dispersion * dispersion)
    for i in range(dim):
        for j in range(dim):
            spread[i, j] = dispersion * h[i, j] + (tau if i == j else 0.0)
            gram[i, j] = dot(h[i], h[j]) + constants[PRIOR] * spread[i, j]
    if not cholesky(gram, gram):
        return
    invert_cholesky(gram, inverse)
    for i in range(dim):
        gram[0, i] = dot(h[i], state.score)
    for i in range(dim):
        state.theta[i] = dot(inverse[i], gram[0])
        for j in range(dim):
            state.covariance[i, j] = dot(spread[i], inverse[j])
    project_ball(state.theta, constants[THETA_BOUND])


@kernel
def _statistics(state: StreamState) -> tuple[float, float]:
    """Fill H and b; returns phi' and the variance of an entry of H from privacy noise."""
    constants, dim = state.constants, state.theta.shape[0]
    half = state.stream.released.shape[0] - dim
    ticks = float(state.clock[0])
    if constants[FILTERED] > 0.0:
        rows, factor = state.rows, ticks
        sums, variance = rows.mean, ticks * ticks * rows.privacy[0, 0]
        # Weights a_i that sum to 1 give a variance of v sum a_i^2: t sum a_i^2 is 1 for a plain sum, more for others.
        uneven = ticks * max(rows.total[0, 0] - rows.privacy[0, 0], 0.0) / rows.fluctuation[0]
    else:
        sums, factor, uneven, variance = state.stream.released, 1.0, 1.0, released_variance(state.stream)
    unpack(sums[:half], state.matrix[0])
    for i in range(dim):
        state.score[i] = factor * sums[half + i] / constants[SCALE]
        for j in range(dim):
            state.matrix[0, i, j] *= factor
    return constants[DISPERSION] * uneven, variance


@kernel
def _choose(state: StreamState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    width = state.constants[WIDTH] * state.constants[WIDTH]
    arm, best = 0, -np.inf
    for k in range(contexts.shape[0]):
        bonus = math.sqrt(max(0.0, width * quadratic_form(state.covariance, contexts[k])))
        value = dot(contexts[k], state.theta) + bonus
        if value > best:
            arm, best = k, value
    remember_arm(contexts, arm, memo)
    # The point of linearisation is the theta of the decision, the same in neighbouring worlds.
    dim = state.theta.shape[0]
    bound = state.constants[THETA_BOUND]
    memo[dim] = min(max(dot(memo[:dim], state.theta), -bound), bound)
    return arm


@kernel
def _learn(state: StreamState, memo: FloatArray, reward: float) -> None:
    dim = state.theta.shape[0]
    constants, link, x = state.constants, state.link[0], memo[:dim]
    z = float(memo[dim])
    weight = blended_weight(link, constants[BLEND], z)
    response = reward - mean(link, z) + weight * z
    contribute_outer(state.stream, 0, weight, x)
    contribute_vector(state.stream, state.stream.released.shape[0] - dim, constants[SCALE] * response, x)


register_steps(StreamState, _advance, _choose, _learn, close_stream)
