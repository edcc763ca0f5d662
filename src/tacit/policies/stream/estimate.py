"""What the stream's releases say about theta: one regression for coordinates that can be nonzero together.

Where all coordinates can, that is all of them.  Parameters that no row has together make blocks (`tacit.linalg.blocks`)
of which each is a regression of its own: sums of one say nothing about theta in another.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit._compile import inlined_kernel, kernel
from tacit.estimation.linearised import blended_weight, length_share
from tacit.glm.links import LinkForm, mean
from tacit.linalg.eigen import make_positive
from tacit.linalg.solve import cholesky, dot, invert_cholesky
from tacit.linalg.vectors import fill, multiply_to_symmetric, trace
from tacit.typing import Count, FloatArray

_FLOOR = 0.3
"""Of tau^2, in units of p phi^2: what is not known about phi, which matters where privacy noise is off."""
_NO_AXIS = 1e-9
"""Energy of Q below which all directions were played alike."""


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
    """What `solve_block` is given, ``h``, ``score`` and ``axes``, and room for what it computes on its way."""

    h: FloatArray
    """H as released."""
    score: FloatArray
    """b as released."""
    axes: FloatArray
    """Mean of u u', u the direction of the theta that arms were chosen by; then phi' H + tau^2 I."""
    gram: FloatArray
    """M, then its Cholesky factor."""
    inverse: FloatArray
    """Of M."""


def make_room(dim: int) -> SolveRoom:
    """Room for matrices of this size."""
    h, axes, gram, inverse = (np.zeros((dim, dim)) for _ in range(4))
    return SolveRoom(h, np.zeros(dim), axes, gram, inverse)


class Uncertainty(NamedTuple):
    """What is known of the errors of H and b, by the clock alone."""

    dispersion: float
    """phi': variance of b in units of H, from rewards."""
    variance: float
    """Of every entry of the stream, from privacy noise."""
    entries: float
    """Packed entries of H that were released, and carry noise."""


@kernel
def count_release(ticks: Count, solve_at: Count, patience: float) -> bool:
    """Count a release; True when it is one after which the estimate is solved anew.

    Where every tick releases, sums change by 1 / t: a solve for each percent keeps the cost of a round flat.  Geometric
    leaves are as rare as that by themselves.
    """
    ticks[()] += 1
    if ticks[()] < solve_at[()]:
        return False
    solve_at[()] = ticks[()] + 1 + int(ticks[()] / patience)
    return True


@kernel
def linearised(constants: StreamConstants, x: FloatArray, z: float, reward: float) -> tuple[float, float]:
    """Weight and pseudo response of a row whose score was z when its arm was chosen, divided by its length.

    Of ``x`` the length matters alone: the values of a compact row will do.
    """
    weight, share = blended_weight(constants.link, constants.blend, z), length_share(x)
    return share * weight, share * (reward - mean(constants.link, z) + weight * z)


@kernel
def solve_block(
    constants: StreamConstants,
    known: Uncertainty,
    room: SolveRoom,
    theta: FloatArray,
    posterior: FloatArray,
    covariance: FloatArray,
) -> bool:
    """Posterior mean and covariance of theta given the released H and b; False when rounding keeps it from that.

    H is shrunk and made positive first.  b - H theta* has covariance phi' H from rewards and tau^2 I from privacy
    noise, tau^2 = Var b + Var H |theta|^2 / 2 across theta.  With the prior N(0, I / p), p = (d + 2) / S^2 as of a
    uniform point of the S-ball, and everything commuting with H up to the noise,

        M = H^2 + p (phi' H + tau^2 I),   theta = M^-1 H b,   Cov = (phi' H + tau^2 I) M^-1.

    ``posterior`` is Cov, ``covariance`` the same with the squared widths of optimism, one for each part of it.
    """
    dim = theta.shape[0]
    h, score, spread, gram, inverse = room
    dispersion, variance, entries = known
    kept = _shrink(constants, h, spread, variance, entries) if constants.shrinks else 1.0
    make_positive(h, gram, inverse, spread)
    noise = variance * (1.0 / (constants.scale * constants.scale) + 0.5 * kept * kept * dot(theta, theta))
    tau = max(noise, _FLOOR * constants.prior * dispersion * dispersion)
    multiply_to_symmetric(h, h, gram)
    for i in range(dim):
        for j in range(dim):
            spread[i, j] = dispersion * h[i, j] + (tau if i == j else 0.0)
            gram[i, j] += constants.prior * spread[i, j]
    if not cholesky(gram, gram):
        return False  # positive definite: should rounding say otherwise, the last estimate stays
    invert_cholesky(gram, inverse)
    for i in range(dim):
        gram[0, i] = dot(h[i], score)
    squared, noise_squared = constants.width * constants.width, constants.noise_width * constants.noise_width
    multiply_to_symmetric(spread, inverse, posterior)
    for i in range(dim):
        theta[i] = dot(inverse[i], gram[0])
        for j in range(dim):
            covariance[i, j] = squared * posterior[i, j] + (noise_squared - squared) * noise * inverse[i, j]
    return True


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
def _shrink(constants: StreamConstants, h: FloatArray, axes: FloatArray, variance: float, entries: float) -> float:
    """H <- level I + gap Q + a (the rest), as far as noise explains the rest; returns a.

    Arms that are chosen for their score along u and are alike otherwise give an H in the span of I and u u'; Q is the
    mean of the axes so far, less its part along I.  gap is fitted, and shrunk by what noise adds to its square; a = 1 -
    energy of the noise / observed energy, both of what is left (James and Stein).
    """
    dim = h.shape[0]
    level, gap, free = max(trace(h) / dim, 0.0), 0.0, 1.0
    if constants.axes:
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
    noise = variance * max(entries - free, 0.0)
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
