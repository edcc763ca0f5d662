"""What the log of an experiment says against the probabilities that came with it."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.stats import binomtest, norm

from tacit.evaluation.trials import Trial

_DEVIATIONS: Final = 4.0
"""Standard errors from which on a deviation is told: by chance one log in 16,000."""
_FAR: Final = 4.0
"""Ratio by which a pass may have fewer lines to learn from than equal chances would give it."""


def doubts(trial: Trial) -> tuple[str, ...]:
    """Return what is doubtful about the probabilities of a log, in sentences; a function of raw rows.

    Counts of arms are compared with stated shares, and the mean of 1 / p with the number of arms, which it is near if
    every user could have been given every arm.  Counted shares agree with the log by construction.

    Parameters
    ----------
    trial : Trial
        The log.

    Returns
    -------
    tuple of str
        Nothing where there is no doubt.

    Examples
    --------
    >>> from tacit.evaluation import doubts, make_trial
    >>> from tacit.features import Category, Schema
    >>> log = {"drug": ["A"] * 90 + ["B"] * 10, "cured": [1, 0] * 50}
    >>> doubts(make_trial(Schema(arm=[Category("drug", ["A", "B"])]), log, reward="cured", shares="equal"))
    ('A was given to 90 of 100 users, and has the share 0.5: shares are wrong, or arms were not given by chance.',)
    """
    found, users, arms, least = [], trial.size, len(trial.arms), float(trial.shares.min())
    if _FAR * least * arms < 1.0:
        found.append(
            f"Policies learn from about {users * least:,.0f} lines, and would from {users / arms:,.0f} if arms had "
            f"equal chances: lines are kept by the smallest probability of the log, {least:.3g}."
        )
    inverse = 1.0 / trial.shares
    error = max(float(inverse.std()) / math.sqrt(users), 1e-9)
    if trial.design is not None:
        found += _wrong_shares(trial, trial.design.tolist())
    elif trial.designed and abs(float(inverse.mean()) - arms) > _DEVIATIONS * error:
        found.append(
            f"The mean of 1 / p is {inverse.mean():.3g}, and should be near {arms}, the number of arms: probabilities "
            "are wrong, or not every user could be given every arm."
        )
    return tuple(found)


def _wrong_shares(trial: Trial, shares: list[float]) -> list[str]:
    """The arm whose count is least likely by its share, by an exact test, if that is unlikely for any of the arms."""
    counts = np.bincount(trial.given, minlength=len(shares)).tolist()
    chance, worst = min((binomtest(count, trial.size, shares[arm]).pvalue, arm) for arm, count in enumerate(counts))
    if chance * len(shares) >= 2.0 * norm.sf(_DEVIATIONS):
        return []
    given = f"{trial.names[worst]} was given to {counts[worst]:,} of {trial.size:,} users"
    return [f"{given}, and has the share {shares[worst]:.3g}: shares are wrong, or arms were not given by chance."]
