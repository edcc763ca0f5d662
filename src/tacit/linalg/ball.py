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
    multiplier m >= 0 that puts t on the sphere, by one eigendecomposition.  Where rounding hides that A is positive
    definite, t is the nearest point in the Euclidean norm.  Callers hold BLAS to one thread (`tacit.threads`).
    """
    if norm(theta) <= radius:
        return theta
    curvatures, basis, failed = dsyevd(metric, lower=1)  # as numpy.linalg.eigh does, without its checks
    if failed or not curvatures[0] > 1e-300:  # below it they have no reciprocals
        return into_ball(theta, radius)
    turned = theta.dot(basis)
    # What rounding left outside goes along the ray.
    return into_ball(basis.dot(turned / secular_divisors(turned, 1.0 / curvatures, radius)), radius)


def secular_divisors(coordinates: FloatArray, shares: FloatArray, radius: float) -> FloatArray:
    """Return 1 + m b for the shares b and the m >= 0 that brings the length of c / (1 + m b) down to the radius.

    Newton's method on 1 / length converges monotonically (More and Sorensen 1983, section 3).
    """
    divisors = 1.0 + 0.0 * shares
    for _ in range(_SECULAR_ITERATIONS):
        shrunk = coordinates / divisors
        squared = shrunk.dot(shrunk)
        excess = math.sqrt(squared) / radius - 1.0
        if excess <= _ROUNDING:
            break
        divisors = divisors + excess * squared / shrunk.dot(shrunk * shares / divisors) * shares
    return divisors
