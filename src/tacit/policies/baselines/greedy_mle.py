"""`greedy-mle`: the arm that the maximum-likelihood estimate likes best, without any exploration bonus.

No paper claims regret for it in general (a fixed arm set can lock it in), yet on diverse contexts little beats
it (Bastani, Bayati and Khosravi, arXiv 1704.09011): what exploration costs is measured against this policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit._validate import positive
from tacit.glm.rows import ALL_ROWS
from tacit.linalg.solve import dot
from tacit.policies.arms import remember_arm
from tacit.policies.baselines._kernels import refit, refit_due
from tacit.policies.rows import RowBuffer, RowPolicy, append_row, grow_flag, make_rows
from tacit.policies.steps import register_steps
from tacit.typing import FloatArray, IntArray


class GreedyState(NamedTuple):
    """All rows and the estimate of the last fit."""

    rows: RowBuffer
    theta: FloatArray
    fitted: IntArray
    """Rows at the last fit, code of the link."""
    constants: FloatArray
    """Ridge, radius of the ball, growth of the rows between fits."""


@kernel
def _advance(state: GreedyState, fresh: bool) -> int:
    if refit_due(state.rows.count[0], state.fitted, state.constants[2]):
        refit(state.fitted[1], state.rows, ALL_ROWS, state.constants[0], state.constants[1], state.theta)
    return grow_flag(state.rows)


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


register_steps(GreedyState, _advance, _choose, _learn)


@dataclass(frozen=True)
class GreedyOptions:
    """``growth``: the fraction by which rows grow between fits, whose total cost is then 1 / growth passes."""

    ridge: float = 1.0
    growth: float = 0.1

    def __post_init__(self) -> None:
        positive("ridge", self.ridge)
        positive("growth", self.growth)


class GreedyMLE(RowPolicy):
    """Maximum likelihood in the ball of radius theta_bound, refitted whenever the rows grew by a tenth."""

    name: ClassVar[str] = "greedy-mle"
    options_type = GreedyOptions

    def _build(self) -> None:
        self.state = GreedyState(
            rows=make_rows(self.setting.dim),
            theta=np.zeros(self.setting.dim),
            fitted=np.array([0, self.setting.link.code], dtype=np.int64),
            constants=np.array([self.options.ridge, self.setting.theta_bound, self.options.growth]),
        )
