"""What the stream's releases say about theta: a regression for each block of coordinates that can be nonzero together.

Where all coordinates can, that is one block, shape (m, m).  Parameters that no row has together make blocks
(`tacit.linalg.blocks`) of which each is a regression of its own: sums of one say nothing about theta in another.
Blocks of one size are solved as a stack, shape (C, m, m).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.linalg.lapack import dsyevd

from tacit.errors import TacitError
from tacit.glm.links import Link
from tacit.typing import FloatArray

_FLOOR = 0.3
"""Least tau^2, in units of p phi^2: what is not known about phi, which matters where privacy noise is off."""
_NO_AXIS = 1e-9
"""Energy of Q below which all directions were played alike."""
_FEW = 16
"""Eigenvalues of one block up to which plain numbers are faster than arrays."""
Number = TypeVar("Number", float, FloatArray)


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


def solve_blocks(
    constants: StreamConstants,
    dispersion: float,
    variance: float,
    h: FloatArray,
    score: FloatArray,
    axes: FloatArray,
    theta: FloatArray,
    entries: list[int],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posterior mean and covariance of theta given the released H and b, for one block or a stack.

    H is shrunk and made positive first.  b - H theta* has covariance phi' H from rewards and tau^2 I from privacy
    noise, tau^2 = Var b + Var H |theta|^2 / 2 across theta.  With the prior N(0, I / p), p = (d + 2) / S^2 as of a
    uniform point of the S-ball, and everything commuting with H up to the noise,

        M = H^2 + p (phi' H + tau^2 I),   theta = M^-1 H b,   Cov = (phi' H + tau^2 I) M^-1.

    All of it commutes with H, so that one eigendecomposition gives all of it.

    Parameters
    ----------
    dispersion
        phi': variance of b in units of H, from rewards.
    variance
        Of every entry of the stream, from privacy noise.
    h, axes
        H as released, and the mean of u u', u the direction of the theta that arms were chosen by; shape (C, m, m).
    score, theta
        b as released, and the theta before; shape (C, m).
    entries
        Packed entries of each block that were released, and carry noise.

    Returns
    -------
    tuple
        theta, one block after another, shape (C m,); its covariance, shape (C, m, m); and the latter with the squared
        widths of the bonus, one for each part of it.
    """
    *stack, size = theta.shape
    times = np.matmul if stack else np.dot  # which is the faster one, for two matrices
    span = np.array((_identity(h.shape), axes, h)).reshape(3, *stack, -1).swapaxes(0, -2)
    products, squares = times(span, span.mT).reshape(-1, 3, 3).tolist(), np.vecdot(theta, theta).reshape(-1).tolist()
    floor, more = _FLOOR * constants.prior * dispersion**2, constants.noise_width**2 - constants.width**2
    shares, terms = [], []
    for inner, squared, released in zip(products, squares, entries, strict=True):
        share = _combination(constants, size, inner, variance, released)
        noise = variance * (constants.scale**-2 + 0.5 * share[2] ** 2 * squared)
        shares.append(share)
        terms.append((max(noise, floor), more * noise))
    values, basis = _eigenpairs(times(np.array(shares).reshape(*stack, 1, 3), span).reshape(h.shape))
    if not stack and size <= _FEW:
        weights = np.array([_weights(constants, dispersion, max(v, 0.0), *terms[0]) for v in values.tolist()]).T
    else:
        tau, wider = np.array(terms).T.reshape(2, *stack, 1)
        weights = np.array(_weights(constants, dispersion, np.maximum(values, 0.0), tau, wider))
    if stack:
        score, weights = score[:, np.newaxis], weights[:, :, np.newaxis]
    turned, (in_theta, in_covariance, in_optimistic) = basis.mT, weights
    found_theta = times(times(score, basis) * in_theta, turned).reshape(-1)
    return found_theta, times(basis * in_covariance, turned), times(basis * in_optimistic, turned)


def _eigenpairs(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors of a symmetric matrix, or of each of a stack."""
    if matrices.ndim > 2:
        return np.linalg.eigh(matrices)
    values, basis, failed = dsyevd(matrices, lower=1)  # as above, without its checks
    if failed:
        raise TacitError("the eigenvalues of a released matrix were not found: a fault of the program")
    return values, basis.copy()  # line by line, as above: products are then rounded in the same way


def _weights(
    constants: StreamConstants, dispersion: float, value: Number, tau: Number, wider: Number
) -> tuple[Number, Number, Number]:
    """What M^-1 H, the covariance and the optimistic one make of an eigenvector of H with this eigenvalue.

    ``tau`` is tau^2, ``wider`` what is added to the squared width of that part of the variance.
    """
    spread = dispersion * value + tau
    inverse = 1.0 / (value * value + constants.prior * spread)
    ratio = spread * inverse
    return value * inverse, ratio, constants.width**2 * ratio + wider * inverse


def _combination(
    constants: StreamConstants, size: int, products: list[list[float]], variance: float, entries: int
) -> tuple[float, float, float]:
    """What the shrunk H has of I, of the mean of the axes, and of H; from their inner products.

    That is level I + gap Q + a (the rest), as far as noise explains the rest.  Arms that are chosen for their score
    along u and are alike otherwise give an H in the span of I and u u'; Q is the mean of the axes so far, less its part
    along I.  gap is fitted, and shrunk by what noise adds to its square; a = 1 - energy of the noise / observed energy,
    both of what is left (James and Stein).  Rounding in the energy of a small rest moves H by less than the rest.
    """
    if not constants.shrinks:
        return 0.0, 0.0, 1.0
    (_, axes_trace, trace), (_, axes_square, axes_h), (_, _, square) = products
    level, mean, gap = max(trace / size, 0.0), axes_trace / size, 0.0
    energy, common = axes_square - mean * axes_trace, axes_h - mean * trace  # of Q = axes - mean I, and with H
    if constants.axes and energy > _NO_AXIS and common > 0.0:
        gap = common / energy
        gap *= max(0.0, 1.0 - variance / (energy * gap * gap))
    rest = square - 2.0 * level * trace + level * level * size + gap * (gap * energy - 2.0 * common)
    noise = variance * max(entries - (2 if constants.axes else 1), 0)
    kept = max(0.0, 1.0 - noise / rest) if rest > 0.0 else 1.0
    return (1.0 - kept) * (level - gap * mean), (1.0 - kept) * gap, kept


@cache
def _identity(shape: tuple[int, ...]) -> FloatArray:
    """The identity as a stack of this shape; not to be written to."""
    return np.zeros(shape) + np.eye(shape[-1])
