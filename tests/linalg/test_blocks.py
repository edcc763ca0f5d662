"""Compact rows and packed blocks say the same as dense vectors and matrices."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.features.support import Support
from tacit.linalg.blocks import (
    FORBIDDEN,
    compact_dot,
    compact_quadratic,
    compacted,
    entries_in,
    entry_of,
    make_blocks,
    pack_block_outer,
    unpack_block,
)
from tacit.typing import FloatArray

SUPPORT = Support.of_blocks([3, 1, 4])
BLOCKS = make_blocks(SUPPORT.starts, SUPPORT.pairs)
DIM = 8


def compact(x: FloatArray, width: int = 4) -> FloatArray:
    rows = np.empty((1, 1, 2 * width))
    assert compacted(x[None, None], BLOCKS.block, rows) == 1
    return np.asarray(rows[0, 0])


def random_row(rng: np.random.Generator) -> FloatArray:
    """A vector within one block, some of its entries 0."""
    owner, x = int(rng.integers(3)), np.zeros(DIM)
    start, stop = SUPPORT.starts[owner : owner + 2]
    x[start:stop] = rng.standard_normal(stop - start) * (rng.random(stop - start) < 0.7)
    return x


def test_compact_rows_multiply_as_dense_ones_do() -> None:
    rng = np.random.default_rng(1)
    theta, dense = rng.standard_normal(DIM), np.zeros((DIM, DIM))
    squares = np.empty(int(BLOCKS.corners[-1]))
    for owner in range(3):
        start, stop = SUPPORT.starts[owner : owner + 2]
        half = rng.standard_normal((stop - start, stop - start))
        dense[start:stop, start:stop] = half + half.T
        squares[BLOCKS.corners[owner] : BLOCKS.corners[owner + 1]] = dense[start:stop, start:stop].ravel()
    for _ in range(200):
        x = random_row(rng)
        assert compact_dot(compact(x), theta) == pytest.approx(float(x @ theta), abs=1e-12)
        assert compact_quadratic(BLOCKS, squares, compact(x)) == pytest.approx(float(x @ dense @ x), abs=1e-12)


def test_packed_blocks_are_isometric_and_come_back() -> None:
    rng, packed = np.random.default_rng(2), np.zeros(SUPPORT.size)
    x = rng.standard_normal(4)
    pack_block_outer(BLOCKS, 2, 1.5, x, packed)
    out = np.empty((4, 4))
    unpack_block(BLOCKS, 2, packed, out)
    assert np.allclose(out, 1.5 * np.outer(x, x))
    assert np.linalg.norm(packed) == pytest.approx(1.5 * float(x @ x))
    assert np.count_nonzero(packed[: BLOCKS.entries[2]]) == 0


def test_every_allowed_pair_has_an_entry_of_its_own_and_no_other_has_one() -> None:
    found = {(i, j): entry_of(BLOCKS, i, j) for i in range(DIM) for j in range(DIM)}
    allowed = {tuple(pair) for pair in SUPPORT.pairs.tolist()}
    assert sorted(found[pair] for pair in allowed) == list(range(SUPPORT.size))
    for (i, j), entry in found.items():
        assert (entry == FORBIDDEN) == ((min(i, j), max(i, j)) not in allowed)
        assert entry == found[j, i]


def test_rows_that_reach_into_two_blocks_are_named() -> None:
    good, bad = np.zeros(DIM), np.zeros(DIM)
    good[0] = bad[0] = bad[3] = 0.5
    rows = np.empty((2, 1, 8))
    assert compacted(np.stack([good, good])[:, None], BLOCKS.block, rows) == 2
    assert compacted(np.stack([good, bad])[:, None], BLOCKS.block, rows) == 1
    narrow = np.empty((1, 1, 2))
    assert compacted(np.eye(DIM)[None, :1] + np.eye(DIM)[None, 1:2], BLOCKS.block, narrow) == 0


@pytest.mark.parametrize("positions", [(3.0, 2.0), (2.0, 2.0), (8.0, -1.0), (0.0, 9.0)])
def test_positions_that_cannot_be_are_refused(positions: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="must increase"):
        entries_in(np.array([0.1, 0.1, *positions]), DIM)
