"""State and compiled steps of Algorithm 1.

Within a batch nothing but the buffer of rows and the clock changes: the policy of a batch is fixed before its first
user.  A batch ends after a public number of decisions; its releases are events for the Python side
(`tacit.policies.batch_policy`).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from tacit._compile import allocating_kernel, inlined_kernel, kernel
from tacit.design.g_optimal import g_optimal_design
from tacit.glm.links import LinkForm, derivative, mean
from tacit.linalg.solve import dot, quadratic_form
from tacit.policies.arms import remember_arm
from tacit.policies.batches import BatchClock, BatchRows, keep_row, remember_batch, tick_batch
from tacit.policies.steps import register_steps
from tacit.typing import FloatArray, IntArray, Number, Secret

WARM_UP: Final = 1
"""Line of the first batch's estimate, theta_1, by which `theory` scales arms."""


class ShuffleConstants(NamedTuple):
    """Public numbers that the steps read."""

    link: LinkForm
    gamma: float
    """Width around estimates of earlier batches."""
    gamma_newest: float
    """Width around the newest estimate."""
    weight_max: float
    """Largest weight of an arm."""
    averaged: bool
    """Whether weights are averaged over the newest estimate's spread (`tuned`) or divided by beta (`theory`)."""
    beta_rate: float
    """R: beta(x) = exp(R min(2 S, width of x))."""
    beta_cap: float
    """2 S."""


class ShuffleState(NamedTuple):
    """State of Algorithm 1."""

    batch: BatchClock
    rows: Secret[BatchRows]
    """Of the open batch."""
    theta: FloatArray
    """Line 0: what is believed beforehand; line j: the estimate after batch j.  Shape (estimates + 1, d)."""
    spread: FloatArray
    """Their shape matrices, shape (estimates + 1, d, d): kappa V^-1 and H_k^-1 in `theory`, covariances in `tuned`."""
    root: FloatArray
    """The design sees arms multiplied by this matrix, shape (d, d)."""
    design_ridge: Number
    """Ridge of the open batch's design."""
    constants: ShuffleConstants


@inlined_kernel
def estimate_count(state: ShuffleState) -> int:
    """Estimates so far; the newest is the line of this number."""
    return len(state.theta) - 1


@kernel
def _advance(state: ShuffleState, fresh: bool) -> int:
    return tick_batch(state.batch)


@kernel
def averaged_mean(link: LinkForm, z: float, sd: float) -> float:
    """E mu(Z) for Z ~ N(z, sd^2), by the three-point rule that is exact up to degree 5."""
    step = math.sqrt(3.0) * sd
    return (mean(link, z - step) + 4.0 * mean(link, z) + mean(link, z + step)) / 6.0


@kernel
def averaged_derivative(link: LinkForm, z: float, sd: float) -> float:
    """E mu'(Z) for Z ~ N(z, sd^2), by the same rule."""
    step = math.sqrt(3.0) * sd
    return (derivative(link, z - step) + 4.0 * derivative(link, z) + derivative(link, z + step)) / 6.0


@inlined_kernel
def arm_weight(state: ShuffleState, x: FloatArray) -> float:
    """Squared scale of an arm (eqs. arm_scaling, beta_def), never above its public maximum.

    `theory`: mu'(<x, theta_1>) / beta(x).  `tuned`: mu' averaged over the newest estimate's spread.
    """
    constants, newest = state.constants, estimate_count(state)
    if constants.averaged:
        sd = math.sqrt(max(0.0, quadratic_form(state.spread[newest], x)))
        weight = averaged_derivative(constants.link, dot(x, state.theta[newest]), sd)
    elif newest == 0:
        return 1.0
    else:
        width = constants.gamma * math.sqrt(max(0.0, quadratic_form(state.spread[WARM_UP], x)))
        beta = math.exp(constants.beta_rate * min(constants.beta_cap, width))
        weight = derivative(constants.link, dot(x, state.theta[WARM_UP])) / beta
    return float(min(weight, constants.weight_max))


@allocating_kernel
def surviving_arms(state: ShuffleState, contexts: FloatArray) -> IntArray:
    """Arms that no earlier batch eliminates: UCB_j(x) >= max_y LCB_j(y) for every j (eqs. ucb_def, lcb_def)."""
    alive, newest = np.empty(contexts.shape[0], dtype=np.int64), estimate_count(state)
    widths, scores = np.empty(contexts.shape[0]), np.empty(contexts.shape[0])
    for arm in range(contexts.shape[0]):
        alive[arm] = arm
    for j in range(1, newest + 1):
        gamma = state.constants.gamma_newest if j == newest else state.constants.gamma
        lower = -np.inf
        for k in alive:
            scores[k] = dot(contexts[k], state.theta[j])
            widths[k] = gamma * math.sqrt(max(0.0, quadratic_form(state.spread[j], contexts[k])))
            lower = max(lower, scores[k] - widths[k])
        kept = 0
        for k in alive:
            if scores[k] + widths[k] >= lower:
                alive[kept] = k
                kept += 1
        alive = alive[:kept]
    return alive


@allocating_kernel
def _choose(state: ShuffleState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    alive = surviving_arms(state, contexts)
    arm = alive[0]
    if alive.shape[0] > 1:
        arm = alive[_sample_design(state, contexts, alive, coins)]
    else:
        coins[0] = 1.0
    remember_arm(contexts, arm, memo)
    remember_batch(state.batch, memo)
    return int(arm)


@inlined_kernel
def _sample_design(state: ShuffleState, contexts: FloatArray, alive: IntArray, coins: FloatArray) -> int:
    """Position of an arm drawn from the G-optimal design over the scaled survivors (line g_opt_sampling_glm).

    The coin is spent: what it leaves is the probability of that arm.
    """
    dim = contexts.shape[1]
    scaled, weights = np.zeros((alive.shape[0], dim)), np.empty(alive.shape[0])
    for position in range(alive.shape[0]):
        x = contexts[alive[position]]
        scale = math.sqrt(arm_weight(state, x))
        for i in range(dim):
            for j in range(dim):
                scaled[position, i] += scale * state.root[i, j] * x[j]
    g_optimal_design(scaled, state.design_ridge[()], weights)
    drawn, below = 0, 0.0
    for position in range(alive.shape[0]):
        if weights[position] > 0.0:
            drawn = position
            below += weights[position]
            if coins[0] < below:
                break
    coins[0] = weights[drawn]
    return drawn


@kernel
def _learn(state: ShuffleState, memo: FloatArray, reward: float) -> None:
    keep_row(state.batch, state.rows, memo, reward)


register_steps(ShuffleState, _advance, _choose, _learn)
