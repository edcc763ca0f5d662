"""`ecolog`: Faury, Abeille, Jun and Calauzenes, "Jointly efficient and optimal algorithms for logistic bandits", 2022.

arXiv 2201.01985.  The estimate moves once for each reward,

    theta_{t+1} = argmin_{||theta|| <= S} ||theta - theta_t||^2_{W_t} / (2 + D) + l_{t+1}(theta)
    W_{t+1} = W_t + mu'(<x, theta_{t+1}>) x x',   D = 2 S

at constant cost. Like the authors' public code, it plays without the warm-up set of their adaptive algorithm. Where a
reward's local curvature changes by more than a factor of 2, the authors' code raises an error; here it is counted, and
the run goes on. The authors' code weighs the quadratic term by 1/2 and takes S as diameter. The published figures come
from that code with a ridge of 10 (docs/guides/baselines.md).

The confidence set is ||theta - theta_t||^2_{W_t} <= eta_t. Its radius comes from the data, in the manner of the
authors' code, which adds (1 + S)^2 gamma where the proof below gives (1 + S)^2 gamma^2. Adding up
l(theta*) >= l(theta_{s+1}) + <grad, theta* - theta_{s+1}> + ||theta* - theta_{s+1}||^2_{mu' x x'} / (2 + D) and the
optimality of theta_{s+1} gives

    ||theta_t - theta*||^2_{W_t} <= ridge S^2 + (2 + D) sum_s [l(theta*) - l(theta_{s+1})]
                                    - sum_s ||theta_{s+1} - theta_s||^2_{W_s}.

With theta-bar_s, which knows x_s but not its reward, between the two losses, the first half is a martingale. The tail
inequality of Faury, Abeille, Calauzenes and Fercoq (arXiv 2002.07530), in one dimension, bounds it by
(1 + S)^2 gamma_t^2 + 4 S^2 m. The second half is summed up as it comes.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import allocating_kernel, kernel
from tacit._validate import positive
from tacit.glm.links import LinkForm, antiderivative, derivative, mean
from tacit.linalg.projection import project_ball
from tacit.linalg.solve import cholesky, dot, quadratic_form, solve_cholesky
from tacit.linalg.vectors import copy_into, multiply, norm
from tacit.policies.baselines._config import ConfidenceConfig, scale_option
from tacit.policies.baselines._kernels import (
    add_outer,
    add_to_inverse,
    choose_optimistic,
    idle_tick,
    move_into_ball,
)
from tacit.policies.config import configuration, option
from tacit.policies.policy import Policy
from tacit.policies.steps import register_steps
from tacit.typing import Count, FloatArray, Number, count, number

_TOLERANCE = 1e-10
"""A step has settled when no coordinate moves by more than this."""
_LINE_STEPS = 60
"""Newton steps on a line at the most; halving the bracket so often reaches the tolerance by itself."""
_BALL_STEPS = 30
"""Newton steps in the ball at the most."""


@configuration
class EcologConfig(ConfidenceConfig):
    """Configuration of `ecolog`."""

    scale: float = scale_option(
        "Multiplies sqrt(eta_t). 1 is the width that is derived in the module's docstring. The code behind the "
        "published figures adds its radius to the mean, not to the score, and finds 549 where this policy has 275 "
        "(d = 5, S = 3.5, T = 15,000).",
    )
    ridge: float = option("Ridge of W_0; the default is that of the same code.", default=10.0, check=positive)


class EcologConstants(NamedTuple):
    """Public numbers that the steps read."""

    link: LinkForm
    scale: float
    theta_bound: float
    failure_probability: float
    ridge: float
    martingale_ridge: float
    """m, which trades the two terms of the martingale bound."""


class Estimate(NamedTuple):
    """What a step starts from: theta_t, and W_t with its inverse."""

    matrix: FloatArray
    inverse: FloatArray
    theta: FloatArray


class EcologState(NamedTuple):
    """The online estimate and its matrix W_t."""

    matrix: FloatArray
    inverse: FloatArray
    theta: FloatArray
    radius_from_data: Number
    """The part of eta_t that is summed up as rewards arrive."""
    rewards: Count
    """Rewards so far."""
    unproven: Count
    """Rewards that the proof of eta_t does not cover: the local curvature changed by more than a factor of 2, or the
    step to the minimum did not settle."""
    constants: EcologConstants


@kernel
def _move_along(link: LinkForm, z: float, spread: float, pull: float, trials: float, hits: float) -> float:
    """The root s of ``pull * s + trials * mu(z + s * spread) - hits``, which increases in s.

    Newton's method, kept within a bracket of the root.
    """
    low, high, s = (hits - trials) / pull, hits / pull, 0.0
    for _ in range(_LINE_STEPS):
        value = pull * s + trials * mean(link, z + s * spread) - hits
        if value > 0.0:
            high = s
        else:
            low = s
        step = value / (pull + trials * spread * derivative(link, z + s * spread))
        if abs(step) <= _TOLERANCE:
            return s - step
        s = s - step if low < s - step < high else 0.5 * (low + high)
    return s


@allocating_kernel
def online_step(
    link: LinkForm, start: Estimate, theta_bound: float, x: FloatArray, trials: float, hits: float, out: FloatArray
) -> bool:
    """Minimise ``||theta - theta_t||^2_W / (2 + D) + trials * A(z) - hits * z``, A' = mu, over the ball into ``out``.

    The loss sees one direction: the minimum over all space lies on a line.  Outside the ball, Newton steps to the
    minimum of the quadratic model over the ball.  False when they did not settle; ``out`` is in the ball even so.
    """
    dim, pull = x.shape[0], 1.0 / (1.0 + theta_bound)
    image = np.empty(dim)
    multiply(start.inverse, x, image)
    s = _move_along(link, dot(x, start.theta), dot(x, image), pull, trials, hits)
    for i in range(dim):
        out[i] = start.theta[i] + s * image[i]
    return norm(out) <= theta_bound or _constrained_step(link, start, theta_bound, x, trials, hits, out)


@allocating_kernel
def _constrained_step(
    link: LinkForm, start: Estimate, theta_bound: float, x: FloatArray, trials: float, hits: float, out: FloatArray
) -> bool:
    """The same where the minimum over all space, in ``out``, lies outside the ball.

    False when it has not settled, or when rounding hides that the Hessian is positive definite; ``out`` then stays
    where the last step left it, in the ball.
    """
    dim, pull = x.shape[0], 1.0 / (1.0 + theta_bound)
    hessian, factor = np.empty((dim, dim)), np.empty((dim, dim))
    offset, gradient, before = np.empty(dim), np.empty(dim), np.empty(dim)
    project_ball(out, theta_bound)
    for _ in range(_BALL_STEPS):
        z = dot(x, out)
        for i in range(dim):
            before[i] = out[i]
            offset[i] = out[i] - start.theta[i]
            for j in range(dim):
                hessian[i, j] = pull * start.matrix[i, j]
        add_outer(hessian, x, trials * derivative(link, z))
        multiply(start.matrix, offset, gradient)
        for i in range(dim):
            gradient[i] = pull * gradient[i] + (trials * mean(link, z) - hits) * x[i]
        if not cholesky(hessian, factor):
            return False
        solve_cholesky(factor, gradient, gradient)
        moved = 0.0
        for i in range(dim):
            out[i] -= gradient[i]
        move_into_ball(out, theta_bound, hessian)
        for i in range(dim):
            moved = max(moved, abs(out[i] - before[i]))
        if moved <= _TOLERANCE:
            return True
    return False


@kernel
def squared_radius(state: EcologState) -> float:
    """eta_t."""
    constants, theta_bound, m = state.constants, state.constants.theta_bound, state.constants.martingale_ridge
    spread = math.sqrt(1.0 + state.rewards[()] / (4.0 * m))
    gamma = 0.5 * math.sqrt(m) + 2.0 / math.sqrt(m) * math.log(2.0 * spread / constants.failure_probability)
    squared, stretched = theta_bound * theta_bound, (1.0 + theta_bound) * gamma
    bound = constants.ridge * squared + stretched * stretched + 4.0 * squared * m
    return max(0.0, bound + state.radius_from_data[()])


@kernel
def _choose(state: EcologState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    radius = state.constants.scale * math.sqrt(squared_radius(state))
    return choose_optimistic(contexts, state.theta, state.inverse, radius, memo)


@allocating_kernel
def _learn(state: EcologState, memo: FloatArray, reward: float) -> None:
    link, theta_bound, dim = state.constants.link, state.constants.theta_bound, memo.shape[0]
    middle, moved, step = np.empty(dim), np.empty(dim), np.empty(dim)
    start = Estimate(state.matrix, state.inverse, state.theta)
    settled = online_step(link, start, theta_bound, memo, 2.0, 1.0, middle)  # theta-bar: as if both rewards came
    settled &= online_step(link, start, theta_bound, memo, 1.0, reward, moved)
    z, z_middle = dot(memo, moved), dot(memo, middle)
    curvature = derivative(link, z)
    if not settled or derivative(link, z_middle) > 2.0 * curvature:
        state.unproven[()] += 1
    for i in range(dim):
        step[i] = moved[i] - state.theta[i]
    gain = antiderivative(link, z_middle) - antiderivative(link, z) - reward * (z_middle - z)
    state.radius_from_data[()] += 2.0 * (1.0 + theta_bound) * gain - quadratic_form(state.matrix, step)
    copy_into(moved, state.theta)
    add_outer(state.matrix, memo, curvature)
    add_to_inverse(state.inverse, memo, curvature)
    state.rewards[()] += 1


register_steps(EcologState, idle_tick, _choose, _learn)


class Ecolog(Policy):
    """ECOLog: the online estimator, and optimism over its ellipsoid."""

    name: ClassVar[str] = "ecolog"
    links = ("logistic",)
    config_type = EcologConfig
    config: EcologConfig

    def _make_state(self) -> EcologState:
        setting, config, dim = self.setting, self.config, self.setting.dim
        return EcologState(
            matrix=config.ridge * np.eye(dim),
            inverse=np.eye(dim) / config.ridge,
            theta=np.zeros(dim),
            radius_from_data=number(),
            rewards=count(),
            unproven=count(),
            constants=EcologConstants(
                link=setting.link.form,
                scale=config.scale,
                theta_bound=setting.theta_bound,
                failure_probability=config.failure_probability,
                ridge=config.ridge,
                # About 2 log(2 / delta) is best at usual horizons.
                martingale_ridge=2.0 * math.log(2.0 / config.failure_probability),
            ),
        )
