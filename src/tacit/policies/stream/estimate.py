"""What the stream's releases say about theta: a regression for each block of coordinates that can be nonzero together.

Where all coordinates can, that is one block.  Parameters that no row has together make blocks (`tacit.linalg.blocks`)
of which each is a regression of its own: sums of one say nothing about theta in another.  Blocks of one size are solved
as a stack, shape (C, m, m).
"""

from __future__ import annotations

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
    kept: FloatArray | float = 1.0
    if constants.shrinks:
        h, kept = _shrunk(h, axes if constants.axes else None, variance, entries)
    values, basis = np.linalg.eigh(h)
    values = np.maximum(values, 0.0)
    noise = (variance * (constants.scale**-2 + 0.5 * kept**2 * np.vecdot(theta, theta)))[:, np.newaxis]
    spread = dispersion * values + np.maximum(noise, _FLOOR * constants.prior * dispersion**2)
    inverse = 1.0 / (values**2 + constants.prior * spread)
    turned = basis.transpose(0, 2, 1)
    found = basis @ (values * inverse * (turned @ score[:, :, np.newaxis])[:, :, 0])[:, :, np.newaxis]
    squared, noise_squared = constants.width**2, constants.noise_width**2
    optimistic = inverse * (squared * spread + (noise_squared - squared) * noise)
    return Posterior(
        found[:, :, 0],
        (basis * (spread * inverse)[:, np.newaxis, :]) @ turned,
        (basis * optimistic[:, np.newaxis, :]) @ turned,
    )


def _shrunk(
    h: FloatArray, axes: FloatArray | None, variance: float, entries: IntArray
) -> tuple[FloatArray, FloatArray]:
    """level I + gap Q + a (the rest) for each H of a stack, as far as noise explains the rest; and a.

    Arms that are chosen for their score along u and are alike otherwise give an H in the span of I and u u'; Q is the
    mean of the axes so far, less its part along I.  gap is fitted, and shrunk by what noise adds to its square; a = 1 -
    energy of the noise / observed energy, both of what is left (James and Stein).
    """
    eye = np.eye(h.shape[1])
    model = _along(np.maximum(_mean_diagonal(h), 0.0)) * eye
    free = 1.0
    if axes is not None:
        free = 2.0
        axes = axes - _along(_mean_diagonal(axes)) * eye
        model = model + _along(_fitted_gap(h, axes, variance)) * axes
    energy = ((h - model) ** 2).sum(axis=(1, 2))
    noise = variance * np.maximum(entries - free, 0.0)
    some = energy > 0.0
    kept = np.where(some, np.maximum(0.0, 1.0 - noise / np.where(some, energy, 1.0)), 1.0)
    return _along(kept) * h + _along(1.0 - kept) * model, kept


def _fitted_gap(h: FloatArray, axes: FloatArray, variance: float) -> FloatArray:
    energy, common = (axes * axes).sum(axis=(1, 2)), (h * axes).sum(axis=(1, 2))
    fits = (energy > _NO_AXIS) & (common > 0.0)
    gap = np.where(fits, common / np.where(fits, energy, 1.0), 0.0)
    noise = np.where(fits, variance / np.where(fits, energy * gap * gap, 1.0), 1.0)
    return np.asarray(gap * np.maximum(0.0, 1.0 - noise))


def _mean_diagonal(matrices: FloatArray) -> FloatArray:
    return np.asarray(np.trace(matrices, axis1=1, axis2=2) / matrices.shape[1])


def _along(numbers: FloatArray) -> FloatArray:
    """One number for each matrix of a stack, shaped to multiply it."""
    return numbers[:, np.newaxis, np.newaxis]
