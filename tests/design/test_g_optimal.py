"""G-optimal designs: certificate, support, effort, and arm sets that break careless solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.design import g_optimal, g_optimal_designs, limit_support
from tacit.typing import FloatArray


def design(arms: FloatArray, ridge: float) -> tuple[FloatArray, float]:
    """Weights and largest variance of one set of arms."""
    found = g_optimal_designs(arms[np.newaxis], ridge)
    return found.weights[0], float(found.largest[0])


def ball(rng: np.random.Generator, count: int, dim: int) -> FloatArray:
    x = rng.normal(size=(count, dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x * rng.random((count, 1)) ** (1.0 / dim), dtype=np.float64)


def certificate(arms: FloatArray, ridge: float, weights: FloatArray) -> float:
    """max_k x_k' V^-1 x_k, by NumPy."""
    matrix = (arms.T * weights) @ arms + ridge * np.eye(arms.shape[1])
    return float(np.max(np.sum(arms * np.linalg.solve(matrix, arms.T).T, axis=1)))


def check(arms: FloatArray, ridge: float) -> float:
    dim = arms.shape[1]
    weights, value = design(arms, ridge)
    assert np.all(weights >= 0.0)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.count_nonzero(weights) <= dim * (dim + 1) // 2 + 1
    assert 0.0 <= value <= 2.0 * dim
    floor = max(ridge, 1e-9 * float(np.max(np.sum(arms**2, axis=1))))
    if floor > 0.0:
        assert certificate(arms, floor, weights) == pytest.approx(value, rel=1e-5, abs=1e-12)
    return value


@pytest.mark.parametrize(("count", "dim"), [(20, 5), (20, 3), (5, 5), (3, 5), (200, 2), (50, 1), (60, 12), (1, 4)])
@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1e-2, 1.0, 100.0])
def test_certificate_and_support(count: int, dim: int, ridge: float) -> None:
    rng = np.random.default_rng(count + dim)
    for _ in range(20):
        assert check(ball(rng, count, dim), ridge) <= 1.05 * dim


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 30),
    dim=st.integers(1, 7),
    ridge=st.sampled_from([0.0, 1e-12, 1e-4, 1.0, 1e6]),
    damage=st.sampled_from(["repeat", "collinear", "zero", "flat", "tiny", "scales", "lattice"]),
)
def test_no_failure_on_degenerate_arms(seed: int, count: int, dim: int, ridge: float, damage: str) -> None:
    rng = np.random.default_rng(seed)
    arms = ball(rng, count, dim)
    if damage == "repeat":
        arms = arms[rng.integers(0, min(3, count), count)]
    elif damage == "collinear":
        arms = np.outer(rng.normal(size=count), rng.normal(size=dim))
    elif damage == "zero":
        arms[rng.random(count) < 0.7] = 0.0
    elif damage == "flat":
        arms[:, rng.integers(0, dim)] *= 10.0 ** -rng.integers(3, 12)
    elif damage == "tiny":
        arms *= 1e-80
    elif damage == "scales":
        arms *= 10.0 ** rng.uniform(-6, 0, size=(count, 1))
    else:
        arms = rng.integers(-1, 2, size=(count, dim)).astype(np.float64)
    check(np.ascontiguousarray(arms), ridge)


def test_known_designs() -> None:
    weights, value = design(np.eye(4), 0.0)
    assert value == pytest.approx(4.0, rel=1e-6)
    assert np.allclose(weights, 0.25)
    weights, value = design(np.array([[0.2], [-1.0], [0.7]]), 0.0)
    assert value == pytest.approx(1.0, rel=1e-6)
    assert np.array_equal(weights, [0.0, 1.0, 0.0])
    weights, value = design(np.zeros((3, 2)), 0.0)
    assert value == 0.0
    assert weights.sum() == 1.0


def test_arms_that_are_not_finite_are_reported() -> None:
    assert design(np.array([[1.0], [np.nan]]), 0.0)[1] == np.inf
    assert design(np.array([[1.0], [np.inf]]), 0.0)[1] == np.inf
    assert design(np.array([[1.0], [0.5]]), -1.0)[1] == np.inf


@pytest.mark.parametrize(("count", "dim"), [(40, 5), (30, 2), (9, 1), (80, 8)])
def test_support_is_limited_without_changing_the_matrix(count: int, dim: int) -> None:
    rng = np.random.default_rng(dim)
    arms = np.stack([ball(rng, count, dim) * 1e-3 for _ in range(4)])
    weights = rng.random((4, count))
    weights[1] = 0.0
    weights[1, 3] = 1.0
    weights /= weights.sum(axis=1, keepdims=True)
    kept, before = weights[1].copy(), np.einsum("nk,nki,nkj->nij", weights, arms, arms)
    assert limit_support(arms, weights).tolist() == [0, 2, 3]
    assert np.all(np.count_nonzero(weights, axis=1) <= dim * (dim + 1) // 2 + 1)
    assert np.all(weights >= 0.0)
    assert np.array_equal(weights[1], kept)
    assert weights.sum(axis=1) == pytest.approx(1.0)
    assert np.allclose(np.einsum("nk,nki,nkj->nij", weights, arms, arms), before, rtol=1e-9, atol=1e-15)


def mixed_sets(users: int, count: int, dim: int) -> FloatArray:
    """Sets of arms of which some are zeros, one has zeros alone, and one is not finite."""
    rng = np.random.default_rng(dim)
    arms = np.stack([ball(rng, count, dim) for _ in range(users)])
    arms[rng.random((users, count)) < 0.3] = 0.0
    arms[3] = 0.0
    arms[5, 0, 0] = np.nan
    return arms


@pytest.mark.parametrize("dim", [1, 2, 5, 8])
def test_many_designs_are_those_of_one_user_after_the_other(dim: int) -> None:
    arms = mixed_sets(300, 12, dim)
    together = g_optimal_designs(arms, 1e-3)
    for user in range(300):
        weights, value = design(arms[user], 1e-3)
        assert np.array_equal(weights, together.weights[user])
        assert value == together.largest[user]
    zeros = ~np.any(arms, axis=2)
    zeros[3] = False  # nothing else there is
    assert not np.any(together.weights[zeros])


def test_rounding_decides_nothing() -> None:
    """Rotated arms have the same designs, though exchanges leave ties and all numbers round otherwise."""
    rng = np.random.default_rng(4)
    arms = np.stack([ball(rng, 10, 3) for _ in range(500)])
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert np.allclose(g_optimal_designs(arms, 1e-3).weights, g_optimal_designs(arms @ turn, 1e-3).weights, atol=1e-9)


def test_four_hundred_designs_take_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, exchange = [0], g_optimal._exchange

    def counted(*arguments: Any) -> None:
        passes[0] += 1
        exchange(*arguments)

    monkeypatch.setattr(g_optimal, "_exchange", counted)
    rng = np.random.default_rng(0)
    g_optimal_designs(np.stack([ball(rng, 20, 5) for _ in range(400)]), 1e-3)
    assert 0 < passes[0] <= 100
