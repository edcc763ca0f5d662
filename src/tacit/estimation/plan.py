"""What all private optimizers share: the regression, the release they plan, and `estimate`, which runs them.

An optimizer is a frozen plan.  From its parameters alone come the number of noisy gradients, their noise and
the ledger event, so that noise and accounting cannot drift apart; data, randomness and what is already public
are arguments of the call.

The gradient sum has its sensitivity for every input, in exact arithmetic.  Each row's gradient (mu(z) - r) x is bounded
by clipping, cut to a fixed-point grid towards 0, and summed as integers.  Cutting never lengthens a vector and integer
sums are the same in every order, so that replacing one row moves the sum by at most twice the bound as computed, not
only on paper: rounding and summation order cannot understate the sensitivity (Casacuberta et al., arXiv 2207.10635).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit._validate import nonnegative, positive
from tacit.errors import InvalidInput
from tacit.estimation.sensitivity import gradient_diameter, largest_residual
from tacit.glm.links import Link
from tacit.glm.rows import ALL_ROWS, Selection
from tacit.linalg.projection import Ellipsoid, Region, unbounded
from tacit.privacy.events import NoisySum
from tacit.privacy.noise import NoiseSource
from tacit.threads import one_blas_thread
from tacit.typing import FloatArray

_MARGIN = 1.0 - 2.0**-36
"""Room for the rounding of norms and products, up to dimension 2^15."""
_GRID_BITS = 32

Publish = Callable[[FloatArray, FloatArray, float], FloatArray]
"""Makes an exact sum public with its noise, whose standard deviation it is told.

What follows may use the result, and nothing else that depends on data.
"""


def add_noise(exact: FloatArray, noise: FloatArray, noise_sd: float) -> FloatArray:
    """The exact sum plus its noise.  Exact noise and sum are multiples of one grid, and so is the result."""
    return exact + noise


@dataclass(frozen=True)
class Regression:
    """Public constants of a regression: sum of losses + ``ridge / 2 ||theta - center||^2`` over a ball.

    Parameters
    ----------
    link : Link
        Link of the losses.
    dim : int
        d: length of a feature vector.
    theta_bound : float
        S: radius of the ball that theta is sought in.
    reward_bound : float, default 1
        R: rewards are clipped to [0, R].
    ridge : float, default 1
        Not negative; `NoisyNewton` needs it positive unless the released matrix is positive definite.
    sharp : bool, default False
        Charge the diameter of the set of gradients.

    Examples
    --------
    >>> from tacit.estimation import Regression
    >>> from tacit.glm.links import get_link
    >>> problem = Regression(get_link("logistic"), dim=2, theta_bound=1.0)
    >>> problem.sensitivity, problem.moving_sensitivity
    (2.0, 1.0)
    """

    link: Link
    dim: int
    theta_bound: float
    reward_bound: float = 1.0
    ridge: float = 1.0
    sharp: bool = False
    """Charge the diameter of the set of gradients in the ball instead of twice the residual bound."""

    def __post_init__(self) -> None:
        positive("theta_bound", self.theta_bound)
        positive("reward_bound", self.reward_bound)
        nonnegative("ridge", self.ridge)

    @property
    def residual_bound(self) -> float:
        """Bound on the gradient of one row: features in the unit ball, scores in [-S, S]."""
        return self.link.residual_bound(self.theta_bound, self.reward_bound)

    @property
    def sensitivity(self) -> float:
        """l2 change of the gradient sum, in real arithmetic, for theta in the ball and one row replaced."""
        if self.sharp:
            return gradient_diameter(self.link, self.theta_bound, self.reward_bound)
        return 2.0 * self.residual_bound

    @property
    def moving_sensitivity(self) -> float:
        """l2 norm of one row's gradient: the change when a row enters or leaves the selected rows."""
        if self.sharp:
            return largest_residual(self.link, self.theta_bound, self.reward_bound)
        return self.residual_bound


@dataclass(frozen=True)
class PublicView:
    """What is public when a call begins: a warm start, a released matrix, and where theta is sought.

    ``precision`` approximates the Hessian sum mu'(z) x x' and may be indefinite from noise.  Everything here
    must come from earlier releases or constants: the optimizers add no noise on its account.

    Parameters
    ----------
    start : array_like, shape (d,)
        First iterate.
    precision : array_like, shape (d, d), optional
        Released matrix that preconditions the steps; `NoisyNewton` needs it.
    center : array_like, shape (d,), optional
        Point that the ridge pulls theta to; 0 by default.
    ellipsoid : Ellipsoid, optional
        Theta is sought in it as well as in the ball; unbounded by default.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.estimation import PublicView
    >>> PublicView(start=np.zeros(2)).ridge_center.tolist()
    [0.0, 0.0]
    """

    start: FloatArray
    precision: FloatArray | None = None
    center: FloatArray | None = None
    ellipsoid: Ellipsoid | None = None

    def __post_init__(self) -> None:
        dim = np.shape(self.start)[0]
        for name, shape in (("start", (dim,)), ("precision", (dim, dim)), ("center", (dim,))):
            if getattr(self, name) is not None:
                array = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
                if array.shape != shape or not np.all(np.isfinite(array)):
                    raise InvalidInput(f"{name} must be finite with shape {shape}, got shape {array.shape}")
                object.__setattr__(self, name, array)

    @property
    def ridge_center(self) -> FloatArray:
        """The point that the ridge pulls theta to; 0 by default."""
        return np.zeros_like(self.start) if self.center is None else self.center

    def nearest(self, point: FloatArray, theta_bound: float, metric: FloatArray) -> FloatArray:
        """Find the point of ball and ellipsoid that is nearest to ``point`` in the norm of ``metric``.

        Parameters
        ----------
        point : ndarray, shape (d,)
            Any point.
        theta_bound : float
            Radius of the ball.
        metric : ndarray, shape (d, d)
            Positive definite matrix of the norm.

        Returns
        -------
        ndarray
            The nearest point.
        """
        ellipsoid = unbounded(point.shape[0]) if self.ellipsoid is None else self.ellipsoid
        return Region(theta_bound, ellipsoid).nearest(point, metric)


@dataclass(frozen=True)
class Release:
    """Noise of every step and the ledger event of the whole call, for one noise source.

    Parameters
    ----------
    noise_sd : float
        Standard deviation of each coordinate of a noisy gradient sum.
    grid : float
        Spacing of the fixed-point grid of gradients.
    event : GaussianRelease or DiscreteGaussianRelease
        What the ledger is charged with.
    """

    noise_sd: float
    grid: float
    event: NoisySum


class PrivateOptimizer(Protocol):
    """A plan that turns noise and rows into an estimate."""

    @property
    def problem(self) -> Regression:
        """The regression to solve."""

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter of one call; infinite without noise."""

    @property
    def steps(self) -> int:
        """Noisy gradients of one call."""

    def release(self, noise: NoiseSource, name: str) -> Release:
        """Work out what one call draws and spends with this source of noise.

        Parameters
        ----------
        noise : NoiseSource
            Source of the noise.
        name : str
            Name of the call in the ledger.

        Returns
        -------
        Release
            Standard deviation of the noise, grid and ledger event.
        """

    def run(
        self, rows: Selection, public: PublicView, release: Release, draws: FloatArray, publish: Publish = add_noise
    ) -> FloatArray:
        """Compute the estimate, a pure function of rows, public view and noise already drawn.

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
            The estimate, shape (dim,).
        """


def gradient_grid(residual_bound: float, noise_grid: float | None) -> float:
    """Spacing of the fixed-point grid, a power of two: the noise source's own, or fine against the bound.

    Integer sums stay below 2^63 for 2^30 rows.
    """
    if noise_grid is None:
        return float(2.0 ** (math.ceil(math.log2(residual_bound)) - _GRID_BITS))
    if residual_bound > noise_grid * 2.0**_GRID_BITS:
        finest = residual_bound * 2.0**-_GRID_BITS
        raise InvalidInput(f"the noise source's grid must be at least {finest:g}, got {noise_grid:g}")
    return noise_grid


def clipped_gradient_sum(
    link: Link, selection: Selection, theta: FloatArray, reward_bound: float, residual_bound: float, grid: float
) -> FloatArray:
    """Sum of (mu(z) - r) x over the selected rows, each of norm at most ``residual_bound``.

    Features are scaled into the unit ball, rewards clipped to [0, R], rows that are not finite count as 0.

    Formal guarantee
    ----------------
    Adjacency: one row replaced, by any numbers, NaN and infinities included.  l2 sensitivity
    ``2 * residual_bound``; ``residual_bound`` for a row that enters or leaves the selection; and, for theta
    in the S-ball, what ``tacit.estimation.sensitivity`` derives (docs/theory.md#gradient-diameter), plus the
    grid.  Every row is worked through, selected or not, so that neither running time nor memory access shows the mask.
    """
    buffer, mark = selection
    held = int(buffer.held[()])
    features, rewards, mask = buffer.features[:held], buffer.rewards[:held], buffer.mask[:held]
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.vecdot(features, features)
    counts = np.isfinite(squared) & np.isfinite(rewards) & ((mask == mark) | (mark == ALL_ROWS))
    x = np.where(counts[:, np.newaxis], features, 0.0)
    shrink = 1.0 / np.sqrt(np.where(counts, np.maximum(squared, 1.0), 1.0))
    # Row by row, not as a product of matrices, in which a row's score depends on where it stands.
    scores = shrink * np.vecdot(x, theta)
    residuals = link.mean(scores) - np.clip(np.where(counts, rewards, 0.0), 0.0, reward_bound)
    factors = _MARGIN * shrink * np.clip(residuals, -residual_bound, residual_bound) / grid
    steps = (factors[:, np.newaxis] * x).astype(np.int64)  # cuts towards 0
    return np.asarray(steps.sum(axis=0) * grid)


def plan_gradients(problem: Regression, mu: float, steps: int, noise: NoiseSource, name: str) -> Release:
    """``steps`` Gaussian releases of the gradient sum that together are ``mu``-GDP.

    Formal guarantee
    ----------------
    Adjacency: one row replaced.  Each release has sensitivity D and standard deviation D sqrt(steps) / mu,
    hence is (mu / sqrt(steps))-GDP; adaptive composition adds squares (arXiv 1905.02383, Corollary 3.3).  A
    row that only enters or leaves the selected rows costs less.  Cutting to the grid shortens each gradient,
    which twice the bound covers as it is; the diameter needs room for both rows' cuts
    (docs/theory.md#gradient-diameter).
    """
    grid = gradient_grid(problem.residual_bound, noise.grid)
    cuts = 2.0 * math.sqrt(problem.dim) * grid if problem.sharp else 0.0
    sensitivity = problem.sensitivity + cuts
    noise_sd = noise.scale_for(sensitivity, mu / math.sqrt(steps), size=problem.dim)
    event = noise.event(
        name,
        sensitivity,
        noise_sd,
        size=problem.dim,
        count=steps,
        moving_sensitivity=max(problem.moving_sensitivity, 0.5 * sensitivity),
    )
    return Release(noise_sd, grid, event)


def gradient_sum(problem: Regression, rows: Selection, theta: FloatArray, grid: float) -> FloatArray:
    """The exact gradient sum at a public ``theta``, before its noise."""
    bounds = problem.reward_bound, problem.residual_bound
    return clipped_gradient_sum(problem.link, rows, theta, *bounds, grid)


def estimate(
    optimizer: PrivateOptimizer,
    rows: Selection,
    public: PublicView,
    *,
    charge: Callable[[NoisySum], object],
    noise: NoiseSource,
    name: str = "optimizer",
    publish: Publish = add_noise,
) -> FloatArray:
    """Charge, draw the noise, run: in this order, so that a refusal leaves nothing drawn and nothing released.

    Parameters
    ----------
    optimizer : PrivateOptimizer
        The plan, such as `NoisyNewton`.
    rows : Selection
        Data rows of d features, with rewards.
    public : PublicView
        What is public before the call.
    charge : callable
        Takes the event of the call to the ledger, such as ``ledger.charge``, and raises where the budget does not
        allow it; a caller for whom several calls share an entry charges that.
    noise : NoiseSource
        Source of the noise.
    name : str, default "optimizer"
        Name of the release in the report.
    publish : callable, optional
        Makes an exact gradient sum public with its noise; adds them by default.

    Returns
    -------
    ndarray, shape (d,)
        The estimate of theta.

    Raises
    ------
    InvalidInput
        When rows or ``public.start`` do not have the dimension of the regression.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.estimation import NoisyNewton, PublicView, Regression, estimate
    >>> from tacit.glm.links import get_link
    >>> from tacit.glm.rows import ALL_ROWS, Selection, rows_of
    >>> from tacit.privacy import Budget, Ledger, make_noise
    >>> rng = np.random.default_rng(0)
    >>> x = rng.choice([-0.7, 0.7], size=(2000, 2))
    >>> rows = rows_of(x, rng.random(2000) < get_link("logistic").mean(x @ [0.5, -0.5]))
    >>> ledger = Ledger(Budget(epsilon=1.0, delta=1e-6))
    >>> theta = estimate(
    ...     NoisyNewton(Regression(get_link("logistic"), dim=2, theta_bound=1.0), mu=0.2),
    ...     Selection(rows, ALL_ROWS),
    ...     PublicView(start=np.zeros(2), precision=250.0 * np.eye(2)),
    ...     charge=ledger.charge,
    ...     noise=make_noise("fast", seed=0),
    ... )
    >>> theta.shape, round(ledger.mu_spent, 6)
    ((2,), 0.2)
    """
    problem = optimizer.problem
    if rows.rows.features.shape[1] != problem.dim or public.start.shape != (problem.dim,):
        found = f"{rows.rows.features.shape[1]} and {public.start.shape[0]}"
        raise InvalidInput(f"rows and start must have dimension {problem.dim}, got {found}")
    release = optimizer.release(noise, name)
    charge(release.event)
    draws = noise.gaussian(release.noise_sd, (optimizer.steps, problem.dim))
    with one_blas_thread(problem.dim):
        return optimizer.run(rows, public, release, draws, publish)
