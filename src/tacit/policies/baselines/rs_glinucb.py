"""`rs-glinucb`: Sawarni, Das, Barman and Sinha, "Generalized linear bandits with limited adaptivity", 2024.

arXiv 2404.06831, Algorithm 2 (RS-GLinCB; the experiments call it RS-GLinUCB). Rounds explore while an arm is poorly
known in V (switching criterion I); their estimate theta_o removes arms that cannot be best and weighs the rows of H
by mu'(<x, theta_o>) / e. All other rounds are optimistic with the estimate of the last switch, and a switch happens
when det H has grown by a constant factor (criterion II): O(d log T) refits, and a regret whose leading term has no
kappa.

Paper: lambda = d log(T/delta) / R^2, gamma = 25 R S sqrt(d log(T/delta)), criterion I at ||x||^2_{V^-1} >= 1 /
(gamma^2 kappa R^2), beta = 150 sqrt(d log(T/delta)), factor 2. Ours: the estimate of a switch uses all rows, as in
the authors' code, and lies in the ball of radius S in place of the projection on {||theta - theta_o||_V <= gamma
sqrt(kappa)}; theta_o is refitted when its rows have grown by 1%. The authors' code keeps a reference to the growing
matrix at a switch; here H_tau is a copy, as the paper has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit._validate import nonnegative, positive, probability
from tacit.glm.links import derivative
from tacit.glm.rows import ALL_ROWS
from tacit.linalg.solve import dot, quadratic_form
from tacit.linalg.vectors import copy_into
from tacit.policies.arms import remember_arm
from tacit.policies.baselines._kernels import add_to_inverse, refit, refit_due
from tacit.policies.rows import RowBuffer, RowPolicy, append_row, grow_flag, make_rows
from tacit.policies.steps import register_steps
from tacit.typing import FloatArray, IntArray

EXPLORED = 1
"""Mask of the rows of criterion I, the set T_o."""


class RsState(NamedTuple):
    """Rows (mask 1: T_o), inverses of V, H_t and H_tau, the two estimates."""

    rows: RowBuffer
    design: FloatArray
    current: FloatArray
    switched: FloatArray
    theta_explored: FloatArray
    theta: FloatArray
    growth: FloatArray
    """log det H_t - log det H_tau."""
    fitted: IntArray
    """Rows of T_o at the last fit of theta_o, code of the link, rows of T_o now."""
    constants: FloatArray
    """Ridge, S, factors of gamma sqrt(kappa) and beta before sqrt(log), of criterion I, horizon (0: none), failure,
    log factor."""


@kernel
def log_term(state: RsState) -> float:
    """log(T / delta); t stands for an unknown T."""
    return math.log(max(state.constants[5], 2.0 + state.rows.count[0]) / state.constants[6])


@kernel
def _advance(state: RsState, fresh: bool) -> int:
    explored = refit_due(state.fitted[2], state.fitted, 0.01)
    switch = state.growth[0] > state.constants[7]
    for task in range(2):  # one call in the source: the fit is inlined, and takes long to compile
        if explored if task == 0 else switch:
            selected, theta = (EXPLORED, state.theta_explored) if task == 0 else (ALL_ROWS, state.theta)
            refit(state.fitted[1], state.rows, selected, state.constants[0], state.constants[1], theta)
    if switch:
        for i in range(state.theta.shape[0]):
            copy_into(state.current[i], state.switched[i])
        state.growth[0] = 0.0
    return grow_flag(state.rows)


@kernel
def _least_known(state: RsState, contexts: FloatArray) -> int:
    """The arm that criterion I plays, or -1."""
    worst, arm = 1.0 / (state.constants[4] * log_term(state)), -1
    for k in range(contexts.shape[0]):
        spread = quadratic_form(state.design, contexts[k])
        if spread >= worst:
            worst, arm = spread, k
    return arm


@kernel
def _optimistic(state: RsState, contexts: FloatArray) -> int:
    """The best upper bound among arms that theta_o leaves in the race."""
    root = math.sqrt(log_term(state))
    outer, inner = state.constants[2] * root, state.constants[3] * root
    count, floor = contexts.shape[0], -math.inf
    upper = np.empty(count)
    for k in range(count):
        width = outer * math.sqrt(max(0.0, quadratic_form(state.design, contexts[k])))
        score = dot(contexts[k], state.theta_explored)
        upper[k] = score + width
        floor = max(floor, score - width)
    best, arm = -math.inf, 0
    for k in range(count):
        if upper[k] < floor:
            continue
        spread = math.sqrt(max(0.0, quadratic_form(state.switched, contexts[k])))
        index = dot(contexts[k], state.theta) + inner * spread
        if index > best:
            best, arm = index, k
    return arm


@kernel
def _choose(state: RsState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    arm = _least_known(state, contexts)
    memo[-1] = 1.0 if arm >= 0 else 0.0
    if arm < 0:
        arm = _optimistic(state, contexts)
    remember_arm(contexts, arm, memo)
    return arm


@kernel
def _learn(state: RsState, memo: FloatArray, reward: float) -> None:
    x = memo[:-1]
    if memo[-1] == EXPLORED:
        add_to_inverse(state.design, x, 1.0)
        state.fitted[2] += 1
        append_row(state.rows, x, reward, EXPLORED)
        return
    weight = derivative(state.fitted[1], dot(x, state.theta_explored)) / math.e
    state.growth[0] += math.log1p(add_to_inverse(state.current, x, weight))
    append_row(state.rows, x, reward, 0)


register_steps(RsState, _advance, _choose, _learn)


@dataclass(frozen=True)
class RsOptions:
    """``scale`` multiplies beta and gamma, ``exploration_scale`` the gamma of criterion I.

    Defaults are the constants of the authors' experiments (their public code): beta = 4 sqrt(d log(T/delta)),
    criterion I with gamma of 0.1 R S sqrt(d) at T = 5,000, ridge 0.5. With the paper's own, criterion I fires in
    every round of any horizon below 10^7. Their experiments switch at a factor of 1.5; 2 is the paper's.
    """

    scale: float = 4.0 / 150.0
    exploration_scale: float = 1.0 / 880.0
    ridge: float = 0.5
    switch_factor: float = 2.0
    failure_probability: float = 0.02

    def __post_init__(self) -> None:
        nonnegative("scale", self.scale)
        positive("exploration_scale", self.exploration_scale)
        positive("ridge", self.ridge)
        positive("switch_factor", self.switch_factor - 1.0)
        probability("failure_probability", self.failure_probability)


class RsGlinUcb(RowPolicy):
    """RS-GLinUCB: rarely switching, free of kappa in the leading term."""

    name: ClassVar[str] = "rs-glinucb"
    options_type = RsOptions

    @property
    def memo_size(self) -> int:
        return self.setting.dim + 1

    def _build(self) -> None:
        setting, options = self.setting, self.options
        dim, root = setting.dim, math.sqrt(setting.dim)
        gamma = 25.0 * setting.reward_bound * setting.theta_bound * root
        trigger = (options.exploration_scale * gamma * setting.reward_bound) ** 2 * setting.kappa
        self.state = RsState(
            rows=make_rows(dim),
            design=np.eye(dim) / options.ridge,
            current=np.eye(dim) / options.ridge,
            switched=np.eye(dim) / options.ridge,
            theta_explored=np.zeros(dim),
            theta=np.zeros(dim),
            growth=np.zeros(1),
            fitted=np.array([0, setting.link.code, 0], dtype=np.int64),
            constants=np.array([
                options.ridge, setting.theta_bound, options.scale * gamma * math.sqrt(setting.kappa),
                options.scale * 150.0 * root, trigger, float(setting.horizon or 0), options.failure_probability,
                math.log(options.switch_factor),
            ]),
        )  # fmt: skip
