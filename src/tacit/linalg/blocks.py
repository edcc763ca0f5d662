"""Symmetric matrices of which only some entries can ever be other than 0, packed without the others.

Coordinates are numbered so that those that can be nonzero together, directly or through others, follow each other: a
*block*.  A row then has all of its entries in one block.  Inside of a block some pairs may exclude each other still,
such as two values of one category.  Packing is that of `tacit.linalg.packing`, an isometry, over the pairs that are
allowed: what is left out is a projection, which shortens differences of rows and never lengthens them.

A *compact row* names its nonzero coordinates: n values, then n positions as floating-point numbers, strictly
increasing, the rest filled up with the value 0 and the position -1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit._compile import entry, kernel
from tacit.linalg.packing import SQRT2
from tacit.typing import Fixed, FloatArray, IntArray

FORBIDDEN = -1
"""In place of the entry of a pair that cannot be nonzero together."""


class Blocks(NamedTuple):
    """Which entries of x x' there are, and where they are packed; the same for the life of a policy."""

    starts: Fixed[IntArray]
    """First coordinate of each block, and the number of coordinates behind them."""
    block: Fixed[IntArray]
    """The block of each coordinate."""
    entries: Fixed[IntArray]
    """First packed entry of each block, and the number of entries behind them."""
    corners: Fixed[IntArray]
    """Where each block's square begins in ``table`` and in everything that is kept as squares, one after another."""
    table: Fixed[IntArray]
    """For each pair of coordinates of a block its packed entry, or `FORBIDDEN`; both orders of a pair."""


def make_blocks(starts: IntArray, pairs: IntArray) -> Blocks:
    """Blocks that begin at ``starts`` (the number of coordinates comes last), with the allowed ``pairs`` i <= j.

    Pairs are ordered by block, and every coordinate is paired with itself.
    """
    sizes = np.diff(starts)
    block = np.repeat(np.arange(sizes.size), sizes)
    corners = np.concatenate([[0], np.cumsum(sizes * sizes)])
    owners = block[pairs[:, 0]]
    entries = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=sizes.size))])
    table = np.full(int(corners[-1]), FORBIDDEN, dtype=np.int64)
    local = pairs - starts[owners][:, np.newaxis]
    for first, second in ((0, 1), (1, 0)):
        table[corners[owners] + local[:, first] * sizes[owners] + local[:, second]] = np.arange(pairs.shape[0])
    return Blocks(*(np.asarray(array, dtype=np.int64) for array in (starts, block, entries, corners, table)))


@entry
def compacted(dense: FloatArray, block: IntArray, out: FloatArray) -> int:
    """Write the rows of ``dense``, shape (N, K, d), as compact ones into ``out``, shape (N, K, 2 n).

    Returns the first of the N that has a row with entries in two blocks or with more than n of them; N when none has.
    """
    width = out.shape[2] // 2
    for user in range(dense.shape[0]):
        for k in range(dense.shape[1]):
            held, owner = 0, -1
            for i in range(dense.shape[2]):
                if dense[user, k, i] != 0.0:
                    if held == width or (held > 0 and block[i] != owner):
                        return user
                    owner = block[i]
                    out[user, k, held] = dense[user, k, i]
                    out[user, k, width + held] = float(i)
                    held += 1
            for j in range(held, width):
                out[user, k, j] = 0.0
                out[user, k, width + j] = -1.0
    return int(dense.shape[0])


@kernel
def entry_of(blocks: Blocks, first: int, second: int) -> int:
    """Where the product of two coordinates is packed; `FORBIDDEN` also when they are of different blocks."""
    owner = blocks.block[first]
    if owner != blocks.block[second]:
        return FORBIDDEN
    start = blocks.starts[owner]
    size = blocks.starts[owner + 1] - start
    return int(blocks.table[blocks.corners[owner] + (first - start) * size + second - start])


@kernel
def entries_in(row: FloatArray, dim: int) -> int:
    """How many entries a compact row has; raises unless their positions are strictly increasing and below ``dim``."""
    width = row.shape[0] // 2
    last, held = -1, 0
    while held < width and row[width + held] >= 0.0:
        position = int(row[width + held])
        if position <= last or position >= dim:
            raise ValueError("positions of a compact row must increase and be those of coordinates")
        last = position
        held += 1
    return held


@kernel
def compact_dot(row: FloatArray, x: FloatArray) -> float:
    """Inner product of a compact row and a vector."""
    width, total = row.shape[0] // 2, 0.0
    for k in range(width):
        if row[width + k] < 0.0:
            break
        total += row[k] * x[int(row[width + k])]
    return total


@kernel
def compact_quadratic(blocks: Blocks, squares: FloatArray, row: FloatArray) -> float:
    """x' C x for a compact row and a symmetric C that is kept as squares, one for each block."""
    width, total = row.shape[0] // 2, 0.0
    if row[width] < 0.0:
        return 0.0
    owner = blocks.block[int(row[width])]
    start = blocks.starts[owner]
    size, corner = blocks.starts[owner + 1] - start, blocks.corners[owner]
    for k in range(width):
        if row[width + k] < 0.0:
            break
        line = corner + (int(row[width + k]) - start) * size - start
        part = 0.5 * squares[line + int(row[width + k])] * row[k]
        for j in range(k + 1, width):
            if row[width + j] < 0.0:
                break
            part += squares[line + int(row[width + j])] * row[j]
        total += part * row[k]
    return 2.0 * total


@kernel
def unpack_block(blocks: Blocks, owner: int, packed: FloatArray, out: FloatArray) -> None:
    """Write the block's part of a packed symmetric matrix into ``out``; forbidden entries are 0."""
    corner, size = blocks.corners[owner], out.shape[0]
    for i in range(size):
        for j in range(size):
            entry = blocks.table[corner + i * size + j]
            value = 0.0 if entry == FORBIDDEN else packed[entry]
            out[i, j] = value if i == j else value / SQRT2


@kernel
def pack_block_outer(blocks: Blocks, owner: int, weight: float, x: FloatArray, out: FloatArray) -> None:
    """Write the allowed entries of ``weight * x x'``, x the coordinates of a block, into the packed ``out``."""
    corner, size = blocks.corners[owner], x.shape[0]
    for i in range(size):
        for j in range(i, size):
            entry = blocks.table[corner + i * size + j]
            if entry != FORBIDDEN:
                out[entry] = (1.0 if i == j else SQRT2) * weight * x[i] * x[j]
