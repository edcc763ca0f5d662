"""State and steps of Algorithm 1.

Within a batch nothing but the buffer of rows and the clock changes: the policy of a batch is fixed before its first
user, and arms of many users are chosen at once.  A batch ends after a public number of decisions; its releases are
events (`tacit.policies.batch_policy`).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from tacit.design.g_optimal import g_optimal_designs
from tacit.glm.links import Link
from tacit.policies.batches import BatchClock, BatchRows, keep_rows, remember_arms, tick_batch
from tacit.policies.beliefs import GaussianBelief
from tacit.policies.steps import Steps
from tacit.threads import one_blas_thread
from tacit.typing import BoolArray, FloatArray, IntArray, Scalar, Secret

WARM_UP: Final = 1
"""Line of the first batch's estimate, theta_1, by which `theory` scales arms."""


class ShuffleConstants(NamedTuple):
    """Public numbers that the steps of Algorithm 1 read."""

    link: Link
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
    """Rows of the open batch."""
    theta: FloatArray
    """Line 0: the prior; line j: the estimate after batch j.  Shape (estimates + 1, d)."""
    spread: FloatArray
    """A matrix for each line, shape (estimates + 1, d, d): kappa V^-1, H_k^-1 in `theory`, covariances in `tuned`."""
    root: FloatArray
    """The design sees arms multiplied by this matrix, shape (d, d)."""
    design_ridge: Scalar
    """Ridge of the open batch's design."""
    constants: ShuffleConstants


def estimate_count(state: ShuffleState) -> int:
    """Number of estimates so far, which is the line of the newest."""
    return len(state.theta) - 1


def advance(state: ShuffleState, fresh: bool, users: int) -> int:
    """Give the next users their places in the open batch."""
    return tick_batch(state.batch, users)


def averaged_mean(link: Link, z: FloatArray | float, sd: FloatArray | float) -> FloatArray:
    """E mu(Z) for Z ~ N(z, sd^2), by the three-point rule that is exact up to degree 5."""
    step = math.sqrt(3.0) * sd
    return (link.mean(z - step) + 4.0 * link.mean(z) + link.mean(z + step)) / 6.0


def averaged_derivative(link: Link, z: FloatArray | float, sd: FloatArray | float) -> FloatArray:
    """E mu'(Z) for Z ~ N(z, sd^2), by the three-point rule that is exact up to degree 5."""
    step = math.sqrt(3.0) * sd
    return (link.derivative(z - step) + 4.0 * link.derivative(z) + link.derivative(z + step)) / 6.0


def estimate(state: ShuffleState, batch: int) -> GaussianBelief:
    """The estimate after a batch; for 0 the prior."""
    return GaussianBelief(state.theta[batch], state.spread[batch])


def arm_weights(state: ShuffleState, rows: FloatArray) -> FloatArray:
    """Squared scale of each row's arm (eqs. arm_scaling, beta_def), never above its public maximum.

    `theory`: mu'(<x, theta_1>) / beta(x).  `tuned`: mu' averaged over the newest estimate's spread.
    """
    constants, newest = state.constants, estimate_count(state)
    if newest == 0 and not constants.averaged:
        return np.ones(len(rows))
    z, sd = score_and_sd(estimate(state, newest if constants.averaged else WARM_UP), rows)
    if constants.averaged:
        weights = averaged_derivative(constants.link, z, sd)
    else:
        beta = np.exp(constants.beta_rate * np.minimum(constants.beta_cap, constants.gamma * sd))
        weights = constants.link.derivative(z) / beta
    return np.minimum(weights, constants.weight_max)


def score_and_sd(belief: GaussianBelief, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """<x, theta> of each row, and its standard deviation."""
    return belief.scores(rows), np.sqrt(np.maximum(belief.variances(rows), 0.0))


def surviving_arms(state: ShuffleState, contexts: FloatArray) -> BoolArray:
    """Which arms of each user no earlier batch eliminates, shape (N, K).

    UCB_j(x) >= max_y LCB_j(y) for every j (eqs. ucb_def, lcb_def), where y has survived the batches before j.
    """
    shape, newest = contexts.shape[:2], estimate_count(state)
    rows, alive = contexts.reshape(-1, contexts.shape[2]), np.ones(shape, dtype=bool)
    for batch in range(1, newest + 1):
        gamma = state.constants.gamma_newest if batch == newest else state.constants.gamma
        scores, sds = score_and_sd(estimate(state, batch), rows)
        widths = gamma * sds
        floor = np.where(alive, (scores - widths).reshape(shape), -np.inf).max(axis=1, keepdims=True)
        alive &= (scores + widths).reshape(shape) >= floor
    return alive


def choose(state: ShuffleState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Draw an arm of each user from the G-optimal design over the survivors; one that survives alone is taken.

    A coin is spent: what it leaves is the probability of the arm.
    """
    with one_blas_thread():
        alive = surviving_arms(state, contexts)
        arms: IntArray = alive.argmax(axis=1)
        propensities = np.ones(len(contexts))
        several = np.flatnonzero(np.count_nonzero(alive, axis=1) > 1)
        if several.size:
            drawn = _drawn(state, contexts[several], alive[several], coins[several, 0])
            arms[several], propensities[several] = drawn
    coins[:, 0] = propensities
    remember_arms(state.batch, contexts, arms, memos)
    return np.asarray(arms)


def _drawn(
    state: ShuffleState, contexts: FloatArray, alive: BoolArray, coins: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Draw arms from the G-optimal designs over the scaled survivors (line g_opt_sampling_glm); with probabilities."""
    users, count, dim = contexts.shape
    scale = np.sqrt(arm_weights(state, contexts.reshape(-1, dim))).reshape(users, count) * alive
    # An arm that was eliminated is a row of zeros: it gets no weight.
    weights = g_optimal_designs(
        scale[:, :, np.newaxis] * (contexts @ state.root.T), float(state.design_ridge[()])
    ).weights
    below = np.cumsum(weights, axis=1)
    last = count - 1 - (weights[:, ::-1] > 0.0).argmax(axis=1)  # where rounding leaves the sum below the coin
    drawn = np.where(coins < below[:, -1], (coins[:, np.newaxis] < below).argmax(axis=1), last)
    lines = np.arange(users)
    # Where all survivors are zeros the design has nothing to weigh: the first of them.
    return np.where(alive[lines, drawn], drawn, alive.argmax(axis=1)), weights[lines, drawn]


def learn(state: ShuffleState, memos: FloatArray, rewards: FloatArray) -> None:
    """Keep the rows of the open batch until it closes."""
    keep_rows(state.batch, state.rows, memos, rewards)


STEPS = Steps(choose, learn, advance)
