"""The gradient sum never moves by more than it is charged for, whatever the neighbour holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.links import link_called

from tacit.estimation.plan import clipped_gradient_sum, gradient_grid
from tacit.estimation.sensitivity import gradient_diameter
from tacit.glm.likelihood import evaluate
from tacit.glm.links import LINKS, Link
from tacit.glm.rows import ALL_ROWS, RowBuffer, Selection
from tacit.typing import ByteArray, FloatArray, count

BOUND = 1.0
WILD = [np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300, 0.0, 1.0, -1.0, 1.0 + 1e-12]


def _gradient(
    link: Link,
    features: FloatArray,
    rewards: FloatArray,
    theta: FloatArray,
    bound: float = BOUND,
    mask: ByteArray | None = None,
    mark: int = ALL_ROWS,
    grid: float | None = None,
    reward_bound: float = 1.0,
) -> FloatArray:
    selection = Selection(_buffer(features, rewards, mask), mark)
    return clipped_gradient_sum(link, selection, theta, reward_bound, bound, gradient_grid(bound, grid))


def _buffer(features: FloatArray, rewards: FloatArray, mask: ByteArray | None = None) -> RowBuffer:
    """Any numbers at all, also those that `rows_of` refuses."""
    marks = np.zeros(rewards.size, dtype=np.uint8) if mask is None else mask
    return RowBuffer(features, rewards, marks, count(rewards.size))


def _rows(rng: np.random.Generator, rows: int, dim: int) -> tuple[FloatArray, FloatArray]:
    features = rng.normal(size=(rows, dim))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]
    return features, rng.random(rows)


@pytest.mark.parametrize("name", list(LINKS))
def test_is_the_gradient_when_nothing_is_clipped(name: str) -> None:
    rng = np.random.default_rng(0)
    features, rewards = _rows(rng, 300, 4)
    theta = rng.normal(size=4)
    bound = LINKS[name].residual_bound(float(np.linalg.norm(theta)), 1.0)
    expected = evaluate(LINKS[name], features, rewards, theta).gradient
    found = _gradient(LINKS[name], features, rewards, theta, bound)
    np.testing.assert_allclose(found, expected, atol=1e-6 * bound)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(LINKS)), st.integers(1, 6), st.booleans())
def test_replacing_a_row_moves_the_sum_by_at_most_twice_the_bound(seed: int, name: str, dim: int, wild: bool) -> None:
    rng = np.random.default_rng(seed)
    features, rewards = _rows(rng, 20, dim)
    theta = rng.normal(size=dim) * 10.0 ** rng.uniform(-2.0, 2.0)
    bound = float(10.0 ** rng.uniform(-2.0, 2.0))
    before = _gradient(LINKS[name], features, rewards, theta, bound)
    i = int(rng.integers(20))
    features[i] = rng.choice(WILD, dim) if wild else rng.normal(size=dim) * 10.0 ** rng.uniform(-2.0, 3.0)
    rewards[i] = rng.choice(WILD) if wild else rng.normal() * 100.0
    after = _gradient(LINKS[name], features, rewards, theta, bound)
    assert np.all(np.isfinite(after))
    assert np.linalg.norm(after - before) <= 2.0 * bound


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_entering_or_leaving_moves_the_sum_by_at_most_the_bound(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    features, rewards = _rows(rng, 20, dim)
    theta, mask = rng.normal(size=dim) * 5.0, rng.integers(0, 2, 20).astype(np.uint8)
    sums = [_gradient(LINKS["probit"], features, rewards, theta, 1.0, mask, chosen) for chosen in (0, 1)]
    mask[int(rng.integers(20))] ^= 1
    moved = [_gradient(LINKS["probit"], features, rewards, theta, 1.0, mask, chosen) for chosen in (0, 1)]
    for before, after in zip(sums, moved, strict=True):
        assert np.linalg.norm(after - before) <= 1.0


def _most_distant(link: Link, theta_bound: float, reward_bound: float, seed: int) -> float:
    """Largest distance of two gradients among extreme rows in the plane of theta, as they are summed."""
    rng = np.random.default_rng(seed)
    bound, largest = link.residual_bound(theta_bound, reward_bound), 0.0
    for length in theta_bound * np.append(rng.random(6), [0.0, 1.0]):
        angles = np.concatenate([rng.uniform(-np.pi, np.pi, 150), np.linspace(-np.pi, np.pi, 150)])
        rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        gradients = np.array([
            _gradient(link, row[None, :], np.array([reward]), np.array([length, 0.0]), bound,
                      reward_bound=reward_bound)
            for row in rows for reward in (0.0, reward_bound)
        ])  # fmt: skip
        gaps = gradients[:, None, :] - gradients[None, :, :]
        largest = max(largest, float(np.sqrt(np.max(np.sum(gaps**2, axis=2)))))
    return largest


@pytest.mark.parametrize(
    ("name", "theta_bound", "reward_bound"),
    [
        ("logistic", 1.0, 1.0),
        ("logistic", 3.0, 1.0),
        ("probit", 2.0, 1.0),
        ("identity", 2.0, 1.0),
        ("log", 1.0, 10.0),
        ("logistic at 0.01", 3.0, 1.0),
        ("probit at 0.9", 2.0, 1.0),
        ("identity at 0.3", 1.0, 1.0),
        ("log at 0.1", 1.5, 5.0),
    ],
)
def test_the_diameter_is_never_exceeded_and_nearly_attained(name: str, theta_bound: float, reward_bound: float) -> None:
    link = link_called(name)
    claimed = gradient_diameter(link, theta_bound, reward_bound)
    found = _most_distant(link, theta_bound, reward_bound, seed=0)
    assert 0.985 * claimed <= found <= claimed
    assert claimed <= 2.0 * link.residual_bound(theta_bound, reward_bound)


def test_known_diameters() -> None:
    # At theta = 0 the mean is 1/2, and residuals are +-1/2 on the whole ball.
    assert gradient_diameter(LINKS["probit"], 1e-9, 1.0) == pytest.approx(1.0, abs=0.01)
    assert 1.4 < gradient_diameter(LINKS["logistic"], 3.0, 1.0) < 1.43
    # Nor is it 1/2 with a base rate: residuals of -0.99 everywhere are almost twice as far apart.
    assert gradient_diameter(link_called("probit at 0.01"), 1e-9, 1.0) == pytest.approx(1.98, abs=0.01)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([("logistic", 3.0), ("probit", 2.0)]), st.integers(1, 5))
def test_sharp_sensitivity_holds_in_any_dimension(seed: int, case: tuple[str, float], dim: int) -> None:
    rng, (name, theta_bound) = np.random.default_rng(seed), case
    theta = rng.normal(size=dim)
    theta *= theta_bound * rng.random() / np.linalg.norm(theta)
    pair = rng.normal(size=(2, dim)) * 10.0 ** rng.uniform(-1.0, 2.0)
    sums = [_gradient(LINKS[name], x[None, :], rng.normal(size=1) * 3.0, theta) for x in pair]
    cuts = 2.0 * np.sqrt(dim) * gradient_grid(1.0, None)
    assert np.linalg.norm(sums[0] - sums[1]) <= gradient_diameter(LINKS[name], theta_bound, 1.0) + cuts


def test_the_sum_is_the_same_in_every_order() -> None:
    rng = np.random.default_rng(1)
    features, rewards = _rows(rng, 5000, 5)
    theta = rng.normal(size=5)
    expected = _gradient(LINKS["logistic"], features, rewards, theta)
    for _ in range(5):
        order = rng.permutation(5000)
        shuffled = _gradient(LINKS["logistic"], features[order], rewards[order], theta)
        assert np.array_equal(shuffled, expected)


def test_mask_selects_rows() -> None:
    rng = np.random.default_rng(2)
    features, rewards = _rows(rng, 50, 3)
    theta, mask = rng.normal(size=3), rng.integers(0, 2, 50).astype(np.uint8)
    chosen = _gradient(LINKS["log"], features, rewards, theta, 5.0, mask, 1)
    kept = mask == 1
    assert np.array_equal(chosen, _gradient(LINKS["log"], features[kept], rewards[kept], theta, 5.0))


@pytest.mark.parametrize("bound", [1e-3, 0.7, 1.0, 3.0, 150.0, 1e9])
def test_grid_is_a_power_of_two_fine_against_the_bound(bound: float) -> None:
    grid = gradient_grid(bound, None)
    assert np.frexp(grid)[0] == 0.5
    assert 2.0**-33 <= grid / bound <= 2.0**-31
    assert gradient_grid(bound, 2.0**-2) == 2.0**-2


def test_values_lie_on_the_grid_of_the_noise() -> None:
    rng = np.random.default_rng(3)
    features, rewards = _rows(rng, 100, 3)
    found = _gradient(LINKS["logistic"], features, rewards, rng.normal(size=3), grid=2.0**-20)
    assert np.array_equal(found * 2.0**20, np.rint(found * 2.0**20))
    with pytest.raises(ValueError, match="grid must be at least"):
        gradient_grid(1e9, 2.0**-20)
