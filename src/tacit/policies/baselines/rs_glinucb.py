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

from tacit._validate import positive, real
from tacit.errors import InvalidInput
from tacit.glm.links import Link
from tacit.glm.rows import ALL_ROWS, RowBuffer, append_rows, make_room, make_rows
from tacit.policies.admission import remember_rows
from tacit.policies.baselines._shared import (
    MARK,
    ConfidenceConfig,
    add_to_inverse,
    optimistic_scores,
    refit,
    refit_due,
    ruled_out,
    scale_option,
    scores,
    squared_spreads,
)
from tacit.policies.config import configuration, option
from tacit.policies.policy import Policy
from tacit.policies.steps import Steps
from tacit.typing import Count, FloatArray, IntArray, Scalar, count, scalar

EXPLORED = 1
"""Mark of the rows of criterion I, the set T_o; other rows have the mark 0."""
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
    """Public numbers that the steps of `rs-glinucb` read; the logarithm in some of them is log(T / delta)."""

    link: Link
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
    """State of `rs-glinucb`: rows, inverses of V, H_t and H_tau, and the two estimates."""

    rows: RowBuffer
    """All rows; their marks say which of them are in T_o."""
    explored_inverse: FloatArray
    """Inverse of V, the matrix of the rows in T_o."""
    current_inverse: FloatArray
    """Inverse of H_t, which grows with all other rows."""
    switched_inverse: FloatArray
    """Inverse of H_tau, which is H_t as it was at the last switch."""
    theta_explored: FloatArray
    """theta_o."""
    theta: FloatArray
    """The estimate of the last switch."""
    growth: Scalar
    """log det H_t - log det H_tau."""
    explored: Count
    """Rows of T_o now."""
    fitted: Count
    """Rows of T_o at the last fit of theta_o."""
    unfinished: Count
    """Fits that did not converge; the next one goes on from there."""
    constants: RsConstants


def log_term(state: RsState) -> float:
    """Return log(T / delta); t stands for an unknown T."""
    constants = state.constants
    return math.log(max(constants.horizon, 2.0 + int(state.rows.held[()])) / constants.failure_probability)


def advance(state: RsState, fresh: bool, users: int) -> int:
    """Fit theta_o when its rows have grown, and switch when det H has."""
    constants, ridge, bound = state.constants, state.constants.ridge, state.constants.theta_bound
    if refit_due(state.explored[()], state.fitted, EXPLORED_GROWTH):
        refit(constants.link, state.rows, EXPLORED, ridge, bound, state.unfinished, state.theta_explored)
    if state.growth[()] > constants.switch_growth:
        refit(constants.link, state.rows, ALL_ROWS, ridge, bound, state.unfinished, state.theta)
        state.switched_inverse[:] = state.current_inverse
        state.growth[()] = 0.0
    return 0


def choose(state: RsState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the least known arm where criterion I asks for it, else an optimistic one, for each of N users."""
    log, variances = log_term(state), squared_spreads(contexts, state.explored_inverse)
    explores = variances.max(axis=1) >= 1.0 / (state.constants.trigger * log)
    arms: IntArray = variances.shape[1] - 1 - variances[:, ::-1].argmax(axis=1)  # the last one of those known alike
    if not all(explores.tolist()):
        arms = np.where(explores, arms, _optimistic(state, contexts, variances, math.sqrt(log)))
    remember_rows(contexts, arms, memos)
    memos[:, MARK] = explores  # EXPLORED or 0
    return arms


def _optimistic(state: RsState, contexts: FloatArray, variances: FloatArray, root: float) -> IntArray:
    """Choose the arm of the best upper bound among those that theta_o does not rule out, for each of N users.

    ``variances`` are ||x||^2 in the inverse of V, ``root`` is the square root of the logarithm in both widths.
    """
    reach = (state.constants.explored_width * root) * np.sqrt(variances)
    index = optimistic_scores(contexts, state.theta, state.switched_inverse, state.constants.switched_width * root)
    index[ruled_out(scores(contexts, state.theta_explored), reach)] = -np.inf
    arms: IntArray = index.argmax(axis=1)
    return arms


def until_change(state: RsState, memos: FloatArray) -> int:
    """How many of N decisions may be kept: up to the first row of T_o, or the first that may bring the next switch.

    det H grows by at most what each row alone would add.  The logarithm of the widths changes beyond the horizon only.
    """
    constants, features, marks = state.constants, memos[:, :MARK], memos[:, MARK]
    if marks[0] == EXPLORED:
        return 1
    most = max(1, min(len(memos), int(constants.horizon) - 2 - int(state.rows.held[()])))
    weights = constants.link.derivative(features.dot(state.theta_explored)) / math.e
    gains = weights * np.vecdot(features.dot(state.current_inverse), features)
    growth = state.growth[()] + np.log1p(gains).cumsum()
    changes = np.flatnonzero((marks == EXPLORED) | (growth > constants.switch_growth))
    return min(most, int(changes[0]) + 1) if changes.size else most


def learn(state: RsState, memos: FloatArray, rewards: FloatArray) -> None:
    """Keep N rows, and add each to V if it was explored, else to H with its weight mu'(<x, theta_o>) / e."""
    features, marks = memos[:, :MARK], memos[:, MARK]
    for x, mark in zip(features, marks.tolist(), strict=True):
        if mark == EXPLORED:
            add_to_inverse(state.explored_inverse, x, 1.0)
            state.explored[()] += 1
        else:
            weight = state.constants.link.derivative_at(float(x.dot(state.theta_explored))) / math.e
            state.growth[()] += math.log1p(add_to_inverse(state.current_inverse, x, weight))
    append_rows(state.rows, features, rewards, marks.astype(np.uint8))


class RsGlinUcb(Policy):
    """RS-GLinUCB: rarely switching, free of kappa in the leading term."""

    name: ClassVar[str] = "rs-glinucb"
    config_type = RsConfig
    config: RsConfig
    _steps = Steps(choose, learn, advance, make_room, until_change)

    @property
    def _memo_size(self) -> int:
        """Numbers of a memo: the arm's features and the mark of the row."""
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
            growth=scalar(),
            explored=count(),
            fitted=count(),
            unfinished=count(),
            constants=self._constants(),
        )

    def _constants(self) -> RsConstants:
        setting, config, root = self.setting, self.config, math.sqrt(self.setting.dim)
        gamma = 25.0 * setting.reward_bound * setting.theta_bound * root
        return RsConstants(
            link=setting.link,
            ridge=config.ridge,
            theta_bound=setting.theta_bound,
            explored_width=config.scale * gamma * math.sqrt(setting.kappa),
            switched_width=config.scale * 150.0 * root,
            trigger=(config.exploration_scale * gamma * setting.reward_bound) ** 2 * setting.kappa,
            horizon=float(setting.horizon or 0),
            failure_probability=config.failure_probability,
            switch_growth=math.log(config.switch_factor),
        )
