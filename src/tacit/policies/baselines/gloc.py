"""`gloc`: Jun, Bhargava, Nowak and Willett, "Scalable generalized linear bandits", NIPS 2017, arXiv 1706.00136.

GLOC (Algorithm 1) turns an online learner into a confidence ellipsoid: ridge regression on the learner's own
predictions z_s = <x_s, theta_s>, with a radius from the learner's regret bound B_t. The learner is the online Newton
step (Algorithm 2). Constant cost and memory per round; the radius grows like kappa.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit._validate import nonnegative, positive, probability
from tacit.glm.links import mean
from tacit.linalg.projection import project_ball_metric
from tacit.linalg.solve import dot, quadratic_form
from tacit.linalg.vectors import multiply
from tacit.policies.arms import remember_arm
from tacit.policies.base import Policy
from tacit.policies.baselines._kernels import add_outer, add_to_inverse, optimistic_arm
from tacit.policies.steps import register_steps
from tacit.typing import FloatArray, IntArray


class GlocState(NamedTuple):
    """The learner's iterate and matrix, which is the regression's too, and the regression."""

    matrix: FloatArray
    inverse: FloatArray
    theta: FloatArray
    """The online Newton iterate."""
    moment: FloatArray
    """Sum of z x."""
    center: FloatArray
    """The regression's estimate."""
    sums: FloatArray
    """B_t of the learner, sum of z^2."""
    link: IntArray
    constants: FloatArray
    """Scale of the radius, strong convexity 1 / kappa, S, failure probability, sub-Gaussian bound, ridge."""


@kernel
def squared_radius(state: GlocState) -> float:
    """beta_t of Theorem 1, with the term that the regression's residual saves."""
    bound, squares = state.sums
    _, convexity, theta_bound, failure, deviation, ridge = state.constants
    ratio = deviation / convexity
    inside = 1.0 + 2.0 * bound / convexity + 4.0 * (ratio / failure) ** 2 * ratio * ratio
    alpha = 1.0 + 4.0 * bound / convexity + 8.0 * ratio * ratio * math.log(2.0 * math.sqrt(inside) / failure)
    saved = squares - dot(state.center, state.moment)
    return float(max(0.0, alpha + ridge * theta_bound * theta_bound - saved))


@kernel
def _advance(state: GlocState, fresh: bool) -> int:
    return 0


@kernel
def _choose(state: GlocState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    radius = state.constants[0] * math.sqrt(squared_radius(state))
    arm = optimistic_arm(contexts, state.center, state.inverse, radius)
    remember_arm(contexts, arm, memo)
    return arm


@kernel
def _learn(state: GlocState, memo: FloatArray, reward: float) -> None:
    theta, convexity = state.theta, state.constants[1]
    z = dot(memo, theta)
    slope = mean(state.link[0], z) - reward
    add_outer(state.matrix, memo, 1.0)
    add_to_inverse(state.inverse, memo, 1.0)
    # Theorem 3: what the Newton step can have lost against the best fixed theta.
    state.sums[0] += 0.5 / convexity * slope * slope * quadratic_form(state.inverse, memo)
    state.sums[1] += z * z
    step = np.empty_like(theta)
    multiply(state.inverse, memo, step)
    for i in range(theta.shape[0]):
        state.moment[i] += z * memo[i]
        theta[i] -= slope / convexity * step[i]
    multiply(state.inverse, state.moment, state.center)
    project_ball_metric(theta, state.constants[2], state.matrix)


register_steps(GlocState, _advance, _choose, _learn)


@dataclass(frozen=True)
class GlocOptions:
    """``scale`` multiplies sqrt(beta_t).

    1 is the paper's width and the default. The code behind the published figures adds it to the mean at the learner's
    iterate, which it scales to norm S, not to the score at the regression's estimate as the paper has it; its regret
    is 1.1 to 1.4 times ours for probit, twice for logistic, with the same growth in kappa. ``ridge`` of None is d, as
    there.
    """

    scale: float = 1.0
    ridge: float | None = None
    failure_probability: float = 0.02

    def __post_init__(self) -> None:
        nonnegative("scale", self.scale)
        probability("failure_probability", self.failure_probability)
        if self.ridge is not None:
            positive("ridge", self.ridge)


class Gloc(Policy):
    """GLOC with the online Newton step."""

    name: ClassVar[str] = "gloc"
    options_type = GlocOptions

    def _build(self) -> None:
        setting, options = self.setting, self.options
        dim = setting.dim
        ridge = float(dim) if options.ridge is None else options.ridge
        convexity = 1.0 / setting.kappa
        # Rewards in [0, R] are R/2-sub-Gaussian (Hoeffding); B_0 = 2 kappa S^2 ridge (Theorem 3, their kappa).
        self.state = GlocState(
            matrix=ridge * np.eye(dim),
            inverse=np.eye(dim) / ridge,
            theta=np.zeros(dim),
            moment=np.zeros(dim),
            center=np.zeros(dim),
            sums=np.array([2.0 * convexity * setting.theta_bound**2 * ridge, 0.0]),
            link=np.array([setting.link.code], dtype=np.int64),
            constants=np.array([
                options.scale, convexity, setting.theta_bound, options.failure_probability,
                0.5 * setting.reward_bound, ridge,
            ]),
        )  # fmt: skip
