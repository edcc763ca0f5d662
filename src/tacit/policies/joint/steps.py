"""State and steps of Algorithm 2.

Two continual releases, V over exploration rounds and H over all others, steer two switching criteria: explore while
some arm is poorly covered by V (criterion I), refresh the estimate when the released H has outgrown the one of the
last refresh (criterion II).  Refreshes themselves are events, which the policy answers (`tacit.policies.joint.policy`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tacit.glm.links import Link
from tacit.glm.rows import RowBuffer, append_rows, make_room
from tacit.linalg.inverse import is_positive_definite, ridge_inverse
from tacit.linalg.packing import unpacked
from tacit.policies.admission import chosen_rows
from tacit.policies.beliefs import GaussianBelief
from tacit.policies.joint.profiles import JointProfile
from tacit.policies.steps import Steps
from tacit.privacy.continual import Stream, contribute_outer, released_variance
from tacit.threads import one_blas_thread
from tacit.typing import Count, FloatArray, IntArray, Scalar, Secret

REFRESH_EXPLORE, REFRESH_EXPLOIT = 1, 2
"""Events: the estimate of that side is to be made anew."""
EXPLORED, EXPLOITED = 1, 0
"""Marks of rows."""
EXPLORES, WEIGHT, MEMO_NUMBERS = 0, 1, 2
"""Behind the features of an arm, a memo has: whether the round explored, the weight of its row in H / w_max."""


class JointConstants(NamedTuple):
    """Public quantities that the steps read; they do not change."""

    link: Link
    weight_max: float
    """Largest weight mu' that a row can have."""
    profile: JointProfile


class OptimizerState(NamedTuple):
    """Estimate and matrices of one of the two optimizers: theta_o explores, theta_tau exploits."""

    design: FloatArray
    """V or H with its ridge, as of the last release."""
    anchor: FloatArray
    """The design at the last refresh of theta."""
    spread: FloatArray
    """Shape matrix of the confidence set."""
    theta: FloatArray
    calls: Count
    """Calls of the private optimizer so far."""

    def bounds(self, rows: FloatArray, width: float) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound on <x, theta> of each row, ``width`` times as far apart as the confidence set says."""
        belief = GaussianBelief(self.theta, self.spread)
        scores, reach = belief.scores(rows), width * np.sqrt(np.maximum(belief.variances(rows), 0.0))
        return scores - reach, scores + reach


class JointState(NamedTuple):
    """State of Algorithm 2; field names follow docs/notation.md."""

    stream: Stream
    """V and H / w_max, packed one behind the other."""
    rows: Secret[RowBuffer]
    """What the optimizer needs: features, reward, and a mark for exploration rounds."""
    explore: OptimizerState
    exploit: OptimizerState
    coverage: FloatArray
    """Inverse of V: criterion I measures arms in it."""
    explored: Secret[Count]
    """Whether an exploration reward came since the last refresh of theta_o: secret, read by profile `paper` only."""
    ridge_noise: Scalar
    """The ridge is at least so many times the spectral norm of the noise; a recovery lowers it."""
    constants: JointConstants


def choose(state: JointState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the arm that V covers least for each of N users who explore, and the most promising one for the rest.

    A memo has the features of the arm, whether the round explores, and the weight of its row in H / w_max.
    """
    constants, (users, count, dim) = state.constants, contexts.shape
    rows = contexts.reshape(-1, dim)
    widths = np.vecdot(rows.dot(state.coverage), rows).reshape(users, count)
    arms = np.asarray(widths.argmax(axis=1))
    explores = widths.max(axis=1) >= criterion_threshold(state)
    if not explores.all():
        arms[~explores] = _most_promising(state, contexts[~explores])
    chosen = chosen_rows(contexts, arms)
    # The paper weights rows at theta_o; any public point will do, and the newest one is the best.
    exploits = state.exploit.calls[()] > 0 and not constants.profile.paper_optimizer
    newest = state.exploit.theta if exploits else state.explore.theta
    weights = constants.link.derivative(chosen.dot(newest)) / constants.profile.weight_divisor
    memos[:, :dim] = chosen
    memos[:, dim + EXPLORES] = explores
    # Clipped to its public maximum: the sensitivity bound must hold always, not with high probability.
    memos[:, dim + WEIGHT] = np.minimum(1.0, weights / constants.weight_max)
    return arms


def criterion_threshold(state: JointState) -> float:
    """Squared width above which criterion I explores: the paper's constant, or as little as the noise allows."""
    profile = state.constants.profile
    return profile.threshold or 1.0 / (profile.coverage_factor * _ridge(state))


def _ridge(state: JointState) -> float:
    """Return a ridge that covers the noise in V: its spectral norm concentrates near sqrt(2 d) standard deviations."""
    noise = math.sqrt(2.0 * state.coverage.shape[0] * released_variance(state.stream))
    return max(state.constants.profile.ridge, float(state.ridge_noise[()]) * noise)


def _most_promising(state: JointState, contexts: FloatArray) -> IntArray:
    """Eliminate by the bounds around theta_o, then maximise the bound around theta_tau (eqs. ucb_o, lcb_o, ucb)."""
    rows, shape = contexts.reshape(-1, contexts.shape[2]), contexts.shape[:2]
    lower, upper = (bound.reshape(shape) for bound in state.explore.bounds(rows, state.constants.profile.width_explore))
    promise = state.exploit.bounds(rows, state.constants.profile.width)[1].reshape(shape)
    ruled_out = upper < lower.max(axis=1, keepdims=True)
    return np.asarray(np.where(ruled_out, -np.inf, promise).argmax(axis=1))


def learn(state: JointState, memos: FloatArray, rewards: FloatArray) -> None:
    """Add x x' of N rewarded rows to V where their round explored, weighted to H elsewhere; keep them for refreshes."""
    dim, half = state.coverage.shape[0], state.stream.released.size // 2
    x, explores, weights = memos[:, :dim], memos[:, dim + EXPLORES] > 0.0, memos[:, dim + WEIGHT]
    contribute_outer(state.stream, 0, np.ones(np.count_nonzero(explores)), x[explores])
    contribute_outer(state.stream, half, weights[~explores], x[~explores])
    append_rows(state.rows, x, rewards, np.where(explores, EXPLORED, EXPLOITED).astype(np.uint8))
    if explores.any():
        state.explored[()] = 1


def advance(state: JointState, fresh: bool, users: int) -> int:
    """After a release: compute V and H with their ridge and the inverse of V; return which estimates are outgrown."""
    if not fresh:
        return 0
    constants, explore, exploit, dim = state.constants, state.explore, state.exploit, state.coverage.shape[0]
    released, half, eye = state.stream.released, state.stream.released.size // 2, np.eye(dim)
    v, h, ridge = unpacked(released[:half], dim), unpacked(released[half:], dim), _ridge(state)
    exploit.design[:] = constants.weight_max * (h + ridge * eye)
    with one_blas_thread(dim):
        state.coverage[:], ridge = ridge_inverse(v, ridge)
        explore.design[:] = v + ridge * eye
        if constants.profile.paper_optimizer:
            explore.spread[:] = state.coverage
        # The paper's line 9, kept for comparison: refreshes when a user's own round explored, which others can see.
        explores = state.explored[()] > 0 if constants.profile.literal else _outgrown(explore, constants.profile.growth)
        return REFRESH_EXPLORE * explores | REFRESH_EXPLOIT * _outgrown(exploit, constants.profile.growth)


def _outgrown(side: OptimizerState, growth: float) -> bool:
    """Whether the released matrix is no longer below ``growth`` times that of the last refresh, in PSD order."""
    return not is_positive_definite(growth * side.anchor - side.design)


STEPS = Steps(choose, learn, advance, make_room)
