"""`ofulog+`: Lee, Yun and Jun, "Improved regret bounds of (multinomial) logistic bandits via regret-to-confidence-set
conversion", AISTATS 2024, arXiv 2310.18554.

The confidence set is a level set of the likelihood around the norm-constrained estimate (Theorem 1),

    L_t(theta) - L_t(theta_t) <= beta_t^2 = 10 d log(S t / (2 d) + e) + 2 (e - 2 + S) log(1 / delta),   ||theta|| <= S.

Maximising over it takes a convex program for each arm and a pass over all rows for each step. Ours: optimism over the
ellipsoid that contains it, ||theta - theta_t||^2_H <= 2 (1 + S) (1 + beta_t^2) with H the Hessian at theta_t plus I /
(8 S^2 (1 + S)), by the self-concordance that their regret proof uses; the cost per round is then flat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit._validate import nonnegative, positive, probability
from tacit.glm.links import LOGISTIC, derivative
from tacit.glm.rows import ALL_ROWS
from tacit.linalg.solve import cholesky, dot, invert_cholesky
from tacit.policies.arms import remember_arm
from tacit.policies.baselines._kernels import add_outer, add_to_inverse, optimistic_arm, refit, refit_due
from tacit.policies.rows import RowBuffer, RowPolicy, append_row, grow_flag, make_rows
from tacit.policies.steps import register_steps
from tacit.typing import FloatArray, IntArray


class OfulogState(NamedTuple):
    """Rows, the estimate, and the inverse Hessian around it."""

    rows: RowBuffer
    theta: FloatArray
    inverse: FloatArray
    fitted: IntArray
    """Rows at the last fit."""
    constants: FloatArray
    """Scale of the radius, S, failure probability, growth between fits, ridge of H."""


@kernel
def squared_radius(state: OfulogState) -> float:
    """2 (1 + S) (1 + beta_t^2)."""
    theta_bound, dim = state.constants[1], state.theta.shape[0]
    growth = math.log(math.e + theta_bound * state.rows.count[0] / (2.0 * dim))
    level = 10.0 * dim * growth + 2.0 * (math.e - 2.0 + theta_bound) * math.log(1.0 / state.constants[2])
    return float(2.0 * (1.0 + theta_bound) * (1.0 + level))


@kernel
def _invert_hessian(state: OfulogState) -> None:
    dim = state.theta.shape[0]
    hessian = np.zeros((dim, dim))
    for i in range(dim):
        hessian[i, i] = state.constants[4]
    for s in range(state.rows.count[0]):
        x = state.rows.features[s]
        add_outer(hessian, x, derivative(LOGISTIC, dot(x, state.theta)))
    cholesky(hessian, hessian)
    invert_cholesky(hessian, state.inverse)


@kernel
def _advance(state: OfulogState, fresh: bool) -> int:
    if refit_due(state.rows.count[0], state.fitted, state.constants[3]):
        # The ball alone makes the problem well posed; a trace of ridge keeps Newton's matrix invertible.
        refit(LOGISTIC, state.rows, ALL_ROWS, 1e-6, state.constants[1], state.theta)
        _invert_hessian(state)
    return grow_flag(state.rows)


@kernel
def _choose(state: OfulogState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    radius = state.constants[0] * math.sqrt(squared_radius(state))
    arm = optimistic_arm(contexts, state.theta, state.inverse, radius)
    remember_arm(contexts, arm, memo)
    return arm


@kernel
def _learn(state: OfulogState, memo: FloatArray, reward: float) -> None:
    add_to_inverse(state.inverse, memo, derivative(LOGISTIC, dot(memo, state.theta)))
    append_row(state.rows, memo, reward, 0)


register_steps(OfulogState, _advance, _choose, _learn)


@dataclass(frozen=True)
class OfulogOptions:
    """``scale`` multiplies the radius.

    The level set itself has local radius sqrt(2) beta_t, the ellipsoid that surely contains it sqrt(2 (1 + S))
    beta_t: a scale of 0.5 plays the level set to second order at S = 3, which is closest to what the paper's
    experiments ran.
    """

    scale: float = 0.5
    growth: float = 0.01
    failure_probability: float = 0.02

    def __post_init__(self) -> None:
        nonnegative("scale", self.scale)
        positive("growth", self.growth)
        probability("failure_probability", self.failure_probability)


class OfulogPlus(RowPolicy):
    """OFULog+ over the ellipsoid that contains its confidence set."""

    name: ClassVar[str] = "ofulog+"
    links = ("logistic",)
    options_type = OfulogOptions

    def _build(self) -> None:
        setting, options = self.setting, self.options
        ridge = 1.0 / (8.0 * setting.theta_bound**2 * (1.0 + setting.theta_bound))
        self.state = OfulogState(
            rows=make_rows(setting.dim),
            theta=np.zeros(setting.dim),
            inverse=np.eye(setting.dim) / ridge,
            fitted=np.zeros(1, dtype=np.int64),
            constants=np.array([
                options.scale, setting.theta_bound, options.failure_probability, options.growth, ridge,
            ]),
        )  # fmt: skip
