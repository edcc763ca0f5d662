"""Noisy projected gradient descent of the paper's zCDP lemma (lemma:noisy_full_batch_pgd_zcdp)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit._validate import integer_at_least, positive_or_inf, probability
from tacit.estimation.plan import (
    PublicView,
    Publish,
    Regression,
    Release,
    add_noise,
    gradient_sum,
    plan_gradients,
)
from tacit.glm.rows import Selection
from tacit.privacy.noise import NoiseSource
from tacit.typing import FloatArray

MAX_STEPS = 500
"""Most noisy gradients of one call."""


def descent_step(released: FloatArray, ridge: float, center: FloatArray, rate: float, point: FloatArray) -> FloatArray:
    """``point`` moved against the released gradient sum, to which the public ridge's pull is added."""
    return np.asarray(point - rate * (released + ridge * (point - center)))


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
    gradients divided by n.  Steps, step size and divisor are functions of public numbers only
    (docs/theory.md#two-optimizers-one-charge).
    """

    problem: Regression
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
        problem: Regression,
        mu: float,
        public_count: int,
        *,
        failure_probability: float = 0.05,
        max_steps: int = MAX_STEPS,
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
        return plan_gradients(self.problem, self.mu, self.steps, noise, name)

    def run(
        self, rows: Selection, public: PublicView, release: Release, draws: FloatArray, publish: Publish = add_noise
    ) -> FloatArray:
        """The estimate from noise already drawn: the average of theta_0 to theta_{T-1}, as in the lemma."""
        problem, metric = self.problem, np.eye(self.problem.dim)
        # Divided by a public count, not by the number of rows, which is private.
        rate = self.step_size / self.public_count
        average = np.zeros(problem.dim)
        point = public.nearest(public.start, problem.theta_bound, metric)
        for step in range(self.steps):
            average += point / self.steps
            released = publish(gradient_sum(problem, rows, point, release.grid), draws[step], release.noise_sd)
            moved = descent_step(released, problem.ridge, public.ridge_center, rate, point)
            point = public.nearest(moved, problem.theta_bound, metric)
        return average
