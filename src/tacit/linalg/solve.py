"""Cholesky factors, solves and quadratic forms for the small matrices of a round.

Written as loops: at d = 3 to 50 a call into LAPACK costs more than the arithmetic, and a plain loop gives the
same bits on every machine and for every number of BLAS threads.
"""

from __future__ import annotations

import math

from tacit._compile import inlined_kernel, kernel
from tacit.typing import FloatArray


@kernel
def cholesky(matrix: FloatArray, factor: FloatArray) -> bool:
    """Lower Cholesky factor of ``matrix`` into ``factor``; False when it is not positive definite."""
    dim = matrix.shape[0]
    for i in range(dim):
        for j in range(i + 1):
            value = matrix[i, j]
            for k in range(j):
                value -= factor[i, k] * factor[j, k]
            if i == j:
                if not value > 0.0:
                    return False
                factor[i, i] = math.sqrt(value)
            else:
                factor[i, j] = value / factor[j, j]
        for j in range(i + 1, dim):
            factor[i, j] = 0.0
    return True


@kernel
def solve_lower(factor: FloatArray, rhs: FloatArray, out: FloatArray) -> None:
    """Solve ``factor @ out = rhs`` by forward substitution; ``out`` may be ``rhs``."""
    for i in range(factor.shape[0]):
        value = rhs[i]
        for k in range(i):
            value -= factor[i, k] * out[k]
        out[i] = value / factor[i, i]


@kernel
def solve_upper(factor: FloatArray, rhs: FloatArray, out: FloatArray) -> None:
    """Solve ``factor.T @ out = rhs`` by back substitution; ``out`` may be ``rhs``."""
    dim = factor.shape[0]
    for i in range(dim - 1, -1, -1):
        value = rhs[i]
        for k in range(i + 1, dim):
            value -= factor[k, i] * out[k]
        out[i] = value / factor[i, i]


@inlined_kernel
def solve_cholesky(factor: FloatArray, rhs: FloatArray, out: FloatArray) -> None:
    """Solve ``factor @ factor.T @ out = rhs``; ``out`` may be ``rhs``."""
    solve_lower(factor, rhs, out)
    solve_upper(factor, out, out)


@kernel
def invert_cholesky(factor: FloatArray, out: FloatArray) -> None:
    """Inverse of ``factor @ factor.T`` into ``out``.

    `solve_cholesky` for all columns of the identity at once, line by line: several numbers at a time.
    """
    dim = factor.shape[0]
    for i in range(dim):
        for column in range(dim):
            out[i, column] = 1.0 if i == column else 0.0
        for k in range(i):
            _subtract_line(factor[i, k], out[k], out[i])
        _divide_line(factor[i, i], out[i])
    for i in range(dim - 1, -1, -1):
        for k in range(i + 1, dim):
            _subtract_line(factor[k, i], out[k], out[i])
        _divide_line(factor[i, i], out[i])


@inlined_kernel
def _subtract_line(factor: float, line: FloatArray, out: FloatArray) -> None:
    for j in range(out.shape[0]):
        out[j] -= factor * line[j]


@inlined_kernel
def _divide_line(divisor: float, out: FloatArray) -> None:
    for j in range(out.shape[0]):
        out[j] /= divisor


@kernel
def quadratic_form(matrix: FloatArray, x: FloatArray) -> float:
    """``x' matrix x`` for a symmetric matrix."""
    total = 0.0
    for i in range(x.shape[0]):
        row = 0.5 * matrix[i, i] * x[i]
        for j in range(i + 1, x.shape[0]):
            row += matrix[i, j] * x[j]
        total += row * x[i]
    return 2.0 * total


@kernel
def dot(x: FloatArray, y: FloatArray) -> float:
    """Inner product by a plain loop."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@kernel
def dominated(matrix: FloatArray, bound: FloatArray, factor: float, work: FloatArray) -> bool:
    """Whether ``matrix <= factor * bound`` in the positive semidefinite order (strictly inside)."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[0]):
            work[i, j] = factor * bound[i, j] - matrix[i, j]
    return bool(cholesky(work, work))
