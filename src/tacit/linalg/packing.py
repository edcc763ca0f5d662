"""Symmetric matrices as vectors, such that the Frobenius norm becomes the Euclidean norm.

Diagonal entries are kept, entries above it are multiplied by sqrt(2).  Gaussian noise of covariance
``sigma^2 I`` on the packed vector then has l2 sensitivity equal to the Frobenius sensitivity of the matrix.
"""

from __future__ import annotations

import math

import numpy as np

from tacit._compile import kernel
from tacit.typing import FloatArray

SQRT2 = math.sqrt(2.0)


def packed_size(dim: int) -> int:
    """Number of free entries of a symmetric ``dim`` x ``dim`` matrix."""
    return dim * (dim + 1) // 2


@kernel
def pack(matrix: FloatArray, out: FloatArray) -> None:
    """Write the isometric packing of ``matrix`` into ``out``."""
    position = 0
    for i in range(matrix.shape[0]):
        out[position] = matrix[i, i]
        position += 1
        for j in range(i + 1, matrix.shape[0]):
            out[position] = SQRT2 * matrix[i, j]
            position += 1


@kernel
def add_packed_outer(weight: float, x: FloatArray, out: FloatArray) -> None:
    """Add the packing of ``weight * x x'`` to ``out`` without forming the matrix."""
    position = 0
    for i in range(x.shape[0]):
        out[position] += weight * x[i] * x[i]
        position += 1
        for j in range(i + 1, x.shape[0]):
            out[position] += SQRT2 * weight * x[i] * x[j]
            position += 1


@kernel
def unpack(vector: FloatArray, out: FloatArray) -> None:
    """Write the symmetric matrix that ``vector`` packs into ``out``."""
    position = 0
    for i in range(out.shape[0]):
        out[i, i] = vector[position]
        position += 1
        for j in range(i + 1, out.shape[0]):
            value = vector[position] / SQRT2
            out[i, j] = value
            out[j, i] = value
            position += 1


def packed(matrix: FloatArray) -> FloatArray:
    """The isometric packing of ``matrix`` as a new vector."""
    out = np.empty(packed_size(matrix.shape[0]))
    pack(np.asarray(matrix, dtype=np.float64), out)
    return out


def unpacked(vector: FloatArray, dim: int) -> FloatArray:
    """The ``dim`` x ``dim`` symmetric matrix that ``vector`` packs."""
    out = np.empty((dim, dim))
    unpack(np.asarray(vector, dtype=np.float64), out)
    return out
