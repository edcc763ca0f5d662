"""State and compiled steps of Algorithm 1.

Within a batch nothing but the buffer of rows and the clock changes: the policy of a batch is fixed before its first
user.  A batch ends after a public number of decisions; its releases are events for the Python side
(`tacit.policies.shuffle.policy`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit.design.g_optimal import g_optimal_design
from tacit.glm.links import derivative, mean
from tacit.linalg.solve import dot, quadratic_form
from tacit.policies.arms import remember_arm
from tacit.policies.rows import RowBuffer, append_row
from tacit.policies.steps import register_steps
from tacit.typing import FloatArray, IntArray, Secret

CLOSE, OPEN = 1, 2
"""Events: the open batch is full; none is open, though one should be, since whoever was to open it was interrupted."""
BETWEEN = -1
"""Size of a batch that is not open yet."""

BATCH, SIZE, POSITION, ESTIMATES, ASSIGNED, REPORTS, BYTES = 0, 1, 2, 3, 4, 5, 6
"""``counts``: the open batch, from 1; its users, 0 when none is open; those served so far; estimates so far; decisions
given to batches; most reports and most bytes that a user of one batch was asked for.
"""

GAMMA, GAMMA_NEWEST, RIDGE, WEIGHT_MAX, AVERAGED, BETA_RATE, BETA_CAP = 0, 1, 2, 3, 4, 5, 6
"""``constants``: widths around earlier estimates and around the newest, ridge of the design, largest weight, whether
weights are averaged over the spread (`tuned`) or divided by beta (`theory`), R and 2 S of beta.
"""


class ShuffleState(NamedTuple):
    """State of Algorithm 1.

    ``rows`` stands for what the devices of the open batch's users hold until they send their reports; no server has
    it in a deployment.  It is dropped when the batch closes.
    """

    rows: Secret[RowBuffer]
    theta: FloatArray
    """Line 0: what is believed beforehand; line j: the estimate after batch j.  Shape (estimates + 1, d)."""
    spread: FloatArray
    """Their shape matrices, shape (estimates + 1, d, d): kappa V^-1 and H_k^-1 in `theory`, covariances in `tuned`."""
    root: FloatArray
    """The design sees arms multiplied by this matrix, shape (d, d)."""
    counts: IntArray
    link: IntArray
    constants: FloatArray


@kernel
def _advance(state: ShuffleState, fresh: bool) -> int:
    if state.counts[SIZE] <= 0:
        return OPEN if state.counts[SIZE] == BETWEEN else 0
    if state.counts[POSITION] == state.counts[SIZE]:
        return CLOSE
    state.counts[POSITION] += 1
    return 0


@kernel
def averaged_mean(link: int, z: float, sd: float) -> float:
    """E mu(Z) for Z ~ N(z, sd^2), by the three-point rule that is exact up to degree 5."""
    step = math.sqrt(3.0) * sd
    return (mean(link, z - step) + 4.0 * mean(link, z) + mean(link, z + step)) / 6.0


@kernel
def averaged_derivative(link: int, z: float, sd: float) -> float:
    """E mu'(Z) for Z ~ N(z, sd^2), by the same rule."""
    step = math.sqrt(3.0) * sd
    return (derivative(link, z - step) + 4.0 * derivative(link, z) + derivative(link, z + step)) / 6.0


@kernel
def arm_weight(state: ShuffleState, x: FloatArray) -> float:
    """Squared scale of an arm (eqs. arm_scaling, beta_def), never above its public maximum.

    `theory`: mu'(<x, theta_1>) / beta(x).  `tuned`: mu' averaged over the newest estimate's spread.
    """
    constants = state.constants
    if constants[AVERAGED] > 0.0:
        newest = state.counts[ESTIMATES]
        sd = math.sqrt(max(0.0, quadratic_form(state.spread[newest], x)))
        weight = averaged_derivative(state.link[0], dot(x, state.theta[newest]), sd)
    elif state.counts[ESTIMATES] == 0:
        return 1.0
    else:
        width = constants[GAMMA] * math.sqrt(max(0.0, quadratic_form(state.spread[1], x)))
        beta = math.exp(constants[BETA_RATE] * min(constants[BETA_CAP], width))
        weight = derivative(state.link[0], dot(x, state.theta[1])) / beta
    return float(min(weight, constants[WEIGHT_MAX]))


@kernel
def surviving_arms(state: ShuffleState, contexts: FloatArray) -> IntArray:
    """Arms that no earlier batch eliminates: UCB_j(x) >= max_y LCB_j(y) for every j (eqs. ucb_def, lcb_def)."""
    alive = np.arange(contexts.shape[0])
    widths, scores = np.empty(contexts.shape[0]), np.empty(contexts.shape[0])
    for j in range(1, state.counts[ESTIMATES] + 1):
        gamma = state.constants[GAMMA_NEWEST if j == state.counts[ESTIMATES] else GAMMA]
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


@kernel
def _choose(state: ShuffleState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    alive = surviving_arms(state, contexts)
    arm = alive[0]
    if alive.shape[0] > 1:
        arm = alive[_sample_design(state, contexts, alive, coins[0])]
    remember_arm(contexts, arm, memo)
    memo[contexts.shape[1]] = state.counts[BATCH]
    return int(arm)


@kernel
def _sample_design(state: ShuffleState, contexts: FloatArray, alive: IntArray, coin: float) -> int:
    """Position of an arm drawn from the G-optimal design over the scaled survivors (line g_opt_sampling_glm)."""
    dim = contexts.shape[1]
    scaled, weights = np.zeros((alive.shape[0], dim)), np.empty(alive.shape[0])
    for position in range(alive.shape[0]):
        x = contexts[alive[position]]
        scale = math.sqrt(arm_weight(state, x))
        for i in range(dim):
            for j in range(dim):
                scaled[position, i] += scale * state.root[i, j] * x[j]
    g_optimal_design(scaled, state.constants[RIDGE], weights)
    drawn, below = 0, 0.0
    for position in range(alive.shape[0]):
        if weights[position] > 0.0:
            drawn = position
            below += weights[position]
            if coin < below:
                break
    return drawn


@kernel
def _learn(state: ShuffleState, memo: FloatArray, reward: float) -> None:
    # A reward that comes after its batch closed is dropped: its user has sent a contribution of 0.
    if state.counts[SIZE] > 0 and memo[state.root.shape[0]] == state.counts[BATCH]:
        append_row(state.rows, memo, reward, 1)


register_steps(ShuffleState, _advance, _choose, _learn)
