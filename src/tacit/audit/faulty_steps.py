"""Compiled steps with a fault in them, for mutants: what an attribute cannot change is registered anew."""

from __future__ import annotations

from typing import Any

from tacit._compile import kernel
from tacit.estimation.linearised import blended_weight
from tacit.glm.links import mean
from tacit.linalg.packing import SQRT2
from tacit.linalg.solve import dot
from tacit.policies.baselines.joint_linucb import JointLinState
from tacit.policies.stream.steps import StreamState
from tacit.privacy.continual import contribute_outer, contribute_vector
from tacit.typing import FloatArray


@kernel
def linearised_at_arrival(state: StreamState, memo: FloatArray, reward: float) -> None:
    """`stream-glm` learns at the theta of the reward's arrival, which the delay chooses."""
    dim = state.theta.shape[0]
    constants, x = state.constants, memo[:dim]
    link, bound = constants.link, constants.theta_bound
    z = min(max(dot(x, state.theta), -bound), bound)
    weight = blended_weight(link, constants.blend, z)
    contribute_outer(state.stream, 0, weight, x)
    response = reward - mean(link, z) + weight * z
    contribute_vector(state.stream, state.stream.released.shape[0] - dim, constants.scale * response, x)


@kernel
def moved_by_a_reward(state: JointLinState, memo: FloatArray, reward: float) -> None:
    """`joint-linucb` also moves its public estimate by the raw reward, a little."""
    dim = memo.shape[0]
    contribute_outer(state.stream, 0, 1.0, memo)
    contribute_vector(state.stream, dim * (dim + 1) // 2, state.constants.reward_weight * reward, memo)
    for i in range(dim):
        state.theta[i] += 1e-12 * reward * memo[i]


@kernel
def not_rounded(state: StreamState, memo: FloatArray, reward: float) -> None:
    """`stream-glm` adds rows to the leaf as they are."""
    dim, leaf = state.theta.shape[0], state.stream.leaf
    constants, x, z = state.constants, memo[:dim], float(memo[dim])
    weight = blended_weight(constants.link, constants.blend, z)
    response = reward - mean(constants.link, z) + weight * z
    position = 0
    for i in range(dim):
        for j in range(i, dim):
            leaf[position] += weight * x[i] * x[j] * (1.0 if i == j else SQRT2)
            position += 1
    for i in range(dim):
        leaf[position + i] += constants.scale * response * x[i]


@kernel
def closes_the_leaf(state: StreamState, memo: FloatArray, reward: float) -> None:
    """Rewards move the time at which the open leaf of `stream-glm` closes, whatever the schedule says."""
    linearised_at_arrival(state, memo, reward)
    leaves: Any = state.stream.mechanism
    leaves.boundary[()] += 1
