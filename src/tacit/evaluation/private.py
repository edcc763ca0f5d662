"""The value of a fixed, public policy, estimated privately from a randomised experiment.

A user who was given arm a with probability p, and whose reward is r in [0, R], has the weight
w = min(pi(a) / p, c), pi(a) being the probability with which the policy would have chosen a.  Released are

    A = mean of w (r - R / 2)  and  B' = mean of (sqrt(3) / 2) R w,  both with Gaussian noise of the same scale.

The vector of a user lies in an equilateral triangle of side c R, whichever its weight and reward: replacing the user
moves a mean by at most c R / N, and dividing by the sum of weights costs nothing beyond that.  The estimate is
R / 2 + A / B with B = 2 B' / (sqrt(3) R) (docs/theory.md, "Private value of a fixed policy").
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


@dataclass(frozen=True)
class PrivateValue:
    """A released estimate, its interval, and what it cost.

    Parameters
    ----------
    value : float
        The estimated mean reward, in [0, R].
    low, high : float
        An interval that holds the policy's value with the asked confidence, noise included.
    privacy : PrivacyReport
        The ledger with its single entry.

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
) -> PrivateValue:
    """Estimate what a fixed policy earns, with one release that is (epsilon, delta)-differentially private.

    Parameters
    ----------
    trial : Trial
        The experiment; the probabilities with which arms were given must be known by design.
    policy : str or array, shape (d,)
        The name of an arm; ``"uniform"``; or a public parameter theta, which chooses the arm of the largest score.
        One that was learned from this log is not public.
    epsilon, delta : float
        Budget of the release; the number of users is public.
    largest_weight : float, optional
        Where weights are cut, a public constant; needed where probabilities are those of a column.  By default
        the largest weight that there can be.
    confidence : float, default 0.95
        Confidence of the interval.
    randomness : Randomness, optional
        Source of the noise; exact noise from the operating system by default.

    Returns
    -------
    PrivateValue
        The estimate and its interval.

    Formal guarantee
    ----------------
    Adjacency: one line of the log is replaced (features, arm, probability and reward); the number of lines is public.
    The result is (epsilon, delta)-DP: two noisy sums of l2 sensitivity c R, charged as one release
    (docs/theory.md#private-value-of-a-fixed-policy).

    Examples
    --------
    >>> from tacit.evaluation import make_trial, private_value
    >>> from tacit.features import Category, Schema
    >>> log = {"drug": ["A", "B"] * 5_000, "cured": [1, 0, 0, 0] * 2_500}
    >>> trial = make_trial(Schema(arm=[Category("drug", ["A", "B"])]), log, reward="cured", shares="equal")
    >>> private_value(trial, "uniform", epsilon=1.0, delta=1e-6).privacy.target_epsilon
    1.0
    """
    reached, chances = _chances(trial, policy)
    limit = _limit(trial, reached, largest_weight)
    sources = Randomness.make(None, None, private=math.isfinite(epsilon)) if randomness is None else randomness
    source, budget, bound = sources.events, Budget(epsilon, delta), trial.reward_bound
    side = limit * bound
    noise_sd = source.scale_for(side, source.mu_budget(budget), size=_SIZE)
    check_exact_sums(source.grid, trial.size, side)
    ledger = Ledger(budget)
    ledger.charge(source.event("value of a fixed policy", side, noise_sd, size=_SIZE), None)
    weights = _INWARD * np.minimum(chances / trial.shares, limit)
    rows = np.stack([weights * (trial.rewards - 0.5 * bound), _HEIGHT * bound * weights], axis=1)
    exact = rounded_to_grid(rows, source.grid or 0.0).sum(axis=0)
    released = exact + source.gaussian(noise_sd, _SIZE)
    report = ledger.report(model="central", noise=source.describe())
    value, half = _interval(released / trial.size, noise_sd / trial.size, limit, trial, confidence)
    return PrivateValue(value, max(0.0, value - half), min(bound, value + half), report)


def _chances(trial: Trial, policy: object) -> tuple[FloatArray, FloatArray]:
    """The largest probability of each arm under the policy, and that of the arm which each user was given."""
    if isinstance(policy, Policy):
        raise InvalidInput(
            "a policy that learns cannot be evaluated by a private release: what it chooses for one user, and when it "
            "learns, depends on the raw rows of the others. Evaluate a parameter that is public, or use tacit replay "
            "where the result stays with those who may see the log"
        )
    arms = len(trial.arms)
    if isinstance(policy, str):
        if policy != UNIFORM and policy not in trial.names:
            raise InvalidInput(f"policy must be 'uniform', one of {', '.join(trial.names)}, or a parameter theta")
        reached = np.full(arms, 1.0 / arms) if policy == UNIFORM else np.eye(arms)[trial.names.index(policy)]
        return reached, reached[trial.given]
    theta = np.asarray(policy, dtype=np.float64)
    if theta.shape != (trial.schema.dim,) or not np.all(np.isfinite(theta)):
        raise InvalidInput(f"theta must be finite with shape {(trial.schema.dim,)}, got shape {theta.shape}")
    return np.ones(arms), np.where((trial.rows @ theta).argmax(axis=1) == trial.given, 1.0, 0.0)


def _limit(trial: Trial, reached: FloatArray, asked: float | None) -> float:
    """The largest weight: a public constant, never that of the log."""
    if not trial.designed:
        raise InvalidInput(
            "shares that were counted in the log are functions of its rows: a private release needs those of the design"
        )
    if asked is not None:
        return positive("largest_weight", asked)
    if trial.design is None:
        raise InvalidInput("give largest_weight, a public constant: probabilities of a column say nothing public")
    return float(np.max(reached / trial.design))


def _interval(means: FloatArray, sd: float, limit: float, trial: Trial, confidence: float) -> tuple[float, float]:
    """The estimate, and half of its interval: infinite where noise hides how many users match."""
    bound, users = trial.reward_bound, trial.size
    share_sd = sd / (_HEIGHT * bound)
    share = float(means[1]) / (_HEIGHT * bound)
    if share <= 0.0:
        return 0.5 * bound, math.inf
    value = min(max(0.5 * bound + float(means[0]) / share, 0.0), bound)
    sampled = limit * share * value * (bound - value) / users
    noise = sd**2 + ((value - 0.5 * bound) * share_sd) ** 2
    z = float(ndtri(0.5 + 0.5 * probability("confidence", confidence)))
    return value, z * math.sqrt(sampled + noise) / share
