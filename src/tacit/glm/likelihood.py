"""Maximum likelihood with ridge, on all of space or on a ball around 0.

Minimises sum_i l_i(theta) + (ridge / 2) ||theta||^2 by damped Newton steps.  On a ball the step goes to the minimum of
the quadratic model over the ball, which is the projection of the Newton point in the norm of the Hessian: the same
code with and without the constraint, and a quadratic rate in both.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit._compile import allocating_kernel, as_entry, inlined_kernel, kernel
from tacit.errors import InvalidInput
from tacit.glm.links import Link, LinkForm, get_link
from tacit.glm.loss import evaluate
from tacit.glm.rows import ALL_ROWS, Selection, has_mark, rows_of
from tacit.linalg.projection import Ellipsoid, project_ellipsoid_metric
from tacit.linalg.solve import cholesky, dot, solve_cholesky
from tacit.linalg.vectors import copy_into, identity, multiply, norm, trace
from tacit.typing import FloatArray

CONVERGED, ITERATION_LIMIT, ILL_CONDITIONED = 0, 1, 2

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


_STATUS = (Status.CONVERGED, Status.ITERATION_LIMIT, Status.ILL_CONDITIONED)


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted parameter; ``gradient_norm`` is what the ball does not hold in balance, 0 at the optimum."""

    theta: FloatArray
    status: Status
    iterations: int
    gradient_norm: float


class Objective(NamedTuple):
    """The function of theta that a fit minimises: the loss of the selected rows, and a ridge."""

    link: LinkForm
    selection: Selection
    ridge: float


class Limits(NamedTuple):
    """When a fit ends: at a Newton step below ``tolerance * (1 + ||theta||)``, or after so many steps."""

    tolerance: float
    iterations: int


@kernel
def _penalised(objective: Objective, theta: FloatArray, gradient: FloatArray, hessian: FloatArray) -> float:
    """Value, gradient and Hessian of the objective."""
    value = evaluate(objective.link, objective.selection, theta, gradient, hessian)
    for i in range(theta.shape[0]):
        value += 0.5 * objective.ridge * theta[i] * theta[i]
        gradient[i] += objective.ridge * theta[i]
        hessian[i, i] += objective.ridge
    return value


@inlined_kernel
def _data_scale(selection: Selection) -> float:
    """Trace of the second-moment matrix: the curvature that the rows have at mu' = 1."""
    features, _, mask, held = selection.rows
    total = 0.0
    for i in range(held[()]):
        if has_mark(mask, i, selection.mark):
            total += dot(features[i], features[i])
    return total


@inlined_kernel
def _newton_direction(
    theta: FloatArray,
    gradient: FloatArray,
    metric: FloatArray,
    factor: FloatArray,
    ball: Ellipsoid,
    target: FloatArray,
    direction: FloatArray,
) -> None:
    """Direction to the minimum of the quadratic model over the ball, ``target``; ``factor`` is the metric's factor."""
    solve_cholesky(factor, gradient, direction)
    for i in range(theta.shape[0]):
        target[i] = theta[i] - direction[i]
    if not math.isinf(ball.radius):
        project_ellipsoid_metric(target, ball, metric)  # cannot fail: the metric has a factor
    for i in range(theta.shape[0]):
        direction[i] = target[i] - theta[i]


@inlined_kernel
def _smallest_pivot(factor: FloatArray) -> float:
    smallest = math.inf
    for i in range(factor.shape[0]):
        smallest = min(smallest, factor[i, i] * factor[i, i])
    return smallest


@inlined_kernel
def _line_search(
    objective: Objective,
    value: float,
    direction: FloatArray,
    start: FloatArray,
    theta: FloatArray,
    gradient: FloatArray,
    hessian: FloatArray,
) -> tuple[bool, float]:
    """Halve the step until the objective, ``value`` at ``theta``, falls enough: whether it did, and its new value.

    ``theta``, gradient and Hessian move along; ``theta`` stays when no step is short enough.  ``start`` is room for it.
    """
    copy_into(theta, start)
    slope, step = dot(gradient, direction), 1.0
    bound = value + 1e-14 * (1.0 + abs(value))
    for _ in range(_HALVINGS):
        for i in range(theta.shape[0]):
            theta[i] = start[i] + step * direction[i]
        value = _penalised(objective, theta, gradient, hessian)
        if value <= bound + _SUFFICIENT_DECREASE * step * slope:
            return True, value
        step *= 0.5
    copy_into(start, theta)
    return False, value


@allocating_kernel
def fit_kernel(objective: Objective, ball_radius: float, limits: Limits, theta: FloatArray) -> tuple[int, int, float]:
    """Minimise in place from the warm start ``theta``; returns status code, iterations, gradient norm.

    The objective never rises on the way, so that ``theta`` is no worse than the warm start however the fit ends.  An
    infinite ``ball_radius`` drops the ball.
    """
    dim = theta.shape[0]
    ball = Ellipsoid(np.zeros(dim), identity(dim), ball_radius)
    vectors, matrices = np.empty((3, dim)), np.empty((2, dim, dim))
    gradient, direction, work = vectors[0], vectors[1], vectors[2]
    hessian, factor = matrices[0], matrices[1]
    project_ellipsoid_metric(theta, ball, ball.matrix)
    scale = _data_scale(objective.selection)
    value = _penalised(objective, theta, gradient, hessian)
    remaining = math.inf
    for iteration in range(limits.iterations):
        # A floor on the curvature keeps the step finite where it underflows; the optimum does not move by it.
        jitter = max(_JITTER * max(scale, trace(hessian)), 1e-300)
        for i in range(dim):
            hessian[i, i] += jitter
        if not cholesky(hessian, factor):
            return ILL_CONDITIONED, iteration, remaining
        open_direction = _smallest_pivot(factor) < 10.0 * jitter
        _newton_direction(theta, gradient, hessian, factor, ball, work, direction)
        multiply(hessian, direction, work)
        remaining = norm(work)
        if norm(direction) <= limits.tolerance * (1.0 + norm(theta)):
            for i in range(dim):
                theta[i] += direction[i]
            done = CONVERGED if not open_direction or remaining == 0.0 else ILL_CONDITIONED
            return done, iteration + 1, remaining
        moved, value = _line_search(objective, value, direction, work, theta, gradient, hessian)
        if not moved:
            return ILL_CONDITIONED, iteration + 1, remaining
    return ITERATION_LIMIT, limits.iterations, remaining


_fit = as_entry(fit_kernel)


def fit(
    link: str | Link,
    features: npt.ArrayLike,
    rewards: npt.ArrayLike,
    *,
    ridge: float = 0.0,
    ball_radius: float = math.inf,
    start: npt.ArrayLike | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 100,
) -> Fit:
    """Minimise the loss plus ``ridge / 2 ||theta||^2`` over the ball, from ``start`` or from 0.

    The status says whether to trust the result.
    """
    rows = rows_of(features, rewards)
    if not 0.0 <= ridge < math.inf:
        raise InvalidInput(f"ridge must be finite and not negative, got {ridge}")
    if not ball_radius > 0.0:
        raise InvalidInput(f"ball_radius must be positive, got {ball_radius}")
    if not tolerance > 0.0:
        raise InvalidInput(f"tolerance must be positive, got {tolerance}")
    dim = rows.features.shape[1]
    theta = np.zeros(dim) if start is None else np.array(start, dtype=np.float64)
    if theta.shape != (dim,) or not np.all(np.isfinite(theta)):
        raise InvalidInput(f"start must be finite with shape {(dim,)}, got shape {theta.shape}")
    objective = Objective(get_link(link).form, Selection(rows, ALL_ROWS), float(ridge))
    limits = Limits(float(tolerance), int(max_iterations))
    code, iterations, gradient_norm = _fit(objective, float(ball_radius), limits, theta)
    return Fit(theta, _STATUS[code], iterations, gradient_norm)
