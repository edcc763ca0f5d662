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
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit._validate import integer_at_least, positive
from tacit.glm.links import mean
from tacit.linalg.projection import project_ball
from tacit.linalg.solve import dot
from tacit.linalg.vectors import copy_into
from tacit.policies.arms import remember_arm
from tacit.policies.base import Policy
from tacit.policies.steps import register_steps
from tacit.privacy.report import Model
from tacit.typing import FloatArray, IntArray, Secret


class LocalState(NamedTuple):
    """The server's iterate; ``noise`` is what the device of the next user draws."""

    theta: FloatArray
    noise: Secret[FloatArray]
    counts: IntArray
    """Reports so far, decisions so far, rounds of warm-up, code of the link."""
    constants: FloatArray
    """Numerator and offset of the rate, S, bound L of a gradient, grid of exact noise (0: none), noise sd."""


@kernel
def report_gradient(
    link: int, theta: FloatArray, x: FloatArray, reward: float, bound: float, grid: float, out: FloatArray
) -> None:
    """What the device computes before noise: the gradient, its factor clipped to ``bound``, on the noise's grid."""
    slope = min(bound, max(-bound, mean(link, dot(x, theta)) - reward))
    for i in range(theta.shape[0]):
        out[i] = slope * x[i]
        if grid > 0.0:
            out[i] = grid * np.rint(out[i] / grid)


@kernel
def _advance(state: LocalState, fresh: bool) -> int:
    state.counts[1] += 1
    return 0


@kernel
def _close(state: LocalState, noise: FloatArray) -> bool:
    """Nothing is released by a tick: the noise goes to the device that decides next."""
    copy_into(noise, state.noise)
    return True


@kernel
def _choose(state: LocalState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    arm, best, dim = 0, -math.inf, contexts.shape[1]
    if state.counts[1] <= state.counts[2]:
        arm = min(int(coins[0] * contexts.shape[0]), contexts.shape[0] - 1)
    else:
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
    dim = state.theta.shape[0]
    report = np.empty(dim)
    device_gradient(state, memo, reward, report)
    for i in range(dim):
        report[i] += memo[dim + i]
    take_report(state, report)


@kernel
def device_gradient(state: LocalState, memo: FloatArray, reward: float, out: FloatArray) -> None:
    """The device's side: its gradient at the newest theta, before noise."""
    dim = state.theta.shape[0]
    report_gradient(state.counts[3], state.theta, memo[:dim], reward, state.constants[3], state.constants[4], out)


@kernel
def take_report(state: LocalState, report: FloatArray) -> None:
    """The server's side: a step along the report that left the device, noise included."""
    numerator, offset, theta_bound = state.constants[:3]
    state.counts[0] += 1
    rate = numerator / (offset + state.counts[0])
    for i in range(report.shape[0]):
        state.theta[i] -= rate * report[i]
    project_ball(state.theta, theta_bound)


register_steps(LocalState, _advance, _choose, _learn, _close)


@dataclass(frozen=True)
class LocalOptions:
    """``scale`` multiplies the rate; ``warm_up`` of None is ceil(sqrt(T)), 100 without a horizon.

    The paper's rate is 1 / (curvature * t) with a curvature that nobody knows; `LocalGLM` takes the typical one, and
    0.5 of that rate was best over the paper's two settings at epsilon 1 and 4 (seeds from 1000).
    """

    scale: float = 0.5
    warm_up: int | None = None

    def __post_init__(self) -> None:
        positive("scale", self.scale)
        if self.warm_up is not None:
            integer_at_least("warm_up", self.warm_up, 0)


class LocalGLM(Policy):
    """Greedy on a locally private stochastic-gradient estimate."""

    name: ClassVar[str] = "local-glm"
    guarantee: ClassVar[Model] = "local"
    options_type = LocalOptions
    coin_count = 1
    shares_ticks = False  # every device has its own noise

    @property
    def memo_size(self) -> int:
        return 2 * self.setting.dim

    @property
    def noise_size(self) -> int:
        return self.setting.dim

    @property
    def noise_scale(self) -> float:
        return float(self.state.constants[-1])

    def _close(self, noise: FloatArray) -> bool:
        return _close(self.state, noise)

    def _learn_published(self, memo: FloatArray, reward: float) -> None:
        gradient, dim = np.empty(self.setting.dim), self.setting.dim
        device_gradient(self.state, memo, reward, gradient)
        take_report(self.state, self.publisher.vector("report", gradient, memo[dim:], self.noise_scale))

    def _drop_raw(self) -> None:
        self.state.noise[:] = 0.0

    def _build(self) -> None:
        setting, options = self.setting, self.options
        dim, budget = setting.dim, setting.budget
        assert budget is not None
        assert self.ledger is not None
        bound = setting.link.residual_bound(setting.theta_bound, setting.reward_bound)
        mu = self.noise.mu_budget(budget.epsilon, budget.delta, budget.rounds_per_user)
        sd = self.noise.scale_for(2.0 * bound, mu, size=dim)
        self.ledger.charge(self.noise.event(
            "noisy gradient", 2.0 * bound, sd, size=dim, draws=dim * budget.rounds_per_user, moving_sensitivity=bound,
            note="one report per user: reports of different users concern disjoint rows",
        ))  # fmt: skip
        warm_up = options.warm_up
        if warm_up is None:
            warm_up = 100 if setting.horizon is None else math.ceil(math.sqrt(setting.horizon))
        # Curvature of the mean loss where rows are: half of max mu' times a direction's share of ||x||^2.
        rate = options.scale * 2.0 * dim / setting.max_derivative
        self.state = LocalState(
            theta=np.zeros(dim),
            noise=np.zeros(dim),
            counts=np.array([0, 0, warm_up, setting.link.code], dtype=np.int64),
            constants=np.array([
                rate, rate * setting.max_derivative, setting.theta_bound, bound, self.noise.grid or 0.0, sd,
            ]),
        )  # fmt: skip
