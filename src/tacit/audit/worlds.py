"""Neighbouring worlds: the rows of all users, and two rows for the one user who is replaced.

The replaced rows may be chosen in the light of everything that is public when the user arrives: an adversary looks
at the policy and names two rows that should be hard to hide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tacit.environments.arrivals import NEVER
from tacit.policies.joint.steps import criterion_threshold
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import flatten, rebuild
from tacit.privacy.continual import Stream
from tacit.typing import FloatArray, IntArray

EXCESS: Final = 10.0
"""Factor by which the replaced user's rewards exceed what they are clipped to."""
AXIS: Final = 0
"""Index of e_1, along which driven worlds push the estimates."""
_ROUNDS_PER_AXIS: Final = 4
_NEARLY: Final = 0.95
"""Least length of a mover's shorter arm, next to the longer one of length 1, and of both estimates in units of S."""


@dataclass(frozen=True)
class UserRow:
    """One user: arms (K, d), what each arm would earn, and after how many further decisions the reward arrives."""

    arms: FloatArray
    rewards: FloatArray
    delay: int = 0


Adversary = Callable[[PrivatePolicy, np.random.Generator, int], tuple[UserRow, UserRow]]
"""Two rows with the stated number of arms for the user who is about to decide."""


@dataclass(frozen=True)
class World:
    """Rows of all users, who of them is replaced and how, and what happens on the way."""

    arms: FloatArray
    """Shape (n, K, d)."""
    rewards: FloatArray
    """Shape (n, K)."""
    delays: IntArray
    user: int
    adversary: Adversary
    save_at: int | None = None
    """The decision before which the state is saved and loaded again."""
    group: int = 1
    """Decisions taken at once, by ``select_batch``."""
    repeat: bool = True
    """The replaced user tries to report the reward a second time."""

    def row(self, user: int) -> UserRow:
        """The row of a user who is not replaced."""
        return UserRow(self.arms[user], self.rewards[user], int(self.delays[user]))


def unit(rng: np.random.Generator, *shape: int) -> FloatArray:
    """Uniformly distributed directions."""
    vectors = rng.standard_normal(shape)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), dtype=np.float64)


def allowed(policy: PrivatePolicy, vectors: FloatArray) -> FloatArray:
    """``vectors`` with their lengths kept, cut to one block each where the policy's structure asks for that."""
    support = policy._structure
    if support is None:
        return vectors
    strongest = np.argmax(np.add.reduceat(vectors * vectors, support.starts[:-1], axis=-1), axis=-1)
    kept = np.where(support.block_of == strongest[..., None], vectors, 0.0)
    lengths = np.linalg.norm(kept, axis=-1, keepdims=True)
    return np.asarray(kept * (np.linalg.norm(vectors, axis=-1, keepdims=True) / np.where(lengths > 0.0, lengths, 1.0)))


def neighbours(world: World, policy: PrivatePolicy, rng: np.random.Generator) -> tuple[UserRow, UserRow]:
    """The two rows that the adversary chooses for the replaced user, cut to what the policy takes.

    Where rewards above the bound are clipped, they are ten times as high: that must not matter, whenever they come.
    """
    factor = EXCESS if policy.setting.link.clips_rewards else 1.0
    first, second = (
        replace(row, arms=allowed(policy, row.arms), rewards=factor * row.rewards)
        for row in world.adversary(policy, rng, world.arms.shape[1])
    )
    return first, second


def make_world(
    rng: np.random.Generator,
    policy: PrivatePolicy,
    adversary: Adversary,
    *,
    users: int,
    arms: int = 4,
    late: bool = False,
    user: int | None = None,
    **events: Any,
) -> World:
    """Random rows; the replaced user comes early, so that later releases can tell of it, unless ``user`` is given."""
    dim, bound = policy.setting.dim, policy.setting.reward_bound
    contexts = allowed(policy, unit(rng, users, arms, dim) * rng.random((users, arms, 1)) ** (1.0 / dim))
    rewards = bound * (rng.random((users, arms)) < 0.5)
    delays = np.where(rng.random(users) < 0.3, rng.integers(NEVER, 6, users), 0) if late else np.zeros(users)
    early = int(min(rng.integers(0, users), rng.integers(0, users)))
    who = early if user is None else user
    return World(contexts, rewards.astype(np.float64), delays.astype(np.int64), who, adversary, **events)


# Adversaries


def random_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """Both rows drawn at random."""
    first, second = (
        UserRow(unit(rng, arms, policy.setting.dim), policy.setting.reward_bound * rng.random(arms)) for _ in range(2)
    )
    return first, second


def _single(x: FloatArray, reward: float, arms: int) -> UserRow:
    return UserRow(np.tile(x, (arms, 1)), np.full(arms, reward))


def opposite_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """One arm and its opposite, with the same or with different rewards."""
    x, bound = unit(rng, policy.setting.dim), policy.setting.reward_bound
    return _single(x, bound, arms), _single(-x, bound * float(rng.integers(0, 2)), arms)


def orthogonal_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """Two unit vectors at a right angle: the outer products are sqrt(2) apart."""
    basis = np.linalg.qr(rng.standard_normal((policy.setting.dim, policy.setting.dim)))[0]
    bound = policy.setting.reward_bound
    first, second = (_single(basis[:, k % basis.shape[1]], bound * float(rng.integers(0, 2)), arms) for k in range(2))
    return first, second


def switching_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """A row that explores (long arms) and one that does not (arms of length 0 or nearly)."""
    dim, bound = policy.setting.dim, policy.setting.reward_bound
    short = 0.05 * float(rng.integers(0, 2)) * unit(rng, arms, dim)
    rows = UserRow(unit(rng, arms, dim), np.full(arms, bound)), UserRow(short, np.zeros(arms))
    return (rows[1], rows[0]) if rng.random() < 0.5 else rows


def largest_contribution(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """The two rows, among those in a plane with the public estimate, whose contributions lie furthest apart."""
    rows = candidates(policy, rng, policy.estimate)
    if _open_sums(policy.state) is None:
        values = gradients(policy, rows, policy.estimate)
    else:
        values = _contributions(policy, rows)
    return furthest(rows, values, arms)


def largest_gradient(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """The two rows, among those in a plane with the public estimate, whose loss gradients lie furthest apart."""
    rows = candidates(policy, rng, policy.estimate)
    return furthest(rows, gradients(policy, rows, policy.estimate), arms)


def late_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """Rows of a random adversary of `ADVERSARIES`, with rewards that arrive at different times."""
    first, second = ADVERSARIES[int(rng.integers(len(ADVERSARIES)))](policy, rng, arms)
    delays = rng.permutation(12)[:2]
    return replace(first, delay=int(delays[0])), replace(second, delay=int(delays[1]))


def missing_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """Rows of a random adversary of `ADVERSARIES`, of which one reward never comes."""
    first, second = ADVERSARIES[int(rng.integers(len(ADVERSARIES)))](policy, rng, arms)
    rows = first, replace(second, delay=NEVER)
    return (rows[1], rows[0]) if rng.random() < 0.5 else rows


ADVERSARIES: Final[tuple[Adversary, ...]] = (
    random_rows,
    opposite_rows,
    orthogonal_rows,
    switching_rows,
    largest_contribution,
    largest_gradient,
)
ABSENT: Final[tuple[Adversary, ...]] = (late_rows, missing_rows)
"""Adversaries where the guarantee covers rewards that come late or never."""


def candidates(
    policy: PrivatePolicy, rng: np.random.Generator, theta: FloatArray, angles: int = 24
) -> list[tuple[FloatArray, float]]:
    """Unit vectors in a plane with ``theta`` (with a fixed direction when it is 0), each with both extreme rewards."""
    along = theta if np.linalg.norm(theta) > 0.0 else np.eye(policy.setting.dim)[0]
    along = allowed(policy, along / np.linalg.norm(along))
    across = rng.standard_normal(along.size)
    if policy._structure is not None:
        blocks = policy._structure.block_of
        across = np.where(blocks == blocks[int(np.argmax(np.abs(along)))], across, 0.0)
    across -= (across @ along) * along
    if np.linalg.norm(across) > 0.0:
        across /= np.linalg.norm(across)
    turns = 2.0 * math.pi * (np.arange(angles) + rng.random()) / angles
    vectors = [math.cos(a) * along + math.sin(a) * across for a in turns]
    bound = policy.setting.reward_bound
    return [(x / max(1.0, float(np.linalg.norm(x))), reward) for x in vectors for reward in (0.0, bound)]


def _open_sums(state: Any) -> FloatArray | None:
    """Where contributions wait for their release: the open leaf of a stream, or an open batch; None without either."""
    stream, batch = getattr(state, "stream", None), getattr(state, "batch", None)
    if isinstance(stream, Stream):
        return stream.leaf
    return batch if isinstance(batch, np.ndarray) else None


def _contributions(policy: PrivatePolicy, candidates: list[tuple[FloatArray, float]]) -> FloatArray:
    """What each candidate would add to the open leaf or batch by the policy's own steps."""
    scratch, coins = copied(policy.state), np.zeros((1, policy._coin_count))
    sums = _open_sums(scratch)
    assert sums is not None
    out, memos = np.empty((len(candidates), sums.size)), np.zeros((1, policy._memo_size))
    for position, (x, reward) in enumerate(candidates):
        sums[:] = 0.0
        policy._steps.choose(scratch, policy.arm_form.rounds(x[None, None]), coins, memos)
        policy._steps.learn(scratch, memos, np.array([reward]))
        out[position] = sums
    return out


def gradients(policy: PrivatePolicy, rows: list[tuple[FloatArray, float]], theta: FloatArray) -> FloatArray:
    """Gradients of the loss at ``theta``, one line per row."""
    features = np.array([x for x, _ in rows])
    rewards = np.array([reward for _, reward in rows])
    residuals = policy.setting.link.mean(features @ theta) - rewards
    return np.asarray(residuals[:, None] * features, dtype=np.float64)


def furthest(rows: list[tuple[FloatArray, float]], values: FloatArray, arms: int) -> tuple[UserRow, UserRow]:
    """The two rows whose values lie furthest apart."""
    distances = np.linalg.norm(values[:, None] - values[None], axis=2)
    i, j = np.unravel_index(int(np.argmax(distances)), distances.shape)
    return _single(*rows[int(i)], arms), _single(*rows[int(j)], arms)


def twin(policy: PrivatePolicy) -> PrivatePolicy:
    """A copy of the policy, generators included, to look ahead with: the policy itself will draw the same numbers."""
    return type(policy).from_snapshot(policy.snapshot())


def copied(state: Any) -> Any:
    """A deep copy of a state."""
    return rebuild(state, flatten(state))


# Driven worlds


def driven_world(
    rng: np.random.Generator,
    policy: PrivatePolicy,
    adversary: Adversary,
    *,
    users: int,
    user: int | None = None,
    **events: Any,
) -> World:
    """A world that pushes a policy to where its bounds are attained: theta at the edge of its ball, optimizers called.

    In a random world of forty users the optimizers are hardly called, and a row's gradient is far from the longest one.
    Here nearly all users bring the arm e_1 and are paid in full, so that both estimates go to the edge of the ball
    along e_1; every few rounds a user brings another axis, so that V grows in new directions and theta_o is refreshed
    again.  Shift over charge does not depend on epsilon, and a large epsilon lets calls come early.

    A mover is replaced when it can move, any other user in the first half of the world, unless ``user`` is given.
    """
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
    """A user at whose decision an arm of length 1 explores and one a little shorter does not, with long estimates."""
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
