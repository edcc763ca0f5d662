"""`ofulog+`: Lee, Yun and Jun, "Improved regret bounds of (multinomial) logistic bandits via regret-to-confidence-set
conversion", AISTATS 2024, arXiv 2310.18554.

The confidence set is a level set of the likelihood around the norm-constrained estimate (Theorem 1),

    L_t(theta) - L_t(theta_t) <= beta_t^2 = 10 d log(S t / (2 d) + e) + 2 (e - 2 + S) log(1 / delta),   ||theta|| <= S.

The authors' code has the same beta_t^2. It solves a convex program for each arm, with a pass over all rows in each
step. What differs here: optimism is over the ellipsoid that contains the set,
||theta - theta_t||^2_H <= 2 (1 + S) (1 + beta_t^2) with H the Hessian at theta_t plus I / (8 S^2 (1 + S)), by the
self-concordance that their regret proof uses. The cost per round is then flat. No published figure is compared with
this policy.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from tacit.glm.likelihood import weighted_outers
from tacit.glm.rows import ALL_ROWS, RowBuffer, Selection, append_rows, make_room, make_rows, selected
from tacit.policies.baselines._shared import (
    RefittedConfig,
    add_to_inverse,
    choose_optimistic,
    inverse_or_keep,
    refit,
    refit_due,
    scale_option,
)
from tacit.policies.config import configuration
from tacit.policies.policy import Policy
from tacit.policies.setting import Setting
from tacit.policies.steps import Steps
from tacit.threads import one_blas_thread
from tacit.typing import Count, FloatArray, IntArray, count

FIT_RIDGE = 1e-6
"""The ball alone makes the fit well posed; a trace of ridge keeps Newton's matrix invertible."""


@configuration
class OfulogConfig(RefittedConfig):
    """Configuration of `ofulog+`."""

    scale: float = scale_option(
        "Multiplies the radius. The level set itself has local radius sqrt(2) beta_t, the ellipsoid that surely "
        "contains it sqrt(2 (1 + S)) beta_t: a scale of 0.5 plays the level set to second order at S = 3, which is "
        "closest to what the paper's experiments ran.",
        default=0.5,
    )


class OfulogState(NamedTuple):
    """State of `ofulog+`: rows, the estimate, and the inverse Hessian there."""

    rows: RowBuffer
    theta: FloatArray
    inverse: FloatArray
    fitted: Count
    """Rows at the last fit."""
    unfinished: Count
    """Fits that did not converge, and matrices that rounding left without an inverse: the last one stayed."""
    setting: Setting
    config: OfulogConfig


def hessian_ridge(setting: Setting) -> float:
    """Ridge of H, which is not that of the fit."""
    return 1.0 / (8.0 * setting.theta_bound**2 * (1.0 + setting.theta_bound))


def squared_radius(state: OfulogState) -> float:
    """2 (1 + S) (1 + beta_t^2)."""
    theta_bound, dim = state.setting.theta_bound, state.theta.shape[0]
    growth = math.log(math.e + theta_bound * int(state.rows.held[()]) / (2.0 * dim))
    confidence = math.log(1.0 / state.config.failure_probability)
    level = 10.0 * dim * growth + 2.0 * (math.e - 2.0 + theta_bound) * confidence
    return float(2.0 * (1.0 + theta_bound) * (1.0 + level))


def advance(state: OfulogState, fresh: bool, users: int) -> int:
    """Fit theta anew, and take the Hessian there, when the rows have grown enough."""
    link, bound = state.setting.link, state.setting.theta_bound
    if refit_due(state.rows.held[()], state.fitted, state.config.growth):
        refit(link, state.rows, ALL_ROWS, FIT_RIDGE, bound, state.unfinished, state.theta)
        _invert_hessian(state)
    return 0


def _invert_hessian(state: OfulogState) -> None:
    features, _ = selected(Selection(state.rows, ALL_ROWS))
    with one_blas_thread():
        hessian = weighted_outers(features, state.setting.link.derivative(features.dot(state.theta)))
        hessian.flat[:: state.theta.size + 1] += hessian_ridge(state.setting)
        inverse_or_keep(hessian, state.inverse, state.unfinished)


def choose(state: OfulogState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the arm of the largest score over the ellipsoid for each of N users."""
    radius = state.config.scale * math.sqrt(squared_radius(state))
    return choose_optimistic(contexts, state.theta, state.inverse, radius, memos)


def learn(state: OfulogState, memos: FloatArray, rewards: FloatArray) -> None:
    """Keep N rows for the next fit, and add them to the Hessian at the last one."""
    for x in memos:
        add_to_inverse(state.inverse, x, state.setting.link.derivative_at(float(x.dot(state.theta))))
    append_rows(state.rows, memos, rewards, 0)


class OfulogPlus(Policy):
    """OFULog+ over the ellipsoid that contains its confidence set."""

    name: ClassVar[str] = "ofulog+"
    links = ("logistic",)
    config_type = OfulogConfig
    config: OfulogConfig
    _steps = Steps(choose, learn, advance, make_room)

    def _make_state(self) -> OfulogState:
        setting, config = self.setting, self.config
        return OfulogState(
            rows=make_rows(setting.dim),
            theta=np.zeros(setting.dim),
            inverse=np.eye(setting.dim) / hessian_ridge(setting),
            fitted=count(),
            unfinished=count(),
            setting=setting,
            config=config,
        )
