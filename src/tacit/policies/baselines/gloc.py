"""`gloc`: Jun, Bhargava, Nowak and Willett, "Scalable generalized linear bandits", NIPS 2017, arXiv 1706.00136.

GLOC turns an online learner into a confidence ellipsoid. It is the ellipsoid of a ridge regression on the learner's own
predictions z_s = <x_s, theta_s>, with a radius from the learner's regret bound B_t. The learner is the online Newton
step. Cost and memory per round are constant, and the radius grows like kappa.

The formulas are those of Theorems 1 and 3, with R / 2 as noise level. The published figures come from code that
differs: its noise level is L^2, L the largest mu', its radius has neither the ridge's term nor the residual's, it
scales the iterate to norm S in every step, and it predicts with that iterate (docs/guides/baselines.md).
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from tacit.linalg.ball import into_ball_by_metric
from tacit.policies.baselines._shared import DimRidgeConfig, add_outer, choose_optimistic, scale_option
from tacit.policies.config import configuration
from tacit.policies.policy import Policy
from tacit.policies.setting import Setting
from tacit.policies.steps import Steps, idle, in_turn
from tacit.typing import FloatArray, IntArray, Scalar, scalar


@configuration
class GlocConfig(DimRidgeConfig):
    """Configuration of `gloc`."""

    scale: float = scale_option(
        "Multiplies sqrt(beta_t). 1 is the paper's width and the default. The code behind the published figures adds "
        "it to the mean at the learner's iterate, which it scales to norm S, not to the score at the regression's "
        "estimate as the paper has it; its regret is 1.1 to 1.4 times ours for probit, twice for logistic, with the "
        "same growth in kappa.",
    )


class GlocState(NamedTuple):
    """State of `gloc`: the learner's iterate, the regression, and the matrix of both."""

    matrix: FloatArray
    inverse: FloatArray
    theta: FloatArray
    """The online Newton iterate."""
    moment: FloatArray
    """Sum of z x."""
    center: FloatArray
    """The regression's estimate."""
    regret_bound: Scalar
    """B_t of the learner."""
    squares: Scalar
    """Sum of z^2."""
    setting: Setting
    config: GlocConfig


def squared_radius(state: GlocState) -> float:
    """beta_t of Theorem 1, with the term that the regression's residual saves."""
    setting, bound, failure = state.setting, float(state.regret_bound[()]), state.config.failure_probability
    convexity = 1.0 / setting.kappa
    ratio = 0.5 * setting.reward_bound / convexity  # rewards in [0, R] are R/2-sub-Gaussian (Hoeffding)
    rare = ratio / failure
    inside = 1.0 + 2.0 * bound / convexity + 4.0 * (rare * rare) * ratio * ratio
    alpha = 1.0 + 4.0 * bound / convexity + 8.0 * ratio * ratio * math.log(2.0 * math.sqrt(inside) / failure)
    saved = float(state.squares[()]) - float(state.center.dot(state.moment))
    return max(0.0, alpha + state.config.ridge_or_dim * setting.theta_bound * setting.theta_bound - saved)


def choose(state: GlocState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the best arm over the regression's ellipsoid for each of N users."""
    width = state.config.scale * math.sqrt(squared_radius(state))
    return choose_optimistic(contexts, state.center, state.inverse, width, memos)


def learn_one(state: GlocState, x: FloatArray, reward: float) -> None:
    """Take in a reward: move the learner by a Newton step, and the regression by the learner's prediction."""
    setting, convexity = state.setting, 1.0 / state.setting.kappa  # the loss is strongly convex with 1 / kappa
    z, image = float(x.dot(state.theta)), state.inverse.dot(x)
    spread = float(image.dot(x))
    shrink = 1.0 / (1.0 + spread)  # the new inverse takes x to shrink * image (Sherman and Morrison)
    slope = setting.link.mean_at(z) - reward
    add_outer(state.matrix, x, 1.0)
    add_outer(state.inverse, image, -shrink)
    state.moment[:] += z * x
    state.center[:] = state.inverse.dot(state.moment)
    moved = state.theta - (slope / convexity * shrink) * image
    state.theta[:] = into_ball_by_metric(moved, setting.theta_bound, state.matrix)
    # Theorem 3: what the Newton step can have lost against the best fixed theta.
    state.regret_bound[()] += 0.5 / convexity * slope * slope * (shrink * spread)
    state.squares[()] += z * z


class Gloc(Policy):
    """GLOC with the online Newton step."""

    name: ClassVar[str] = "gloc"
    config_type = GlocConfig
    config: GlocConfig
    _steps = Steps(choose, in_turn(learn_one), idle)

    def _make_state(self) -> GlocState:
        setting, config, dim = self.setting, self.config, self.setting.dim
        # B_0 = 2 kappa S^2 ridge (Theorem 3, their kappa).
        first_bound = 2.0 / setting.kappa * setting.theta_bound**2 * config.ridge_or_dim
        return GlocState(
            matrix=config.ridge_or_dim * np.eye(dim),
            inverse=np.eye(dim) / config.ridge_or_dim,
            theta=np.zeros(dim),
            moment=np.zeros(dim),
            center=np.zeros(dim),
            regret_bound=scalar(first_bound),
            squares=scalar(),
            setting=setting,
            config=config,
        )
