"""Eigenvalues of symmetric matrices of some size: reduction to three diagonals, then rotations of neighbouring lines.

Householder's reduction and the implicit QR step with Wilkinson's shift (Golub and Van Loan, Matrix Computations,
sections 8.3.1 and 8.3.3).  Small eigenvalues are as exact as the largest one is, where those of
`tacit.linalg.eigen.symmetric_eigen` are as exact as they can be; it is seven times as fast at d = 50, since all loops
run along lines and take several numbers at a time.
"""

from __future__ import annotations

import math

import numpy as np

from tacit._compile import kernel
from tacit.linalg.solve import dot
from tacit.linalg.vectors import add_line
from tacit.typing import FloatArray

_STEPS = 60
"""For each eigenvalue, at most; two are usual."""
_ROUNDING = 2.0**-53


@kernel
def eigen_lines(matrix: FloatArray, values: FloatArray, lines: FloatArray) -> None:
    """Eigenvalues in no particular order, and their eigenvectors as ``lines``; ``matrix`` is overwritten.

    Squares of its entries must be floats: their size lies between 1e-140 and 1e140, or is 0.
    """
    _reduce(matrix, values, lines[0])
    _unfold(matrix, lines)
    beside = matrix[0]
    for i in range(values.shape[0] - 1):
        beside[i] = matrix[i + 1, i]
    last, steps = values.shape[0] - 1, 0
    while last > 0 and steps < _STEPS * values.shape[0]:
        first = _unreduced(values, beside, last)
        if first == last:
            last -= 1
        else:
            _step(values, beside, lines, first, last)
            steps += 1


@kernel
def _reduce(matrix: FloatArray, diagonal: FloatArray, work: FloatArray) -> None:
    """Reflect one line after the other until only three diagonals are left.

    Reflection k, I - b v v', acts on coordinates from k + 1 on: v stays in the line k of ``matrix``, from k + 1 on, and
    b in its diagonal; entry (k + 1, k) is what is left beside the diagonal.
    """
    dim = matrix.shape[0]
    for k in range(dim):
        diagonal[k] = matrix[k, k]
        matrix[k, k] = 0.0
        if k + 2 >= dim:
            if k + 2 == dim:
                matrix[k + 1, k] = matrix[k, k + 1]
            continue
        v, image = matrix[k, k + 1 :], work[k + 1 :]
        length = math.sqrt(dot(v, v))
        left = -length if v[0] > 0.0 else length
        if length > 0.0:
            v[0] -= left
            matrix[k, k] = -1.0 / (left * v[0])  # 2 / v'v
            _reflect_both_sides(matrix, k, v, image)
        matrix[k + 1, k] = left


@kernel
def _reflect_both_sides(matrix: FloatArray, k: int, v: FloatArray, image: FloatArray) -> None:
    """B <- (I - b v v') B (I - b v v') = B - v w' - w v' with w = b B v - (b^2 v'Bv / 2) v, B from k + 1 on."""
    factor = matrix[k, k]
    for i in range(image.shape[0]):
        image[i] = 0.0
    for i in range(v.shape[0]):
        add_line(factor * v[i], matrix[k + 1 + i, k + 1 :], image)
    add_line(-0.5 * factor * dot(image, v), v, image)
    for i in range(v.shape[0]):
        line, own, own_image = matrix[k + 1 + i, k + 1 :], v[i], image[i]
        for j in range(line.shape[0]):
            line[j] -= own * image[j] + own_image * v[j]


@kernel
def _unfold(matrix: FloatArray, lines: FloatArray) -> None:
    """The product of all reflections, transposed, from the last one on; the first column of ``matrix`` is room."""
    dim = matrix.shape[0]
    for i in range(dim):
        for j in range(dim):
            lines[i, j] = 1.0 if i == j else 0.0
    for k in range(dim - 3, -1, -1):
        factor, v = matrix[k, k], matrix[k, k + 1 :]
        if factor == 0.0:
            continue
        sums = lines[0, k + 1 :]  # line 0 is that of the identity all the time
        for i in range(v.shape[0]):
            add_line(v[i], lines[k + 1 + i, k + 1 :], sums)
        for i in range(v.shape[0]):
            add_line(-factor * v[i], sums, lines[k + 1 + i, k + 1 :])
        for j in range(sums.shape[0]):
            sums[j] = 0.0
    for i in range(dim):
        for j in range(i):
            lines[i, j], lines[j, i] = lines[j, i], lines[i, j]


@kernel
def _unreduced(diagonal: FloatArray, beside: FloatArray, last: int) -> int:
    """Where the block that ends at ``last`` begins: what rounding would lose beside the diagonal is set to 0."""
    first = last
    while first > 0:
        if abs(beside[first - 1]) <= _ROUNDING * (abs(diagonal[first - 1]) + abs(diagonal[first])):
            beside[first - 1] = 0.0
            break
        first -= 1
    return first


@kernel
def _step(diagonal: FloatArray, beside: FloatArray, lines: FloatArray, first: int, last: int) -> None:
    """One implicit QR step on the block: a rotation by the shifted first column, and those that chase the bulge."""
    half, low = 0.5 * (diagonal[last - 1] - diagonal[last]), beside[last - 1]
    shift = diagonal[last] - low * (low / (half + math.copysign(np.hypot(half, low), half)))
    near, bulge = diagonal[first] - shift, beside[first]
    for k in range(first, last):
        length = np.hypot(near, bulge)
        cosine, sine = (near / length, bulge / length) if length > 0.0 else (1.0, 0.0)
        if k > first:
            beside[k - 1] = length
        turn = sine * (diagonal[k + 1] - diagonal[k]) + 2.0 * cosine * beside[k]
        diagonal[k] += sine * turn
        diagonal[k + 1] -= sine * turn
        beside[k] = cosine * turn - beside[k]
        if k + 1 < last:
            near, bulge = beside[k], sine * beside[k + 1]
            beside[k + 1] *= cosine
        _rotate_lines(cosine, sine, lines[k], lines[k + 1])


@kernel
def _rotate_lines(cosine: float, sine: float, upper: FloatArray, lower: FloatArray) -> None:
    for j in range(upper.shape[0]):
        above, below = upper[j], lower[j]
        upper[j] = cosine * above + sine * below
        lower[j] = cosine * below - sine * above
