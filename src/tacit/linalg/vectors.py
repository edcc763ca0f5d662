"""The few vector operations that kernels share, as loops.

Slice assignment and array expressions would read better, but each of them adds about a second to the
compilation of every kernel that calls it.
"""

from __future__ import annotations

import math

import numpy as np

from tacit._compile import allocating_kernel, inlined_kernel, kernel
from tacit.typing import FloatArray


@kernel
def copy_into(source: FloatArray, target: FloatArray) -> None:
    """Overwrite ``target`` by ``source``."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@kernel
def scale_line(factor: float, line: FloatArray) -> None:
    """Multiply ``line`` by ``factor``."""
    for j in range(line.shape[0]):
        line[j] *= factor


@kernel
def add_line(factor: float, line: FloatArray, out: FloatArray) -> None:
    """Add ``factor * line`` to ``out``."""
    for j in range(out.shape[0]):
        out[j] += factor * line[j]


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
    """``first @ second`` into ``out``, which may be neither."""
    for i in range(first.shape[0]):
        _combine_lines(first[i], second, out[i])


@kernel
def multiply_to_symmetric(first: FloatArray, second: FloatArray, out: FloatArray) -> None:
    """The same for matrices whose product is symmetric: the lower half of it, and its mirror image."""
    for i in range(first.shape[0]):
        _combine_lines(first[i], second, out[i, : i + 1])
        for j in range(i):
            out[j, i] = out[i, j]


@kernel
def _combine_lines(factors: FloatArray, lines: FloatArray, out: FloatArray) -> None:
    """``factors @ lines``, as far as ``out`` goes: several numbers at a time, four lines for each pass over ``out``."""
    k = 0
    for j in range(out.shape[0]):
        out[j] = 0.0
    while k + 4 <= lines.shape[0]:
        _add_four_lines(factors[k : k + 4], lines[k : k + 4], out)
        k += 4
    for rest in range(k, lines.shape[0]):
        add_line(factors[rest], lines[rest], out)


@inlined_kernel
def _add_four_lines(factors: FloatArray, lines: FloatArray, out: FloatArray) -> None:
    """`add_line` four times, one after the other."""
    for j in range(out.shape[0]):
        total = out[j] + factors[0] * lines[0, j]
        total += factors[1] * lines[1, j]
        total += factors[2] * lines[2, j]
        out[j] = total + factors[3] * lines[3, j]


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


@kernel
def add_rounded_line(factor: float, line: FloatArray, grid: float, out: FloatArray) -> None:
    """Add ``factor * line``, each number of it rounded by `round_to_grid`."""
    for j in range(out.shape[0]):
        out[j] += round_to_grid(factor * line[j], grid)
