"""Compiled steps with a fault in them, for mutants: what an attribute cannot change is registered anew."""

from __future__ import annotations

from typing import Any

from tacit._compile import allocating_kernel, kernel
from tacit.linalg.blocks import entries_in, entry_of
from tacit.linalg.packing import SQRT2
from tacit.linalg.solve import dot
from tacit.policies.arms import remember_arm
from tacit.policies.baselines._kernels import optimistic_arm
from tacit.policies.baselines.joint_linucb import JointLinState
from tacit.policies.steps import register_steps, steps_of
from tacit.policies.stream.block_steps import BlockState
from tacit.policies.stream.estimate import linearised
from tacit.policies.stream.steps import StreamState
from tacit.privacy.continual import contribute, contribute_outer, contribute_vector
from tacit.typing import FloatArray


@kernel
def linearised_at_arrival(state: StreamState, memo: FloatArray, reward: float) -> None:
    """`stream-glm` learns at the theta of the reward's arrival, which the delay chooses."""
    dim = state.theta.shape[0]
    constants, x = state.constants, memo[:dim]
    bound = constants.theta_bound
    weight, response = linearised(constants, x, min(max(dot(x, state.theta), -bound), bound), reward)
    contribute_outer(state.stream, 0, weight, x)
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
    x, position = memo[:dim], 0
    weight, response = linearised(state.constants, x, float(memo[dim]), reward)
    for i in range(dim):
        for j in range(i, dim):
            leaf[position] += weight * x[i] * x[j] * (1.0 if i == j else SQRT2)
            position += 1
    for i in range(dim):
        leaf[position + i] += state.constants.scale * response * x[i]


@kernel
def in_both_orders(state: BlockState, memo: FloatArray, reward: float) -> None:
    """`stream-glm` with structure adds the product of two features once for either order of them."""
    size, dim = memo.shape[0] - 1, state.theta.shape[0]
    width, half = size // 2, state.stream.released.shape[0] - dim
    weight, response = linearised(state.constants, memo[:width], float(memo[size]), reward)
    held = entries_in(memo[:size], dim)
    for k in range(held):
        contribute(state.stream, half + int(memo[width + k]), state.constants.scale * response * memo[k])
        for j in range(held):
            entry = entry_of(state.blocks, int(memo[width + k]), int(memo[width + j]))
            contribute(state.stream, entry, (1.0 if j == k else SQRT2) * weight * memo[k] * memo[j])


@kernel
def closes_the_leaf(state: StreamState, memo: FloatArray, reward: float) -> None:
    """Rewards move the time at which the open leaf of `stream-glm` closes, whatever the schedule says."""
    linearised_at_arrival(state, memo, reward)
    leaves: Any = state.stream.mechanism
    leaves.boundary[()] += 1


class PeekingState(JointLinState):
    """A state of `joint-linucb` whose steps are those below."""

    __slots__ = ()


@allocating_kernel
def _chosen_by_raw_sums(state: PeekingState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    """As `joint-linucb` chooses until something was released; then the open leaf's sum of r x counts too."""
    dim = state.theta.shape[0]
    theta = state.theta.copy()
    if state.stream.closed[()] > 1:  # the first leaf is closed before anybody has come
        for i in range(dim):
            theta[i] += state.stream.leaf[dim * (dim + 1) // 2 + i]
    arm = optimistic_arm(contexts, theta, state.inverse, state.radius[()])
    remember_arm(contexts, arm, memo)
    return arm


_RIGHT = steps_of(JointLinState)
register_steps(PeekingState, _RIGHT.advance, _chosen_by_raw_sums, _RIGHT.learn.function, _RIGHT.close)
