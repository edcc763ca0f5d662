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
from tacit.glm.links import LinkForm, mean
from tacit.linalg.eigen import make_positive
from tacit.linalg.packing import add_packed_outer, packed_size, unpack
from tacit.linalg.projection import project_ball
from tacit.linalg.solve import cholesky, dot, invert_cholesky, quadratic_form
from tacit.linalg.vectors import fill, multiply_matrices, trace
from tacit.policies.arms import remember_arm
from tacit.policies.steps import close_stream, register_steps
from tacit.privacy.continual import Stream, contribute_outer, contribute_vector, released_variance, unevenness
from tacit.privacy.geometric import PublicMean
from tacit.privacy.streaming import follow_public
from tacit.typing import Count, FloatArray, Number


class StreamConstants(NamedTuple):
    """Public numbers that the steps read; docs/theory.md derives them."""

    link: LinkForm
    blend: float
    """Share of the secant in the weight of a row."""
    scale: float
    """s: size of the score next to the matrix."""
    theta_bound: float
    dispersion: float
    """phi: the largest variance of a reward per unit of weight."""
    prior: float
    """p: precision of theta before the first row."""
    width: float
    """Standard deviations of optimism where rewards vary."""
    noise_width: float
    """The same where privacy noise does."""
    patience: float
    """The estimate is solved anew when releases have grown by one part in so many."""
    shrinks: bool
    """Whether H is shrunk as far as its noise explains how it differs from what public play makes of it."""
    axes: bool
    """Whether that is a multiple of the identity and the axes that were played, or the former alone."""


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
    axis: FloatArray
    """u u', packed."""


def make_room(dim: int) -> SolveRoom:
    """Room for matrices of this size."""
    h, spread, gram, inverse = (np.zeros((dim, dim)) for _ in range(4))
    return SolveRoom(h, np.zeros(dim), spread, gram, inverse, np.zeros(packed_size(dim)))


class StreamState(NamedTuple):
    """State of `stream-glm`: the stream, what is made of it, and public constants."""

    stream: Stream
    """w x x', packed, and s y x behind it."""
    played: PublicMean
    """Mean of u u', u the direction of the theta that arms were chosen by: the axes along which H grows."""
    theta: FloatArray
    covariance: FloatArray
    """Of theta, from the released statistics and the known noise, the squared widths of the bonus included."""
    ticks: Count
    """Releases so far."""
    solve_at: Count
    """The release at which the estimate is solved anew."""
    unsolved: Count
    """Times that rounding kept it from being solved; a function of releases, like the estimate."""
    widest: Number
    """No arm's bonus exceeds it."""
    work: SolveRoom
    constants: StreamConstants


_FLOOR = 0.3
"""Of tau^2, in units of p phi^2: what is not known about phi, which matters where privacy noise is off."""
_NO_AXIS = 1e-9
"""Energy of Q below which all directions were played alike."""


@kernel
def _advance(state: StreamState, fresh: bool) -> int:
    if not fresh:
        return 0
    ticks = state.ticks[()] + 1
    state.ticks[()] = ticks
    _remember_axis(state)
    if ticks >= state.solve_at[()]:
        # Where every tick releases, sums change by 1 / t: a solve for each percent keeps the cost of a round flat.
        # Geometric leaves are as rare as that by themselves.
        state.solve_at[()] = ticks + 1 + int(ticks / state.constants.patience)
        solve(state)
    return 0


@inlined_kernel
def _remember_axis(state: StreamState) -> None:
    """Arms of the leaf that was just closed were chosen by theta: they point along it more than across."""
    theta, axis = state.theta, state.work.axis
    squared = dot(theta, theta)
    for i in range(axis.shape[0]):
        axis[i] = 0.0
    if squared > 0.0:
        add_packed_outer(1.0 / squared, theta, axis)
    follow_public(state.stream.mechanism, state.stream.closed, state.ticks[()], state.played, axis)


@inlined_kernel
def solve(state: StreamState) -> None:
    """Posterior mean and covariance of theta given the released H and b.

    H is shrunk and made positive first.  b - H theta* has covariance phi' H from rewards and tau^2 I from privacy
    noise, tau^2 = Var b + Var H |theta|^2 / 2 across theta.  With the prior N(0, I / p), p = (d + 2) / S^2 as of a
    uniform point of the S-ball, and everything commuting with H up to the noise,

        M = H^2 + p (phi' H + tau^2 I),   theta = M^-1 H b,   Cov = (phi' H + tau^2 I) M^-1.
    """
    constants, dim, theta = state.constants, state.theta.shape[0], state.theta
    h, score, spread, gram, inverse, _ = state.work
    dispersion, variance = constants.dispersion * unevenness(state.stream), released_variance(state.stream)
    _read_statistics(state, h, score)
    kept = _shrink(state, h, spread, variance) if constants.shrinks else 1.0
    make_positive(h, gram, inverse, spread)
    noise = variance * (1.0 / (constants.scale * constants.scale) + 0.5 * kept * kept * dot(theta, theta))
    tau = max(noise, _FLOOR * constants.prior * dispersion * dispersion)
    multiply_matrices(h, h, gram)
    for i in range(dim):
        for j in range(dim):
            spread[i, j] = dispersion * h[i, j] + (tau if i == j else 0.0)
            gram[i, j] += constants.prior * spread[i, j]
    if not cholesky(gram, gram):
        state.unsolved[()] += 1  # positive definite: should rounding say otherwise, the last estimate stays
        return
    invert_cholesky(gram, inverse)
    for i in range(dim):
        gram[0, i] = dot(h[i], score)
    squared, noise_squared = constants.width * constants.width, constants.noise_width * constants.noise_width
    multiply_matrices(spread, inverse, state.covariance)
    for i in range(dim):
        theta[i] = dot(inverse[i], gram[0])
        for j in range(dim):
            state.covariance[i, j] = (
                squared * state.covariance[i, j] + (noise_squared - squared) * noise * inverse[i, j]
            )
    project_ball(theta, constants.theta_bound)
    state.widest[()] = widest_bonus(state.covariance)


@kernel
def widest_bonus(covariance: FloatArray) -> float:
    """Bounds the bonus of every arm of norm at most 1: the largest eigenvalue is at most the largest row sum."""
    largest = 0.0
    for i in range(covariance.shape[0]):
        total = 0.0
        for j in range(covariance.shape[0]):
            total += abs(covariance[i, j])
        largest = max(largest, total)
    return math.sqrt(largest) * (1.0 + 1e-9)


@inlined_kernel
def _read_statistics(state: StreamState, h: FloatArray, score: FloatArray) -> None:
    """Write H and b."""
    sums, dim = state.stream.released, state.theta.shape[0]
    half = sums.shape[0] - dim
    unpack(sums[:half], h)
    for i in range(dim):
        score[i] = sums[half + i] / state.constants.scale


@inlined_kernel
def _shrink(state: StreamState, h: FloatArray, axes: FloatArray, variance: float) -> float:
    """H <- level I + gap Q + a (the rest), as far as noise explains the rest; returns a.

    Arms that are chosen for their score along u and are alike otherwise give an H in the span of I and u u'; Q is the
    mean of the axes so far, less its part along I.  gap is fitted, and shrunk by what noise adds to its square; a = 1 -
    energy of the noise / observed energy, both of what is left (James and Stein).  ``axes`` is room.
    """
    dim = h.shape[0]
    level, gap, free = max(trace(h) / dim, 0.0), 0.0, 1.0
    if state.constants.axes:
        unpack(state.played.mean, axes)
        middle = trace(axes) / dim
        for i in range(dim):
            axes[i, i] -= middle
        gap, free = _fitted_gap(h, axes, variance), 2.0
    else:
        fill(axes, 0.0)
    energy = 0.0
    for i in range(dim):
        for j in range(dim):
            rest = h[i, j] - gap * axes[i, j] - (level if i == j else 0.0)
            energy += rest * rest
    noise = variance * (0.5 * dim * (dim + 1) - free)
    kept = max(0.0, 1.0 - noise / energy) if energy > 0.0 else 1.0
    for i in range(dim):
        for j in range(dim):
            h[i, j] = kept * h[i, j] + (1.0 - kept) * (gap * axes[i, j] + (level if i == j else 0.0))
    return kept


@inlined_kernel
def _fitted_gap(h: FloatArray, axes: FloatArray, variance: float) -> float:
    energy, common = 0.0, 0.0
    for i in range(h.shape[0]):
        common += dot(h[i], axes[i])
        energy += dot(axes[i], axes[i])
    if energy <= _NO_AXIS or common <= 0.0:
        return 0.0
    gap = common / energy
    return gap * max(0.0, 1.0 - variance / (energy * gap * gap))


@kernel
def _choose(state: StreamState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    arm = _most_promising(state, contexts)
    remember_arm(contexts, arm, memo)
    # Behind the features: the score at which the row is linearised.  It is that of the decision, and the same in
    # neighbouring worlds.
    dim = state.theta.shape[0]
    bound = state.constants.theta_bound
    memo[dim] = min(max(dot(memo[:dim], state.theta), -bound), bound)
    return arm


@inlined_kernel
def _most_promising(state: StreamState, contexts: FloatArray) -> int:
    """The arm of the largest score plus bonus; none exceeds the widest, and those that cannot matter are left out."""
    first, highest = 0, -np.inf
    for k in range(contexts.shape[0]):
        score = dot(contexts[k], state.theta)
        if score > highest:
            first, highest = k, score
    arm, best, widest = first, highest + _bonus(state, contexts[first]), state.widest[()]
    for k in range(contexts.shape[0]):
        score = dot(contexts[k], state.theta)
        if k == first or score + widest < best:
            continue
        value = score + _bonus(state, contexts[k])
        if value > best or (value == best and k < arm):
            arm, best = k, value
    return arm


@inlined_kernel
def _bonus(state: StreamState, x: FloatArray) -> float:
    """Standard deviations of the score, as many as optimism takes."""
    return math.sqrt(max(0.0, quadratic_form(state.covariance, x)))


@kernel
def _learn(state: StreamState, memo: FloatArray, reward: float) -> None:
    dim = state.theta.shape[0]
    constants, x, z = state.constants, memo[:dim], float(memo[dim])
    weight = blended_weight(constants.link, constants.blend, z)
    response = reward - mean(constants.link, z) + weight * z
    contribute_outer(state.stream, 0, weight, x)
    contribute_vector(state.stream, state.stream.released.shape[0] - dim, constants.scale * response, x)


register_steps(StreamState, _advance, _choose, _learn, close_stream)
