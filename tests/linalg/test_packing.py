"""Packing is an isometry, rounds as stated, and matrices that carry noise become definite."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.linalg.inverse import is_positive_definite, ridge_inverse
from tacit.linalg.packing import (
    packed,
    packed_outer_sums,
    packed_outers,
    packed_size,
    rounded_to_grid,
    unpacked,
)
from tacit.typing import FloatArray

SEEDS = st.integers(0, 2**32 - 1)
DIMS = st.integers(1, 9)


def _symmetric(seed: int, dim: int) -> FloatArray:
    matrix = np.random.default_rng(seed).normal(size=(dim, dim))
    return np.ascontiguousarray(matrix + matrix.T)


@settings(max_examples=60, deadline=None)
@given(SEEDS, DIMS)
def test_packing_is_an_isometry_and_invertible(seed: int, dim: int) -> None:
    matrix, other = _symmetric(seed, dim), _symmetric(seed + 1, dim)
    assert packed(matrix).shape == (packed_size(dim),)
    np.testing.assert_allclose(unpacked(packed(matrix), dim), matrix, rtol=1e-14)
    assert packed(matrix) @ packed(other) == pytest.approx(float(np.sum(matrix * other)))


@settings(max_examples=60, deadline=None)
@given(SEEDS, DIMS)
def test_packed_outer_products(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    rows, weights = rng.normal(size=(5, dim)), rng.random(5)
    expected = [packed(weight * np.outer(x, x)) for weight, x in zip(weights, rows, strict=True)]
    np.testing.assert_allclose(packed_outers(rows, weights), expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(packed_outers(rows), [packed(np.outer(x, x)) for x in rows], rtol=1e-12)


@pytest.mark.parametrize("dim", [3, 150])
def test_sums_round_each_row_and_do_not_depend_on_how_many_are_summed_at_a_time(dim: int) -> None:
    rng = np.random.default_rng(dim)
    rows, weights, grid = rng.normal(size=(40, dim)), rng.random(40), 2.0**-6
    alone = [packed_outer_sums(rows[n : n + 1], weights[n : n + 1], grid) for n in range(40)]
    np.testing.assert_array_equal(packed_outer_sums(rows, weights, grid), np.sum(alone, axis=0))
    np.testing.assert_array_equal(alone[7], rounded_to_grid(packed_outers(rows[7:8], weights[7:8]), grid)[0])


def test_rounding_to_a_grid() -> None:
    values = np.array([0.0, 0.3, -7.1, 1e5 / 3.0])
    for grid in (2.0**-20, 0.5, 4.0):
        rounded = rounded_to_grid(values, grid)
        np.testing.assert_array_equal(rounded / grid, np.rint(rounded / grid))
        assert np.all(np.abs(rounded - values) <= 0.5 * grid)
    np.testing.assert_array_equal(rounded_to_grid(values, 0.0), values)


@settings(max_examples=60, deadline=None)
@given(SEEDS, DIMS, st.floats(-3.0, 3.0))
def test_a_ridge_is_doubled_until_the_matrix_is_definite(seed: int, dim: int, shift: float) -> None:
    matrix = _symmetric(seed, dim) + shift * np.eye(dim)
    assert is_positive_definite(matrix) == bool(np.linalg.eigvalsh(matrix)[0] > 0.0)
    inverse, ridge = ridge_inverse(matrix, 0.5)
    assert np.log2(ridge / 0.5) == np.rint(np.log2(ridge / 0.5))
    np.testing.assert_allclose(inverse @ (matrix + ridge * np.eye(dim)), np.eye(dim), atol=1e-6)
    assert is_positive_definite(inverse)
    assert ridge == 0.5 or not is_positive_definite(matrix + 0.5 * ridge * np.eye(dim))
