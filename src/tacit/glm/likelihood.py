"""Maximum likelihood with ridge, on all of space, a ball, an ellipsoid, or where the two meet.

Minimises sum_i w_i l_i(theta) + (ridge / 2) ||theta - center||^2 by damped Newton steps.  On a constraint set
the step goes to the minimum of the quadratic model over the set, which is the projection of the Newton point
in the norm of the Hessian: the same code with and without constraints, and a quadratic rate in both.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit._compile import kernel
from tacit.errors import InvalidInput
from tacit.glm.links import Link, get_link
from tacit.glm.loss import evaluate, row_weight
from tacit.glm.rows import ALL_ROWS, Rows, no_mask, no_weights
from tacit.linalg.projection import Ellipsoid, project_intersection_metric, unbounded
from tacit.linalg.solve import cholesky, dot, solve_cholesky
from tacit.linalg.vectors import copy_into, identity, multiply, norm, trace
from tacit.typing import ByteArray, FloatArray

CONVERGED, ITERATION_LIMIT, ILL_CONDITIONED, INFEASIBLE = 0, 1, 2, 3

_JITTER = 1e-13
_SUFFICIENT_DECREASE = 1e-4
_HALVINGS = 60


class Status(enum.Enum):
    """How a fit ended; the text is the remedy."""

    CONVERGED = "converged"
    ITERATION_LIMIT = (
        "iteration limit reached: raise max_iterations, or give ridge > 0 or a ball_radius when the rewards "
        "are separable and no finite maximum exists"
    )
    ILL_CONDITIONED = (
        "ill conditioned: the rows leave a direction of theta open, and theta is one of many minima: "
        "give ridge > 0 or a ball_radius, or remove collinear features"
    )
    INFEASIBLE = "infeasible: ball and ellipsoid do not meet: enlarge a radius or move the ellipsoid's center"


_STATUS = (Status.CONVERGED, Status.ITERATION_LIMIT, Status.ILL_CONDITIONED, Status.INFEASIBLE)


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted parameter; ``gradient_norm`` is what constraints do not hold in balance, 0 at the optimum."""

    theta: FloatArray
    status: Status
    iterations: int
    gradient_norm: float


@kernel
def _objective(
    link: int,
    features: FloatArray,
    rewards: FloatArray,
    count: int,
    weights: FloatArray,
    mask: ByteArray,
    selected: int,
    ridge: float,
    center: FloatArray,
    theta: FloatArray,
    gradient: FloatArray,
    hessian: FloatArray,
) -> float:
    value = evaluate(link, features, rewards, count, weights, mask, selected, theta, gradient, hessian)
    for i in range(theta.shape[0]):
        offset = theta[i] - center[i]
        value += 0.5 * ridge * offset * offset
        gradient[i] += ridge * offset
        hessian[i, i] += ridge
    return value


@kernel
def _data_scale(features: FloatArray, count: int, weights: FloatArray, mask: ByteArray, selected: int) -> float:
    """Trace of the weighted second-moment matrix: the curvature that the rows have at mu' = 1."""
    total = 0.0
    for i in range(count):
        weight = row_weight(i, weights, mask, selected)
        if weight != 0.0:
            total += weight * dot(features[i], features[i])
    return total


@kernel
def _newton_direction(
    theta: FloatArray,
    gradient: FloatArray,
    metric: FloatArray,
    factor: FloatArray,
    ball_radius: float,
    ellipsoid_center: FloatArray,
    ellipsoid_matrix: FloatArray,
    ellipsoid_radius: float,
    direction: FloatArray,
) -> None:
    """Direction to the minimum of the quadratic model over the constraint set."""
    solve_cholesky(factor, gradient, direction)
    target = np.empty_like(theta)
    for i in range(theta.shape[0]):
        target[i] = theta[i] - direction[i]
    if not (math.isinf(ball_radius) and math.isinf(ellipsoid_radius)):
        project_intersection_metric(target, ellipsoid_center, ellipsoid_matrix, ellipsoid_radius, ball_radius, metric)
    for i in range(theta.shape[0]):
        direction[i] = target[i] - theta[i]


@kernel
def _smallest_pivot(factor: FloatArray) -> float:
    smallest = math.inf
    for i in range(factor.shape[0]):
        smallest = min(smallest, factor[i, i] * factor[i, i])
    return smallest


@kernel
def fit_kernel(
    link: int,
    features: FloatArray,
    rewards: FloatArray,
    count: int,
    weights: FloatArray,
    mask: ByteArray,
    selected: int,
    ridge: float,
    center: FloatArray,
    ball_radius: float,
    ellipsoid_center: FloatArray,
    ellipsoid_matrix: FloatArray,
    ellipsoid_radius: float,
    tolerance: float,
    max_iterations: int,
    theta: FloatArray,
) -> tuple[int, int, float]:
    """Minimise in place from the warm start ``theta``; returns status code, iterations, gradient norm.

    Arrays as in ``tacit.glm.loss``; an infinite radius drops its constraint (the ellipsoid's center and
    matrix must be finite even so).  Stops when the Newton step is below ``tolerance * (1 + ||theta||)``.
    """
    dim = theta.shape[0]
    gradient, direction, work = np.empty(dim), np.empty(dim), np.empty(dim)
    hessian, factor = np.empty((dim, dim)), np.empty((dim, dim))
    if not project_intersection_metric(
        theta, ellipsoid_center, ellipsoid_matrix, ellipsoid_radius, ball_radius, identity(dim)
    ):
        return INFEASIBLE, 0, math.inf
    scale = _data_scale(features, count, weights, mask, selected)
    value = _objective(link, features, rewards, count, weights, mask, selected, ridge, center, theta, gradient, hessian)
    remaining = math.inf
    for iteration in range(max_iterations):
        # A floor on the curvature keeps the step finite where it underflows; the optimum does not move by it.
        jitter = max(_JITTER * max(scale, trace(hessian)), 1e-300)
        for i in range(dim):
            hessian[i, i] += jitter
        if not cholesky(hessian, factor):
            return ILL_CONDITIONED, iteration, remaining
        open_direction = _smallest_pivot(factor) < 10.0 * jitter
        _newton_direction(
            theta, gradient, hessian, factor, ball_radius,
            ellipsoid_center, ellipsoid_matrix, ellipsoid_radius, direction,
        )  # fmt: skip
        multiply(hessian, direction, work)
        remaining = norm(work)
        if norm(direction) <= tolerance * (1.0 + norm(theta)):
            for i in range(dim):
                theta[i] += direction[i]
            done = CONVERGED if not open_direction or remaining == 0.0 else ILL_CONDITIONED
            return done, iteration + 1, remaining
        slope, step, moved = dot(gradient, direction), 1.0, False
        bound = value + 1e-14 * (1.0 + abs(value))
        copy_into(theta, work)
        for _ in range(_HALVINGS):
            for i in range(dim):
                theta[i] = work[i] + step * direction[i]
            value = _objective(
                link, features, rewards, count, weights, mask, selected,
                ridge, center, theta, gradient, hessian,
            )  # fmt: skip
            if value <= bound + _SUFFICIENT_DECREASE * step * slope:
                moved = True
                break
            step *= 0.5
        if not moved:
            copy_into(work, theta)
            return ILL_CONDITIONED, iteration + 1, remaining
    return ITERATION_LIMIT, max_iterations, remaining


def fit(
    link: str | Link,
    features: npt.ArrayLike,
    rewards: npt.ArrayLike,
    *,
    ridge: float = 0.0,
    center: npt.ArrayLike | None = None,
    ball_radius: float | None = None,
    ellipsoid: Ellipsoid | None = None,
    start: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 100,
) -> Fit:
    """Minimise the (weighted) loss plus ``ridge / 2 ||theta - center||^2`` over the constraint set.

    Without ``start`` the search begins at ``center``, or at 0.  The status says whether to trust the result.
    """
    rows = Rows.of(features, rewards)
    _check_options(rows, ridge, ball_radius, ellipsoid, tolerance)
    pull = _vector("center", center, np.zeros(rows.dim))
    theta = _vector("start", start, pull).copy()
    region = ellipsoid if ellipsoid is not None else unbounded(rows.dim)
    code, iterations, gradient_norm = fit_kernel(
        get_link(link).code,
        rows.features,
        rows.rewards,
        rows.count,
        no_weights() if weights is None else _vector("weights", weights, rows.rewards),
        no_mask(),
        ALL_ROWS,
        float(ridge),
        pull,
        math.inf if ball_radius is None else float(ball_radius),
        region.center,
        region.matrix,
        region.radius,
        tolerance,
        max_iterations,
        theta,
    )
    return Fit(theta, _STATUS[code], iterations, gradient_norm)


def _check_options(
    rows: Rows, ridge: float, ball_radius: float | None, ellipsoid: Ellipsoid | None, tolerance: float
) -> None:
    if not 0.0 <= ridge < math.inf:
        raise InvalidInput(f"ridge must be finite and not negative, got {ridge}")
    if ball_radius is not None and not ball_radius > 0.0:
        raise InvalidInput(f"ball_radius must be positive, got {ball_radius}")
    if ellipsoid is not None and ellipsoid.center.shape != (rows.dim,):
        raise InvalidInput(f"ellipsoid must have dimension {rows.dim}, got {ellipsoid.center.shape[0]}")
    if not tolerance > 0.0:
        raise InvalidInput(f"tolerance must be positive, got {tolerance}")


def _vector(name: str, given: npt.ArrayLike | None, default: FloatArray) -> FloatArray:
    if given is None:
        return default
    vector = np.ascontiguousarray(given, dtype=np.float64)
    if vector.shape != default.shape or not np.all(np.isfinite(vector)):
        raise InvalidInput(f"{name} must be finite with shape {default.shape}, got shape {vector.shape}")
    return vector
