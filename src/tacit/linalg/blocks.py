"""Symmetric matrices of which only some entries can ever be other than 0, packed without the others.

Coordinates are numbered so that those that can be nonzero together, directly or through others, follow each other: a
*block*.  A row then has all of its entries in one block.  Inside of a block some pairs may exclude each other still,
such as two values of one category.  Packing is that of `tacit.linalg.packing`, an isometry, over the pairs that are
allowed: what is left out is a projection, which shortens differences of rows and never lengthens them.

A *compact row* names its nonzero coordinates: n values, then n positions as floating-point numbers, strictly
increasing, the rest filled up with the value 0 and the position -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.linalg.packing import SQRT2, packed_places, rounded_to_grid
from tacit.typing import Fixed, FloatArray, IntArray

FORBIDDEN = -1
"""In place of the entry of a pair that cannot be nonzero together."""
NO_POSITION = -1.0
"""Fills up the positions of a compact row."""
_TINY = np.finfo(np.float64).tiny
"""Squared lengths below it count as 0."""
_FIRST = np.zeros((), dtype=np.int64)
"""The first coordinate, as an array that NumPy need not make of a number first."""


class Blocks(NamedTuple):
    """Which entries of x x' there are, and where they are packed; constant for the life of a policy."""

    packing: Fixed[FloatArray]
    """The factor that packing gives each entry: 1 on the diagonal, sqrt(2) beside it."""
    starts: Fixed[IntArray]
    """First coordinate of each block, and the number of coordinates behind them."""
    block: Fixed[IntArray]
    """The block of each coordinate."""
    lines: Fixed[IntArray]
    """Where the line of each coordinate begins in everything that is kept as squares of blocks, one after another."""
    local: Fixed[IntArray]
    """The number of each coordinate within its block: its place in a line."""
    table: Fixed[IntArray]
    """For each entry of the squares its packed entry, or `FORBIDDEN`."""
    pairs: Fixed[IntArray]
    """The two coordinates of each packed entry, shape (2, E)."""


@dataclass(frozen=True)
class BlockGroup:
    """Neighbouring blocks of one size as a stack: C blocks of m coordinates.

    Where there is one block in all, arrays have no axis of blocks: NumPy takes half as long for them.
    """

    coordinates: slice
    """The coordinates of all blocks of the group, which are neighbours."""
    squares: slice
    """Where the squares of these blocks are kept."""
    table: IntArray
    """Packed entry of each entry of the squares, shape (C, m, m); any entry where ``factor`` is 0."""
    factor: FloatArray
    """What unpacking multiplies by: 1 on the diagonal, 1 / sqrt(2) beside it, 0 where a pair is forbidden."""
    entries: list[int]
    """How many packed entries each block has."""

    def vectors(self, vector: FloatArray) -> FloatArray:
        """View the coordinates of these blocks in a vector of all coordinates, shape (C, m)."""
        return vector[self.coordinates].reshape(self.table.shape[:-1])

    def matrices(self, squares: FloatArray) -> FloatArray:
        """View the squares of these blocks among those of all blocks, shape (C, m, m)."""
        return squares[self.squares].reshape(self.table.shape)

    def unpacked(self, packed: FloatArray) -> FloatArray:
        """Make the symmetric matrices of these blocks from all packed entries, shape (C, m, m)."""
        matrices = packed.take(self.table)
        matrices *= self.factor
        return matrices


def make_blocks(starts: IntArray, pairs: IntArray) -> tuple[Blocks, list[BlockGroup]]:
    """Blocks that begin at ``starts`` (the number of coordinates comes last), with the allowed ``pairs`` i <= j.

    Pairs are ordered by block, and every coordinate is paired with itself.
    """
    sizes = np.diff(starts)
    block = np.repeat(np.arange(sizes.size), sizes)
    local = np.arange(starts[-1]) - starts[block]
    corners = np.cumsum(sizes**2) - sizes**2
    lines = corners[block] + local * sizes[block]
    table = np.full(int(np.sum(sizes**2)), FORBIDDEN, dtype=np.int64)
    i, j = pairs.T
    for first, second in ((i, j), (j, i)):
        table[lines[first] + local[second]] = np.arange(len(pairs))
    groups = []
    for own in np.split(np.arange(sizes.size), np.flatnonzero(np.diff(sizes)) + 1):
        count, size, corner = own.size, int(sizes[own[0]]), int(corners[own[0]])
        squares = slice(corner, corner + count * size * size)
        coordinates = slice(int(starts[own[0]]), int(starts[own[-1] + 1]))
        shape = (size, size) if sizes.size == 1 else (count, size, size)
        groups.append(_group(coordinates, squares, table[squares].reshape(shape)))
    integers = (np.ascontiguousarray(array, dtype=np.int64) for array in (starts, block, lines, local, table, pairs.T))
    return Blocks(np.where(i == j, 1.0, SQRT2), *integers), groups


def _group(coordinates: slice, squares: slice, entries: IntArray) -> BlockGroup:
    """The stack of blocks with these packed entries, shape (C, m, m)."""
    size = entries.shape[-1]
    allowed = entries != FORBIDDEN
    factor = np.where(allowed, np.where(np.eye(size, dtype=bool), 1.0, 1.0 / SQRT2), 0.0)
    counts = (allowed.reshape(-1, size * size).sum(axis=1) + size) // 2
    return BlockGroup(coordinates, squares, np.maximum(entries, 0), factor, counts.tolist())


def packed_directions(blocks: Blocks, theta: FloatArray) -> FloatArray:
    """The packing of u u' for each block, u the part of ``theta`` in it, of length 1; 0 where ``theta`` is."""
    squared = np.add.reduceat(theta * theta, blocks.starts[:-1])
    first, second = (theta / np.sqrt(np.maximum(squared, _TINY)).take(blocks.block)).take(blocks.pairs)
    return np.asarray(first * second * blocks.packing)


def compact_rows(filled: npt.NDArray[np.bool_], positions: IntArray, values: FloatArray) -> FloatArray:
    """Make compact rows, shape (N, 2 n), of their nonzero entries, which come row by row.

    ``filled``, of shape (N, n), is true for as many places in the front of a row as it has entries.
    """
    count, width = filled.shape
    out = np.zeros((count, 2 * width))
    out[:, width:] = NO_POSITION
    out[:, :width][filled], out[:, width:][filled] = values, positions
    return out


def dense_rows(rows: FloatArray, dim: int) -> FloatArray:
    """Write compact rows, shape (N, 2 n), as ordinary ones of shape (N, d)."""
    count, width = rows.shape[0], rows.shape[1] // 2
    positions, out = rows[:, width:], np.zeros((count, dim))
    there = positions >= 0.0
    places = positions + np.arange(0.0, count * dim, dim)[:, np.newaxis]
    out.reshape(-1)[places[there].astype(np.intp)] = rows[:, :width][there]
    return out


def compacted(dense: FloatArray, block: IntArray, out: FloatArray) -> int:
    """Write the rows of ``dense``, shape (N, K, d), as compact ones into ``out``, shape (N, K, 2 n).

    Returns the first of the N that has a row with entries in two blocks or with more than n of them; N when none has.
    """
    (users, arms, dim), width = map(int, dense.shape), out.shape[2] // 2
    entries = np.flatnonzero(dense)
    rows, positions, owner = entries // dim, entries % dim, np.full(users * arms, -1)
    owner[rows] = block[positions]  # of the last one
    held = np.bincount(rows, minlength=users * arms)
    refused = held > width
    refused[rows[block[positions] != owner[rows]]] = True
    if refused.any():
        return int(int(refused.argmax()) // arms)
    filled = np.arange(width) < held[:, np.newaxis]
    out[:] = compact_rows(filled, positions, dense.reshape(-1)[entries]).reshape(out.shape)
    return users


def _values_and_places(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """Values and coordinates of M compact rows, shape (n, M) each; what fills a row up has the value 0 and any place.

    Rows are columns here, of which there are more than numbers in a row: NumPy is fastest along the longer axis.
    """
    columns, width = rows.T.copy(), rows.shape[1] // 2
    places = columns[width:].astype(np.int64)
    return columns[:width], np.maximum(places, _FIRST, out=places)


def compact_scores(rows: FloatArray, theta: FloatArray) -> FloatArray:
    """Inner product of each compact row and a vector, shape (M,)."""
    values, places = _values_and_places(rows)
    values *= theta.take(places)
    return np.asarray(np.add.reduce(values))


def compact_quadratics(blocks: Blocks, squares: FloatArray, rows: FloatArray) -> FloatArray:
    """x' C x of each compact row, for a symmetric C that is kept as squares, one for each block."""
    values, places = _values_and_places(rows)
    within = squares.take(blocks.lines.take(places)[:, np.newaxis] + blocks.local.take(places))
    return np.asarray(np.einsum("ijm,im,jm->m", within, values, values))


def add_compact_outers(blocks: Blocks, rows: FloatArray, weights: FloatArray, grid: float, out: FloatArray) -> None:
    """Add ``weights[n] * x x'`` of compact rows x to the packed ``out``, every number rounded to ``grid``.

    What is forbidden is left out by position, not by value: of a row that breaks the promise too.
    """
    values, places = _values_and_places(rows)
    i, j, factor = packed_places(len(values))
    entries = blocks.table.take(blocks.lines.take(places)[i] + blocks.local.take(places)[j], mode="clip")
    # Of two blocks, which a row must not have, the table would give the entry of some other pair.
    block = blocks.block.take(places)
    allowed = (entries != FORBIDDEN) & (block[i] == block[j])
    products = rounded_to_grid((weights * values)[i] * values[j] * factor[:, np.newaxis], grid)
    np.add.at(out, entries, np.where(allowed, products, 0.0))


def add_compact_rows(rows: FloatArray, factors: FloatArray, grid: float, out: FloatArray) -> None:
    """Add ``factors[n] * x`` of compact rows x to ``out``, every number rounded to ``grid``."""
    values, places = _values_and_places(rows)
    np.add.at(out, places, rounded_to_grid(factors * values, grid))


def check_compact(rows: FloatArray, dim: int) -> None:
    """Raise unless the positions of every compact row increase strictly and are those of coordinates."""
    places = rows[:, rows.shape[1] // 2 :]
    ends = places == NO_POSITION
    rising = (np.diff(places, axis=1) > 0.0) & ~ends[:, :-1]
    if not (np.all(rising | ends[:, 1:]) and np.all((places >= 0.0) & (places < dim) | ends)):
        raise ValueError("positions of a compact row must increase and be those of coordinates")
