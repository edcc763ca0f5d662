"""Fewer points, same design matrix: Caratheodory's theorem as an elimination."""

from __future__ import annotations

import numpy as np

from tacit._compile import allocating_kernel, inlined_kernel
from tacit.typing import FloatArray

_NEGLIGIBLE = 1e-12
_TINY = 1e-300


@allocating_kernel
def reduce_support(arms: FloatArray, weights: FloatArray) -> None:
    """Bring the number of positive weights to at most d (d + 1) / 2 + 1, keeping V(weights) and their sum.

    More points than that are dependent as vectors (x x', 1).  Moving along a dependency changes neither the
    matrix nor the sum, and stops when a weight reaches 0; one point is lost at a time.
    """
    dim = arms.shape[1]
    limit = dim * (dim + 1) // 2 + 1
    for _ in range(arms.shape[0]):
        if positive_count(weights) <= limit:
            break
        used, found = np.empty(limit + 1, dtype=np.intp), 0
        for k in range(weights.shape[0]):
            if weights[k] > 0.0 and found <= limit:
                used[found] = k
                found += 1
        direction = _dependency(arms, used)
        _slide(weights, used, direction)
    total = 0.0
    for k in range(weights.shape[0]):
        total += weights[k]
    for k in range(weights.shape[0]):
        weights[k] /= total


@inlined_kernel
def positive_count(weights: FloatArray) -> int:
    """Number of positive weights."""
    found = 0
    for k in range(weights.shape[0]):
        if weights[k] > 0.0:
            found += 1
    return found


@allocating_kernel
def _dependency(arms: FloatArray, used: np.ndarray[tuple[int], np.dtype[np.intp]]) -> FloatArray:
    """Coefficients, not all 0, with which the columns (x x', 1) of these arms add up to 0: by pivoted elimination."""
    dim, columns = arms.shape[1], used.shape[0]
    rows = columns - 1
    table = np.empty((rows, columns))
    scale = 0.0
    for c in range(columns):
        for i in range(dim):
            scale = max(scale, arms[used[c], i] * arms[used[c], i])
    for c in range(columns):
        row = 0
        for i in range(dim):
            for j in range(i + 1):
                table[row, c] = arms[used[c], i] * arms[used[c], j] / max(scale, _TINY)
                row += 1
        table[row, c] = 1.0
    order, rank = np.empty(columns, dtype=np.intp), 0
    for c in range(columns):
        order[c] = c
    for r in range(rows):
        best_row, best_column, best = r, r, 0.0
        for i in range(r, rows):
            for c in range(r, columns):
                if abs(table[i, c]) > best:
                    best_row, best_column, best = i, c, abs(table[i, c])
        if best <= _NEGLIGIBLE:
            break
        for c in range(columns):
            table[r, c], table[best_row, c] = table[best_row, c], table[r, c]
        for i in range(rows):
            table[i, r], table[i, best_column] = table[i, best_column], table[i, r]
        order[r], order[best_column] = order[best_column], order[r]
        for i in range(r + 1, rows):
            factor = table[i, r] / table[r, r]
            for c in range(r, columns):
                table[i, c] -= factor * table[r, c]
        rank = r + 1
    solution = np.zeros(columns)
    solution[rank] = 1.0
    for r in range(rank - 1, -1, -1):
        value = 0.0
        for c in range(r + 1, rank + 1):
            value -= table[r, c] * solution[c]
        solution[r] = value / table[r, r]
    direction = np.empty(columns)
    for c in range(columns):
        direction[order[c]] = solution[c]
    return direction


@inlined_kernel
def _slide(weights: FloatArray, used: np.ndarray[tuple[int], np.dtype[np.intp]], direction: FloatArray) -> None:
    """Move the weights along ``direction`` or against it, whichever makes a weight vanish sooner, until one does."""
    forward, backward = np.inf, np.inf
    for c in range(used.shape[0]):
        if direction[c] < 0.0:
            forward = min(forward, weights[used[c]] / -direction[c])
        elif direction[c] > 0.0:
            backward = min(backward, weights[used[c]] / direction[c])
    length = forward if forward <= backward else -backward
    first = -1
    for c in range(used.shape[0]):
        weights[used[c]] += length * direction[c]
        if direction[c] != 0.0 and (first < 0 or weights[used[c]] < weights[used[first]]):
            first = c
    weights[used[first]] = 0.0
    for c in range(used.shape[0]):
        weights[used[c]] = max(weights[used[c]], 0.0)
