"""What the stream's releases say about theta: a regression for each block of coordinates that can be nonzero together.

Where all coordinates can, that is one block.  Parameters that no row has together make blocks (`tacit.linalg.blocks`)
of which each is a regression of its own: sums of one say nothing about theta in another.  Blocks of one size are solved
as a stack, shape (C, m, m).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from tacit.glm.links import Link
from tacit.typing import FloatArray, IntArray

_FLOOR = 0.3
"""Of tau^2, in units of p phi^2: what is not known about phi, which matters where privacy noise is off."""
_NO_AXIS = 1e-9
"""Energy of Q below which all directions were played alike."""


class StreamConstants(NamedTuple):
    """Public numbers that the steps read; docs/theory.md derives them."""

    link: Link
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
    """Standard deviations of optimism for the part of the variance that rewards cause."""
    noise_width: float
    """Standard deviations of optimism for the part of the variance that privacy noise causes."""
    patience: float
    """The estimate is solved anew when releases have grown by one part in so many."""
    shrinks: bool
    """Whether H is shrunk as far as its noise explains how it differs from what public play makes of it."""
    axes: bool
    """Whether that is a multiple of the identity and the axes that were played, or the former alone."""


class Uncertainty(NamedTuple):
    """What is known of the errors of H and b, by the clock alone."""

    dispersion: float
    """phi': variance of b in units of H, from rewards."""
    variance: float
    """Of every entry of the stream, from privacy noise."""


class Posterior(NamedTuple):
    """Theta and its covariance for a stack of blocks."""

    theta: FloatArray
    """Shape (C, m)."""
    covariance: FloatArray
    """Shape (C, m, m)."""
    optimistic: FloatArray
    """The covariance with the squared widths of the bonus, one for each part of it."""


def solve_blocks(
    constants: StreamConstants,
    known: Uncertainty,
    h: FloatArray,
    score: FloatArray,
    axes: FloatArray,
    theta: FloatArray,
    entries: IntArray,
) -> Posterior:
    """Posterior mean and covariance of theta given the released H and b, for a stack of blocks.

    H is shrunk and made positive first.  b - H theta* has covariance phi' H from rewards and tau^2 I from privacy
    noise, tau^2 = Var b + Var H |theta|^2 / 2 across theta.  With the prior N(0, I / p), p = (d + 2) / S^2 as of a
    uniform point of the S-ball, and everything commuting with H up to the noise,

        M = H^2 + p (phi' H + tau^2 I),   theta = M^-1 H b,   Cov = (phi' H + tau^2 I) M^-1.

    All of it commutes with H, so that one eigendecomposition gives all of it.

    Parameters
    ----------
    h, axes
        H as released, and the mean of u u', u the direction of the theta that arms were chosen by; shape (C, m, m).
    score, theta
        b as released, and the theta before; shape (C, m).
    entries
        Packed entries of each block that were released, and carry noise; shape (C,).
    """
    dispersion, variance = known
    kept = [1.0] * len(h)
    if constants.shrinks:
        h, kept = _shrunk(h, axes, variance, entries, along_axes=constants.axes)
    values, basis = np.linalg.eigh(h)
    values = np.maximum(values, 0.0)
    sizes = zip(kept, np.vecdot(theta, theta).tolist(), strict=True)
    noises = [variance * (constants.scale**-2 + 0.5 * share**2 * squared) for share, squared in sizes]
    noise, floor = np.array(noises)[:, np.newaxis], _FLOOR * constants.prior * dispersion**2
    spread = dispersion * values + np.maximum(noise, floor)
    inverse = 1.0 / (values * values + constants.prior * spread)
    turned = basis.transpose(0, 2, 1)
    found = (score[:, np.newaxis] @ basis * (values * inverse)[:, np.newaxis]) @ turned
    squared, noise_squared = constants.width**2, constants.noise_width**2
    ratios = spread * inverse
    wide_ratios = squared * ratios + (noise_squared - squared) * noise * inverse
    return Posterior(
        found[:, 0],
        (basis * ratios[:, np.newaxis]) @ turned,
        (basis * wide_ratios[:, np.newaxis]) @ turned,
    )


def _shrunk(
    h: FloatArray, axes: FloatArray, variance: float, entries: IntArray, *, along_axes: bool
) -> tuple[FloatArray, list[float]]:
    """level I + gap Q + a (the rest) for each H of a stack, as far as noise explains the rest; and a.

    Arms that are chosen for their score along u and are alike otherwise give an H in the span of I and u u'; Q is the
    mean of the axes so far, less its part along I.  All of it is a combination of I, the mean of the axes and H, whose
    inner products say which.
    """
    count, size = h.shape[:2]
    span = np.array((_identities(count, size), axes.reshape(count, -1), h.reshape(count, -1))).transpose(1, 0, 2)
    products = (span @ span.transpose(0, 2, 1)).tolist()
    found = [
        _combination(size, inner, variance, released, along_axes=along_axes)
        for inner, released in zip(products, entries.tolist(), strict=True)
    ]
    return (np.array(found)[:, np.newaxis] @ span).reshape(h.shape), [kept for _, _, kept in found]


def _combination(
    size: int, products: list[list[float]], variance: float, entries: int, *, along_axes: bool
) -> tuple[float, float, float]:
    """What the shrunk H has of I, of the mean of the axes, and of H; from their inner products.

    gap is fitted, and shrunk by what noise adds to its square; a = 1 - energy of the noise / observed energy, both of
    what is left (James and Stein).  Rounding in the energy of a small rest moves H by less than the rest.
    """
    (_, axes_trace, trace), (_, axes_square, axes_h), (_, _, square) = products
    level, mean, gap = max(trace / size, 0.0), axes_trace / size, 0.0
    energy, common = axes_square - mean * axes_trace, axes_h - mean * trace  # of Q = axes - mean I, and with H
    if along_axes and energy > _NO_AXIS and common > 0.0:
        gap = common / energy
        gap *= max(0.0, 1.0 - variance / (energy * gap * gap))
    rest = square - 2.0 * level * trace + level * level * size + gap * (gap * energy - 2.0 * common)
    noise = variance * max(entries - (2 if along_axes else 1), 0)
    kept = max(0.0, 1.0 - noise / rest) if rest > 0.0 else 1.0
    return (1.0 - kept) * (level - gap * mean), (1.0 - kept) * gap, kept


@cache
def _identities(count: int, size: int) -> FloatArray:
    """The identity of this size so many times, a line for each; not to be written to."""
    return np.tile(np.eye(size).reshape(-1), (count, 1))
