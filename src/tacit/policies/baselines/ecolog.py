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
from scipy.linalg.lapack import dposv

from tacit._validate import positive
from tacit.glm.links import Link
from tacit.linalg.ball import into_ball, into_ball_by_metric, norm
from tacit.policies.baselines._config import ConfidenceConfig, scale_option
from tacit.policies.baselines._ridge import add_outer, choose_optimistic
from tacit.policies.config import configuration, option
from tacit.policies.policy import Policy
from tacit.policies.steps import Steps, idle, in_turn
from tacit.typing import Count, FloatArray, IntArray, Number, count, number

_TOLERANCE = 1e-10
"""A step in the ball has settled when no coordinate moves by more than this."""
_LINE_TOLERANCE = 1e-15
"""Error at which a step on a line has settled."""
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

    link: Link
    scale: float
    theta_bound: float
    failure_probability: float
    ridge: float
    martingale_ridge: float
    """m, which trades the two terms of the martingale bound."""


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


class Line(NamedTuple):
    """All that one row's loss can move theta_t to: theta_t + s W_t^-1 x."""

    x: FloatArray
    image: FloatArray
    """W_t^-1 x."""
    z: float
    """<x, theta_t>."""
    spread: float
    """||x||^2 in the norm of W_t^-1: how fast the score grows with s."""


def line_of(state: EcologState, x: FloatArray) -> Line:
    """The line of a row from the present estimate."""
    image = state.inverse.dot(x)
    return Line(x, image, float(x.dot(state.theta)), float(x.dot(image)))


def _share(link: Link, line: Line, pull: float, trials: float, hits: float) -> float:
    """Find the root s of ``pull * s + trials * mu(z + s * spread) - hits``, which increases in s.

    Newton's method, kept within a bracket of the root.  A step leaves an error of at most spread * step^2, since
    abs(mu'') <= mu' for logistic rewards: the last step needs no look at where it ends.
    """
    mean, derivative, z, spread = link.mean_at, link.derivative_at, line.z, line.spread
    low, high, s = (hits - trials) / pull, hits / pull, 0.0
    for _ in range(_LINE_STEPS):
        at = z + s * spread
        value = pull * s + trials * mean(at) - hits
        if value > 0.0:
            high = s
        else:
            low = s
        step = value / (pull + trials * spread * derivative(at))
        if spread * step * step <= _LINE_TOLERANCE:
            return s - step
        s = s - step if low < s - step < high else 0.5 * (low + high)
    return s


def online_step(state: EcologState, line: Line, trials: float, hits: float) -> tuple[FloatArray, bool]:
    """Minimise ``||theta - theta_t||^2_W / (2 + D) + trials * A(z) - hits * z``, A' = mu, over the ball.

    The loss sees one direction: the minimum over all space lies on a line.  Outside the ball, Newton steps go to the
    minimum of the quadratic model over the ball.  False when they did not settle; the point is in the ball even so.
    """
    constants = state.constants
    bound = constants.theta_bound
    found = state.theta + _share(constants.link, line, 1.0 / (1.0 + bound), trials, hits) * line.image
    if norm(found) <= bound:
        return found, True
    return _constrained_step(state, line.x, trials, hits, into_ball(found, bound))


def _constrained_step(
    state: EcologState, x: FloatArray, trials: float, hits: float, found: FloatArray
) -> tuple[FloatArray, bool]:
    """Minimise over the ball where the minimum over all space lies outside, from the point ``found`` on the sphere.

    False when it has not settled, or when rounding hides that the Hessian is positive definite.
    """
    link, bound = state.constants.link, state.constants.theta_bound
    pulling = 1.0 / (1.0 + bound) * state.matrix
    for _ in range(_BALL_STEPS):
        z = float(x.dot(found))
        hessian = pulling.copy()
        add_outer(hessian, x, trials * link.derivative_at(z))
        gradient = pulling.dot(found - state.theta) + (trials * link.mean_at(z) - hits) * x
        _, step, failed = dposv(hessian, gradient)
        if failed:
            return found, False
        before, found = found, into_ball_by_metric(found - step, bound, hessian)
        if np.abs(found - before).max() <= _TOLERANCE:
            return found, True
    return found, False


def squared_radius(state: EcologState) -> float:
    """eta_t."""
    constants, theta_bound, m = state.constants, state.constants.theta_bound, state.constants.martingale_ridge
    spread = math.sqrt(1.0 + int(state.rewards[()]) / (4.0 * m))
    gamma = 0.5 * math.sqrt(m) + 2.0 / math.sqrt(m) * math.log(2.0 * spread / constants.failure_probability)
    squared, stretched = theta_bound * theta_bound, (1.0 + theta_bound) * gamma
    bound = constants.ridge * squared + stretched * stretched + 4.0 * squared * m
    return max(0.0, bound + float(state.radius_from_data[()]))


def choose(state: EcologState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the best arm over the ellipsoid for each of N users."""
    width = state.constants.scale * math.sqrt(squared_radius(state))
    return choose_optimistic(contexts, state.theta, state.inverse, width, memos)


def learn_one(state: EcologState, x: FloatArray, reward: float) -> None:
    """Take in a reward: move the estimate, and sum up what its radius needs to know of the step."""
    link, line = state.constants.link, line_of(state, x)
    middle, settled = online_step(state, line, 2.0, 1.0)  # theta-bar: as if both rewards came
    moved, settled_too = online_step(state, line, 1.0, reward)
    z, z_middle, step = float(x.dot(moved)), float(x.dot(middle)), moved - state.theta
    curvature = link.derivative_at(z)
    proven = settled and settled_too and link.derivative_at(z_middle) <= 2.0 * curvature
    gain = link.antiderivative_at(z_middle) - link.antiderivative_at(z) - reward * (z_middle - z)
    radius = 2.0 * (1.0 + state.constants.theta_bound) * gain - float(step.dot(state.matrix).dot(step))
    add_outer(state.matrix, x, curvature)
    add_outer(state.inverse, line.image, -curvature / (1.0 + curvature * line.spread))  # Sherman and Morrison
    state.theta[:] = moved
    state.radius_from_data[()] += radius
    state.rewards[()] += 1
    if not proven:
        state.unproven[()] += 1


class Ecolog(Policy):
    """ECOLog: the online estimator, and optimism over its ellipsoid."""

    name: ClassVar[str] = "ecolog"
    links = ("logistic",)
    config_type = EcologConfig
    config: EcologConfig
    steps = Steps(choose, in_turn(learn_one), idle)

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
                link=setting.link,
                scale=config.scale,
                theta_bound=setting.theta_bound,
                failure_probability=config.failure_probability,
                ridge=config.ridge,
                # About 2 log(2 / delta) is best at usual horizons.
                martingale_ridge=2.0 * math.log(2.0 / config.failure_probability),
            ),
        )
