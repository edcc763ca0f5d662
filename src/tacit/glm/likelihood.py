"""Maximum likelihood with ridge, on all of space or on a ball around 0.

The loss of every link is l(theta) = -r z + int_0^z mu with z = <x, theta>, summed over rows: gradient (mu(z) - r) x,
Hessian mu'(z) x x'.  Up to a constant it is the negative log-likelihood of the canonical links; for probit it is not
the probit likelihood, yet convex, and theta* minimises its expectation.

`fit` minimises sum_i l_i(theta) + (ridge / 2) ||theta||^2 by damped Newton steps.  On a ball the step goes to the
minimum of the quadratic model over the ball, which is the projection of the Newton point in the norm of the Hessian:
the code is the same with and without the constraint, with a quadratic rate in both.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs

from tacit.errors import InvalidInput
from tacit.glm.links import Link, get_link
from tacit.glm.rows import rows_of
from tacit.linalg.ball import into_ball, into_ball_by_metric, norm
from tacit.threads import one_blas_thread
from tacit.typing import FloatArray

_JITTER = 1e-13
_SUFFICIENT_DECREASE = 1e-4
_HALVINGS = 60


class FitStatus(enum.Enum):
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


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted parameter; ``gradient_norm`` is that of the gradient less what the ball balances, 0 at the optimum."""

    theta: FloatArray
    status: FitStatus
    iterations: int
    gradient_norm: float


class Expansion(NamedTuple):
    """A function of theta around one point, to second order."""

    value: float
    gradient: FloatArray
    hessian: FloatArray


def evaluate(link: Link, features: FloatArray, rewards: FloatArray, theta: FloatArray) -> Expansion:
    """Sum the loss over rows of ``features``, shape (n, d), with its gradient and Hessian."""
    z = features.dot(theta)
    value = float((link.antiderivative(z) - link.antiderivative_at(0.0)).sum() - rewards.dot(z))
    return Expansion(value, (link.mean(z) - rewards).dot(features), weighted_outers(features, link.derivative(z)))


def weighted_outers(features: FloatArray, weights: FloatArray) -> FloatArray:
    """Sum w x x' over rows, symmetric to the bit; no weight is negative."""
    rooted = features * np.sqrt(weights)[:, np.newaxis]
    return np.asarray(rooted.T.dot(rooted))


class Objective(NamedTuple):
    """The function of theta that a fit minimises: the loss of these rows, and a ridge."""

    link: Link
    features: FloatArray
    rewards: FloatArray
    ridge: float

    def at(self, theta: FloatArray) -> Expansion:
        """Value, gradient and Hessian."""
        value, gradient, hessian = evaluate(self.link, self.features, self.rewards, theta)
        value += 0.5 * self.ridge * float(theta.dot(theta))
        hessian.flat[:: theta.size + 1] += self.ridge
        return Expansion(value, gradient + self.ridge * theta, hessian)


class Limits(NamedTuple):
    """When a fit ends: at a Newton step below ``tolerance * (1 + ||theta||)``, or after ``iterations`` steps."""

    tolerance: float
    iterations: int


def minimise(objective: Objective, ball_radius: float, limits: Limits, start: FloatArray) -> Fit:
    """Minimise the objective over the ball from a warm start.

    The objective never rises on the way, so that theta is no worse than the start however the fit ends.  An infinite
    ``ball_radius`` drops the ball.
    """
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):  # a step that overflows is halved
        return _newton(objective, ball_radius, limits, into_ball(start, ball_radius))


def _newton(objective: Objective, ball_radius: float, limits: Limits, theta: FloatArray) -> Fit:
    data_scale = float(np.vdot(objective.features, objective.features))  # the rows' curvature at mu' = 1
    here, remaining = objective.at(theta), math.inf
    for iteration in range(limits.iterations):
        # A floor on the curvature keeps the step finite where it underflows; the optimum does not move by it.
        jitter = max(_JITTER * max(data_scale, float(here.hessian.trace())), 1e-300)
        here.hessian.flat[:: theta.size + 1] += jitter
        factor, failed = dpotrf(here.hessian)
        if failed:
            return Fit(theta, FitStatus.ILL_CONDITIONED, iteration, remaining)
        target = into_ball_by_metric(theta - dpotrs(factor, here.gradient)[0], ball_radius, here.hessian)
        direction = target - theta
        remaining = norm(here.hessian.dot(direction))
        if norm(direction) <= limits.tolerance * (1.0 + norm(theta)):
            open_direction = float(factor.diagonal().min()) ** 2 < 10.0 * jitter
            done = FitStatus.ILL_CONDITIONED if open_direction and remaining > 0.0 else FitStatus.CONVERGED
            return Fit(target, done, iteration + 1, remaining)
        moved = _line_search(objective, here, theta, direction)
        if moved is None:
            return Fit(theta, FitStatus.ILL_CONDITIONED, iteration + 1, remaining)
        theta, here = moved
    return Fit(theta, FitStatus.ITERATION_LIMIT, limits.iterations, remaining)


def _line_search(
    objective: Objective, here: Expansion, theta: FloatArray, direction: FloatArray
) -> tuple[FloatArray, Expansion] | None:
    """Halve the step until the objective falls enough: the point and the objective there; None if no step does."""
    slope, step = float(here.gradient.dot(direction)), 1.0
    bound = here.value + 1e-14 * (1.0 + abs(here.value))
    for _ in range(_HALVINGS):
        trial = theta + step * direction
        found = objective.at(trial)
        if found.value <= bound + _SUFFICIENT_DECREASE * step * slope:
            return trial, found
        step *= 0.5
    return None


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

    Parameters
    ----------
    link : str or Link
        The link, or its name.
    features, rewards : array
        Rows of shape (n, d), and a reward for each.
    ridge : float
        Weight of the squared norm.
    ball_radius : float
        Radius of the ball around 0 that theta is sought in.
    start : array, optional
        Where the first step begins.
    tolerance, max_iterations
        When to stop (`Limits`).

    Returns
    -------
    Fit
        The parameter, and a status that says whether to trust it.
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
    objective = Objective(get_link(link), rows.features, rows.rewards, float(ridge))
    return minimise(objective, float(ball_radius), Limits(float(tolerance), int(max_iterations)), theta)
