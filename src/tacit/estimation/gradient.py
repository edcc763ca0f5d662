"""The gradient sum whose sensitivity holds for every input, in exact arithmetic.

Each row's gradient (mu(z) - r) x is bounded by clipping, cut to a fixed-point grid towards 0, and summed as
integers.  Cutting never lengthens a vector and integer sums are the same in every order, so that replacing
one row moves the sum by at most twice the bound as computed, not only on paper: rounding and summation order
cannot understate the sensitivity (Casacuberta et al., arXiv 2207.10635).
"""

from __future__ import annotations

import math

import numpy as np

from tacit.errors import InvalidInput
from tacit.glm.links import Link
from tacit.glm.rows import ALL_ROWS, Selection
from tacit.typing import FloatArray

_MARGIN = 1.0 - 2.0**-36
"""Room for the rounding of norms and products, up to dimension 2^15."""
_GRID_BITS = 32
_CHUNK_ROWS = 1 << 12
"""Rows that are worked on at a time: they stay in the processor's cache."""


def gradient_grid(residual_bound: float, noise_grid: float | None) -> float:
    """Spacing of the fixed-point grid, a power of two: the noise source's own, or fine against the bound.

    Integer sums stay below 2^63 for 2^30 rows.
    """
    if noise_grid is None:
        return float(2.0 ** (math.ceil(math.log2(residual_bound)) - _GRID_BITS))
    if residual_bound > noise_grid * 2.0**_GRID_BITS:
        finest = residual_bound * 2.0**-_GRID_BITS
        raise InvalidInput(f"the noise source's grid must be at least {finest:g}, got {noise_grid:g}")
    return noise_grid


def clipped_gradient_sum(
    link: Link, selection: Selection, theta: FloatArray, reward_bound: float, residual_bound: float, grid: float
) -> FloatArray:
    """Sum of (mu(z) - r) x over the selected rows, each of norm at most ``residual_bound``.

    Features are scaled into the unit ball, rewards clipped to [0, R], rows that are not finite count as 0.

    Formal guarantee
    ----------------
    Adjacency: one row replaced, by any numbers, NaN and infinities included.  l2 sensitivity
    ``2 * residual_bound``; ``residual_bound`` for a row that enters or leaves the selection; and, for theta
    in the S-ball, what ``tacit.estimation.sensitivity`` derives (docs/theory.md#gradient-diameter), plus the
    grid.  Every row is worked through, selected or not, so that neither running time nor memory access shows the mask.
    """
    buffer, mark = selection
    held = int(buffer.held[()])
    features, rewards, mask = buffer.features[:held], buffer.rewards[:held], buffer.mask[:held]
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.vecdot(features, features)
    counts = np.isfinite(squared) & np.isfinite(rewards) & ((mask == mark) | (mark == ALL_ROWS))
    x = np.where(counts[:, np.newaxis], features, 0.0)
    shrink = 1.0 / np.sqrt(np.where(counts, np.maximum(squared, 1.0), 1.0))
    # Row by row, not as a product of matrices, in which a row's score depends on where it stands.
    scores = shrink * np.vecdot(x, theta)
    residuals = link.mean(scores) - np.clip(np.where(counts, rewards, 0.0), 0.0, reward_bound)
    factors = _MARGIN * shrink * np.clip(residuals, -residual_bound, residual_bound) / grid
    steps = (factors[:, np.newaxis] * x).astype(np.int64)  # cuts towards 0
    return np.asarray(steps.sum(axis=0) * grid)
