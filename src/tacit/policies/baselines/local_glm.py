"""`local-glm`: Han, Liang, Wang and Zhang, "Generalized linear bandits with local differential privacy", NeurIPS 2021.

arXiv 2106.03365, the stochastic-gradient estimator: each user's device receives theta_t, plays, and sends one
gradient (mu(<x, theta_t>) - r) x with Gaussian noise; the server steps along it with a rate of order 1 / t and
projects. Arms are uniform in a short warm-up, greedy from then on (their stochastic-context algorithm).

Formal guarantee
----------------
(epsilon, delta)-local differential privacy: what leaves a device is one noisy gradient. Adjacency: the user's whole
row (arm set and reward) is replaced. The gradient's norm is at most L = max |mu - r| (R when the mean lies in [0,
R]), so a replaced row moves the report by at most 2 L; noise N(0, (2 L / mu)^2 I) is mu-GDP, exactly
(docs/theory.md#private-peers). The ledger holds one report per user: reports of different users are about disjoint
rows, so they do not add up. A user whose reward never comes sends nothing: the number of reports is not protected, as
always in the local model. Ours: one exact Gaussian calibration, and the constants of rate and warm-up.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._validate import positive
from tacit.glm.links import Link
from tacit.linalg.packing import rounded_to_grid
from tacit.policies.admission import remember_rows
from tacit.policies.baselines._local import LocalPolicy, Report
from tacit.policies.config import PrivateConfig, at_least, configuration, option
from tacit.policies.exploring import uniform_arms
from tacit.policies.log import DIRECT, Publisher
from tacit.policies.steps import Steps
from tacit.typing import Count, FloatArray, IntArray, Secret, count


@configuration
class LocalConfig(PrivateConfig):
    """Configuration of `local-glm`.

    The paper's rate is 1 / (curvature * t) with a curvature that is unknown; `LocalGLM` takes the typical one, and
    0.5 of that rate was best over the paper's two settings at epsilon 1 and 4 (seeds from 1000).
    """

    scale: float = option("Multiplies the rate of the gradient steps.", default=0.5, check=positive)
    warm_up: int | None = option(
        "Decisions with uniformly random arms before the first greedy one; ceil(sqrt(T)) by default, 100 without a "
        "horizon.",
        default=None,
        check=at_least(0),
    )


class LocalConstants(NamedTuple):
    """Public numbers that the steps of `local-glm` read."""

    link: Link
    rate: float
    """Numerator of the rate of the gradient steps; ``rate_offset`` is added to t in its denominator."""
    rate_offset: float
    theta_bound: float
    gradient_bound: float
    """L: most that the factor of a gradient can be."""
    noise_sd: float
    grid: float
    """Spacing of exact noise; 0: none."""
    warm_up: int


class LocalState(NamedTuple):
    """The server's iterate, and what the devices that decide next have drawn."""

    theta: FloatArray
    noise: Secret[FloatArray]
    """Noise of each of these devices, d numbers for one after the other."""
    reports: Count
    ticks: Count
    """Decisions so far."""
    constants: LocalConstants


def device_gradient(constants: LocalConstants, theta: FloatArray, x: FloatArray, reward: float) -> FloatArray:
    """Compute the gradient on a device: its factor is clipped to the bound L, its entries are rounded to the grid."""
    bound = constants.gradient_bound
    slope = min(bound, max(-bound, constants.link.mean_at(float(x.dot(theta))) - reward))
    return rounded_to_grid(slope * x, constants.grid)


def choose(state: LocalState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the arm of the largest score for each of N users, in the warm-up a uniform one.

    A memo has the features of the arm and the noise of the user's device.
    """
    users, count, dim = contexts.shape
    warm = min(users, max(0, state.constants.warm_up + users - int(state.ticks[()])))
    arms: IntArray = contexts.reshape(-1, dim).dot(state.theta).reshape(users, count).argmax(axis=1)
    arms[:warm] = uniform_arms(count, coins[:warm, 0])
    coins[:, 0] = 1.0
    coins[:warm, 0] = 1.0 / count
    remember_rows(contexts, arms, memos)
    memos[:, dim:] = state.noise.reshape(users, dim)
    return np.asarray(arms)


def learn(state: LocalState, memos: FloatArray, rewards: FloatArray, publisher: Publisher = DIRECT) -> None:
    """Take in N rewards, one after the other: each device reports its gradient at the newest theta.

    A report is released, so that it passes the publisher.
    """
    constants, dim = state.constants, state.theta.size
    for memo, reward in zip(memos, rewards.tolist(), strict=True):
        gradient = device_gradient(constants, state.theta, memo[:dim], reward)
        _take_report(state, publisher.vector("report", gradient, memo[dim:], constants.noise_sd))


def _take_report(state: LocalState, report: FloatArray) -> None:
    """On the server: take a step along the report, which has the noise of its device."""
    constants, reports = state.constants, int(state.reports[()]) + 1
    state.reports[()] = reports
    theta = state.theta - constants.rate / (constants.rate_offset + reports) * report
    length = math.sqrt(theta.dot(theta))
    state.theta[:] = theta if length <= constants.theta_bound else (constants.theta_bound / length) * theta


def advance(state: LocalState, fresh: bool, users: int) -> int:
    """Count the decisions that follow, one of each device whose noise was drawn."""
    state.ticks[()] += state.noise.size // state.theta.size
    return 0


class LocalGLM(LocalPolicy):
    """Greedy on a locally private stochastic-gradient estimate."""

    name: ClassVar[str] = "local-glm"
    config_type = LocalConfig
    config: LocalConfig
    state: LocalState
    _coin_count = 1
    _states_propensity = True
    _steps = Steps(choose, learn, advance)

    @property
    def _report(self) -> Report:
        bound = self._gradient_bound
        return Report("noisy gradient", self.setting.dim, norm=bound, distance=2.0 * bound)

    def _learn_rows(self, memos: FloatArray, rewards: FloatArray) -> None:
        learn(self._state, memos, rewards, self.publisher)

    def _make_state(self) -> LocalState:
        self._charge_reports()
        dim = self.setting.dim
        return LocalState(np.zeros(dim), np.zeros(dim), count(), count(), self._constants())

    @property
    def _gradient_bound(self) -> float:
        return self.setting.link.residual_bound(self.setting.theta_bound, self.setting.reward_bound)

    def _constants(self) -> LocalConstants:
        setting, warm_up = self.setting, self.config.warm_up
        if warm_up is None:
            warm_up = 100 if setting.horizon is None else math.ceil(math.sqrt(setting.horizon))
        # Curvature of the mean loss where rows are: half of max mu' times a direction's share of ||x||^2.
        rate = self.config.scale * 2.0 * setting.dim / setting.max_derivative
        return LocalConstants(
            link=setting.link,
            rate=rate,
            rate_offset=rate * setting.max_derivative,
            theta_bound=setting.theta_bound,
            gradient_bound=self._gradient_bound,
            noise_sd=self._planned_noise_sd,
            grid=self.randomness.ticks.grid or 0.0,
            warm_up=warm_up,
        )
