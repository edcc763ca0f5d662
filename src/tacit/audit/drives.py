"""Worlds that push a policy to where its bounds are attained: theta at the edge of its ball, both optimizers called.

In a random world of forty users the optimizers are hardly called, and a row's gradient is far from the longest one.
Here nearly all users bring the arm e_1 and are paid in full, so that both estimates go to the edge of the ball along
e_1; every few rounds somebody brings another axis, so that V grows in new directions and theta_o is refreshed again.
Privacy figures are free of scale: shift over charge does not depend on epsilon, and a large one lets calls come early.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.audit.worlds import Adversary, UserRow, World, candidates, furthest, gradients, largest_gradient, twin
from tacit.policies.joint.steps import criterion_threshold
from tacit.policies.private_policy import PrivatePolicy
from tacit.typing import FloatArray

AXIS = 0
"""Of e_1."""
_ROUNDS_PER_AXIS = 4
_NEARLY = 0.95
"""Least length of a mover's shorter arm, next to the longer one of length 1, and of both estimates in units of S."""


def driven_world(
    rng: np.random.Generator,
    policy: PrivatePolicy,
    adversary: Adversary,
    *,
    users: int,
    user: int | None = None,
    **events: Any,
) -> World:
    """Rows as above; a mover comes when it can, any other replaced user in the first half, unless ``user`` is given."""
    arms, rewards = _rows(policy, users)
    if user is None and adversary is moving_rows:
        user = _edge(policy, arms, rewards, rng)
    elif user is None:
        user = int(rng.integers(users // 8, users // 2))
    return World(arms, rewards, np.zeros(users, dtype=np.int64), user, adversary, **events)


def _rows(policy: PrivatePolicy, users: int) -> tuple[FloatArray, FloatArray]:
    """One arm per user, mostly e_1 with full reward; other axes pay every other time, which keeps theta along e_1."""
    dim, bound = policy.setting.dim, policy.setting.reward_bound
    arms, rewards = np.zeros((users, 1, dim)), np.full((users, 1), bound)
    for user in range(users):
        other = user % _ROUNDS_PER_AXIS == _ROUNDS_PER_AXIS - 1 and user >= users // 8 and dim > 1
        axis = 1 + (user // _ROUNDS_PER_AXIS) % (dim - 1) if other else 0
        arms[user, 0, axis] = 1.0
        if other:
            rewards[user, 0] = bound * float((user // (_ROUNDS_PER_AXIS * (dim - 1))) % 2)
    return arms, rewards


def _at_the_edge(policy: PrivatePolicy) -> float:
    """Length below which an arm e_1 does not explore, in the state after a tick."""
    state = policy.state
    return math.sqrt(float(criterion_threshold(state)) / float(state.coverage[AXIS, AXIS]))


def _edge(policy: PrivatePolicy, arms: FloatArray, rewards: FloatArray, rng: np.random.Generator) -> int:
    """A user at whose decision an arm of length 1 explores and one a little shorter does not, with theta as wished."""
    pilot, best, lengths = twin(policy), int(rng.integers(1, arms.shape[0] // 2)), 0.0
    for user in range(arms.shape[0] // 2):
        decision = pilot.select(arms[user])
        sides = pilot.state.explore, pilot.state.exploit
        length = float(min(side.theta[AXIS] for side in sides)) / policy.setting.theta_bound
        if _NEARLY < _at_the_edge(pilot) < 1.0 and length > lengths:
            best, lengths = user, min(length, _NEARLY)  # the first one that is long enough: calls must follow
        pilot.update(decision, float(rewards[user, 0]))
    return best


def exploring_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """Two rows that both explore, with gradients at theta_o as far apart as such rows can have."""
    rehearsal = twin(policy)
    rehearsal.select(np.zeros((1, policy.setting.dim)))
    state, found = rehearsal.state, candidates(policy, rng, rehearsal.state.explore.theta)
    found = [(x, r) for x, r in found if x @ state.coverage @ x >= criterion_threshold(state)]
    if len(found) < 2:
        return largest_gradient(policy, rng, arms)
    return furthest(found, gradients(policy, found, state.explore.theta), arms)


def moving_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """An arm that explores and one a little shorter that does not, with the largest residual that both can have."""
    rehearsal = twin(policy)
    rehearsal.select(np.eye(policy.setting.dim)[:1])
    length = _at_the_edge(rehearsal)
    if not _NEARLY < length < 1.0:
        return largest_gradient(policy, rng, arms)
    sign, reward = _worst(policy)
    x = sign * np.eye(policy.setting.dim)[:1]
    rows = (
        UserRow(np.tile(x, (arms, 1)), np.full(arms, reward)),
        UserRow(np.tile(length * (1.0 - 1e-9) * x, (arms, 1)), np.full(arms, reward)),
    )
    return rows if rng.random() < 0.5 else (rows[1], rows[0])


def _worst(policy: PrivatePolicy) -> tuple[float, float]:
    """Direction along e_1 and reward of the longest gradient at theta = S e_1."""
    setting = policy.setting
    choices = [(sign, reward) for sign in (1.0, -1.0) for reward in (0.0, setting.reward_bound)]

    def residual(choice: tuple[float, float]) -> float:
        return abs(float(setting.link.mean(choice[0] * setting.theta_bound)) - choice[1])

    return max(choices, key=residual)
