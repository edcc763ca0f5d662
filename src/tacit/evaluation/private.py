"""The value of a fixed, public policy, estimated privately from a randomised experiment.

A user who was given arm a with probability p, and whose reward is r in [0, R], has the weight
w = min(pi(a) / p, c), pi(a) being the probability with which the policy would have chosen a.  Released are

    A = mean of w (r / R - 1 / 2)  and  B' = mean of (sqrt(3) / 2) w,  both with Gaussian noise of the same scale.

The vector of a user lies in an equilateral triangle of side c, whichever its weight and reward: replacing the user
moves a mean by at most c / N, and dividing by the sum of weights costs nothing beyond that.  The estimate is
R (1 / 2 + A / B) with B = 2 B' / sqrt(3) (docs/theory.md, "Private value of a fixed policy").  Everything is in units
of R, so that the grid of exact noise is as fine for large rewards as for small ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit._validate import positive, probability
from tacit.errors import InvalidInput
from tacit.evaluation.trials import Trial
from tacit.linalg.packing import rounded_to_grid
from tacit.policies.policy import Policy
from tacit.privacy import Budget, Ledger, Randomness
from tacit.privacy.continual import check_exact_sums
from tacit.privacy.report import PrivacyReport
from tacit.typing import FloatArray

UNIFORM: Final = "uniform"
_SIZE: Final = 2
_HEIGHT: Final = math.sqrt(3.0) / 2.0
"""Height of an equilateral triangle of side 1."""
_INWARD: Final = 1.0 - 2.0**-48
"""Rows are shortened by more than their products are rounded, so that none lies outside of the triangle."""
_ROUNDING: Final = 1e-12
"""What is added to an interval, in units of R, for the rounding of its ends."""


@dataclass(frozen=True)
class PrivateValue:
    """A released estimate, its interval, and what it cost.

    Parameters
    ----------
    value : float
        The estimated mean reward, in [0, R].
    low, high : float
        An interval for the mean reward of users by their cut weights, with the asked confidence, noise included.  That
        is the policy's value where no weight can be above the largest one by design.
    privacy : PrivacyReport
        The ledger after this release.

    Examples
    --------
    >>> from tacit.evaluation import make_trial, private_value
    >>> from tacit.features import Category, Schema
    >>> schema = Schema(arm=[Category("drug", ["A", "B"])])
    >>> log = {"drug": ["A", "B"] * 5_000, "cured": [1, 0, 0, 0] * 2_500}
    >>> found = private_value(make_trial(schema, log, reward="cured", shares="equal"), "A", epsilon=1.0, delta=1e-6)
    >>> found.low < 0.5 < found.high
    True
    """

    value: float
    low: float
    high: float
    privacy: PrivacyReport


def private_value(
    trial: Trial,
    policy: str | npt.ArrayLike,
    *,
    epsilon: float,
    delta: float,
    largest_weight: float | None = None,
    confidence: float = 0.95,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> PrivateValue:
    """Estimate what a fixed policy earns, with one release that is (epsilon, delta)-differentially private.

    Parameters
    ----------
    trial : Trial
        The experiment; the probabilities with which arms were given must be known by design, and may depend on
        nothing but the features of the line.
    policy : str or array, shape (d,)
        The name of an arm; ``"uniform"``; or a public parameter theta, which chooses the arm of the largest score.
        One that was learned from this log is not public.
    epsilon, delta : float
        Budget of this release; the number of users is public.
    largest_weight : float, optional
        Where weights are cut, a public constant; needed where probabilities are those of a column.  Users whose weight
        is cut count less, and the report says so.  By default the largest weight that there can be.
    confidence : float, default 0.95
        Confidence of the interval.
    randomness : Randomness, optional
        Source of the noise; exact noise from the operating system by default.
    ledger : Ledger, optional
        What this release is charged to, with the ``rounds_per_user`` of its budget: several values of the same log
        share one.  By default a ledger of its own, with room for this release alone.

    Returns
    -------
    PrivateValue
        The estimate and its interval.

    Formal guarantee
    ----------------
    Adjacency: one line of the log is replaced (features, arm, probability and reward); the number of lines is public.
    The result is (epsilon, delta)-DP: two noisy sums of l2 sensitivity c in units of R, charged as one release.
    Rewards and weights are clipped to their ranges (docs/theory.md#private-value-of-a-fixed-policy).  Where the
    probability of a line depended on earlier lines, replacing a user replaces more than one line: not covered.

    Examples
    --------
    >>> from tacit.evaluation import make_trial, private_value
    >>> from tacit.features import Category, Schema
    >>> log = {"drug": ["A", "B"] * 5_000, "cured": [1, 0, 0, 0] * 2_500}
    >>> trial = make_trial(Schema(arm=[Category("drug", ["A", "B"])]), log, reward="cured", shares="equal")
    >>> private_value(trial, "uniform", epsilon=1.0, delta=1e-6).privacy.target_epsilon
    1.0
    """
    if not isinstance(ledger, Ledger | None):
        raise InvalidInput(f"ledger must be a Ledger, got {type(ledger).__name__}")
    budget = Budget(epsilon, delta, 1 if ledger is None else ledger.budget.rounds_per_user)
    deviations = float(ndtri(0.5 + 0.5 * probability("confidence", confidence)))
    reached, chances = _chances(trial, policy)
    limit, warnings = _limit(trial, reached, largest_weight)
    sources = Randomness.make(None, None, private=not budget.unlimited) if randomness is None else randomness
    source, charged = sources.events, Ledger(budget) if ledger is None else ledger
    noise_sd = source.scale_for(limit, source.mu_budget(budget), size=_SIZE)
    check_exact_sums(source.grid, trial.size, limit)
    exact = rounded_to_grid(contributions(trial, chances, limit), source.grid or 0.0).sum(axis=0)
    # All that can refuse has been asked: what is charged is drawn.
    charged.charge(source.event("value of a fixed policy", limit, noise_sd, size=_SIZE), None)
    means = (exact + source.gaussian(noise_sd, _SIZE)) / trial.size
    value, low, high = trial.reward_bound * _interval(means, noise_sd / trial.size, deviations, limit / trial.size)
    report = charged.report(model="central", noise=source.describe(), warnings=warnings)
    return PrivateValue(float(value), float(low), float(high), report)


def contributions(trial: Trial, chances: FloatArray, limit: float) -> FloatArray:
    """What each user adds to the two sums: a point of the triangle of side ``limit``, whatever the trial holds."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        weights = _INWARD * np.clip(np.nan_to_num(chances / trial.shares), 0.0, limit)
        rewards = np.clip(np.nan_to_num(trial.rewards / trial.reward_bound), 0.0, 1.0)
    return np.stack([weights * (rewards - 0.5), _HEIGHT * weights], axis=1)


def _chances(trial: Trial, policy: object) -> tuple[FloatArray, FloatArray]:
    """The largest probability of each arm under the policy, and that of the arm which each user was given."""
    if isinstance(policy, Policy):
        raise InvalidInput(
            "a policy that learns cannot be evaluated by a private release: what it chooses for one user, and when it "
            "learns, depends on the raw rows of the others. Evaluate a parameter that is public, or use tacit replay "
            "where the result stays with those who may see the log"
        )
    arms, shape = len(trial.arms), (trial.schema.dim,)
    if isinstance(policy, str) and (policy == UNIFORM) != (policy in trial.names):
        reached = np.full(arms, 1.0 / arms) if policy == UNIFORM else np.eye(arms)[trial.names.index(policy)]
        return reached, reached[trial.given]
    try:
        theta = np.asarray(policy, dtype=np.float64)
    except (TypeError, ValueError):
        theta = np.empty(0)
    if theta.shape != shape or not np.all(np.isfinite(theta)):
        raise InvalidInput(
            f"policy must be 'uniform', one of {', '.join(trial.names)}, or a finite parameter theta of shape {shape}, "
            f"not {policy!r}; no arm may be called 'uniform'"
        )
    return np.ones(arms), np.where((trial.rows @ theta).argmax(axis=1) == trial.given, 1.0, 0.0)


def _limit(trial: Trial, reached: FloatArray, asked: float | None) -> tuple[float, tuple[str, ...]]:
    """The largest weight, a public constant and never that of the log; and a warning where it may cut some."""
    if not trial.designed:
        raise InvalidInput(
            "shares that were counted in the log are functions of its rows: a private release needs those of the design"
        )
    if asked is None and trial.design is None:
        raise InvalidInput("give largest_weight, a public constant: probabilities of a column say nothing public")
    needed = math.inf if trial.design is None else float(np.max(reached / trial.design))
    limit = positive("largest_weight", needed if asked is None else asked)
    warning = (
        f"weights are cut at {limit:g}, and users whose weight is cut count less: the interval holds the value of the "
        "policy only if no weight can be larger by design"
    )
    return limit, () if limit >= needed else (warning,)


def _interval(means: FloatArray, sd: float, deviations: float, limit: float) -> FloatArray:
    """The estimate in units of R, and the values that are not rejected: all where noise hides how many users match.

    A value 1/2 + u is rejected where A - u B is more than ``deviations`` of its standard deviations from 0.  That is
    a quadratic inequality for u, as in Fieller (1954); ``sd`` and ``limit`` are those of means.
    """
    first, share, share_sd = float(means[0]), float(means[1]) / _HEIGHT, sd / _HEIGHT
    sampled = deviations**2 * limit * max(share, 0.0)
    square = share**2 + sampled - (deviations * share_sd) ** 2
    root = (first * share) ** 2 - square * (first**2 - 0.25 * sampled - (deviations * sd) ** 2)
    low, high = 0.0, 1.0
    if share > 0.0 and square > 0.0 and root >= 0.0:
        middle, half = 0.5 + first * share / square, math.sqrt(root) / square + _ROUNDING
        if middle - half <= 1.0 and middle + half >= 0.0:
            low, high = max(low, middle - half), min(high, middle + half)
    value = 0.5 + first / share if share > 0.0 else 0.5
    return np.array([min(max(value, low), high), low, high])
