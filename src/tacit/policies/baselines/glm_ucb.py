"""`glm-ucb`: Filippi, Cappe, Garivier and Szepesvari, "Parametric bandits: the generalized linear case", NIPS 2010.

Algorithm 1: maximum likelihood, and the arm of the largest mu(<x, theta>) + rho(t) ||x||_{M_t^-1}, with

    rho(t) = 2 k_mu kappa_mu R_max / c_mu * sqrt(2 d log(t) log(2 d T / delta))
    kappa_mu = sqrt(3 + 2 log(1 + 2 c_m^2 / lambda_0))

(their Theorem; k_mu and 1 / c_mu are the largest mu' and our kappa, c_m = 1 bounds the features). Ours: M_t starts at
``ridge * I`` in place of a first round of d independent arms, lambda_0 is that ridge, and the likelihood is maximised
over the ball of radius S in place of the paper's projection. Without a horizon, t stands for T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit._validate import nonnegative, positive, probability
from tacit.glm.rows import ALL_ROWS
from tacit.policies.arms import remember_arm
from tacit.policies.baselines._kernels import add_to_inverse, optimistic_mean_arm, refit, refit_due
from tacit.policies.rows import RowBuffer, RowPolicy, append_row, grow_flag, make_rows
from tacit.policies.steps import register_steps
from tacit.typing import FloatArray, IntArray


class GlmUcbState(NamedTuple):
    """Rows, the inverse of the design matrix M_t, and the estimate."""

    rows: RowBuffer
    inverse: FloatArray
    theta: FloatArray
    fitted: IntArray
    """Rows at the last fit, code of the link."""
    constants: FloatArray
    """Ridge, radius of the ball, growth between fits; then the factor of rho(t), 2 d / delta, horizon (0: none)."""


@kernel
def _width(state: GlmUcbState) -> float:
    """rho(t)."""
    t = max(2.0, 1.0 + state.rows.count[0])
    factor, inside, horizon = state.constants[3], state.constants[4], state.constants[5]
    return float(factor * math.sqrt(math.log(t) * math.log(inside * max(horizon, t))))


@kernel
def _advance(state: GlmUcbState, fresh: bool) -> int:
    if refit_due(state.rows.count[0], state.fitted, state.constants[2]):
        refit(state.fitted[1], state.rows, ALL_ROWS, state.constants[0], state.constants[1], state.theta)
    return grow_flag(state.rows)


@kernel
def _choose(state: GlmUcbState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    arm = optimistic_mean_arm(state.fitted[1], contexts, state.theta, state.inverse, _width(state))
    remember_arm(contexts, arm, memo)
    return arm


@kernel
def _learn(state: GlmUcbState, memo: FloatArray, reward: float) -> None:
    add_to_inverse(state.inverse, memo, 1.0)
    append_row(state.rows, memo, reward, 0)


register_steps(GlmUcbState, _advance, _choose, _learn)


@dataclass(frozen=True)
class GlmUcbOptions:
    """``scale`` multiplies rho(t).

    1 is the paper's width, and what the published comparison ran (arXiv 2404.06831, its public code): that is why
    GLM-UCB explores nearly all the time there, and here.  ``ridge`` of None is d, theirs too.  ``growth`` of 0.01: the
    estimate is fitted anew after every row up to 200, then whenever the rows grew by 1%, which moves it
    by far less than rho(t) ||x||, and keeps the cost per round flat.
    """

    scale: float = 1.0
    ridge: float | None = None
    growth: float = 0.01
    failure_probability: float = 0.02

    def __post_init__(self) -> None:
        nonnegative("scale", self.scale)
        positive("growth", self.growth)
        probability("failure_probability", self.failure_probability)
        if self.ridge is not None:
            positive("ridge", self.ridge)


class GlmUcb(RowPolicy):
    """GLM-UCB; its width, and its regret, grow with kappa."""

    name: ClassVar[str] = "glm-ucb"
    options_type = GlmUcbOptions

    def _build(self) -> None:
        setting, options = self.setting, self.options
        dim = setting.dim
        ridge = float(dim) if options.ridge is None else options.ridge
        spread = math.sqrt(3.0 + 2.0 * math.log(1.0 + 2.0 / ridge))
        factor = 2.0 * setting.max_derivative * spread * setting.reward_bound * setting.kappa * math.sqrt(2.0 * dim)
        self.state = GlmUcbState(
            rows=make_rows(dim),
            inverse=np.eye(dim) / ridge,
            theta=np.zeros(dim),
            fitted=np.array([0, setting.link.code], dtype=np.int64),
            constants=np.array([
                ridge, setting.theta_bound, options.growth, options.scale * factor,
                2.0 * dim / options.failure_probability, float(setting.horizon or 0),
            ]),
        )  # fmt: skip
