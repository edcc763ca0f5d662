"""Noisy projected gradient descent of the paper's zCDP lemma (lemma:noisy_full_batch_pgd_zcdp)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit._compile import kernel
from tacit._validate import integer_at_least, positive_or_inf, probability
from tacit.errors import InvalidInput
from tacit.estimation.gradient import clipped_gradient_sum
from tacit.estimation.plan import Problem, PublicView, Release, plan_release
from tacit.glm.rows import Rows
from tacit.linalg.projection import project_intersection_metric
from tacit.linalg.vectors import identity
from tacit.privacy.noise import NoiseSource
from tacit.typing import ByteArray, FloatArray


@kernel
def descent_core(
    link: int,
    features: FloatArray,
    rewards: FloatArray,
    count: int,
    mask: ByteArray,
    selected: int,
    ridge: float,
    center: FloatArray,
    noise: FloatArray,
    public_count: float,
    step_size: float,
    reward_bound: float,
    residual_bound: float,
    grid: float,
    ball_radius: float,
    ellipsoid_center: FloatArray,
    ellipsoid_matrix: FloatArray,
    ellipsoid_radius: float,
    theta: FloatArray,
) -> bool:
    """Descend from ``theta``, one step for each row of ``noise``, and overwrite it by the average iterate.

    The sum of gradients is divided by ``public_count``, not by the number of rows, which is private.  False,
    with ``theta`` as it was, when ball and ellipsoid do not meet.
    """
    dim, steps = noise.shape[1], noise.shape[0]
    metric = identity(dim)
    point, gradient, average = theta.copy(), np.empty(dim), np.zeros(dim)
    for step in range(steps + 1):
        if not project_intersection_metric(
            point, ellipsoid_center, ellipsoid_matrix, ellipsoid_radius, ball_radius, metric
        ):
            return False
        if step == steps:
            break  # the lemma averages theta_0 to theta_{T-1}; the last move is not part of it
        for i in range(dim):
            average[i] += point[i] / steps
        clipped_gradient_sum(
            link, features, rewards, count, mask, selected, point, reward_bound, residual_bound, grid, gradient
        )
        for i in range(dim):
            pull = ridge * (point[i] - center[i])
            point[i] -= step_size * (gradient[i] + noise[step, i] + pull) / public_count
    for i in range(dim):
        theta[i] = average[i]
    return True


@dataclass(frozen=True)
class NoisyGradientDescent:
    """``steps`` projected gradient steps of size D / (L sqrt(steps)), averaged, at ``mu``-GDP for the call.

    ``planned`` takes the lemma's number of steps.  ``public_count`` stands for n: a public bound or estimate
    of the number of rows, such as the round counter or the trace of a released matrix.

    Formal guarantee
    ----------------
    Adjacency: one row (features and reward) replaced, by any numbers.  The gradient sums have l2 sensitivity
    2L (or ``problem.sensitivity``, if sharp) and receive N(0, (2L)^2 steps / mu^2 I) each: mu-GDP, or
    rho-zCDP with rho = mu^2 / 2, for the call, which is the lemma's sigma^2 = 2 L^2 T / (n^2 rho) for
    gradients divided by n.  Steps, step size and
    divisor are functions of public numbers only.
    """

    problem: Problem
    mu: float
    public_count: int
    steps: int

    def __post_init__(self) -> None:
        positive_or_inf("mu", self.mu)
        integer_at_least("public_count", self.public_count, 1)
        integer_at_least("steps", self.steps, 1)

    @classmethod
    def planned(
        cls,
        problem: Problem,
        mu: float,
        public_count: int,
        *,
        failure_probability: float = 0.05,
        max_steps: int = 500,
    ) -> NoisyGradientDescent:
        """T = (n^2 rho + log(1 / zeta)) / d, between 1 and ``max_steps`` (the lemma's last display)."""
        positive_or_inf("mu", mu)
        integer_at_least("public_count", public_count, 1)
        probability("failure_probability", failure_probability)
        wanted = (0.5 * (mu * public_count) ** 2 - math.log(failure_probability)) / problem.dim
        cap = integer_at_least("max_steps", max_steps, 1)
        return cls(problem, mu, public_count, cap if wanted >= cap else max(1, math.ceil(wanted)))

    @property
    def step_size(self) -> float:
        """D / (L sqrt(T)): diameter of the ball, Lipschitz constant of the regularised mean loss."""
        diameter = 2.0 * self.problem.theta_bound
        lipschitz = self.problem.residual_bound + self.problem.ridge * diameter / self.public_count
        return diameter / (lipschitz * math.sqrt(self.steps))

    def release(self, noise: NoiseSource, name: str = "optimizer") -> Release:
        """Noise and event of one call."""
        return plan_release(self.problem, self.mu, self.steps, noise, name)

    def run(self, rows: Rows, public: PublicView, draws: FloatArray, grid: float) -> FloatArray:
        """The estimate from noise already drawn."""
        theta, region = public.start.copy(), public.region
        solved = descent_core(
            self.problem.link.code,
            rows.features,
            rows.rewards,
            rows.count,
            rows.mask,
            rows.selected,
            self.problem.ridge,
            public.ridge_center,
            draws,
            float(self.public_count),
            self.step_size,
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
            raise InvalidInput("the ellipsoid must meet the ball of radius theta_bound")
        return theta
