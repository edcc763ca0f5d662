"""Steps with a fault in them, for mutants: each is made of the right ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.audit.worlds import copied
from tacit.linalg.blocks import compact_scores
from tacit.policies.baselines.joint_linucb import JointLinUcb
from tacit.policies.steps import Steps
from tacit.policies.stream import StreamGLM
from tacit.policies.stream.steps import StreamState
from tacit.privacy.continual import MechanismConstants
from tacit.typing import FloatArray, IntArray


def _right(policy: Any) -> Steps:
    steps: Steps = policy._steps
    return steps


_STREAM, _LINEAR = _right(StreamGLM), _right(JointLinUcb)


def linearised_at_arrival(state: StreamState, memos: FloatArray, rewards: FloatArray) -> None:
    """`stream-glm` learns at the theta of the reward's arrival, which the delay chooses."""
    moved, rows = memos.copy(), memos[:, :-1]
    moved[:, -1] = compact_scores(rows, state.theta) if state.compact else rows @ state.theta
    _STREAM.learn(state, moved, rewards)


def moved_by_a_reward(state: Any, memos: FloatArray, rewards: FloatArray) -> None:
    """`joint-linucb` also moves its public estimate by the raw reward, a little."""
    _LINEAR.learn(state, memos, rewards)
    state.theta[:] += 1e-12 * rewards @ memos[:, : state.theta.size]


def not_rounded(state: StreamState, memos: FloatArray, rewards: FloatArray) -> None:
    """`stream-glm` adds rows to the leaf as they are."""
    _STREAM.learn(state._replace(stream=state.stream._replace(constants=MechanismConstants(0.0))), memos, rewards)


def in_both_orders(state: StreamState, memos: FloatArray, rewards: FloatArray) -> None:
    """`stream-glm` adds the product of two features once for either order of them."""
    alone = copied(state)
    alone.stream.leaf[:] = 0.0
    _STREAM.learn(alone, memos, rewards)
    for group in state.groups:
        beside = group.table[(group.factor > 0.0) & (group.factor < 1.0)]
        alone.stream.leaf[np.unique(beside)] *= 2.0
    state.stream.leaf[:] += alone.stream.leaf


def closes_the_leaf(state: StreamState, memos: FloatArray, rewards: FloatArray) -> None:
    """Rewards move the time at which the open leaf of `stream-glm` closes, against the schedule."""
    _STREAM.learn(state, memos, rewards)
    leaves: Any = state.stream.mechanism
    leaves.boundary[()] += rewards.size


def chosen_by_raw_sums(state: Any, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """`joint-linucb` chooses rightly until something was released; then the open leaf's sum of r x counts too."""
    theta = state.theta.copy()
    if state.stream.closed[()] > 1:  # the first leaf is closed before anybody has come
        theta += state.stream.leaf[-theta.size :]
    return _LINEAR.choose(state._replace(theta=theta), contexts, coins, memos)
