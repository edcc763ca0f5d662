"""Symmetric matrices as vectors, such that the Frobenius norm becomes the Euclidean norm.

Diagonal entries are kept, entries above it are multiplied by sqrt(2).  Gaussian noise of covariance
``sigma^2 I`` on the packed vector then has l2 sensitivity equal to the Frobenius sensitivity of the matrix.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from tacit.typing import FloatArray, IntArray

SQRT2 = math.sqrt(2.0)
_CHUNK = 1 << 15
"""Packed numbers that are rounded and summed at a time: what the processor's cache holds."""


def packed_size(dim: int) -> int:
    """Return the number of free entries of a symmetric ``dim`` x ``dim`` matrix.

    Parameters
    ----------
    dim : int
        d.

    Returns
    -------
    int
        d (d + 1) / 2.

    Examples
    --------
    >>> from tacit.extend import packed_size
    >>> packed_size(3)
    6
    """
    return dim * (dim + 1) // 2


@cache
def packed_places(dim: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Row and column of each packed entry of a ``dim`` x ``dim`` matrix, and the factor that packing gives it."""
    i, j = np.triu_indices(dim)
    places = np.asarray(i), np.asarray(j), np.where(i == j, 1.0, SQRT2)
    for array in places:
        array.setflags(write=False)  # shared by all callers
    return places


@cache
def _square_places(dim: int) -> tuple[IntArray, FloatArray]:
    """Position in the packing of each entry of a ``dim`` x ``dim`` matrix, and the factor that packing gives it."""
    i, j, packing = packed_places(dim)
    table, factor = np.empty((dim, dim), dtype=np.int64), np.empty((dim, dim))
    table[i, j] = table[j, i] = np.arange(i.size)
    factor[i, j] = factor[j, i] = packing
    return table, factor


def packed_outers(rows: FloatArray, weights: FloatArray | float = 1.0) -> FloatArray:
    """Return the packing of ``weights[n] * x x'`` for each of N rows x.

    A packed matrix is its upper triangle, line by line, with entries off the diagonal multiplied by sqrt(2): its
    Euclidean norm is the Frobenius norm of the matrix.

    Parameters
    ----------
    rows : ndarray, shape (N, d)
        The rows x.
    weights : ndarray, shape (N,), or float, default 1
        Weight of each row, or of all.

    Returns
    -------
    ndarray, shape (N, d (d + 1) / 2)
        One packed matrix per line.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.extend import packed_outers
    >>> packed_outers(np.array([[1.0, 2.0]])).round(3).tolist()
    [[1.0, 2.828, 4.0]]
    """
    i, j, factor = packed_places(rows.shape[1])
    products = rows.take(i, axis=1)
    products *= np.asarray(weights).reshape(-1, 1) * factor
    products *= rows.take(j, axis=1)
    return products


@cache
def _product_places(dim: int) -> tuple[IntArray, IntArray]:
    """Which factors the packed entries of x x' have, and behind them those of y x.

    First factors are those of x and then y; second ones those of x, for entries of the diagonal and y x, and then those
    of sqrt(2) x.
    """
    i, j, _ = packed_places(dim)
    return np.append(i, np.full(dim, dim)), np.append(np.where(i == j, j, dim + j), np.arange(dim))


def packed_outer_sums(
    rows: FloatArray, weights: FloatArray, grid: float, responses: FloatArray | None = None
) -> FloatArray:
    """The sum of `packed_outers`, and behind it that of ``responses[n] * x`` if there are any.

    Every number is rounded to a multiple of ``grid`` before it is summed (`rounded_to_grid`).
    """
    count, dim = rows.shape
    first, second = _product_places(dim)
    unit = 1.0 / grid if grid > 0.0 else 1.0  # a power of two: nothing is rounded by it
    # A line for each number of a row: what is gathered are whole lines then.
    factors, others = np.empty((dim + 1, count)), np.empty((2 * dim, count))
    np.multiply(rows.T, weights, factors[:dim])
    np.multiply(rows.T, unit, others[:dim])
    np.multiply(rows.T, SQRT2 * unit, others[dim:])
    if responses is not None:
        factors[dim] = responses
    total = np.empty(packed_size(dim) if responses is None else first.size)
    step = max(1, _CHUNK // max(1, count))
    for start in range(0, total.size, step):
        part = slice(start, min(start + step, total.size))
        products = factors.take(first[part], axis=0)
        products *= others.take(second[part], axis=0)
        if grid > 0.0:
            np.rint(products, products)
        np.add.reduce(products, 1, out=total[part])
    total *= 1.0 / unit
    return total


def rounded_to_grid(values: FloatArray, grid: float) -> FloatArray:
    """The nearest multiples of ``grid``, a power of two; the values themselves when ``grid`` is 0, which means none."""
    return np.asarray(grid * np.rint(values * (1.0 / grid))) if grid > 0.0 else values


def packed(matrix: FloatArray) -> FloatArray:
    """The isometric packing of ``matrix`` as a new vector."""
    i, j, factor = packed_places(matrix.shape[0])
    return np.asarray(factor * matrix[i, j])


def unpacked(vector: FloatArray, dim: int) -> FloatArray:
    """Return the symmetric matrix that ``vector`` packs.

    Parameters
    ----------
    vector : ndarray, shape (d (d + 1) / 2,)
        A packed matrix, such as a sum of lines of `packed_outers`.
    dim : int
        d.

    Returns
    -------
    ndarray, shape (d, d)
        The matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.extend import packed_outers, unpacked
    >>> unpacked(packed_outers(np.array([[1.0, 2.0]]))[0], dim=2).round(6).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    table, factor = _square_places(dim)
    return np.asarray(vector.take(table) / factor)
