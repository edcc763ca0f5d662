"""`greedy-mle`: the arm that the maximum-likelihood estimate likes best, without any exploration bonus.

It has no regret bound in general, since a fixed arm set can lock it in. On diverse contexts it does well (Bastani,
Bayati and Khosravi, arXiv 1704.09011), so the cost of exploration is measured against this policy.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit._validate import positive
from tacit.linalg.solve import dot
from tacit.policies.arms import remember_arm
from tacit.policies.baselines._kernels import FitConstants, refit_as_rows_grow
from tacit.policies.config import Config, configuration, option
from tacit.policies.row_policy import RowBuffer, RowPolicy, append_row, make_rows
from tacit.policies.steps import register_steps
from tacit.typing import Count, FloatArray, count


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
    """All rows and the estimate of the last fit."""

    rows: RowBuffer
    theta: FloatArray
    fitted: Count
    """Rows at the last fit."""
    unfinished: Count
    """Fits that did not converge; the next one goes on from there."""
    fit: FitConstants


@kernel
def _choose(state: GreedyState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    best, arm = -math.inf, 0
    for k in range(contexts.shape[0]):
        score = dot(contexts[k], state.theta)
        if score > best:
            best, arm = score, k
    remember_arm(contexts, arm, memo)
    return arm


@kernel
def _learn(state: GreedyState, memo: FloatArray, reward: float) -> None:
    append_row(state.rows, memo, reward, 0)


register_steps(GreedyState, refit_as_rows_grow, _choose, _learn)


class GreedyMLE(RowPolicy):
    """Maximum likelihood in the ball of radius theta_bound, refitted whenever the rows grew by a tenth."""

    name: ClassVar[str] = "greedy-mle"
    config_type = GreedyConfig
    config: GreedyConfig

    def _make_state(self) -> GreedyState:
        setting, config = self.setting, self.config
        return GreedyState(
            rows=make_rows(setting.dim),
            theta=np.zeros(setting.dim),
            fitted=count(),
            unfinished=count(),
            fit=FitConstants(setting.link.form, config.ridge, setting.theta_bound, config.growth),
        )
