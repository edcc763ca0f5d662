"""Noisy Newton: few gradient releases, preconditioned by a matrix that is public already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit._compile import kernel
from tacit._validate import integer_at_least, positive_or_inf
from tacit.errors import InvalidInput
from tacit.estimation.gradient import clipped_gradient_sum
from tacit.estimation.plan import Problem, PublicView, Release, plan_release
from tacit.glm.rows import Rows
from tacit.linalg.eigen import symmetric_eigen
from tacit.linalg.projection import project_ball, project_intersection_metric
from tacit.linalg.solve import cholesky, solve_cholesky
from tacit.privacy.noise import NoiseSource
from tacit.typing import ByteArray, FloatArray


@kernel
def preconditioner(precision: FloatArray, ridge: float, out: FloatArray) -> None:
    """The released matrix with what noise made negative cut to 0, plus ``ridge`` times the identity."""
    dim = precision.shape[0]
    work, basis, values = precision.copy(), np.empty((dim, dim)), np.empty(dim)
    symmetric_eigen(work, values, basis)
    for i in range(dim):
        for j in range(dim):
            out[i, j] = ridge if i == j else 0.0
            for k in range(dim):
                out[i, j] += basis[i, k] * max(values[k], 0.0) * basis[j, k]


@kernel
def newton_core(
    link: int,
    features: FloatArray,
    rewards: FloatArray,
    count: int,
    mask: ByteArray,
    selected: int,
    precision: FloatArray,
    ridge: float,
    center: FloatArray,
    noise: FloatArray,
    averaged: int,
    reward_bound: float,
    residual_bound: float,
    grid: float,
    ball_radius: float,
    ellipsoid_center: FloatArray,
    ellipsoid_matrix: FloatArray,
    ellipsoid_radius: float,
    theta: FloatArray,
) -> bool:
    """One call from the warm start ``theta``, overwritten by the estimate; ``noise`` holds one row a step.

    Each step minimises the noisy quadratic model over ball and ellipsoid, that is, projects the Newton point
    in the norm of the preconditioner: scores stay in [-S, S], where no residual is clipped.  The result is
    the mean of the last ``averaged`` iterates.  False, with ``theta`` as it was, when the preconditioner is
    singular or the sets do not meet.
    """
    dim, steps = noise.shape[1], noise.shape[0]
    kept = min(averaged, steps)
    metric, factor = np.empty((dim, dim)), np.empty((dim, dim))
    preconditioner(precision, ridge, metric)
    if not cholesky(metric, factor):
        return False
    point, gradient, average = theta.copy(), np.empty(dim), np.zeros(dim)
    project_ball(point, ball_radius)
    for step in range(steps):
        clipped_gradient_sum(
            link, features, rewards, count, mask, selected, point, reward_bound, residual_bound, grid, gradient
        )
        for i in range(dim):
            gradient[i] += noise[step, i] + ridge * (point[i] - center[i])
        solve_cholesky(factor, gradient, gradient)
        for i in range(dim):
            point[i] -= gradient[i]
        if not project_intersection_metric(
            point, ellipsoid_center, ellipsoid_matrix, ellipsoid_radius, ball_radius, metric
        ):
            return False
        for i in range(dim):
            average[i] += point[i] / kept if step >= steps - kept else 0.0
    for i in range(dim):
        theta[i] = average[i]
    return True


@dataclass(frozen=True)
class NoisyNewton:
    """``steps`` Newton steps, each on a freshly released gradient sum, at ``mu``-GDP for the call.

    The estimate is the mean of the last ``averaged`` iterates (of all, if there are fewer).  Near the optimum
    each of them carries the independent noise of its own step, so that averaging wins back what splitting the
    budget cost: the first steps remove the error of linearising, the last ones share the noise.

    Formal guarantee
    ----------------
    Adjacency: one row (features and reward) replaced, by any numbers.  The gradient sums have l2 sensitivity
    D = ``problem.sensitivity`` (``clipped_gradient_sum``) wherever in the ball they are asked for, and
    receive N(0, D^2 steps / mu^2 I) each: the call is mu-GDP (``plan_release``).  Start, preconditioner,
    ridge center and ellipsoid must be public; the number of steps is a constant.
    """

    problem: Problem
    mu: float
    steps: int = 3
    averaged: int = 2

    def __post_init__(self) -> None:
        positive_or_inf("mu", self.mu)
        integer_at_least("steps", self.steps, 1)
        integer_at_least("averaged", self.averaged, 1)

    def release(self, noise: NoiseSource, name: str = "optimizer") -> Release:
        """Noise and event of one call."""
        return plan_release(self.problem, self.mu, self.steps, noise, name)

    def run(self, rows: Rows, public: PublicView, draws: FloatArray, grid: float) -> FloatArray:
        """The estimate from noise already drawn."""
        if public.precision is None:
            raise InvalidInput("precision must be given: the released matrix that preconditions the steps")
        theta, region = public.start.copy(), public.region
        solved = newton_core(
            self.problem.link.code,
            rows.features,
            rows.rewards,
            rows.count,
            rows.mask,
            rows.selected,
            public.precision,
            self.problem.ridge,
            public.ridge_center,
            draws,
            self.averaged,
            self.problem.reward_bound,
            self.problem.residual_bound,
            grid,
            self.problem.theta_bound,
            region.center,
            region.matrix,
            region.radius,
            theta,
        )
        if not solved:
            remedy = "ridge must be positive, and the ellipsoid must meet the ball of radius theta_bound"
            raise InvalidInput(f"no estimate: {remedy}")
        return theta
