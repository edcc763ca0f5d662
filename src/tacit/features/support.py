"""Which coordinates of a row can be nonzero together: the structure that releases, filters and solves rest on.

Two values of one category never occur in the same row, so that the product of their coordinates is 0 for every user.
Such an entry of x x' need not be released, carries no noise and costs no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tacit._validate import integer_at_least
from tacit.errors import InvalidInput
from tacit.typing import IntArray

ABSENT = -1
"""The demand of a coordinate that does not depend on a field: it occurs with all of the field's values."""


@dataclass(frozen=True, eq=False)
class Support:
    """The pairs of coordinates that can be nonzero in one row, and the blocks that they form.

    A coordinate can demand certain values of certain fields (``device=ios x topic=news`` demands two).  Two coordinates
    exclude each other if and only if they demand different values of one field.

    Parameters
    ----------
    starts : array of int, shape (blocks + 1,)
        First coordinate of each block, and the number of all.
    width : int
        The most coordinates that one row can have nonzero.
    kinds : array of int, shape (d,)
        Line of ``demands`` of each coordinate.
    demands : array of int, shape (kinds, fields)
        The value of each field that each kind of coordinate demands.

    Examples
    --------
    >>> from tacit.features import Support
    >>> support = Support.of_blocks([2, 3])
    >>> support.dim, support.size
    (5, 9)
    """

    starts: IntArray
    """Block c has the coordinates ``starts[c]`` up to ``starts[c + 1]``: no row reaches into two blocks."""
    width: int
    """The most coordinates that one row can have nonzero."""
    kinds: IntArray
    """Line of ``demands`` of each coordinate."""
    demands: IntArray
    """One line for each kind of coordinate, one column for each field: the value that is demanded, or `ABSENT`."""

    @classmethod
    def of_blocks(cls, sizes: Sequence[int]) -> Support:
        """Return the support of arms that share nothing: a row fills one of several blocks.

        Parameters
        ----------
        sizes : sequence of int
            Coordinates of each block.

        Returns
        -------
        Support
            All pairs of coordinates within a block.
        """
        checked = [integer_at_least("the size of a block", size, 1) for size in sizes]
        if not checked:
            raise InvalidInput("sizes must have at least one block, got none")
        return supported(np.repeat(np.arange(len(checked)), checked)[:, np.newaxis], max(checked))[0]

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.kinds.size

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.starts.size - 1

    @cached_property
    def block_of(self) -> IntArray:
        """The block of each coordinate."""
        return np.asarray(np.repeat(np.arange(self.blocks), np.diff(self.starts)), dtype=np.int64)

    @cached_property
    def size(self) -> int:
        """Number of pairs, the diagonal included: the entries of x x' that are released."""
        counts = np.bincount(self.kinds)
        ordered = sum(int(counts[kind] * counts[together].sum()) for kind, together in self._together())
        return (ordered + self.dim) // 2

    @property
    def dense(self) -> bool:
        """Whether every pair can occur."""
        return self.size == self.dim * (self.dim + 1) // 2

    @cached_property
    def pairs(self) -> IntArray:
        """All pairs i <= j that can be nonzero together, shape (E, 2): by block, then by i, then by j."""
        allowed = dict(self._together())
        blocks = zip(self.starts[:-1], self.starts[1:], strict=True)
        return np.concatenate([part for first, end in blocks for part in self._pairs_within(first, end, allowed)])

    def _pairs_within(self, first: int, end: int, allowed: dict[int, npt.NDArray[np.bool_]]) -> Iterator[IntArray]:
        """For each coordinate of a block, the later ones (itself included) that can be nonzero together with it."""
        kinds = self.kinds[first:end]
        for i in range(end - first):
            others = np.flatnonzero(allowed[int(kinds[i])][kinds[i:]]) + first + i
            yield np.column_stack([np.full(others.size, first + i), others])

    def _together(self) -> Iterator[tuple[int, npt.NDArray[np.bool_]]]:
        """For each kind, which kinds it can occur with."""
        for kind in range(self.demands.shape[0]):
            yield kind, _compatible(self.demands[kind], self.demands)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same pairs."""
        if not isinstance(other, Support):
            return NotImplemented
        same = self.width == other.width and np.array_equal(self.starts, other.starts) and self.size == other.size
        return same and np.array_equal(self.pairs, other.pairs)

    def __hash__(self) -> int:
        return hash((self.width, self.starts.tobytes()))


def supported(demands: IntArray, width: int) -> tuple[Support, IntArray]:
    """The support of coordinates with these demands, and the order that makes its blocks ranges.

    Line i of ``demands`` belongs to coordinate i; ``order`` lists the coordinates block by block, and by number within.
    """
    distinct, kinds = np.unique(demands, axis=0, return_inverse=True)
    kinds = kinds.reshape(-1)
    labels = _components(distinct)[kinds]
    _, first, numbered = np.unique(labels, return_index=True, return_inverse=True)
    ranks = np.empty(first.size, dtype=np.int64)
    ranks[np.argsort(first)] = np.arange(first.size)
    blocks = ranks[numbered.reshape(-1)]
    order = np.argsort(blocks, kind="stable").astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(np.bincount(blocks))]).astype(np.int64)
    return Support(starts, width, kinds[order].astype(np.int64), distinct), order


def _components(demands: IntArray) -> IntArray:
    """A label for each line: lines that are connected by a chain of compatible ones have the same."""
    labels = np.full(demands.shape[0], ABSENT, dtype=np.int64)
    for seed in range(labels.size):
        waiting = [seed] if labels[seed] == ABSENT else []
        labels[waiting] = seed
        while waiting:
            left = np.flatnonzero(labels == ABSENT)
            found = left[_compatible(demands[waiting.pop()], demands[left])]
            labels[found] = seed
            waiting += found.tolist()
    return labels


def _compatible(demand: IntArray, demands: IntArray) -> npt.NDArray[np.bool_]:
    """Which lines demand no other value of any field than ``demand`` does."""
    named = np.flatnonzero(demand != ABSENT)
    others = demands[:, named]
    fits: npt.NDArray[np.bool_] = np.all((others == demand[named]) | (others == ABSENT), axis=1)
    return fits
