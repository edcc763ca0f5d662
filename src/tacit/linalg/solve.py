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
    """Lower Cholesky factor of ``matrix`` into ``factor``, which may be it; False when it is not positive definite.

    Worked out above the diagonal, where loops run along lines and take several numbers at a time.
    """
    dim = matrix.shape[0]
    for i in range(dim):
        for j in range(i + 1):
            factor[j, i] = matrix[i, j]
    for k in range(dim):
        if not factor[k, k] > 0.0:
            return False
        root = math.sqrt(factor[k, k])
        _divide_line(root, factor[k, k:])
        factor[k, k] = root
        for i in range(k + 1, dim):
            _subtract_line(factor[k, i], factor[k, i:], factor[i, i:])
    for i in range(dim):
        for j in range(i):
            factor[i, j], factor[j, i] = factor[j, i], 0.0
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
    """Inverse of ``factor @ factor.T`` into ``out``, symmetric to the bit.

    `solve_cholesky` for all columns of the identity at once, line by line: several numbers at a time.  The lower half
    needs nothing of the upper one, which is copied.
    """
    dim = factor.shape[0]
    for i in range(dim):
        for column in range(i + 1):
            out[i, column] = 1.0 if i == column else 0.0
        for k in range(i):
            _subtract_line(factor[i, k], out[k, : k + 1], out[i, : k + 1])
        _divide_line(factor[i, i], out[i, : i + 1])
    for i in range(dim - 1, -1, -1):
        line = out[i, : i + 1]
        for k in range(i + 1, dim):
            _subtract_line(factor[k, i], out[k, : i + 1], line)
        _divide_line(factor[i, i], line)
    for i in range(dim):
        for j in range(i):
            out[j, i] = out[i, j]


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
    """``x' matrix x`` for a symmetric matrix; four lines at a time, whose sums do not wait for each other."""
    total, dim, i = 0.0, x.shape[0], 0
    while i + 4 <= dim:
        first, second = _line_start(matrix, x, i, i + 4), _line_start(matrix, x, i + 1, i + 4)
        third, fourth = _line_start(matrix, x, i + 2, i + 4), _line_start(matrix, x, i + 3, i + 4)
        for j in range(i + 4, dim):
            first += matrix[i, j] * x[j]
            second += matrix[i + 1, j] * x[j]
            third += matrix[i + 2, j] * x[j]
            fourth += matrix[i + 3, j] * x[j]
        total += first * x[i]
        total += second * x[i + 1]
        total += third * x[i + 2]
        total += fourth * x[i + 3]
        i += 4
    for rest in range(i, dim):
        total += _line_start(matrix, x, rest, dim) * x[rest]
    return 2.0 * total


@inlined_kernel
def _line_start(matrix: FloatArray, x: FloatArray, i: int, end: int) -> float:
    """Half of the diagonal's share of line i, and that of what follows it, up to ``end``."""
    row = 0.5 * float(matrix[i, i]) * float(x[i])
    for j in range(i + 1, end):
        row += matrix[i, j] * x[j]
    return row


@kernel
def dot(x: FloatArray, y: FloatArray) -> float:
    """Inner product by a plain loop."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@kernel
def four_dots(lines: FloatArray, start: int, x: FloatArray) -> tuple[float, float, float, float]:
    """`dot` with ``x`` of the four lines from ``start`` on, the same to the bit: no sum waits for another one's.

    Where there are fewer lines the last one stands for those that are missing.
    """
    last = lines.shape[0] - 1
    one, two, three = lines[start], lines[min(start + 1, last)], lines[min(start + 2, last)]
    four = lines[min(start + 3, last)]
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    for i in range(x.shape[0]):
        first += one[i] * x[i]
        second += two[i] * x[i]
        third += three[i] * x[i]
        fourth += four[i] * x[i]
    return first, second, third, fourth


@kernel
def four_squares(lines: FloatArray, start: int) -> tuple[float, float, float, float]:
    """The same with the lines themselves in place of ``x``."""
    last = lines.shape[0] - 1
    one, two, three = lines[start], lines[min(start + 1, last)], lines[min(start + 2, last)]
    four = lines[min(start + 3, last)]
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    for i in range(lines.shape[1]):
        a, b, c, d = one[i], two[i], three[i], four[i]
        first += a * a
        second += b * b
        third += c * c
        fourth += d * d
    return first, second, third, fourth


@kernel
def dominated(matrix: FloatArray, bound: FloatArray, factor: float, work: FloatArray) -> bool:
    """Whether ``matrix <= factor * bound`` in the positive semidefinite order (strictly inside)."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[0]):
            work[i, j] = factor * bound[i, j] - matrix[i, j]
    return bool(cholesky(work, work))
