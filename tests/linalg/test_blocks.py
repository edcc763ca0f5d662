"""Compact rows and packed blocks say the same as dense vectors and matrices."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.features.support import Support
from tacit.linalg.blocks import (
    FORBIDDEN,
    BlockGroup,
    add_compact_outers,
    add_compact_rows,
    check_compact,
    compact_quadratics,
    compact_scores,
    compacted,
    make_blocks,
)
from tacit.typing import FloatArray, IntArray

SUPPORT = Support.of_blocks([3, 1, 4, 3])
BLOCKS, GROUPS = make_blocks(SUPPORT.starts, SUPPORT.pairs)
DIM, OWNERS = 11, 4


def compact(rows: FloatArray, width: int = 4) -> FloatArray:
    out = np.empty((1, len(rows), 2 * width))
    assert compacted(rows[None], BLOCKS.block, out) == 1
    return np.asarray(out[0])


def random_rows(rng: np.random.Generator, count: int) -> FloatArray:
    """Vectors within one block each, some of their entries 0."""
    owners = rng.integers(OWNERS, size=count)
    return np.where(BLOCKS.block == owners[:, None], rng.standard_normal((count, DIM)), 0.0) * (
        rng.random((count, DIM)) < 0.7
    )


def coordinates_of(group: BlockGroup) -> IntArray:
    return group.vectors(np.arange(float(DIM))).astype(np.int64)


def unpacked(packed: FloatArray) -> FloatArray:
    """The whole matrix, from the stacks of blocks."""
    dense = np.zeros((DIM, DIM))
    for group in GROUPS:
        for coordinates, square in zip(coordinates_of(group), group.unpacked(packed), strict=True):
            dense[np.ix_(coordinates, coordinates)] = square
    return dense


def test_compact_rows_multiply_as_dense_ones_do() -> None:
    rng = np.random.default_rng(1)
    theta, half = rng.standard_normal(DIM), rng.standard_normal((DIM, DIM))
    dense, squares = half + half.T, np.empty(BLOCKS.table.size)
    for group in GROUPS:
        coordinates = coordinates_of(group)
        group.matrices(squares)[:] = dense[coordinates[:, :, None], coordinates[:, None, :]]
    rows = random_rows(rng, 200)
    assert np.any(np.all(rows == 0.0, axis=1))
    np.testing.assert_allclose(compact_scores(compact(rows), theta), rows @ theta, atol=1e-12)
    expected = np.vecdot(rows @ dense, rows)
    np.testing.assert_allclose(compact_quadratics(BLOCKS, squares, compact(rows)), expected, atol=1e-12)


def test_sums_of_outer_products_are_isometric_and_come_back() -> None:
    rng = np.random.default_rng(2)
    rows, weights = random_rows(rng, 50), rng.random(50)
    packed, vector = np.zeros(SUPPORT.size), np.zeros(DIM)
    add_compact_outers(BLOCKS, compact(rows), weights, 0.0, packed)
    add_compact_rows(compact(rows), weights, 0.0, vector)
    expected = (weights[:, None] * rows).T @ rows
    np.testing.assert_allclose(unpacked(packed), expected, atol=1e-12)
    np.testing.assert_allclose(vector, weights @ rows, atol=1e-12)
    assert np.linalg.norm(packed) == pytest.approx(float(np.linalg.norm(expected)))


def test_each_row_is_rounded_before_it_is_summed() -> None:
    rows, packed = compact(random_rows(np.random.default_rng(3), 30)), np.zeros(SUPPORT.size)
    alone = np.zeros((30, SUPPORT.size))
    add_compact_outers(BLOCKS, rows, np.ones(30), 0.25, packed)
    for row, out in zip(rows, alone, strict=True):
        add_compact_outers(BLOCKS, row[None], np.ones(1), 0.25, out)
    np.testing.assert_array_equal(packed, alone.sum(axis=0))
    assert np.all(np.fmod(packed, 0.25) == 0.0)


def test_every_allowed_pair_has_an_entry_of_its_own_and_no_other_has_one() -> None:
    allowed = {tuple(pair) for pair in SUPPORT.pairs.tolist()}
    found = {}
    for i in range(DIM):
        for j in np.flatnonzero(BLOCKS.block == BLOCKS.block[i]).tolist():
            found[i, j] = int(BLOCKS.table[BLOCKS.lines[i] + BLOCKS.local[j]])
    assert sorted(found[pair] for pair in allowed) == list(range(SUPPORT.size))
    for (i, j), entry in found.items():
        assert (entry == FORBIDDEN) == ((min(i, j), max(i, j)) not in allowed)
        assert entry == found[j, i]


def test_products_across_blocks_are_left_out() -> None:
    """Also where the table has no place for them at all, behind its end."""
    row, packed = np.array([[0.5, 0.5, 0.4, 0.0, 0.0, 3.0, 10.0, -1.0]]), np.zeros(SUPPORT.size)
    add_compact_outers(BLOCKS, row, np.ones(1), 0.0, packed)
    squares = np.zeros(DIM)
    squares[[0, 3, 10]] = 0.25, 0.25, 0.16
    np.testing.assert_allclose(unpacked(packed), np.diag(squares), atol=1e-12)


def test_rows_that_reach_into_two_blocks_are_named() -> None:
    good, bad = np.zeros(DIM), np.zeros(DIM)
    good[0] = bad[0] = bad[3] = 0.5
    rows = np.empty((2, 1, 8))
    assert compacted(np.stack([good, good])[:, None], BLOCKS.block, rows) == 2
    assert compacted(np.stack([good, bad])[:, None], BLOCKS.block, rows) == 1
    narrow = np.empty((1, 1, 2))
    assert compacted(np.eye(DIM)[None, :1] + np.eye(DIM)[None, 1:2], BLOCKS.block, narrow) == 0


@pytest.mark.parametrize("positions", [(3.0, 2.0), (2.0, 2.0), (11.0, -1.0), (0.0, 12.0), (-1.0, 3.0), (-2.0, -1.0)])
def test_positions_that_cannot_be_are_refused(positions: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="must increase"):
        check_compact(np.array([[0.1, 0.1, *positions]]), DIM)


def test_positions_of_rows_are_let_pass() -> None:
    check_compact(compact(random_rows(np.random.default_rng(4), 100)), DIM)
