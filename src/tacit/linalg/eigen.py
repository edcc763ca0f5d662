"""Eigenvalues of small symmetric matrices by Jacobi rotations.

Plain loops for the reason given in ``tacit.linalg.solve``: the same bits on every machine, and a kernel that
calls this compiles in a fraction of the time that a LAPACK call takes.  Cubic per sweep, about six sweeps.
"""

from __future__ import annotations

import math

import numpy as np

from tacit._compile import inlined_kernel, kernel
from tacit.linalg.solve import cholesky
from tacit.linalg.tridiagonal import eigen_lines
from tacit.linalg.vectors import add_line, copy_into, fill, scale_line
from tacit.typing import FloatArray

_SWEEPS = 60


@kernel
def symmetric_eigen(matrix: FloatArray, values: FloatArray, vectors: FloatArray) -> None:
    """Eigenvalues and eigenvectors (columns), in no particular order; ``matrix`` is overwritten."""
    dim = matrix.shape[0]
    for i in range(dim):
        for j in range(dim):
            vectors[i, j] = 1.0 if i == j else 0.0
    for _ in range(_SWEEPS):
        rotated = False
        for p in range(dim):
            for q in range(p + 1, dim):
                # Golub and Van Loan, Matrix Computations, section 8.5: skip what rounding has already closed.
                if abs(matrix[p, q]) > 1e-17 * math.sqrt(abs(matrix[p, p] * matrix[q, q])) + 1e-300:
                    rotated = True
                    _rotate(matrix, vectors, p, q)
        if not rotated:
            break
    for i in range(dim):
        values[i] = matrix[i, i]


@inlined_kernel
def _rotate(matrix: FloatArray, vectors: FloatArray, p: int, q: int) -> None:
    """Annul entry (p, q) by the smaller of the two rotations that do.

    ``np.hypot`` is that of the C library, as compiled; Python's ``math.hypot`` rounds better and so differently.
    """
    ratio = (matrix[q, q] - matrix[p, p]) / (2.0 * matrix[p, q])
    tangent = math.copysign(1.0, ratio) / (abs(ratio) + np.hypot(1.0, ratio))
    cosine = 1.0 / np.hypot(1.0, tangent)
    sine = tangent * cosine
    shift = tangent * matrix[p, q]
    matrix[p, p] -= shift
    matrix[q, q] += shift
    matrix[p, q] = 0.0
    matrix[q, p] = 0.0
    for k in range(matrix.shape[0]):
        if k != p and k != q:
            upper, lower = matrix[k, p], matrix[k, q]
            matrix[k, p] = cosine * upper - sine * lower
            matrix[k, q] = sine * upper + cosine * lower
            matrix[p, k] = matrix[k, p]
            matrix[q, k] = matrix[k, q]
        upper, lower = vectors[k, p], vectors[k, q]
        vectors[k, p] = cosine * upper - sine * lower
        vectors[k, q] = sine * upper + cosine * lower


@kernel
def make_positive(matrix: FloatArray, factor: FloatArray, lines: FloatArray, work: FloatArray) -> None:
    """Set negative eigenvalues of a symmetric matrix to 0, in place; the other arguments are room of the same shape.

    Either part will do, and the one of fewer eigenvalues is taken: negative ones are added with the other sign, or the
    matrix is made of positive ones.
    """
    if cholesky(matrix, factor):
        return
    dim, values = matrix.shape[0], work[0]
    for i in range(dim):
        copy_into(matrix[i], factor[i])
    eigen_lines(factor, values, lines)
    negative = 0
    for k in range(dim):
        negative += 1 if values[k] <= 0.0 else 0
    keeps = 2 * negative < dim
    if not keeps:
        fill(matrix, 0.0)
    for k in range(dim):
        if (values[k] <= 0.0) == keeps:
            _add_outer(math.sqrt(abs(values[k])), lines[k], matrix)


@kernel
def _add_outer(scale: float, line: FloatArray, matrix: FloatArray) -> None:
    """Add ``(scale line)(scale line)'``, symmetric to the bit; ``line`` is scaled."""
    scale_line(scale, line)
    for i in range(line.shape[0]):
        add_line(line[i], line, matrix[i])
