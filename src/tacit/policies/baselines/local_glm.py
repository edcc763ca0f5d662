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
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import inlined_kernel, kernel
from tacit._validate import positive
from tacit.glm.links import LinkForm, mean
from tacit.linalg.projection import project_ball
from tacit.linalg.solve import dot
from tacit.linalg.vectors import copy_into, round_to_grid
from tacit.policies.arms import remember_arm
from tacit.policies.config import PrivateConfig, at_least, configuration, option
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.steps import register_steps
from tacit.privacy.report import Model
from tacit.typing import Count, FloatArray, Secret, count


@configuration
class LocalConfig(PrivateConfig):
    """Configuration of `local-glm`.

    The paper's rate is 1 / (curvature * t) with a curvature that nobody knows; `LocalGLM` takes the typical one, and
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
    """Public numbers that the steps read."""

    link: LinkForm
    rate: float
    """Numerator of the rate of the gradient steps; ``rate_offset`` is added to t in its denominator."""
    rate_offset: float
    theta_bound: float
    gradient_bound: float
    """L."""
    grid: float
    """Spacing of exact noise; 0: none."""
    warm_up: int


class LocalState(NamedTuple):
    """The server's iterate; ``noise`` is what the device of the next user draws."""

    theta: FloatArray
    noise: Secret[FloatArray]
    reports: Count
    ticks: Count
    constants: LocalConstants


@inlined_kernel
def report_gradient(
    link: LinkForm, theta: FloatArray, x: FloatArray, reward: float, bound: float, grid: float, out: FloatArray
) -> None:
    """Add to ``out`` what the device computes: the gradient, its factor clipped to ``bound``, on the noise's grid."""
    slope = min(bound, max(-bound, mean(link, dot(x, theta)) - reward))
    for i in range(theta.shape[0]):
        out[i] += round_to_grid(slope * x[i], grid)


@kernel
def _advance(state: LocalState, fresh: bool) -> int:
    state.ticks[()] += 1
    return 0


@kernel
def _close(state: LocalState, noise: FloatArray, users: int) -> bool:
    """Nothing is released by a tick: the noise goes to the device that decides next."""
    copy_into(noise, state.noise)
    return True


@kernel
def _choose(state: LocalState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    arm, best, dim = 0, -math.inf, contexts.shape[1]
    if state.ticks[()] <= state.constants.warm_up:
        arm = min(int(coins[0] * contexts.shape[0]), contexts.shape[0] - 1)
        coins[0] = 1.0 / contexts.shape[0]
    else:
        coins[0] = 1.0
        for k in range(contexts.shape[0]):
            score = dot(contexts[k], state.theta)
            if score > best:
                best, arm = score, k
    remember_arm(contexts, arm, memo)
    for i in range(dim):
        memo[dim + i] = state.noise[i]
    return arm


@kernel
def _learn(state: LocalState, memo: FloatArray, reward: float) -> None:
    report = memo[state.theta.shape[0] :]  # the device's noise, which its gradient is added to
    device_gradient(state, memo, reward, report)
    take_report(state, report)


@inlined_kernel
def device_gradient(state: LocalState, memo: FloatArray, reward: float, out: FloatArray) -> None:
    """The device's side: its gradient at the newest theta, added to ``out``."""
    dim, constants = state.theta.shape[0], state.constants
    bound, grid = constants.gradient_bound, constants.grid
    report_gradient(constants.link, state.theta, memo[:dim], reward, bound, grid, out)


@inlined_kernel
def take_report(state: LocalState, report: FloatArray) -> None:
    """The server's side: a step along the report that left the device, noise included."""
    state.reports[()] += 1
    rate = state.constants.rate / (state.constants.rate_offset + state.reports[()])
    for i in range(report.shape[0]):
        state.theta[i] -= rate * report[i]
    project_ball(state.theta, state.constants.theta_bound)


register_steps(LocalState, _advance, _choose, _learn, _close)


class LocalGLM(PrivatePolicy):
    """Greedy on a locally private stochastic-gradient estimate."""

    name: ClassVar[str] = "local-glm"
    guarantee: ClassVar[Model] = "local"
    config_type = LocalConfig
    config: LocalConfig
    state: LocalState
    coin_count = 1
    states_propensity = True
    shares_ticks = False  # every device has its own noise

    @property
    def memo_size(self) -> int:
        return 2 * self.setting.dim

    @property
    def secret_memo(self) -> slice:
        return slice(self.setting.dim, 2 * self.setting.dim)  # the noise of the device

    @property
    def noise_size(self) -> int:
        return self.setting.dim

    @property
    def noise_scale(self) -> float:
        return self._planned_noise_sd

    def _close(self, noise: FloatArray, users: int) -> bool:
        return _close(self.state, noise, users)

    def _learn_published(self, memo: FloatArray, reward: float) -> None:
        gradient, dim = np.zeros(self.setting.dim), self.setting.dim
        device_gradient(self.state, memo, reward, gradient)
        take_report(self.state, self.publisher.vector("report", gradient, memo[dim:], self.noise_scale))

    def _drop_raw(self) -> None:
        self.state.noise[:] = 0.0

    def _make_state(self) -> LocalState:
        self._charge_reports()
        dim = self.setting.dim
        return LocalState(np.zeros(dim), np.zeros(dim), count(), count(), self._constants())

    @property
    def _gradient_bound(self) -> float:
        return self.setting.link.residual_bound(self.setting.theta_bound, self.setting.reward_bound)

    @cached_property
    def _planned_noise_sd(self) -> float:
        return self.randomness.ticks.scale_for(2.0 * self._gradient_bound, self.total_mu, size=self.setting.dim)

    def _charge_reports(self) -> None:
        """One report of each user."""
        dim, bound, source, sd = self.setting.dim, self._gradient_bound, self.randomness.ticks, self._planned_noise_sd
        self.ledger.charge(source.event(
            "noisy gradient", 2.0 * bound, sd, size=dim, draws=dim * self.setting.budget.rounds_per_user,
            moving_sensitivity=bound, note="one report per user: reports of different users concern disjoint rows",
        ))  # fmt: skip

    def _constants(self) -> LocalConstants:
        setting, warm_up = self.setting, self.config.warm_up
        if warm_up is None:
            warm_up = 100 if setting.horizon is None else math.ceil(math.sqrt(setting.horizon))
        # Curvature of the mean loss where rows are: half of max mu' times a direction's share of ||x||^2.
        rate = self.config.scale * 2.0 * setting.dim / setting.max_derivative
        return LocalConstants(
            link=setting.link.form,
            rate=rate,
            rate_offset=rate * setting.max_derivative,
            theta_bound=setting.theta_bound,
            gradient_bound=self._gradient_bound,
            grid=self.randomness.ticks.grid or 0.0,
            warm_up=warm_up,
        )
