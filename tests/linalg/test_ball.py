"""The nearest point of a ball in the norm of a metric, against its optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.linalg.ball import into_ball_by_metric


@pytest.mark.parametrize("dim", [1, 2, 5, 40])
def test_the_gradient_of_the_distance_is_normal_to_the_sphere(dim: int) -> None:
    rng = np.random.default_rng(dim)
    for spread in (0.0, 2.0, 5.0):
        basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        metric = (basis * 10.0 ** rng.uniform(-spread, spread, dim)) @ basis.T
        metric = 0.5 * (metric + metric.T)
        theta = rng.standard_normal(dim) * 5.0
        radius = 0.3 * float(np.linalg.norm(theta))
        found = into_ball_by_metric(theta, radius, metric)
        assert radius * (1.0 - 1e-12) <= np.linalg.norm(found) <= radius * (1.0 + 1e-15)
        pull = metric @ (theta - found)
        multiplier = float(pull @ found) / radius**2
        assert multiplier > 0.0
        np.testing.assert_allclose(
            pull, multiplier * found, atol=1e-9 * float(np.linalg.norm(metric) * np.linalg.norm(theta))
        )


def test_a_point_of_the_ball_stays() -> None:
    theta = np.array([0.3, -0.4])
    np.testing.assert_array_equal(into_ball_by_metric(theta, 0.5, np.diag([9.0, 1.0])), theta)
    np.testing.assert_array_equal(into_ball_by_metric(theta, np.inf, np.diag([9.0, 1.0])), theta)


def test_a_metric_that_is_not_positive_definite_gives_the_nearest_point_in_the_euclidean_norm() -> None:
    np.testing.assert_allclose(into_ball_by_metric(np.array([3.0, 4.0]), 1.0, np.diag([1.0, -1.0])), [0.6, 0.8])
