"""`glm-ucb`: Filippi, Cappe, Garivier and Szepesvari, "Parametric bandits: the generalized linear case", NIPS 2010.

Maximum likelihood, and the arm of the largest mu(<x, theta>) + rho(t) ||x||_{M_t^-1}, with

    rho(t) = 2 k_mu kappa_mu R_max / c_mu * sqrt(2 d log(t) log(2 d T / delta))
    kappa_mu = sqrt(3 + 2 log(1 + 2 c_m^2 / lambda_0))

where k_mu and 1 / c_mu are the largest mu' and our kappa, and c_m = 1 bounds the features. The code behind the
published figures has the same width for probit rewards, and leaves out log(t) for logistic ones.

What differs here: M_t starts at ``ridge * I`` in place of a first round of d independent arms, lambda_0 is that ridge,
and the likelihood is maximised over the ball of radius S in place of the paper's projection. (The code behind the
published figures has the same ridge and no projection.) Without a horizon, t stands for T. All differences are listed
in docs/guides/baselines.md.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from tacit.glm.rows import RowBuffer, append_rows, make_room, make_rows
from tacit.policies.admission import remember_rows
from tacit.policies.baselines._shared import (
    DimRidgeConfig,
    FitConstants,
    RefittedConfig,
    add_to_inverse,
    refit_as_rows_grow,
    scale_option,
    scores,
    squared_spreads,
)
from tacit.policies.config import configuration
from tacit.policies.policy import Policy
from tacit.policies.steps import Steps
from tacit.typing import Count, FloatArray, IntArray, count


@configuration
class GlmUcbConfig(RefittedConfig, DimRidgeConfig):
    """Configuration of `glm-ucb`."""

    scale: float = scale_option(
        "Multiplies rho(t). 1 is the paper's width, and what the published comparison ran (arXiv 2404.06831, its "
        "public code): that is why GLM-UCB explores nearly all the time there, and here.",
    )


class GlmUcbConstants(NamedTuple):
    """Public numbers of rho(t)."""

    width_factor: float
    """Factor of the square root in rho(t), with the scale."""
    inverse_failure: float
    """2 d / delta: the second logarithm of rho(t) is that of this number times T."""
    horizon: float
    """T; 0 when it is not known."""


class GlmUcbState(NamedTuple):
    """State of `glm-ucb`: rows, the inverse of the design matrix M_t, and the estimate."""

    rows: RowBuffer
    inverse: FloatArray
    theta: FloatArray
    fitted: Count
    """Rows at the last fit."""
    unfinished: Count
    """Fits that did not converge; the next one goes on from there."""
    fit: FitConstants
    constants: GlmUcbConstants


def width(state: GlmUcbState) -> float:
    """rho(t)."""
    constants, t = state.constants, max(2.0, 1.0 + int(state.rows.held[()]))
    logarithms = math.log(t) * math.log(constants.inverse_failure * max(constants.horizon, t))
    return constants.width_factor * math.sqrt(logarithms)


def choose(state: GlmUcbState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the arm of the largest mu(<x, theta>) + rho(t) ||x||_{M_t^-1} for each of N users."""
    means = state.fit.link.mean(scores(contexts, state.theta))
    arms: IntArray = (means + width(state) * np.sqrt(squared_spreads(contexts, state.inverse))).argmax(axis=1)
    remember_rows(contexts, arms, memos)
    return np.asarray(arms)


def learn(state: GlmUcbState, memos: FloatArray, rewards: FloatArray) -> None:
    """Keep N rows for the next fit, and add them to the design matrix."""
    for x in memos:
        add_to_inverse(state.inverse, x, 1.0)
    append_rows(state.rows, memos, rewards, 0)


class GlmUcb(Policy):
    """GLM-UCB; its width, and its regret, grow with kappa."""

    name: ClassVar[str] = "glm-ucb"
    config_type = GlmUcbConfig
    config: GlmUcbConfig
    _steps = Steps(choose, learn, refit_as_rows_grow, make_room)

    def _make_state(self) -> GlmUcbState:
        setting, config, dim = self.setting, self.config, self.setting.dim
        return GlmUcbState(
            rows=make_rows(dim),
            inverse=np.eye(dim) / config.ridge_or_dim,
            theta=np.zeros(dim),
            fitted=count(),
            unfinished=count(),
            fit=FitConstants(setting.link, config.ridge_or_dim, setting.theta_bound, config.growth),
            constants=self._constants(),
        )

    def _constants(self) -> GlmUcbConstants:
        setting, config, dim = self.setting, self.config, self.setting.dim
        kappa_mu = math.sqrt(3.0 + 2.0 * math.log(1.0 + 2.0 / config.ridge_or_dim))
        factor = 2.0 * setting.max_derivative * kappa_mu * setting.reward_bound * setting.kappa * math.sqrt(2.0 * dim)
        return GlmUcbConstants(
            width_factor=config.scale * factor,
            inverse_failure=2.0 * dim / config.failure_probability,
            horizon=float(setting.horizon or 0),
        )
