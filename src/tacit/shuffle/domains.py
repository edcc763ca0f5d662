"""What one user may contribute to a sum: the set, its coordinate ranges and its sensitivity, as small types.

A domain turns a user's row into the vector that is summed, and guarantees the bounds that privacy rests on
for every row: rows outside are scaled into the set, rows that are not finite are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit._validate import integer_at_least, positive
from tacit.errors import InvalidInput
from tacit.linalg.packing import packed_outers, packed_size, unpacked
from tacit.typing import FloatArray


class Domain(Protocol):
    """The contributions of one user, as vectors of ``size`` coordinates."""

    @property
    def dim(self) -> int:
        """Length of a user's row."""

    @property
    def bound(self) -> float:
        """Delta: largest Euclidean norm of a contribution."""

    @property
    def size(self) -> int:
        """Coordinates of a contribution."""

    @property
    def sensitivity(self) -> float:
        """D_2: largest Euclidean distance of two contributions (one user's row replaced)."""

    @property
    def lower(self) -> FloatArray:
        """Smallest value of each coordinate."""

    @property
    def upper(self) -> FloatArray:
        """Largest value of each coordinate."""

    def embed(self, rows: FloatArray) -> FloatArray:
        """Turn the rows of users into what they contribute; numbers that are not finite are refused.

        Parameters
        ----------
        rows : ndarray, shape (users, dim)
            One row for each user; longer ones are scaled down to the bound.

        Returns
        -------
        ndarray
            Contributions, shape (users, size).
        """

    def decode(self, total: FloatArray) -> FloatArray:
        """Give a sum of contributions its natural shape.

        Parameters
        ----------
        total : ndarray, shape (size,)
            A sum of contributions.

        Returns
        -------
        ndarray
            The sum as a vector or a symmetric matrix.
        """

    def __hash__(self) -> int:
        """Domains are values: calibrations are cached by them."""


@dataclass(frozen=True)
class Ball:
    """Vectors of norm at most ``bound``; two of them differ by at most twice that.

    Parameters
    ----------
    dim : int
        Length of a vector.
    bound : float, default 1
        Largest Euclidean norm; longer rows are scaled down to it.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.shuffle import Ball
    >>> Ball(2).sensitivity, Ball(2).embed(np.array([[3.0, 4.0]])).round(6).tolist()
    (2.0, [[0.6, 0.8]])
    """

    dim: int
    bound: float = 1.0

    def __post_init__(self) -> None:
        integer_at_least("dim", self.dim, 1)
        positive("bound", self.bound)

    @property
    def size(self) -> int:
        return self.dim

    @property
    def sensitivity(self) -> float:
        return 2.0 * self.bound

    @property
    def lower(self) -> FloatArray:
        return np.full(self.dim, -self.bound)

    @property
    def upper(self) -> FloatArray:
        return np.full(self.dim, self.bound)

    def embed(self, rows: FloatArray) -> FloatArray:
        """Shorten rows to the bound; numbers that are not finite are refused.

        Parameters
        ----------
        rows : ndarray, shape (users, dim)
            One row for each user; those longer than the bound are scaled down to it.

        Returns
        -------
        ndarray
            Contributions, shape (users, dim).
        """
        return scaled_into_ball(checked_rows(rows, self.dim), self.bound)

    def decode(self, total: FloatArray) -> FloatArray:
        """Give a sum of contributions its natural shape.

        Parameters
        ----------
        total : ndarray, shape (size,)
            A sum of contributions.

        Returns
        -------
        ndarray
            A copy of it, which is a vector already.
        """
        return total.copy()


@dataclass(frozen=True)
class OuterProducts:
    """Matrices ``x x'`` with ``||x||^2 <= bound``, in isometric packing; a weight w enters as ``sqrt(w) x``.

    Two positive semidefinite matrices have a nonnegative inner product, hence
    ``||A - B||_F^2 <= ||A||_F^2 + ||B||_F^2 <= 2 bound^2``: the sensitivity is sqrt(2) times the bound, not
    twice.  A diagonal entry lies in [0, bound], a packed one off the diagonal, ``sqrt(2) x_i x_j``, within
    ``bound / sqrt(2)`` of 0, since ``2 |x_i x_j| <= x_i^2 + x_j^2``.

    Parameters
    ----------
    dim : int
        d: length of a row x.
    bound : float, default 1
        Largest squared norm of a row; longer rows are scaled down to it.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.shuffle import OuterProducts
    >>> domain = OuterProducts(2)
    >>> domain.decode(domain.embed(np.array([[0.6, 0.8]]))[0]).round(6).tolist()
    [[0.36, 0.48], [0.48, 0.64]]
    """

    dim: int
    bound: float = 1.0

    def __post_init__(self) -> None:
        integer_at_least("dim", self.dim, 1)
        positive("bound", self.bound)

    @property
    def size(self) -> int:
        return packed_size(self.dim)

    @property
    def sensitivity(self) -> float:
        return math.sqrt(2.0) * self.bound if self.dim > 1 else self.bound

    @property
    def lower(self) -> FloatArray:
        return np.where(self._diagonal(), 0.0, -self.bound / math.sqrt(2.0))

    @property
    def upper(self) -> FloatArray:
        return np.where(self._diagonal(), self.bound, self.bound / math.sqrt(2.0))

    def embed(self, rows: FloatArray) -> FloatArray:
        """Make the matrix x x' of each row; numbers that are not finite are refused.

        Parameters
        ----------
        rows : ndarray, shape (users, dim)
            One row for each user; those whose squared norm is above the bound are scaled down to it.

        Returns
        -------
        ndarray
            The matrices, packed, shape (users, size).
        """
        return packed_outers(scaled_into_ball(checked_rows(rows, self.dim), math.sqrt(self.bound)))

    def decode(self, total: FloatArray) -> FloatArray:
        """Unpack a sum of matrices.

        Parameters
        ----------
        total : ndarray, shape (size,)
            A sum of contributions.

        Returns
        -------
        ndarray
            A symmetric matrix, shape (dim, dim).
        """
        return unpacked(total, self.dim)

    def _diagonal(self) -> npt.NDArray[np.bool_]:
        mask = np.zeros(self.size, dtype=np.bool_)
        lengths = np.arange(self.dim, 0, -1)  # row i of the upper triangle starts with its diagonal entry
        mask[np.concatenate(([0], np.cumsum(lengths)[:-1]))] = True
        return mask


def checked_rows(rows: FloatArray, dim: int) -> FloatArray:
    """``rows`` as a contiguous (users, dim) array; refuses other shapes and numbers that are not finite."""
    array = np.ascontiguousarray(rows, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != dim:
        raise InvalidInput(f"rows must have shape (users, {dim}), got {array.shape}")
    if not np.all(np.isfinite(array)):
        raise InvalidInput("rows must be finite; a row with NaN or infinity cannot be clipped, leave it out")
    return array


def scaled_into_ball(rows: FloatArray, radius: float) -> FloatArray:
    """Each row divided by its norm over ``radius`` where that exceeds 1; no overflow at 1e300."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    shares = rows / np.where(largest > 0.0, largest, 1.0)[:, np.newaxis]
    norms = largest * np.sqrt(np.vecdot(shares, shares))
    inside = rows * (radius / np.maximum(norms, radius))[:, np.newaxis]
    return np.asarray(np.clip(inside, -radius, radius, out=inside))
