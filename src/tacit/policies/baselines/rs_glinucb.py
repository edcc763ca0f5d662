"""`rs-glinucb`: Sawarni, Das, Barman and Sinha, "Generalized linear bandits with limited adaptivity", 2024.

arXiv 2404.06831, Algorithm 2 (RS-GLinCB; the experiments call it RS-GLinUCB). Rounds explore while an arm is poorly
known in V (switching criterion I). Their estimate theta_o removes arms that cannot be best and weighs the rows of H
by mu'(<x, theta_o>) / e. All other rounds are optimistic with the estimate of the last switch, and a switch happens
when det H has grown by a constant factor (criterion II): O(d log T) refits, and a regret whose leading term has no
kappa.

The paper has lambda = d log(T/delta) / R^2, gamma = 25 R S sqrt(d log(T/delta)), criterion I at ||x||^2_{V^-1} >= 1 /
(gamma^2 kappa R^2), beta = 150 sqrt(d log(T/delta)) and a factor of 2. What differs here: the estimate of a switch
uses all rows, as in the authors' code, and lies in the ball of radius S in place of the projection on
{||theta - theta_o||_V <= gamma sqrt(kappa)}, and theta_o is refitted when its rows have grown by 1%. The authors' code
keeps a reference to the growing matrix at a switch; here H_tau is a copy, as the paper has it. The published figures
come from a copy of the authors' code; docs/guides/baselines.md lists how it differs.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import allocating_kernel, inlined_kernel, kernel
from tacit._validate import positive, real
from tacit.errors import InvalidInput
from tacit.glm.links import LinkForm, derivative
from tacit.glm.rows import ALL_ROWS
from tacit.linalg.solve import dot, quadratic_form
from tacit.linalg.vectors import copy_into
from tacit.policies.arms import remember_arm
from tacit.policies.baselines._config import ConfidenceConfig, scale_option
from tacit.policies.baselines._kernels import MARK, add_to_inverse, refit, refit_due, rule_out
from tacit.policies.config import configuration, option
from tacit.policies.row_policy import RowBuffer, RowPolicy, append_row, grow_flag, make_rows
from tacit.policies.steps import register_steps
from tacit.typing import Count, FloatArray, Number, count, number

EXPLORED = 1
"""Mask of the rows of criterion I, the set T_o; that of all others is 0."""
EXPLORED_GROWTH = 0.01
"""Fraction by which T_o grows between fits of theta_o."""


def _above_one(name: str, value: object) -> float:
    factor = real(name, value)
    if not 1.0 < factor < math.inf:
        raise InvalidInput(f"{name} must be above 1 and finite, got {value!r}")
    return factor


@configuration
class RsConfig(ConfidenceConfig):
    """Configuration of `rs-glinucb`.

    The authors' experiments are those of their public code.
    """

    scale: float = scale_option(
        "Multiplies beta and gamma; by default beta = 4 sqrt(d log(T/delta)), as in the authors' experiments. Their "
        "gamma of the elimination is 3/2 of ours then, since one number scales both widths here.",
        default=4.0 / 150.0,
    )
    exploration_scale: float = option(
        "Multiplies the gamma of criterion I, which is 0.1 R S sqrt(d) at T = 5,000 by default, as in the authors' "
        "experiments. With the paper's own, criterion I fires in every round of any horizon below 10^7.",
        default=1.0 / 880.0,
        check=positive,
    )
    ridge: float = option(
        "Ridge of all matrices and fits; the default is that of the authors' experiments.", default=0.5, check=positive
    )
    switch_factor: float = option(
        "Growth of det H at which the policy switches. The authors' experiments switch at a factor of 1.5; 2 is the "
        "paper's.",
        default=2.0,
        check=_above_one,
    )


class RsConstants(NamedTuple):
    """Public numbers that the steps read; the logarithm in some of them is log(T / delta)."""

    link: LinkForm
    ridge: float
    theta_bound: float
    explored_width: float
    """gamma sqrt(kappa) without the square root of the logarithm."""
    switched_width: float
    """beta without the square root of the logarithm."""
    trigger: float
    """gamma^2 kappa R^2 of criterion I without the logarithm."""
    horizon: float
    """T; 0 when it is not known."""
    failure_probability: float
    switch_growth: float
    """Growth of log det H that makes a switch."""


class RsState(NamedTuple):
    """Rows, inverses of V, H_t and H_tau, and the two estimates."""

    rows: RowBuffer
    """The mask says which of them are in T_o."""
    explored_inverse: FloatArray
    """Of V, the matrix of T_o."""
    current_inverse: FloatArray
    """Of H_t, which grows with all other rows."""
    switched_inverse: FloatArray
    """Of H_tau: H_t as it was at the last switch."""
    theta_explored: FloatArray
    """theta_o."""
    theta: FloatArray
    """The estimate of the last switch."""
    growth: Number
    """log det H_t - log det H_tau."""
    explored: Count
    """Rows of T_o now."""
    fitted: Count
    """Rows of T_o at the last fit of theta_o."""
    unfinished: Count
    """Fits that did not converge; the next one goes on from there."""
    constants: RsConstants


class Estimate(NamedTuple):
    """An estimate and the confidence set around it: the inverse of its matrix, and its width."""

    theta: FloatArray
    inverse: FloatArray
    width: float


@inlined_kernel
def log_term(state: RsState) -> float:
    """log(T / delta); t stands for an unknown T."""
    constants = state.constants
    return math.log(max(constants.horizon, 2.0 + state.rows.held[()]) / constants.failure_probability)


@kernel
def _advance(state: RsState, fresh: bool) -> int:
    constants, ridge, bound = state.constants, state.constants.ridge, state.constants.theta_bound
    explored = refit_due(state.explored[()], state.fitted, EXPLORED_GROWTH)
    switch = state.growth[()] > constants.switch_growth
    for task in range(2):  # one call in the source: the fit is inlined, and takes long to compile
        if explored if task == 0 else switch:
            selected, theta = (EXPLORED, state.theta_explored) if task == 0 else (ALL_ROWS, state.theta)
            refit(constants.link, state.rows, selected, ridge, bound, state.unfinished, theta)
    if switch:
        for i in range(state.theta.shape[0]):
            copy_into(state.current_inverse[i], state.switched_inverse[i])
        state.growth[()] = 0.0
    return grow_flag(state.rows)


@inlined_kernel
def _least_known(state: RsState, contexts: FloatArray) -> int:
    """The arm that criterion I plays, or -1."""
    worst, arm = 1.0 / (state.constants.trigger * log_term(state)), -1
    for k in range(contexts.shape[0]):
        variance = quadratic_form(state.explored_inverse, contexts[k])
        if variance >= worst:
            worst, arm = variance, k
    return arm


@allocating_kernel
def _optimistic(contexts: FloatArray, explored: Estimate, switched: Estimate) -> int:
    """The best upper bound among arms that theta_o leaves in the race."""
    alive = np.ones(contexts.shape[0], dtype=np.bool_)
    rule_out(contexts, explored.theta, explored.inverse, explored.width, alive)
    best, arm = -math.inf, 0
    for k in range(contexts.shape[0]):
        if alive[k]:
            spread = math.sqrt(max(0.0, quadratic_form(switched.inverse, contexts[k])))
            index = dot(contexts[k], switched.theta) + switched.width * spread
            if index > best:
                best, arm = index, k
    return arm


@kernel
def _choose(state: RsState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    arm = _least_known(state, contexts)
    memo[MARK] = EXPLORED if arm >= 0 else 0
    if arm < 0:
        root = math.sqrt(log_term(state))
        outer, inner = state.constants.explored_width * root, state.constants.switched_width * root
        explored = Estimate(state.theta_explored, state.explored_inverse, outer)
        arm = _optimistic(contexts, explored, Estimate(state.theta, state.switched_inverse, inner))
    remember_arm(contexts, arm, memo)
    return arm


@kernel
def _learn(state: RsState, memo: FloatArray, reward: float) -> None:
    x = memo[:MARK]
    if memo[MARK] == EXPLORED:
        add_to_inverse(state.explored_inverse, x, 1.0)
        state.explored[()] += 1
    else:
        weight = derivative(state.constants.link, dot(x, state.theta_explored)) / math.e
        state.growth[()] += math.log1p(add_to_inverse(state.current_inverse, x, weight))
    append_row(state.rows, x, reward, int(memo[MARK]))


register_steps(RsState, _advance, _choose, _learn)


class RsGlinUcb(RowPolicy):
    """RS-GLinUCB: rarely switching, free of kappa in the leading term."""

    name: ClassVar[str] = "rs-glinucb"
    config_type = RsConfig
    config: RsConfig

    @property
    def memo_size(self) -> int:
        """The arm's features and the mark of the row."""
        return self.setting.dim + 1

    def _make_state(self) -> RsState:
        dim, ridge = self.setting.dim, self.config.ridge
        return RsState(
            rows=make_rows(dim),
            explored_inverse=np.eye(dim) / ridge,
            current_inverse=np.eye(dim) / ridge,
            switched_inverse=np.eye(dim) / ridge,
            theta_explored=np.zeros(dim),
            theta=np.zeros(dim),
            growth=number(),
            explored=count(),
            fitted=count(),
            unfinished=count(),
            constants=self._constants(),
        )

    def _constants(self) -> RsConstants:
        setting, config, root = self.setting, self.config, math.sqrt(self.setting.dim)
        gamma = 25.0 * setting.reward_bound * setting.theta_bound * root
        return RsConstants(
            link=setting.link.form,
            ridge=config.ridge,
            theta_bound=setting.theta_bound,
            explored_width=config.scale * gamma * math.sqrt(setting.kappa),
            switched_width=config.scale * 150.0 * root,
            trigger=(config.exploration_scale * gamma * setting.reward_bound) ** 2 * setting.kappa,
            horizon=float(setting.horizon or 0),
            failure_probability=config.failure_probability,
            switch_growth=math.log(config.switch_factor),
        )
