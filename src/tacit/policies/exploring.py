"""A share of decisions whose arm is drawn at random, so that what others would have chosen can be valued afterwards.

The draw is public and rests on nothing but the number of arms.  It is in no release and costs no privacy.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tacit.policies.steps import Steps
from tacit.typing import FloatArray, IntArray

COINS: Final = 3
"""Coins of a decision: where its propensity goes, whether it explores, and which arm if it does."""


def uniform_arms(arms: int, coins: FloatArray) -> IntArray:
    """Draw an arm for each of N users, uniform over all, by a coin of theirs that is uniform in [0, 1)."""
    return np.minimum((coins * arms).astype(np.int64), arms - 1)


def exploring(steps: Steps, share: float) -> Steps:
    """Return the steps of a policy that draws this share of its arms uniformly from all.

    ``steps`` choose without coins, so that the propensity of an arm is share / K, and 1 - share more for the arm
    that they choose.  Where another arm is drawn they are given that arm alone, and write down what it teaches.
    """

    def choose(state: Any, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
        arms, count = steps.choose(state, contexts, coins[:, :0], memos), contexts.shape[1]
        drawn = uniform_arms(count, coins[:, 2])
        other = np.flatnonzero((coins[:, 1] < share) & (drawn != arms))
        coins[:, 0] = 1.0 - share + share / count
        coins[other, 0] = share / count
        if other.size == 0:
            return arms
        alone, told = contexts[other, drawn[other]][:, np.newaxis], memos[other]
        steps.choose(state, alone, coins[other, :0], told)
        memos[other] = told
        explored = arms.copy()
        explored[other] = drawn[other]
        return explored

    return steps._replace(choose=choose)
