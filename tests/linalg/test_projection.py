"""Projections checked by their optimality conditions, in several metrics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.linalg.ball import into_ball, into_ball_by_metric
from tacit.linalg.projection import (
    Ellipsoid,
    Region,
    make_ellipsoid,
    unbounded,
)
from tacit.typing import FloatArray

SEEDS = st.integers(0, 2**32 - 1)


def _spread(rng: np.random.Generator, dim: int, decades: float) -> FloatArray:
    """A random positive definite matrix whose eigenvalues span up to ``2 * decades`` powers of ten."""
    basis, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    matrix = (basis * 10.0 ** rng.uniform(-decades, decades, dim)) @ basis.T
    return np.ascontiguousarray(0.5 * (matrix + matrix.T))


def _sample_inside(rng: np.random.Generator, region: Ellipsoid, ball_radius: float) -> FloatArray:
    """Points of the ellipsoid (through its Cholesky factor) that also lie in the ball."""
    dim = region.center.shape[0]
    directions = rng.normal(size=(400, dim))
    directions *= (rng.random((400, 1)) ** (1 / dim)) / np.linalg.norm(directions, axis=1)[:, None]
    whitening = np.linalg.inv(np.linalg.cholesky(region.matrix))
    points = region.center + region.radius * directions @ whitening
    return np.asarray(points[np.linalg.norm(points, axis=1) <= ball_radius])


@settings(max_examples=150, deadline=None)
@given(SEEDS, st.integers(1, 6), st.booleans(), st.booleans())
def test_variational_inequality(seed: int, dim: int, bounded: bool, in_metric: bool) -> None:
    """p is the projection of t iff (t - p)' A (y - p) <= 0 for every y of the set."""
    rng = np.random.default_rng(seed)
    center = rng.normal(size=dim)
    center *= rng.uniform(0.0, 0.9) / np.linalg.norm(center)
    region = Ellipsoid(center, _spread(rng, dim, 1.5), float(10.0 ** rng.uniform(-1.0, 0.5)))
    ball_radius = 1.0 if bounded else np.inf
    metric = _spread(rng, dim, 1.5) if in_metric else np.eye(dim)
    far = rng.normal(size=dim) * 10.0 ** rng.uniform(-1.0, 2.0)
    near = Region(ball_radius, region).nearest(far, metric)
    assert region.distance(near) <= region.radius * (1.0 + 1e-12)
    assert np.linalg.norm(near) <= ball_radius * (1.0 + 1e-12)
    slack = (_sample_inside(rng, region, ball_radius) - near) @ metric @ (far - near)
    scale = float(np.linalg.norm(metric, 2) * np.linalg.norm(far - near))
    assert np.all(slack <= 1e-9 * max(1.0, scale))


def test_points_inside_stay() -> None:
    theta = np.array([0.1, 0.2])
    for metric in (np.eye(2), np.diag([5.0, 0.1])):
        moved = Region(1.0, Ellipsoid(np.zeros(2), np.eye(2), 1.0)).nearest(theta, metric)
        assert np.array_equal(moved, theta)
    assert np.array_equal(into_ball(theta, 1.0), theta)


def test_ball_in_closed_form() -> None:
    theta = np.array([3.0, 4.0])
    np.testing.assert_allclose(into_ball(theta, 1.0), [0.6, 0.8])
    np.testing.assert_allclose(into_ball_by_metric(theta, 1.0, np.eye(2)), [0.6, 0.8], rtol=1e-12)
    np.testing.assert_allclose(Ellipsoid(np.zeros(2), np.eye(2), 1.0).nearest(theta, np.eye(2)), [0.6, 0.8], rtol=1e-12)
    assert into_ball(theta, 0.0).tolist() == [0.0, 0.0]
    assert theta.tolist() == [3.0, 4.0]


def test_ellipsoid_that_is_a_ball() -> None:
    center, theta = np.array([1.0, 1.0]), np.array([4.0, 5.0])
    near = Ellipsoid(center, 4.0 * np.eye(2), 1.0).nearest(theta, np.eye(2))
    np.testing.assert_allclose(near, center + np.array([0.3, 0.4]), rtol=1e-12)


def test_directions_the_matrix_does_not_see_are_free() -> None:
    near = Ellipsoid(np.zeros(2), np.diag([1.0, 0.0]), 2.0).nearest(np.array([3.0, 7.0]), np.eye(2))
    np.testing.assert_allclose(near, [2.0, 7.0], rtol=1e-12)


@pytest.mark.parametrize("condition", [1e6, 1e12])
def test_ill_conditioned_ellipsoid(condition: float) -> None:
    theta, matrix = np.array([5.0, -4.0, 3.0]), np.diag([1.0, condition**0.5, condition])
    region = Ellipsoid(np.zeros(3), matrix, 1.0)
    near = region.nearest(theta, np.eye(3))
    assert region.distance(near) == pytest.approx(1.0, rel=1e-9)
    multipliers = (theta - near) / (np.diag(matrix) * near)  # theta - p = m M p with one m >= 0
    np.testing.assert_allclose(multipliers, multipliers[0], rtol=1e-6)


def test_zero_radius_leaves_the_center() -> None:
    center = np.array([1.0, 2.0])
    near = Ellipsoid(center, np.eye(2), 0.0).nearest(np.array([5.0, -4.0]), np.diag([1.0, 2.0]))
    np.testing.assert_allclose(near, center)


def test_says_when_the_sets_do_not_meet_or_the_metric_is_singular() -> None:
    theta, apart = np.array([5.0, 0.0]), Ellipsoid(np.array([5.0, 0.0]), np.eye(2), 1.0)
    with pytest.raises(ValueError, match="ellipsoid must meet the ball of radius 1"):
        Region(1.0, apart).nearest(theta, np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        Ellipsoid(np.zeros(2), np.eye(2), 1.0).nearest(theta, np.diag([1.0, 0.0]))
    assert theta.tolist() == [5.0, 0.0]


def test_ellipsoid_values_are_checked() -> None:
    assert unbounded(3).radius == np.inf
    with pytest.raises(ValueError, match="radius must be positive"):
        make_ellipsoid(np.zeros(2), np.eye(2), 0.0)
    with pytest.raises(ValueError, match="matrix must have shape"):
        make_ellipsoid(np.zeros(2), np.eye(3), 1.0)
    assert make_ellipsoid(np.zeros(2), np.asfortranarray([[2.0, 1.0], [1.0, 2.0]]), 1.0).matrix.flags.c_contiguous
