"""The private optimizers: noisy Newton, and the paper's noisy projected gradient descent.

`NoisyNewton` needs few gradient releases, preconditioned by a matrix that is public already.  `NoisyGradientDescent` is
that of the paper's zCDP lemma (lemma:noisy_full_batch_pgd_zcdp).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit._validate import integer_at_least, positive_or_inf, probability
from tacit.errors import InvalidInput
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
from tacit.linalg.ball import into_ball
from tacit.privacy.noise import NoiseSource
from tacit.typing import FloatArray

MAX_STEPS = 500
"""Most noisy gradients of one call."""


def positive_precision(precision: FloatArray, ridge: float) -> tuple[FloatArray, FloatArray]:
    """The released matrix with negative eigenvalues cut to 0, plus ``ridge`` times the identity; and its inverse."""
    values, basis = np.linalg.eigh(precision)
    values = np.maximum(values, 0.0) + ridge
    if not values[0] > 0.0:
        raise InvalidInput("no estimate: ridge must be positive")
    return (basis * values) @ basis.T, (basis / values) @ basis.T


def newton_step(
    released: FloatArray, ridge: float, center: FloatArray, inverse: FloatArray, point: FloatArray
) -> FloatArray:
    """``point`` moved by the Newton step of the released gradient; ``inverse`` is that of the preconditioner.

    ``released`` is the gradient sum with its noise, and the only input that depends on data: the ridge's pull is added
    to it, never to the noise alone (docs/theory.md, "Exact noise").
    """
    return np.asarray(point - inverse @ (released + ridge * (point - center)))


@dataclass(frozen=True)
class NoisyNewton:
    """``steps`` Newton steps, each on a freshly released gradient sum, at ``mu``-GDP for the call.

    The estimate is the mean of the last ``averaged`` iterates (of all, if there are fewer).  Near the optimum
    each of them carries the independent noise of its own step, so that averaging wins back what splitting the
    budget cost: the first steps remove the error of linearising, the last ones share the noise.

    Parameters
    ----------
    problem : Regression
        The regression to solve.
    mu : float
        Gaussian-DP parameter of one call; infinity for no noise.
    steps : int, default 3
        Newton steps of one call.
    averaged : int, default 2
        Number of last iterates whose mean is the estimate.

    Formal guarantee
    ----------------
    Adjacency: one row (features and reward) replaced, by any numbers.  The gradient sums have l2 sensitivity
    D = ``problem.sensitivity`` (``clipped_gradient_sum``) wherever in the ball they are asked for, and
    receive N(0, D^2 steps / mu^2 I) each: the call is mu-GDP (``plan_gradients``).  Start, preconditioner,
    ridge center and ellipsoid must be public; the number of steps is a constant
    (docs/theory.md#two-optimizers-one-charge).

    Examples
    --------
    >>> from tacit.estimation import NoisyNewton, Regression
    >>> from tacit.glm.links import get_link
    >>> from tacit.privacy import make_noise
    >>> optimizer = NoisyNewton(Regression(get_link("logistic"), dim=2, theta_bound=1.0), mu=0.2, steps=4)
    >>> release = optimizer.release(make_noise("fast", seed=0))
    >>> release.noise_sd, release.event.count, round(release.event.mu, 6)
    (20.0, 4, 0.2)
    """

    problem: Regression
    mu: float
    steps: int = 3
    averaged: int = 2

    def __post_init__(self) -> None:
        positive_or_inf("mu", self.mu)
        integer_at_least("steps", self.steps, 1)
        integer_at_least("averaged", self.averaged, 1)

    def release(self, noise: NoiseSource, name: str = "optimizer") -> Release:
        """Work out what one call draws and spends with this source of noise.

        Parameters
        ----------
        noise : NoiseSource
            Source of the noise.
        name : str, default "optimizer"
            Name of the call in the ledger.

        Returns
        -------
        Release
            Standard deviation of the noise, grid and ledger event.
        """
        return plan_gradients(self.problem, self.mu, self.steps, noise, name)

    def run(
        self, rows: Selection, public: PublicView, release: Release, draws: FloatArray, publish: Publish = add_noise
    ) -> FloatArray:
        """Compute the estimate from noise already drawn.

        Parameters
        ----------
        rows : Selection
            The rows, secret, and which of them count.
        public : PublicView
            What is public: first iterate, preconditioner, center of the ridge, ellipsoid.
        release : Release
            What `release` gave.
        draws : ndarray, shape (steps, dim)
            Noise of every step, its scale included.
        publish : callable, optional
            Makes the released sum from a sum, its noise and the noise's standard deviation; adds them by default.

        Returns
        -------
        ndarray
            The estimate, shape (dim,): the mean of the last ``averaged`` iterates.
        """
        if public.precision is None:
            raise InvalidInput("precision must be given: the released matrix that preconditions the steps")
        problem, kept = self.problem, min(self.averaged, self.steps)
        metric, inverse = positive_precision(public.precision, problem.ridge)
        average = np.zeros(problem.dim)
        point = into_ball(public.start, problem.theta_bound)
        for step in range(self.steps):
            released = publish(gradient_sum(problem, rows, point, release.grid), draws[step], release.noise_sd)
            moved = newton_step(released, problem.ridge, public.ridge_center, inverse, point)
            # The minimum of the noisy quadratic model over ball and ellipsoid: scores stay in [-S, S], where no
            # residual is clipped.
            point = public.nearest(moved, problem.theta_bound, metric)
            if step >= self.steps - kept:
                average += point / kept
        return average


def descent_step(released: FloatArray, ridge: float, center: FloatArray, rate: float, point: FloatArray) -> FloatArray:
    """``point`` moved against the released gradient sum, to which the public ridge's pull is added."""
    return np.asarray(point - rate * (released + ridge * (point - center)))


@dataclass(frozen=True)
class NoisyGradientDescent:
    """``steps`` projected gradient steps of size D / (L sqrt(steps)), averaged, at ``mu``-GDP for the call.

    ``planned`` takes the lemma's number of steps.  ``public_count`` stands for n: a public bound or estimate
    of the number of rows, such as the round counter or the trace of a released matrix.

    Parameters
    ----------
    problem : Regression
        The regression to solve.
    mu : float
        Gaussian-DP parameter of one call; infinity for no noise.
    public_count : int
        Public stand-in for the number of rows.
    steps : int
        Gradient steps of one call.

    Formal guarantee
    ----------------
    Adjacency: one row (features and reward) replaced, by any numbers.  The gradient sums have l2 sensitivity
    2L (or ``problem.sensitivity``, if sharp) and receive N(0, (2L)^2 steps / mu^2 I) each: mu-GDP, or
    rho-zCDP with rho = mu^2 / 2, for the call, which is the lemma's sigma^2 = 2 L^2 T / (n^2 rho) for
    gradients divided by n.  Steps, step size and divisor are functions of public numbers only
    (docs/theory.md#two-optimizers-one-charge).

    Examples
    --------
    >>> from tacit.estimation import NoisyGradientDescent, Regression
    >>> from tacit.glm.links import get_link
    >>> problem = Regression(get_link("logistic"), dim=2, theta_bound=1.0)
    >>> NoisyGradientDescent.planned(problem, mu=0.2, public_count=100).steps
    102
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
        """Return a plan of T = (n^2 rho + log(1 / zeta)) / d steps (the lemma's last display).

        Parameters
        ----------
        problem : Regression
            The regression to solve.
        mu : float
            Gaussian-DP parameter of one call; infinity for no noise.
        public_count : int
            n.
        failure_probability : float, default 0.05
            zeta, strictly between 0 and 1.
        max_steps : int, default 500
            Bound on T, which is at least 1.

        Returns
        -------
        NoisyGradientDescent
            The plan.
        """
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
        """Work out what one call draws and spends with this source of noise.

        Parameters
        ----------
        noise : NoiseSource
            Source of the noise.
        name : str, default "optimizer"
            Name of the call in the ledger.

        Returns
        -------
        Release
            Standard deviation of the noise, grid and ledger event.
        """
        return plan_gradients(self.problem, self.mu, self.steps, noise, name)

    def run(
        self, rows: Selection, public: PublicView, release: Release, draws: FloatArray, publish: Publish = add_noise
    ) -> FloatArray:
        """Compute the estimate from noise already drawn.

        Parameters
        ----------
        rows : Selection
            The rows, secret, and which of them count.
        public : PublicView
            What is public: first iterate, preconditioner, center of the ridge, ellipsoid.
        release : Release
            What `release` gave.
        draws : ndarray, shape (steps, dim)
            Noise of every step, its scale included.
        publish : callable, optional
            Makes the released sum from a sum, its noise and the noise's standard deviation; adds them by default.

        Returns
        -------
        ndarray
            The estimate, shape (dim,): the average of theta_0 to theta_{T-1}, as in the lemma.
        """
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
