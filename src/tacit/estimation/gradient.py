"""The gradient sum whose sensitivity holds for every input, in exact arithmetic.

Each row's gradient (mu(z) - r) x is bounded by clipping, cut to a fixed-point grid towards 0, and summed as
integers.  Cutting never lengthens a vector and integer sums are the same in every order, so that replacing
one row moves the sum by at most twice the bound as computed, not only on paper: rounding and summation order
cannot understate the sensitivity (Casacuberta et al., arXiv 2207.10635).
"""

from __future__ import annotations

import math

import numpy as np

from tacit._compile import allocating_entry
from tacit.errors import InvalidInput
from tacit.glm.links import LinkForm, mean
from tacit.glm.rows import Selection, has_mark
from tacit.linalg.solve import dot
from tacit.typing import FloatArray

_MARGIN = 1.0 - 2.0**-36
"""Room for the rounding of norms and products, up to dimension 2^15."""
_GRID_BITS = 32


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


@allocating_entry
def clipped_gradient_sum(
    link: LinkForm,
    selection: Selection,
    theta: FloatArray,
    reward_bound: float,
    residual_bound: float,
    grid: float,
    out: FloatArray,
) -> None:
    """Sum of (mu(z) - r) x over the selected rows, each of norm at most ``residual_bound``, into ``out``.

    Features are scaled into the unit ball, rewards clipped to [0, R], rows that are not finite count as 0.

    Formal guarantee
    ----------------
    Adjacency: one row replaced, by any numbers, NaN and infinities included.  l2 sensitivity
    ``2 * residual_bound``; ``residual_bound`` for a row that enters or leaves the selection; and, for theta
    in the S-ball, what ``tacit.estimation.sensitivity`` derives (docs/theory.md#gradient-diameter), plus the
    grid.  Every row is worked through, selected or not, so that neither running time nor memory access shows the mask.
    """
    dim, mark = theta.shape[0], selection.mark
    features, rewards, mask, held = selection.rows
    total = np.zeros(dim, dtype=np.int64)
    for i in range(held[()]):
        x = features[i]
        reward = rewards[i]
        squared = dot(x, x)
        shrink = 1.0 / math.sqrt(squared) if squared > 1.0 else 1.0
        residual = mean(link, shrink * dot(x, theta)) - min(max(reward, 0.0), reward_bound)
        factor = _MARGIN * shrink * min(max(residual, -residual_bound), residual_bound) / grid
        if not (math.isfinite(squared) and math.isfinite(reward)):
            factor = 0.0
        if not has_mark(mask, i, mark):
            factor = 0.0
        for j in range(dim):
            value = factor * x[j]
            total[j] += np.int64(value) if value == value else 0
    for j in range(dim):
        out[j] = total[j] * grid
