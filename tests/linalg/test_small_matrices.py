"""Packing, Cholesky solves and eigenvalues against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.linalg import solve, vectors
from tacit.linalg.eigen import make_positive, symmetric_eigen
from tacit.linalg.packing import add_packed_outer, packed, packed_size, unpacked
from tacit.linalg.tridiagonal import eigen_lines
from tacit.typing import FloatArray

SEEDS = st.integers(0, 2**32 - 1)
DIMS = st.integers(1, 9)


def _symmetric(seed: int, dim: int) -> FloatArray:
    matrix = np.random.default_rng(seed).normal(size=(dim, dim))
    return np.ascontiguousarray(matrix + matrix.T)


def _definite(seed: int, dim: int) -> FloatArray:
    half = np.random.default_rng(seed).normal(size=(dim, dim + 2))
    return np.ascontiguousarray(half @ half.T + 0.1 * np.eye(dim))


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
    x, out = np.random.default_rng(seed).normal(size=dim), np.ones(packed_size(dim))
    add_packed_outer(0.7, x, out)
    np.testing.assert_allclose(out, 1.0 + packed(0.7 * np.outer(x, x)), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(SEEDS, DIMS)
def test_cholesky_and_solves(seed: int, dim: int) -> None:
    matrix = _definite(seed, dim)
    rhs, factor, out = np.random.default_rng(seed).normal(size=dim), np.empty((dim, dim)), np.empty(dim)
    assert solve.cholesky(matrix, factor)
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), rtol=1e-9, atol=1e-12)
    solve.solve_lower(factor, rhs, out)
    np.testing.assert_allclose(factor @ out, rhs, atol=1e-8)
    solve.solve_upper(factor, rhs, out)
    np.testing.assert_allclose(factor.T @ out, rhs, atol=1e-8)
    solve.solve_cholesky(factor, rhs, out)
    np.testing.assert_allclose(matrix @ out, rhs, atol=1e-7)
    inverse = np.empty((dim, dim))
    solve.invert_cholesky(factor, inverse)
    np.testing.assert_allclose(inverse @ matrix, np.eye(dim), atol=1e-7)
    assert solve.quadratic_form(matrix, rhs) == pytest.approx(float(rhs @ matrix @ rhs))
    np.testing.assert_array_equal(inverse, inverse.T)
    assert solve.dot(rhs, out) == pytest.approx(float(rhs @ out))
    assert solve.cholesky(matrix, matrix)
    np.testing.assert_array_equal(matrix, factor)


def test_cholesky_refuses_what_is_not_definite() -> None:
    for bad in (np.diag([1.0, -1.0]), np.zeros((2, 2)), np.full((2, 2), np.nan)):
        assert not solve.cholesky(bad, np.empty((2, 2)))
        assert not solve.cholesky(bad, np.empty_like(bad))
    assert solve.cholesky(np.eye(2), np.empty((2, 2)))


@settings(max_examples=60, deadline=None)
@given(SEEDS, DIMS)
def test_dominated_is_the_semidefinite_order(seed: int, dim: int) -> None:
    bound, matrix = _definite(seed, dim), _definite(seed + 1, dim)
    largest = float(np.max(np.linalg.eigvals(np.linalg.solve(bound, matrix)).real))
    assert solve.dominated(matrix, bound, largest * 1.01, np.empty((dim, dim)))
    assert not solve.dominated(matrix, bound, largest * 0.99, np.empty((dim, dim)))


@settings(max_examples=60, deadline=None)
@given(SEEDS, DIMS)
def test_jacobi_agrees_with_lapack(seed: int, dim: int) -> None:
    matrix = _symmetric(seed, dim)
    values, basis = np.empty(dim), np.empty((dim, dim))
    symmetric_eigen(matrix.copy(), values, basis)
    scale = float(np.abs(matrix).max())
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix), atol=1e-12 * dim * scale)
    np.testing.assert_allclose(basis @ basis.T, np.eye(dim), atol=1e-12)
    np.testing.assert_allclose((basis * values) @ basis.T, matrix, atol=1e-12 * dim * scale)


def test_jacobi_keeps_tiny_eigenvalues_of_graded_matrices() -> None:
    scaling = np.diag([1.0, 1e-5, 1e-10])
    matrix = scaling @ (np.eye(3) + 0.3) @ scaling
    values, basis = np.empty(3), np.empty((3, 3))
    symmetric_eigen(matrix.copy(), values, basis)
    assert np.prod(values) == pytest.approx(float(np.linalg.det(np.eye(3) + 0.3)) * 1e-30, rel=1e-9)


@pytest.mark.parametrize("dim", [20, 40])
def test_jacobi_at_larger_dimension_and_on_zeros(dim: int) -> None:
    matrix, values, basis = _definite(dim, dim), np.empty(dim), np.empty((dim, dim))
    symmetric_eigen(matrix.copy(), values, basis)
    np.testing.assert_allclose((basis * values) @ basis.T, matrix, atol=1e-9)
    symmetric_eigen(np.zeros((dim, dim)), values, basis)
    assert not np.any(values)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 13), st.sampled_from([1e-120, 1.0, 1e120]))
def test_three_diagonals_agree_with_lapack(seed: int, dim: int, scale: float) -> None:
    matrix, values, lines = scale * _symmetric(seed, dim), np.empty(dim), np.empty((dim, dim))
    eigen_lines(matrix.copy(), values, lines)
    largest = float(np.abs(matrix).max())
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix), atol=1e-13 * dim * largest)
    np.testing.assert_allclose(lines @ lines.T, np.eye(dim), atol=1e-12)
    np.testing.assert_allclose((lines.T * values) @ lines, matrix, atol=1e-13 * dim * largest)


@pytest.mark.parametrize(
    "matrix",
    [np.zeros((4, 4)), np.eye(5), np.ones((6, 6)), np.diag([3.0, 0.0, -2.0, 0.0]), np.fliplr(np.eye(7)), -np.eye(1)],
)
def test_three_diagonals_of_matrices_with_equal_eigenvalues(matrix: FloatArray) -> None:
    dim = len(matrix)
    values, lines = np.empty(dim), np.empty((dim, dim))
    eigen_lines(np.array(matrix, order="C"), values, lines)
    np.testing.assert_allclose(lines @ lines.T, np.eye(dim), atol=1e-13)
    np.testing.assert_allclose((lines.T * values) @ lines, matrix, atol=1e-13)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 13), st.floats(-3.0, 3.0))
def test_the_positive_part_has_no_negative_eigenvalue_and_all_others(seed: int, dim: int, shift: float) -> None:
    matrix = _symmetric(seed, dim) + shift * np.eye(dim)
    values, basis = np.linalg.eigh(matrix)
    room = [np.empty((dim, dim)) for _ in range(3)]
    make_positive(matrix, *room)
    expected = (basis * np.maximum(values, 0.0)) @ basis.T
    np.testing.assert_allclose(matrix, expected, atol=1e-12 * dim * float(np.abs(values).max()))
    np.testing.assert_array_equal(matrix, matrix.T)


@settings(max_examples=60, deadline=None)
@given(SEEDS, DIMS, st.integers(1, 9))
def test_several_sums_at_a_time_are_those_of_one_at_a_time(seed: int, dim: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    lines, x = rng.normal(size=(count, dim)), rng.normal(size=dim)
    dots, squares = [solve.dot(line, x) for line in lines], [solve.dot(line, line) for line in lines]
    padded = [min(k, count - 1) for k in range(count + 4)]
    for start in range(count):
        assert solve.four_dots(lines, start, x) == tuple(dots[k] for k in padded[start : start + 4])
        assert solve.four_squares(lines, start) == tuple(squares[k] for k in padded[start : start + 4])


@settings(max_examples=60, deadline=None)
@given(SEEDS, DIMS)
def test_products_and_forms_add_up_in_the_order_of_their_entries(seed: int, dim: int) -> None:
    first, second = np.random.default_rng(seed).normal(size=(2, dim, dim))
    product, square, x = np.empty((dim, dim)), np.empty((dim, dim)), first[0]
    vectors.multiply_matrices(first, second, product)
    columns = [np.ascontiguousarray(column) for column in second.T]
    np.testing.assert_array_equal(product, [[solve.dot(line, column) for column in columns] for line in first])
    matrix = _symmetric(seed, dim)
    vectors.multiply_to_symmetric(matrix, matrix, square)
    vectors.multiply_matrices(matrix, matrix, product)
    np.testing.assert_array_equal(square, product)
    total = 0.0
    for i in range(dim):
        row = 0.5 * matrix[i, i] * x[i]
        for j in range(i + 1, dim):
            row += matrix[i, j] * x[j]
        total += row * x[i]
    assert solve.quadratic_form(matrix, x) == 2.0 * total


def test_vector_helpers() -> None:
    x, out, matrix = np.array([3.0, 4.0]), np.empty(2), np.array([[1.0, 2.0], [3.0, 4.0]])
    assert vectors.norm(x) == 5.0
    assert vectors.trace(matrix) == 5.0
    vectors.multiply(matrix, x, out)
    assert out.tolist() == [11.0, 25.0]
    vectors.copy_into(x, out)
    assert out.tolist() == x.tolist()
    assert vectors.identity(2).tolist() == np.eye(2).tolist()


def test_round_to_grid() -> None:
    for grid in (2.0**-20, 0.5, 4.0):
        for value in (0.0, 0.3, -7.1, 1e5 / 3.0):
            rounded = vectors.round_to_grid(value, grid)
            assert rounded / grid == np.rint(rounded / grid)
            assert abs(rounded - value) <= 0.5 * grid
    assert vectors.round_to_grid(0.3, 0.0) == 0.3
