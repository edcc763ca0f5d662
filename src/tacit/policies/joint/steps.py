"""State and compiled steps of Algorithm 2.

Two continual releases, V over exploration rounds and H over all others, steer two switching criteria: explore while
some arm is poorly covered by V (criterion I), refresh the estimate when the released H has outgrown the one of the
last refresh (criterion II).  Refreshes themselves are events for the Python side (`tacit.policies.joint.policy`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit.glm.links import derivative
from tacit.linalg.packing import unpack
from tacit.linalg.solve import cholesky, dominated, dot, invert_cholesky, quadratic_form
from tacit.linalg.vectors import copy_into
from tacit.policies.arms import remember_arm
from tacit.policies.rows import RowBuffer, append_row, grow_flag
from tacit.policies.steps import close_stream, register_steps
from tacit.privacy.continual import Stream, contribute_outer, released_variance
from tacit.typing import FloatArray, IntArray, Secret

REFRESH_EXPLORE, REFRESH_EXPLOIT = 1, 2
EXPLORED, EXPLOITED = 1, 0


class JointState(NamedTuple):
    """State of Algorithm 2; field names follow docs/notation.md."""

    stream: Stream
    """V and H / w_max, packed one behind the other."""
    rows: Secret[RowBuffer]
    """What the optimizer needs: features, reward, and a mask that marks exploration rounds."""
    design: FloatArray
    """V and H with their ridges, as of the last release, shape (2, d, d)."""
    anchor: FloatArray
    """V and H at the last refresh of theta_o and of theta_tau, shape (2, d, d)."""
    coverage: FloatArray
    """Inverse of V: criterion I measures arms in it."""
    spread: FloatArray
    """Shape matrices of the two confidence sets, shape (2, d, d)."""
    theta: FloatArray
    """theta_o and theta_tau, shape (2, d)."""
    work: FloatArray
    calls: IntArray
    """Optimizer calls made for theta_o and theta_tau."""
    explored: Secret[IntArray]
    """Whether an exploration reward came since the last refresh of theta_o: raw, and read by profile `paper` only."""
    link: IntArray
    constants: FloatArray
    """See the indices below."""


THRESHOLD, COVERAGE_FACTOR, RIDGE, RIDGE_NOISE, WEIGHT_MAX, WEIGHT_DIVISOR = 0, 1, 2, 3, 4, 5
WIDTH_EXPLORE, WIDTH, GROWTH, LITERAL, PAPER_SETS = 6, 7, 8, 9, 10


@kernel
def _advance(state: JointState, fresh: bool) -> int:
    flag = grow_flag(state.rows)
    if not fresh:
        return flag
    constants, dim = state.constants, state.coverage.shape[0]
    half = state.stream.released.shape[0] // 2
    ridge = _ridge(state)
    unpack(state.stream.released[:half], state.design[0])
    unpack(state.stream.released[half:], state.design[1])
    for i in range(dim):
        for j in range(dim):
            state.design[1, i, j] *= constants[WEIGHT_MAX]
        state.design[0, i, i] += ridge
        state.design[1, i, i] += constants[WEIGHT_MAX] * ridge
    _invert_with_more_ridge(state.design[0], ridge, state.coverage, state.work)
    if constants[PAPER_SETS] > 0.0:
        copy_into(state.coverage, state.spread[0])
    if constants[LITERAL] > 0.0:
        # The paper's line 9, kept for comparison: refreshes when somebody's own round explored, which others can see.
        if state.explored[0] > 0:
            flag |= REFRESH_EXPLORE
    elif not dominated(state.design[0], state.anchor[0], constants[GROWTH], state.work):
        flag |= REFRESH_EXPLORE
    if not dominated(state.design[1], state.anchor[1], constants[GROWTH], state.work):
        flag |= REFRESH_EXPLOIT
    return flag


@kernel
def _ridge(state: JointState) -> float:
    """Large enough to cover the noise in V: its spectral norm concentrates near sqrt(2 d) standard deviations."""
    noise = math.sqrt(2.0 * state.coverage.shape[0] * released_variance(state.stream))
    return float(max(state.constants[RIDGE], state.constants[RIDGE_NOISE] * noise))


@kernel
def _invert_with_more_ridge(matrix: FloatArray, ridge: float, inverse: FloatArray, factor: FloatArray) -> None:
    """Invert, doubling the ridge until the noisy matrix is positive definite: post-processing of a release."""
    extra = ridge
    while not cholesky(matrix, factor):
        for i in range(matrix.shape[0]):
            matrix[i, i] += extra
        extra *= 2.0
    invert_cholesky(factor, inverse)


@kernel
def criterion_threshold(state: JointState) -> float:
    """Criterion I: the paper's constant, or where coverage is as good as the noise allows."""
    if state.constants[THRESHOLD] > 0.0:
        return float(state.constants[THRESHOLD])
    return float(1.0 / (state.constants[COVERAGE_FACTOR] * _ridge(state)))


@kernel
def _choose(state: JointState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    dim = contexts.shape[1]
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
    newest = 1 if state.calls[1] > 0 and state.constants[PAPER_SETS] == 0.0 else 0
    z = dot(contexts[arm], state.theta[newest])
    weight = derivative(state.link[0], z) / state.constants[WEIGHT_DIVISOR]
    memo[dim] = 1.0 if explores else 0.0
    # Clipped to its public maximum: the sensitivity bound must hold always, not with high probability.
    memo[dim + 1] = min(1.0, weight / state.constants[WEIGHT_MAX])
    return arm


@kernel
def _most_promising(state: JointState, contexts: FloatArray) -> int:
    """Eliminate by the bounds around theta_o, then maximise the bound around theta_tau (eqs. ucb_o, lcb_o, ucb)."""
    lower = -np.inf
    for k in range(contexts.shape[0]):
        width = state.constants[WIDTH_EXPLORE] * math.sqrt(max(0.0, quadratic_form(state.spread[0], contexts[k])))
        lower = max(lower, dot(contexts[k], state.theta[0]) - width)
    arm, best = 0, -np.inf
    for k in range(contexts.shape[0]):
        width = state.constants[WIDTH_EXPLORE] * math.sqrt(max(0.0, quadratic_form(state.spread[0], contexts[k])))
        if dot(contexts[k], state.theta[0]) + width < lower:
            continue
        bonus = state.constants[WIDTH] * math.sqrt(max(0.0, quadratic_form(state.spread[1], contexts[k])))
        score = dot(contexts[k], state.theta[1]) + bonus
        if score > best:
            arm, best = k, score
    return arm


@kernel
def _learn(state: JointState, memo: FloatArray, reward: float) -> None:
    dim = state.coverage.shape[0]
    x = memo[:dim]
    half = state.stream.released.shape[0] // 2
    if memo[dim] > 0.0:
        contribute_outer(state.stream, 0, 1.0, x)
        append_row(state.rows, x, reward, EXPLORED)
        state.explored[0] = 1
    else:
        contribute_outer(state.stream, half, memo[dim + 1], x)
        append_row(state.rows, x, reward, EXPLOITED)


register_steps(JointState, _advance, _choose, _learn, close_stream)
