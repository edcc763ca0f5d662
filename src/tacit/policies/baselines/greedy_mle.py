"""`greedy-mle`: the arm that the maximum-likelihood estimate likes best, without any exploration bonus.

It has no regret bound in general, since a fixed arm set can lock it in. On diverse contexts it does well (Bastani,
Bayati and Khosravi, arXiv 1704.09011), so the cost of exploration is measured against this policy.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from tacit._validate import positive
from tacit.glm.rows import RowBuffer, append_rows, make_room, make_rows
from tacit.policies.admission import remember_rows
from tacit.policies.baselines._shared import FitConstants, refit_as_rows_grow, scores, until_refit
from tacit.policies.config import Config, configuration, option
from tacit.policies.policy import Policy
from tacit.policies.steps import Steps
from tacit.typing import Count, FloatArray, IntArray, count


@configuration
class GreedyConfig(Config):
    """Configuration of `greedy-mle`."""

    ridge: float = option("Ridge of the fit.", default=1.0, check=positive)
    growth: float = option(
        "Fraction by which rows grow between fits, whose total cost is then 1 / growth passes.",
        default=0.1,
        check=positive,
    )


class GreedyState(NamedTuple):
    """State of `greedy-mle`: all rows and the estimate of the last fit."""

    rows: RowBuffer
    theta: FloatArray
    fitted: Count
    """Rows at the last fit."""
    unfinished: Count
    """Fits that did not converge; the next one goes on from there."""
    fit: FitConstants


def choose(state: GreedyState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the arm of the largest score for each of N users."""
    arms: IntArray = scores(contexts, state.theta).argmax(axis=1)
    remember_rows(contexts, arms, memos)
    return np.asarray(arms)


def learn(state: GreedyState, memos: FloatArray, rewards: FloatArray) -> None:
    """Keep N rows for the next fit."""
    append_rows(state.rows, memos, rewards, 0)


class GreedyMLE(Policy):
    """Maximum likelihood in the ball of radius theta_bound, refitted whenever the rows grew by a tenth."""

    name: ClassVar[str] = "greedy-mle"
    config_type = GreedyConfig
    config: GreedyConfig
    _steps = Steps(choose, learn, refit_as_rows_grow, make_room, until_refit)

    def _make_state(self) -> GreedyState:
        setting, config = self.setting, self.config
        return GreedyState(
            rows=make_rows(setting.dim),
            theta=np.zeros(setting.dim),
            fitted=count(),
            unfinished=count(),
            fit=FitConstants(setting.link, config.ridge, setting.theta_bound, config.growth),
        )
