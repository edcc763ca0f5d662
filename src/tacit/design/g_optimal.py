"""G-optimal design over a finite set of arms, with regularisation: which arms to sample, and how often.

Maximises log det V(pi), V(pi) = ridge I + sum_k pi_k x_k x_k', by exchanging weight between the arm of
largest and the sampled arm of smallest variance w_k = x_k' V^-1 x_k (vertex exchange, Boehning 1986, with
exact line search). At the optimum max_k w_k = sum_k pi_k w_k = d - ridge tr V^-1 <= d, the equivalence
theorem of Kiefer and Wolfowitz (1960) with a ridge; the returned value is max_k w_k, recomputed from the
weights, so that it certifies itself.
"""

from __future__ import annotations

import numpy as np

from tacit._compile import allocating_kernel, inlined_kernel, kernel
from tacit.design.support import positive_count, reduce_support
from tacit.linalg.solve import cholesky, invert_cholesky, quadratic_form
from tacit.linalg.vectors import copy_into
from tacit.typing import FloatArray

TOLERANCE = 0.05
"""The exchange stops when max_k w_k <= (1 + TOLERANCE) sum_k pi_k w_k: at most 1.05 d, where 2 d is asked for."""

_RELATIVE_FLOOR = 1e-9
_REFRESH = 64
_MAX_EXCHANGES = 4096


@allocating_kernel
def g_optimal_design(arms: FloatArray, ridge: float, weights: FloatArray) -> float:
    """Write the design into ``weights`` and return max_k ||x_k||^2 in the inverse of V(weights).

    ``arms`` is (K, d), ``ridge`` >= 0; the ridge is raised to 1e-9 of the largest squared norm, so that
    repeated, collinear or zero arms give a design of the span they have, and the value refers to that
    ridge. The value is at most 2 d (1.05 d as a rule), at most d (d + 1) / 2 + 1 weights are positive and
    they add up to 1. Returns 0 with all weight on the first arm when every arm is zero, infinity when an
    arm is not finite.
    """
    count, dim = arms.shape
    scale = _largest_squared_norm(arms)
    for k in range(count):
        weights[k] = 1.0 if k == 0 else 0.0
    if not scale < np.inf or not 0.0 <= ridge < np.inf:
        return np.inf
    if scale == 0.0:
        return 0.0
    floor = max(ridge, _RELATIVE_FLOOR * scale)
    _greedy_start(arms, weights)
    inverse, variances = np.empty((dim, dim)), np.empty(count)
    _exchange(arms, floor, weights, inverse, variances)
    if positive_count(weights) > dim * (dim + 1) // 2 + 1:
        reduce_support(arms, weights)
        _refresh(arms, floor, weights, inverse, variances)
    largest = variances[0]
    for k in range(1, count):
        largest = max(largest, variances[k])
    return float(largest)


@inlined_kernel
def _largest_squared_norm(arms: FloatArray) -> float:
    """Infinity when an entry is not finite, or overflows when squared."""
    largest = 0.0
    for k in range(arms.shape[0]):
        total = 0.0
        for i in range(arms.shape[1]):
            total += arms[k, i] * arms[k, i]
        if not total < np.inf:
            return np.inf
        largest = max(largest, total)
    return largest


@inlined_kernel
def _greedy_start(arms: FloatArray, weights: FloatArray) -> None:
    """Equal weight on at most d arms, each far from the span of those before it (pivoted Gram-Schmidt).

    Kumar and Yildirim (2005) start the minimum-volume ellipsoid in the same way: few points, all directions.
    """
    count, dim = arms.shape
    residual, pivot = np.empty((count, dim)), np.empty(dim)
    for k in range(count):
        copy_into(arms[k], residual[k])
        weights[k] = 0.0
    chosen, first = 0, 0.0
    for _ in range(min(count, dim)):
        best, best_norm = -1, 0.0
        for k in range(count):
            norm = 0.0
            for i in range(dim):
                norm += residual[k, i] * residual[k, i]
            if norm > best_norm:
                best, best_norm = k, norm
        first = max(first, best_norm)
        if best < 0 or best_norm <= _RELATIVE_FLOOR * first:
            break
        weights[best] = 1.0
        chosen += 1
        copy_into(residual[best], pivot)
        for k in range(count):
            share = 0.0
            for i in range(dim):
                share += residual[k, i] * pivot[i]
            share /= best_norm
            for i in range(dim):
                residual[k, i] -= share * pivot[i]
    for k in range(count):
        weights[k] /= chosen


@allocating_kernel
def _refresh(arms: FloatArray, ridge: float, weights: FloatArray, inverse: FloatArray, variances: FloatArray) -> None:
    """Inverse and variances from the weights, free of the rounding that updates gather."""
    count, dim = arms.shape
    matrix = np.zeros((dim, dim))
    for k in range(count):
        if weights[k] > 0.0:
            for i in range(dim):
                for j in range(i + 1):
                    matrix[i, j] += weights[k] * arms[k, i] * arms[k, j]
    for i in range(dim):
        matrix[i, i] += ridge
        for j in range(i):
            matrix[j, i] = matrix[i, j]
    # Cannot fail: the ridge is at least 1e-9 of the largest squared norm, and rounding far below that.
    cholesky(matrix, matrix)
    invert_cholesky(matrix, inverse)
    for k in range(count):
        variances[k] = quadratic_form(inverse, arms[k])


@inlined_kernel
def _exchange(arms: FloatArray, ridge: float, weights: FloatArray, inverse: FloatArray, variances: FloatArray) -> None:
    """Exchange weight until the certificate holds; variances are exact on return."""
    count, dim = arms.shape
    to, away = np.empty(dim), np.empty(dim)
    _refresh(arms, ridge, weights, inverse, variances)
    fresh = True
    for step in range(_MAX_EXCHANGES):
        high, low, mean = 0, -1, 0.0
        for k in range(count):
            if variances[k] > variances[high]:
                high = k
            if weights[k] > 0.0:
                mean += weights[k] * variances[k]
                if low < 0 or variances[k] < variances[low]:
                    low = k
        if variances[high] <= (1.0 + TOLERANCE) * mean:
            if fresh:
                return
            _refresh(arms, ridge, weights, inverse, variances)
            fresh = True
            continue
        _move_weight(arms, high, low, weights, inverse, variances, to, away)
        fresh = step % _REFRESH == _REFRESH - 1
        if fresh:
            _refresh(arms, ridge, weights, inverse, variances)
    _refresh(arms, ridge, weights, inverse, variances)


@inlined_kernel
def _move_weight(
    arms: FloatArray,
    high: int,
    low: int,
    weights: FloatArray,
    inverse: FloatArray,
    variances: FloatArray,
    to: FloatArray,
    away: FloatArray,
) -> None:
    """Move the weight that maximises the determinant from ``low`` to ``high``; inverse and variances follow.

    det changes by (1 + m w_h)(1 - m w_l) + m^2 w_hl^2, a concave quadratic in the moved weight m.
    """
    dim = arms.shape[1]
    cross = 0.0
    for i in range(dim):
        to[i], away[i] = 0.0, 0.0
        for j in range(dim):
            to[i] += inverse[i, j] * arms[high, j]
            away[i] += inverse[i, j] * arms[low, j]
    for i in range(dim):
        cross += arms[low, i] * to[i]
    bend = 2.0 * (variances[high] * variances[low] - cross * cross)
    moved = weights[low]
    if bend > 0.0:
        moved = min(moved, (variances[high] - variances[low]) / bend)
    weights[high] += moved
    weights[low] = 0.0 if moved >= weights[low] else weights[low] - moved
    gain = moved / (1.0 + moved * variances[high])
    _rank_one(arms, to, -gain, inverse, variances)
    for i in range(dim):
        away[i] -= gain * cross * to[i]
    remaining = variances[low]  # already with the first update
    _rank_one(arms, away, moved / (1.0 - moved * remaining), inverse, variances)


@kernel
def _rank_one(
    arms: FloatArray, direction: FloatArray, factor: float, inverse: FloatArray, variances: FloatArray
) -> None:
    """Add ``factor`` times the outer square of ``direction`` to the inverse; the variances follow."""
    dim = direction.shape[0]
    for i in range(dim):
        for j in range(dim):
            inverse[i, j] += factor * direction[i] * direction[j]
    for k in range(arms.shape[0]):
        share = 0.0
        for i in range(dim):
            share += arms[k, i] * direction[i]
        variances[k] += factor * share * share
