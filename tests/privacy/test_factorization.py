"""Factorizations: column norms and prefix variances against dense matrices, and the figures of docs/theory.md."""

from __future__ import annotations

import numpy as np
import pytest
from workloads import toeplitz_table as script

from tacit.errors import InvalidInput
from tacit.privacy.factorization import (
    FACTORIZATIONS,
    BinaryTree,
    BufferedToeplitz,
    make_factorization,
    worst_prefix_sd,
)
from tacit.privacy.toeplitz import TABLE
from tacit.typing import FloatArray


def dense_toeplitz(plan: BufferedToeplitz) -> FloatArray:
    """C as a matrix."""
    powers = plan.decay[None, :] ** np.arange(plan.horizon - 1)[:, None]
    column = np.concatenate([[1.0], powers @ plan.weight])
    rows = np.arange(plan.horizon)
    lag = rows[:, None] - rows[None, :]
    return np.where(lag >= 0, column[np.maximum(lag, 0)], 0.0)


@pytest.mark.parametrize("horizon", [1, 2, 7, 64, 300])
def test_toeplitz_norms_are_those_of_the_dense_matrices(horizon: int) -> None:
    plan = BufferedToeplitz(horizon)
    c = dense_toeplitz(plan)
    b = np.tril(np.ones((horizon, horizon))) @ np.linalg.inv(c)
    assert np.all(c >= 0.0)
    assert plan.column_norm == pytest.approx(np.max(np.linalg.norm(c, axis=0)), rel=1e-12)
    variance = plan.prefix_variance(np.arange(1, horizon + 1))
    np.testing.assert_allclose(variance, np.sum(b**2, axis=1), rtol=1e-9)


@pytest.mark.parametrize("horizon", [1, 2, 7, 64, 300])
def test_tree_norms_are_those_of_the_dense_matrices(horizon: int) -> None:
    plan = BinaryTree(horizon)
    nodes, prefixes = [], []
    for t in range(1, horizon + 1):
        level = (t & -t).bit_length() - 1
        node = np.zeros(horizon)
        node[t - 2**level : t] = 1.0
        nodes.append(node)
        prefixes.append(t.bit_count())
    c = np.array(nodes)
    assert np.max(np.linalg.norm(c, axis=0)) <= plan.column_norm
    np.testing.assert_array_equal(plan.prefix_variance(np.arange(1, horizon + 1)), prefixes)


def test_worst_prefixes_at_the_stated_horizon() -> None:
    assert worst_prefix_sd(BinaryTree(15_000)) == pytest.approx(13.96, abs=0.005)
    assert worst_prefix_sd(BufferedToeplitz(15_000)) <= 4.14


@pytest.mark.parametrize("horizon", [100, 1_000, 5_000, 15_000, 100_000])
def test_toeplitz_is_within_one_percent_of_the_square_root_factorization(horizon: int) -> None:
    ratios = (2.0 * np.arange(1, horizon) - 1.0) / (2.0 * np.arange(1, horizon))
    square_root = np.concatenate([[1.0], np.cumprod(ratios)])
    assert worst_prefix_sd(BufferedToeplitz(horizon)) <= 1.01 * float(np.sum(square_root**2))


def test_the_table_has_the_lines_that_the_benchmark_prints() -> None:
    """And they are its minima: a step away from the coefficients the loss is larger."""
    printed = []
    for line in TABLE.strip().splitlines():
        log2_horizon, *numbers = line.split()
        parameters = np.array([float(number) for number in numbers])
        printed.append(script.table_line(int(log2_horizon), parameters))
        least = script.loss(parameters, 2 ** int(log2_horizon))
        for direction in np.eye(10):
            for step in (-0.03, 0.03):
                assert script.loss(parameters + step * direction, 2 ** int(log2_horizon)) > least
    assert printed == TABLE.strip("\n").splitlines()
    assert [int(line.split()[0]) for line in printed] == list(script.LOG2_HORIZONS)


@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_the_worst_prefix_is_the_worst_of_all(name: str) -> None:
    for horizon in (1, 2, 3, 7, 8, 15, 100, 1000, 4095, 20_000):
        found = make_factorization(name, horizon)
        every = found.prefix_variance(np.arange(1, horizon + 1, dtype=np.int64))
        assert found.worst_variance == pytest.approx(float(np.max(every)), rel=1e-11)


def test_unknown_names_and_horizons_are_refused() -> None:
    with pytest.raises(InvalidInput, match="geometric, toeplitz, tree"):
        make_factorization("wavelet", 10)
    for horizon in (0, -3, 2.5, True):
        with pytest.raises(InvalidInput, match="horizon"):
            BufferedToeplitz(horizon)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="2\\*\\*32"):
        _ = BufferedToeplitz(2**33).column_norm
