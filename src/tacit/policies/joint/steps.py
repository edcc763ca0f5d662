"""State and compiled steps of Algorithm 2.

Two continual releases, V over exploration rounds and H over all others, steer two switching criteria: explore while
some arm is poorly covered by V (criterion I), refresh the estimate when the released H has outgrown the one of the
last refresh (criterion II).  Refreshes themselves are events for the Python side (`tacit.policies.joint.policy`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit._compile import inlined_kernel, kernel
from tacit.glm.links import LinkForm, derivative
from tacit.linalg.packing import unpack
from tacit.linalg.solve import cholesky, dominated, dot, invert_cholesky, quadratic_form
from tacit.linalg.vectors import copy_into
from tacit.policies.arms import remember_arm
from tacit.policies.row_policy import RowBuffer, append_row, grow_flag
from tacit.policies.steps import close_stream, register_steps
from tacit.privacy.continual import Stream, contribute_outer, released_variance
from tacit.typing import Count, FloatArray, Number, Secret

REFRESH_EXPLORE, REFRESH_EXPLOIT = 1, 2
"""Events: the estimate of that side is to be made anew."""
EXPLORED, EXPLOITED = 1, 0
"""Masks of rows."""
EXPLORES, WEIGHT, MEMO_NUMBERS = 0, 1, 2
"""Behind the features of an arm, a memo has: whether the round explored, the weight of its row in H / w_max."""


class JointConstants(NamedTuple):
    """Public numbers that the steps read; `tacit.policies.joint.profiles` has where they come from."""

    link: LinkForm
    threshold: float
    """Criterion I explores above it; 0: above 1 / (coverage_factor * ridge)."""
    coverage_factor: float
    ridge: float
    """The least that is added to V, and times weight_max to H."""
    weight_max: float
    weight_divisor: float
    width_explore: float
    width: float
    growth: float
    """In PSD order, from one refresh to the next."""
    literal: bool
    """Profile `paper`: refresh theta_o when somebody's own round explored."""
    paper_sets: bool
    """Whether the confidence sets are those of the paper (`theory`, `paper`)."""


class Side(NamedTuple):
    """What one of the two optimizers works with: theta_o explores, theta_tau exploits."""

    design: FloatArray
    """V or H with its ridge, as of the last release."""
    anchor: FloatArray
    """The same at the last refresh of theta."""
    spread: FloatArray
    """Shape matrix of the confidence set."""
    theta: FloatArray
    calls: Count
    """Calls of the private optimizer so far."""


class JointState(NamedTuple):
    """State of Algorithm 2; field names follow docs/notation.md."""

    stream: Stream
    """V and H / w_max, packed one behind the other."""
    rows: Secret[RowBuffer]
    """What the optimizer needs: features, reward, and a mask that marks exploration rounds."""
    explore: Side
    exploit: Side
    coverage: FloatArray
    """Inverse of V: criterion I measures arms in it."""
    work: FloatArray
    explored: Secret[Count]
    """Whether an exploration reward came since the last refresh of theta_o: raw, and read by profile `paper` only."""
    ridge_noise: Number
    """The ridge is at least so many times the spectral norm of the noise; a recovery lowers it."""
    constants: JointConstants


@kernel
def _advance(state: JointState, fresh: bool) -> int:
    flag = grow_flag(state.rows)
    if not fresh:
        return flag
    constants, dim = state.constants, state.coverage.shape[0]
    explore, exploit = state.explore, state.exploit
    half = state.stream.released.shape[0] // 2
    ridge = _ridge(state)
    unpack(state.stream.released[:half], explore.design)
    unpack(state.stream.released[half:], exploit.design)
    for i in range(dim):
        for j in range(dim):
            exploit.design[i, j] *= constants.weight_max
        explore.design[i, i] += ridge
        exploit.design[i, i] += constants.weight_max * ridge
    _invert_with_more_ridge(explore.design, ridge, state.coverage, state.work)
    if constants.paper_sets:
        for i in range(state.coverage.shape[0]):
            copy_into(state.coverage[i], explore.spread[i])
    if constants.literal:
        # The paper's line 9, kept for comparison: refreshes when somebody's own round explored, which others can see.
        if state.explored[()] > 0:
            flag |= REFRESH_EXPLORE
    elif not dominated(explore.design, explore.anchor, constants.growth, state.work):
        flag |= REFRESH_EXPLORE
    if not dominated(exploit.design, exploit.anchor, constants.growth, state.work):
        flag |= REFRESH_EXPLOIT
    return flag


@inlined_kernel
def _ridge(state: JointState) -> float:
    """Large enough to cover the noise in V: its spectral norm concentrates near sqrt(2 d) standard deviations."""
    noise = math.sqrt(2.0 * state.coverage.shape[0] * released_variance(state.stream))
    return max(state.constants.ridge, float(state.ridge_noise[()]) * noise)


@inlined_kernel
def _invert_with_more_ridge(matrix: FloatArray, ridge: float, inverse: FloatArray, factor: FloatArray) -> None:
    """Invert, doubling the ridge until the noisy matrix is positive definite: post-processing of a release."""
    extra = ridge
    while not cholesky(matrix, factor):
        for i in range(matrix.shape[0]):
            matrix[i, i] += extra
        extra *= 2.0
    invert_cholesky(factor, inverse)


@inlined_kernel
def criterion_threshold(state: JointState) -> float:
    """Criterion I: the paper's constant, or where coverage is as good as the noise allows."""
    constants = state.constants
    if constants.threshold > 0.0:
        return constants.threshold
    return float(1.0 / (constants.coverage_factor * _ridge(state)))


@kernel
def _choose(state: JointState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    constants, dim = state.constants, contexts.shape[1]
    arm, widest = 0, -1.0
    for k in range(contexts.shape[0]):
        width = quadratic_form(state.coverage, contexts[k])
        if width > widest:
            arm, widest = k, width
    explores = widest >= criterion_threshold(state)
    if not explores:
        arm = _most_promising(state, contexts)
    remember_arm(contexts, arm, memo)
    # The paper weights rows at theta_o; any public point will do, and the newest one is the best.
    newest = state.exploit.theta if state.exploit.calls[()] > 0 and not constants.paper_sets else state.explore.theta
    weight = derivative(constants.link, dot(contexts[arm], newest)) / constants.weight_divisor
    memo[dim + EXPLORES] = 1.0 if explores else 0.0
    # Clipped to its public maximum: the sensitivity bound must hold always, not with high probability.
    memo[dim + WEIGHT] = min(1.0, weight / constants.weight_max)
    return arm


@inlined_kernel
def _most_promising(state: JointState, contexts: FloatArray) -> int:
    """Eliminate by the bounds around theta_o, then maximise the bound around theta_tau (eqs. ucb_o, lcb_o, ucb)."""
    explore, exploit, wide = state.explore, state.exploit, state.constants.width_explore
    lower = -np.inf
    for k in range(contexts.shape[0]):
        width = wide * math.sqrt(max(0.0, quadratic_form(explore.spread, contexts[k])))
        lower = max(lower, dot(contexts[k], explore.theta) - width)
    arm, best = 0, -np.inf
    for k in range(contexts.shape[0]):
        width = wide * math.sqrt(max(0.0, quadratic_form(explore.spread, contexts[k])))
        if dot(contexts[k], explore.theta) + width < lower:
            continue
        bonus = state.constants.width * math.sqrt(max(0.0, quadratic_form(exploit.spread, contexts[k])))
        score = dot(contexts[k], exploit.theta) + bonus
        if score > best:
            arm, best = k, score
    return arm


@kernel
def _learn(state: JointState, memo: FloatArray, reward: float) -> None:
    dim = state.coverage.shape[0]
    x = memo[:dim]
    half = state.stream.released.shape[0] // 2
    explores = memo[dim + EXPLORES] > 0.0
    contribute_outer(state.stream, 0 if explores else half, 1.0 if explores else memo[dim + WEIGHT], x)
    append_row(state.rows, x, reward, EXPLORED if explores else EXPLOITED)
    if explores:
        state.explored[()] = 1


register_steps(JointState, _advance, _choose, _learn, close_stream)
