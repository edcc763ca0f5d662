"""The nearest point of the Euclidean ball around 0, in the Euclidean norm or in that of a metric."""

from __future__ import annotations

import math

from scipy.linalg.lapack import dsyevd

from tacit.typing import FloatArray

_SECULAR_ITERATIONS = 200
_ROUNDING = 1e-13


def norm(x: FloatArray) -> float:
    """Euclidean norm of a vector."""
    return math.sqrt(x.dot(x))


def into_ball(theta: FloatArray, radius: float) -> FloatArray:
    """Move ``theta`` to the nearest point of the ball; ``theta`` itself where it lies inside."""
    length = norm(theta)
    return theta if length <= radius else theta * (radius / length)


def into_ball_by_metric(theta: FloatArray, radius: float, metric: FloatArray) -> FloatArray:
    """Move ``theta`` to the point t of the ball that minimises (t - theta)' A (t - theta), A the metric.

    With A the curvature of a loss it is the constrained Newton step.  It solves (A + m I) t = A theta for the
    multiplier m >= 0 that puts t on the sphere: one eigendecomposition, and Newton's method on 1 / norm, which
    converges monotonically (More and Sorensen 1983, section 3).  Where rounding hides that A is positive definite, t is
    the nearest point in the Euclidean norm.  Callers hold BLAS to one thread (`tacit.threads`).
    """
    if norm(theta) <= radius:
        return theta
    curvatures, basis, failed = dsyevd(metric, lower=1)  # as numpy.linalg.eigh does, without its checks
    if failed or not curvatures[0] > 0.0:
        return into_ball(theta, radius)
    pull, shifted = curvatures * theta.dot(basis), curvatures
    for _ in range(_SECULAR_ITERATIONS):
        coordinates = pull / shifted
        squared = float(coordinates.dot(coordinates))
        length = math.sqrt(squared)
        if length <= radius * (1.0 + _ROUNDING):
            break
        shifted = shifted + (length / radius - 1.0) * squared / float(coordinates.dot(coordinates / shifted))
    return into_ball(basis.dot(coordinates), radius)  # what rounding left outside goes along the ray
