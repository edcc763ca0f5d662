"""The few vector operations that kernels share, as loops.

Slice assignment and array expressions would read better, but each of them adds about a second to the
compilation of every kernel that calls it.
"""

from __future__ import annotations

import math

import numpy as np

from tacit._compile import allocating_kernel, kernel
from tacit.typing import FloatArray


@kernel
def copy_into(source: FloatArray, target: FloatArray) -> None:
    """Overwrite ``target`` by ``source``."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@kernel
def fill(matrix: FloatArray, value: float) -> None:
    """Make every entry ``value``."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] = value


@kernel
def norm(x: FloatArray) -> float:
    """Euclidean norm by a plain loop."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    return math.sqrt(total)


@kernel
def multiply(matrix: FloatArray, x: FloatArray, out: FloatArray) -> None:
    """``matrix @ x`` into ``out``, which may not be ``x``."""
    for i in range(matrix.shape[0]):
        out[i] = 0.0
        for j in range(matrix.shape[1]):
            out[i] += matrix[i, j] * x[j]


@kernel
def multiply_matrices(first: FloatArray, second: FloatArray, out: FloatArray) -> None:
    """``first @ second`` into ``out``, which may be neither: line by line, several numbers at a time."""
    for i in range(first.shape[0]):
        for j in range(second.shape[1]):
            out[i, j] = 0.0
        for k in range(first.shape[1]):
            factor = first[i, k]
            for j in range(second.shape[1]):
                out[i, j] += factor * second[k, j]


@kernel
def trace(matrix: FloatArray) -> float:
    """Sum of the diagonal."""
    total = 0.0
    for i in range(matrix.shape[0]):
        total += matrix[i, i]
    return total


@allocating_kernel
def identity(dim: int) -> FloatArray:
    """The identity matrix."""
    out = np.zeros((dim, dim))
    for i in range(dim):
        out[i, i] = 1.0
    return out


@kernel
def round_to_grid(value: float, grid: float) -> float:
    """The nearest multiple of ``grid``, a power of two; the value itself when ``grid`` is 0, which stands for none."""
    if grid > 0.0:
        return float(grid * np.rint(value * (1.0 / grid)))  # exact, and a loop divides once
    return value
