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

from tacit._validate import positive
from tacit.glm.links import Link
from tacit.linalg.ball import into_ball, norm
from tacit.policies.baselines._shared import ConfidenceConfig, add_outer, choose_optimistic, scale_option
from tacit.policies.config import configuration, option
from tacit.policies.policy import Policy
from tacit.policies.setting import Setting
from tacit.policies.steps import Steps, idle, in_turn
from tacit.typing import Count, FloatArray, IntArray, Scalar, count, scalar

_TOLERANCE = 1e-12
"""A step in the ball has settled when its length differs from the radius by no more than this part."""
_LINE_TOLERANCE = 1e-15
"""Error at which a step on a line has settled."""
_LINE_STEPS = 60
"""Steps on a line at the most; halving the bracket so often reaches the tolerance by itself."""
_BALL_STEPS = 30
"""Newton steps to the sphere at the most."""


@configuration
class EcologConfig(ConfidenceConfig):
    """Configuration of `ecolog`."""

    scale: float = scale_option(
        "Multiplies sqrt(eta_t). 1 is the width that is derived in the module's docstring. The code behind the "
        "published figures adds its radius to the mean, not to the score, and finds 549 where this policy has 275 "
        "(d = 5, S = 3.5, T = 15,000).",
    )
    ridge: float = option("Ridge of W_0; by default that of the published figures' code.", default=10.0, check=positive)


class EcologState(NamedTuple):
    """State of `ecolog`: the online estimate and its matrix W_t."""

    matrix: FloatArray
    inverse: FloatArray
    theta: FloatArray
    radius_from_data: Scalar
    """The part of eta_t that is summed up as rewards arrive."""
    rewards: Count
    """Rewards so far."""
    unproven: Count
    """Rewards that the proof of eta_t does not cover: the local curvature changed by more than a factor of 2, or the
    step to the minimum did not settle."""
    setting: Setting
    config: EcologConfig


class SearchLine(NamedTuple):
    """The points theta_t + s W_t^-1 x, on one of which the loss of the row x has its minimum."""

    x: FloatArray
    image: FloatArray
    """W_t^-1 x."""
    z: float
    """<x, theta_t>."""
    spread: float
    """||x||^2 in the norm of W_t^-1: how fast the score grows with s."""


def line_of(state: EcologState, x: FloatArray) -> SearchLine:
    """Compute the line of a row from the present estimate."""
    image = state.inverse.dot(x)
    return SearchLine(x, image, float(x.dot(state.theta)), float(x.dot(image)))


class OnlineStep(NamedTuple):
    """Result of `online_step`."""

    theta: FloatArray
    z: float
    """<x, theta>."""
    length: float
    """Squared length of the step, in the norm of W_t."""
    settled: bool
    """Whether theta is the minimum; it is in the ball even if not."""


def _share(link: Link, z: float, spread: float, pull: float, trials: float, hits: float) -> float:
    """Find the root s of ``pull * s + trials * mu(z + s * spread) - hits``, which increases in s.

    Halley's method, kept within a bracket of the root.  For logistic rewards mu' = mu (1 - mu), mu'' = mu' (1 - 2 mu),
    and neither mu'' nor the next derivative exceeds mu': a step leaves an error below spread^2 abs(step)^3.
    """
    low, high, s = (hits - trials) / pull, hits / pull, 0.0
    for _ in range(_LINE_STEPS):
        mean = link.mean_at(z + s * spread)
        value, curvature = pull * s + trials * mean - hits, trials * spread * mean * (1.0 - mean)
        slope = pull + curvature
        if value > 0.0:
            high = s
        else:
            low = s
        step = 2.0 * value * slope / (2.0 * slope * slope - value * curvature * spread * (1.0 - 2.0 * mean))
        if spread * spread * abs(step * step * step) <= _LINE_TOLERANCE:
            return s - step
        s = s - step if low < s - step < high else 0.5 * (low + high)
    return s


def online_step(state: EcologState, line: SearchLine, trials: float, hits: float) -> OnlineStep:
    """Minimise ``||theta - theta_t||^2_W / (2 + D) + trials * A(z) - hits * z``, A' = mu, over the ball.

    The loss sees one direction: the minimum over all space lies on a line.
    """
    bound = state.setting.theta_bound
    share = _share(state.setting.link, line.z, line.spread, 1.0 / (1.0 + bound), trials, hits)
    found = state.theta + share * line.image
    if found.dot(found) <= bound * bound:
        return OnlineStep(found, line.z + share * line.spread, share * share * line.spread, True)
    return _constrained_step(state, line.x, trials, hits)


def _constrained_step(state: EcologState, x: FloatArray, trials: float, hits: float) -> OnlineStep:
    """Minimise over the ball where the minimum over all space lies outside.

    With a multiplier m of ||theta||^2 / 2 the minimum lies on a line again; Newton's method on 1 / norm finds the m
    that puts it on the sphere.  It has not settled where rounding hides that W is positive definite.
    """
    link, bound = state.setting.link, state.setting.theta_bound
    values, basis = np.linalg.eigh(1.0 / (1.0 + bound) * state.matrix)
    x_turned, theta_turned, m, settled = x.dot(basis), state.theta.dot(basis), 0.0, False
    found = theta_turned
    for _ in range(_BALL_STEPS if values[0] > 0.0 else 0):
        shifted = values + m
        center, image = values / shifted * theta_turned, x_turned / shifted
        z, spread = float(x_turned.dot(center)), float(x_turned.dot(image))
        share = _share(link, z, spread, 1.0, trials, hits)
        found = center + share * image
        length = norm(found)
        settled = abs(length - bound) <= _TOLERANCE * bound
        if settled:
            break
        weight = trials * link.derivative_at(z + share * spread)
        fall = float(found.dot(found / shifted)) - weight * float(image.dot(found)) ** 2 / (1.0 + weight * spread)
        m = max(0.0, m + (length / bound - 1.0) * length * length / fall)
    theta = into_ball(basis.dot(found), bound)
    step = theta - state.theta
    return OnlineStep(theta, float(x.dot(theta)), float(step.dot(state.matrix).dot(step)), settled)


def squared_radius(state: EcologState) -> float:
    """eta_t."""
    theta_bound, failure = state.setting.theta_bound, state.config.failure_probability
    # m trades the two terms of the martingale bound; about 2 log(2 / delta) is best at usual horizons.
    m = 2.0 * math.log(2.0 / failure)
    spread = math.sqrt(1.0 + int(state.rewards[()]) / (4.0 * m))
    gamma = 0.5 * math.sqrt(m) + 2.0 / math.sqrt(m) * math.log(2.0 * spread / failure)
    squared, stretched = theta_bound * theta_bound, (1.0 + theta_bound) * gamma
    bound = state.config.ridge * squared + stretched * stretched + 4.0 * squared * m
    return max(0.0, bound + float(state.radius_from_data[()]))


def choose(state: EcologState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the best arm over the ellipsoid for each of N users."""
    width = state.config.scale * math.sqrt(squared_radius(state))
    return choose_optimistic(contexts, state.theta, state.inverse, width, memos)


def learn_one(state: EcologState, x: FloatArray, reward: float) -> None:
    """Take in a reward: move the estimate, and sum up what its radius needs to know of the step."""
    link, line = state.setting.link, line_of(state, x)
    middle = online_step(state, line, 2.0, 1.0)  # theta-bar: as if both rewards came
    moved = online_step(state, line, 1.0, reward)
    curvature = link.derivative_at(moved.z)
    gain = link.antiderivative_at(middle.z) - link.antiderivative_at(moved.z) - reward * (middle.z - moved.z)
    add_outer(state.matrix, x, curvature)
    add_outer(state.inverse, line.image, -curvature / (1.0 + curvature * line.spread))  # Sherman and Morrison
    state.theta[:] = moved.theta
    state.radius_from_data[()] += 2.0 * (1.0 + state.setting.theta_bound) * gain - moved.length
    state.rewards[()] += 1
    if not (middle.settled and moved.settled and link.derivative_at(middle.z) <= 2.0 * curvature):
        state.unproven[()] += 1


class Ecolog(Policy):
    """ECOLog: the online estimator, and optimism over its ellipsoid."""

    name: ClassVar[str] = "ecolog"
    links = ("logistic",)
    config_type = EcologConfig
    config: EcologConfig
    _steps = Steps(choose, in_turn(learn_one), idle)

    def _make_state(self) -> EcologState:
        setting, config, dim = self.setting, self.config, self.setting.dim
        return EcologState(
            matrix=config.ridge * np.eye(dim),
            inverse=np.eye(dim) / config.ridge,
            theta=np.zeros(dim),
            radius_from_data=scalar(),
            rewards=count(),
            unproven=count(),
            setting=setting,
            config=config,
        )
