"""The linearised row: its stated bounds are never exceeded, are nearly attained, and its score has the right mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.contracts.links import link_called

from tacit.estimation import linearised
from tacit.estimation.linearised import (
    SHORTEST,
    LinearisedRow,
    best_row,
    blended_weights,
    length_shares,
    row_with_scale,
)
from tacit.glm.links import LINKS
from tacit.linalg.packing import packed
from tacit.typing import FloatArray

CASES = [
    ("logistic", 3.5, 1.0, 1.0 / 3.0),
    ("logistic", 3.5, 1.0, 0.0),
    ("logistic", 0.5, 1.0, 1.0),
    ("probit", 3.0, 1.0, 1.0 / 3.0),
    ("probit", 2.0, 1.0, 0.0),
    ("identity", 2.0, 2.0, 0.0),
    ("log", 1.5, 12.0, 1.0 / 3.0),
    ("logistic at 0.01", 3.5, 1.0, 1.0 / 3.0),
    ("logistic at 0.01", 3.5, 1.0, 1.0),
    ("logistic at 0.9", 2.0, 1.0, 0.0),
    ("probit at 0.08", 1.0, 1.0, 1.0 / 3.0),
    ("identity at 0.3", 1.0, 1.0, 0.0),
    ("log at 0.1", 1.5, 5.0, 1.0 / 3.0),
]


def contribution(row: LinearisedRow, theta: FloatArray, x: FloatArray, reward: float) -> FloatArray:
    z = float(x @ theta)
    (mean,), (weight,) = blended_weights(row.link, row.blend, np.array([z]))
    response = reward - mean + weight * z
    length = float(np.linalg.norm(x))
    return (1.0 / length if length >= SHORTEST else 1.0) * np.concatenate(
        [packed(weight * np.outer(x, x)), row.scale * response * x]
    )


def unit(rng: np.random.Generator, dim: int) -> FloatArray:
    x = rng.standard_normal(dim)
    return np.asarray(x / np.linalg.norm(x), dtype=np.float64)


@pytest.mark.parametrize(("link", "bound", "reward", "blend"), CASES)
def test_no_pair_of_rows_exceeds_the_bounds_and_some_come_close(
    link: str, bound: float, reward: float, blend: float
) -> None:
    row = best_row(link_called(link), bound, reward, blend)
    rng = np.random.default_rng(1)
    in_place, longest = 0.0, 0.0
    for _ in range(6000):
        dim = int(rng.integers(1, 5))
        theta = unit(rng, dim) * bound * (1.0 if rng.random() < 0.8 else rng.random())
        x, y = (unit(rng, dim) * (1.0 if rng.random() < 0.6 else rng.random()) for _ in range(2))
        if rng.random() < 0.3:
            y = np.asarray(x + 0.2 * rng.standard_normal(dim))
            y /= max(1.0, float(np.linalg.norm(y)))
        v = contribution(row, theta, x, reward * float(rng.integers(2)))
        w = contribution(row, theta, y, reward * (float(rng.integers(2)) if rng.random() < 0.9 else rng.random()))
        in_place = max(in_place, float(np.linalg.norm(v - w)))
        longest = max(longest, float(np.linalg.norm(v)), float(np.linalg.norm(w)))
    assert longest <= row.row_norm * (1.0 + 1e-9)
    assert max(in_place, math.sqrt(2.0) * longest) <= row.row_bound * (1.0 + 1e-9)
    assert max(in_place, math.sqrt(2.0) * longest) >= 0.93 * row.row_bound


@pytest.mark.parametrize(("link", "bound", "reward", "blend"), CASES)
def test_bound_agrees_with_a_fine_grid(link: str, bound: float, reward: float, blend: float) -> None:
    """Independent of the search: angles to theta, lengths from 0 to 1 and q on a grid, in NumPy."""
    row = best_row(link_called(link), bound, reward, blend)
    lengths = np.array([0.2, 0.5, 0.69, SHORTEST, 0.8, 0.9, 1.0])
    angles, length = (part.ravel() for part in np.meshgrid(np.linspace(0.0, np.pi, 49), lengths))
    z = length * bound * np.cos(angles)
    tangent, means = row.link.derivative(z), row.link.mean(z)
    safe = np.where(np.abs(z) < 1e-9, 1.0, z)
    secant = np.where(np.abs(z) < 1e-9, tangent, (means - row.link.mean(0.0)) / safe)
    w = (1.0 - blend) * tangent + blend * secant
    longer = np.where(length >= SHORTEST, 1.0, length)
    m, best = longer * length * w, 0.0
    low, high = np.cos(angles[:, None] + angles[None, :]), np.cos(angles[:, None] - angles[None, :])
    for r in (0.0, reward):
        for other in (0.0, reward):
            y, y2 = (longer * (r - means + w * z))[:, None], (longer * (other - means + w * z))[None, :]
            for share in np.linspace(0.0, 1.0, 21):
                q = low + share * (high - low)
                matrix = m[:, None] ** 2 + m[None, :] ** 2 - 2.0 * m[:, None] * m[None, :] * q**2
                best = max(best, float(np.max(matrix + row.scale**2 * (y**2 + y2**2 - 2.0 * y * y2 * q))))
    assert math.sqrt(best) <= row.row_bound * (1.0 + 1e-9)
    stated = max(math.sqrt(best), math.sqrt(2.0) * row.row_norm)
    assert row.row_bound <= 1.04 * stated


def test_least_angles_are_no_more_than_those_of_the_shortest_features() -> None:
    a = np.linspace(0.0, 0.5 * np.pi, 20_001)
    exact = np.arccos(np.minimum(1.0, np.cos(a) / SHORTEST))
    assert np.all(linearised._least_angle(a) <= exact + 1e-9)
    assert linearised._least_angle(a)[-1] == pytest.approx(0.5 * np.pi)


@pytest.mark.parametrize(("link", "bound", "reward", "blend"), CASES)
def test_the_rate_bounds_how_fast_rows_change(link: str, bound: float, reward: float, blend: float) -> None:
    """m, y and the turn of e, against differences on a fine grid of a."""
    form, scale = link_called(link), 0.5
    a = np.linspace(0.0, 0.5 * np.pi, 4_001)
    step, matrix, score = a[1] - a[0], 0.0, 0.0
    for sign in (1.0, -1.0):
        rows = linearised._rows_at(form, reward, blend, sign * bound * np.cos(a))
        for length in (np.ones(a.size), np.maximum(np.cos(a), SHORTEST)):
            matrix = max(matrix, float(np.max(np.abs(np.diff(length * rows.weight)))) / step)
        turn = linearised._OPENING * float(np.max(np.abs(rows.response)))
        score = max(score, float(np.max(np.abs(np.diff(rows.response)))) / step + turn)
        widest = math.sqrt(2.0) * linearised._OPENING * float(np.max(rows.weight))
    found = math.hypot(matrix + widest, scale * score)
    assert found <= linearised._rate(form, bound, reward, blend, scale) * (1.0 + 1e-6)


def test_rows_are_as_long_as_noise_is_for() -> None:
    rng = np.random.default_rng(2)
    for size in (0.0, 1e-9, 0.3, 0.69, 0.71, 0.8, 1.0):
        x = size * unit(rng, 4)
        length = float(np.linalg.norm(length_shares(x[np.newaxis])[0] * x))
        assert length <= 1.0
        assert length == pytest.approx(1.0 if size > SHORTEST else size, rel=1e-12)


def test_secants_need_no_search() -> None:
    """The closed form is at least what the search finds, up to its tolerance, and close to it."""
    for name, bound, scale in (("logistic", 3.5, 0.5), ("probit", 2.5, 0.7), ("logistic at 0.01", 3.5, 0.15)):
        link = link_called(name)
        rate = linearised._rate(link, bound, 1.0, 1.0, scale)
        closed = linearised._secant_shift(link, 1.0, scale, bound, rate)
        found = linearised._largest_shift(linearised._Shifts(link, bound, 1.0, 1.0, scale, rate, 0.01))
        assert found / 1.01 <= closed <= 1.01 * found


def test_it_is_well_below_the_bound_that_ignores_that_theta_is_shared() -> None:
    link = LINKS["logistic"]
    row = best_row(link, 3.5, 1.0, 0.0)
    weight = link.derivative_bounds(3.5)[1]
    loose = math.sqrt(2.0 * weight**2 + (2.0 * row.scale * link.pseudo_response_bound(3.5, 1.0)) ** 2)
    assert row.row_bound < 0.75 * loose


@pytest.mark.parametrize("blend", [0.0, 0.4, 1.0])
def test_at_theta_star_the_regression_is_exact_in_expectation(blend: float) -> None:
    """E[y x] = w x x' theta* when the row is linearised at theta*."""
    link, theta, x = LINKS["logistic"], np.array([1.0, -2.0]), np.array([0.6, 0.5])
    z = float(x @ theta)
    (mean,), (weight,) = blended_weights(link, blend, np.array([z]))
    expected_response = link.mean_at(z) - mean + weight * z
    np.testing.assert_allclose(expected_response * x, weight * np.outer(x, x) @ theta)


def test_a_larger_scale_costs_more() -> None:
    link = LINKS["probit"]
    bounds = [row_with_scale(link, 2.0, 1.0, 0.0, scale).row_bound for scale in (0.1, 0.5, 2.0)]
    assert bounds == sorted(bounds)


def test_the_step_of_the_secant_at_score_0_is_in_the_bound() -> None:
    """mu''(0) = 0 for logistic, and not for it at a base rate: the limit that replaces the secant is off by more."""
    below, above = math.nextafter(1e-5, 0.0), 1e-5
    steps = {}
    for name in ("logistic", "logistic at 0.2"):
        _, weights = blended_weights(link_called(name), 1.0, np.array([below, above]))
        steps[name] = abs(float(weights[0] - weights[1]))
    assert steps["logistic"] < 1e-10 < 1e-7 < steps["logistic at 0.2"]
    assert steps["logistic at 0.2"] <= linearised._step(link_called("logistic at 0.2"), 1.0, 1.0, 0.5)
    assert linearised._step(LINKS["logistic"], 1.0, 1.0, 0.5) == 0.0
