"""Projections on balls and ellipsoids, in the Euclidean norm or in that of a positive definite metric.

The projection in the metric A minimises ``(theta - theta_0)' A (theta - theta_0)`` over the set: with A the
curvature of a loss it is the constrained Newton step, with A the identity the Euclidean projection.  A single
set is handled by its secular equation on one eigendecomposition (More and Sorensen 1983, section 3: Newton's
method on 1/norm converges monotonically), two sets by their multipliers: no alternation, nothing to tune.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq

from tacit.errors import InvalidInput
from tacit.linalg.ball import into_ball_by_metric, norm, secular_divisors
from tacit.typing import FloatArray

_LARGEST_MULTIPLIER = 1e15
"""In units of trace(metric) / trace(matrix): beyond it ball and ellipsoid count as disjoint."""


class Ellipsoid(NamedTuple):
    """The set {||theta - center||_matrix <= radius}; an infinite radius is all of space.

    ``matrix`` is positive semidefinite: directions that it does not see are unbounded.
    """

    center: FloatArray
    matrix: FloatArray
    radius: float

    def distance(self, theta: FloatArray) -> float:
        """``||theta - center||_matrix``."""
        offset = theta - self.center
        return math.sqrt(max(0.0, float(offset @ self.matrix @ offset)))

    def nearest(self, theta: FloatArray, metric: FloatArray) -> FloatArray:
        """The point of the ellipsoid that is nearest to ``theta`` in the norm of ``metric``.

        A metric that is not positive definite raises `numpy.linalg.LinAlgError`, if ``theta`` has to move.
        """
        if self.distance(theta) <= self.radius:
            return theta
        if self.radius <= 0.0:
            return self.center
        # In this basis the metric is the identity, and the matrix is diagonal.
        curvatures, basis = eigh(self.matrix, metric)
        curvatures = np.maximum(curvatures, 0.0)
        coordinates = basis.T @ (metric @ (theta - self.center))
        offset = basis @ (coordinates / secular_divisors(np.sqrt(curvatures) * coordinates, curvatures, self.radius))
        beyond = self.distance(self.center + offset) / self.radius
        return np.asarray(self.center + offset / max(1.0, beyond))  # what rounding left outside goes along the ray


class Region(NamedTuple):
    """Where the ball of this radius around 0 and the ellipsoid meet; an infinite radius drops its set."""

    ball_radius: float
    ellipsoid: Ellipsoid

    def nearest(self, theta: FloatArray, metric: FloatArray) -> FloatArray:
        """The point of the region that is nearest to ``theta`` in the norm of a positive definite ``metric``."""
        ellipsoid = self.ellipsoid
        point = into_ball_by_metric(theta, self.ball_radius, metric)
        if ellipsoid.distance(point) <= ellipsoid.radius:
            return point
        point = ellipsoid.nearest(theta, metric)
        return point if norm(point) <= self.ball_radius else self._on_both(theta, metric)

    def _on_both(self, theta: FloatArray, metric: FloatArray) -> FloatArray:
        """The nearest point where both sets bind, by the multiplier of the ellipsoid: its distance decreases in it."""

        def gap(multiplier: float) -> float:
            found = self._penalised_in_ball(theta, metric, multiplier)
            return self.ellipsoid.distance(found) / self.ellipsoid.radius - 1.0

        unit = float(np.trace(metric)) / max(float(np.trace(self.ellipsoid.matrix)), 1e-300)
        low, high = 0.0, 0.0
        while gap(high) > 0.0:
            low, high = high, 16.0 * high or unit
            if high > _LARGEST_MULTIPLIER * max(unit, 1.0):
                raise InvalidInput(f"the ellipsoid must meet the ball of radius {self.ball_radius:g}")
        root = brentq(gap, low, high, xtol=1e-300, rtol=1e-14) if high > 0.0 else 0.0
        return self._penalised_in_ball(theta, metric, root)

    def _penalised_in_ball(self, theta: FloatArray, metric: FloatArray, multiplier: float) -> FloatArray:
        """Minimise (metric distance to ``theta``)^2 + multiplier * (distance to the ellipsoid's center)^2 in the ball.

        Both terms are divided by 1 + multiplier, so that no multiplier is too large.
        """
        near, far = 1.0 / (1.0 + multiplier), multiplier / (1.0 + multiplier)
        center, matrix = self.ellipsoid.center, self.ellipsoid.matrix
        combined = near * metric + far * matrix
        free = np.linalg.solve(combined, near * (metric @ theta) + far * (matrix @ center))
        return into_ball_by_metric(np.asarray(free, dtype=np.float64), self.ball_radius, combined)


def make_ellipsoid(center: FloatArray, matrix: FloatArray, radius: float) -> Ellipsoid:
    """An ellipsoid whose shapes and radius are checked."""
    c, m = (np.ascontiguousarray(array, dtype=np.float64) for array in (center, matrix))
    if m.shape != (c.size, c.size):
        raise InvalidInput(f"matrix must have shape {(c.size, c.size)}, got {m.shape}")
    if not radius > 0.0:
        raise InvalidInput(f"radius must be positive, got {radius}")
    return Ellipsoid(c, m, float(radius))


def unbounded(dim: int) -> Ellipsoid:
    """All of space as an ellipsoid."""
    return Ellipsoid(np.zeros(dim), np.eye(dim), math.inf)
