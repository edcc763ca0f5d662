"""Neighbouring worlds: everybody's rows, and two rows for the one user who is replaced.

The replaced rows may be chosen in the light of everything that is public when the user arrives: an adversary looks
at the policy and names two rows that should be hard to hide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import flatten, rebuild
from tacit.privacy.continual import Stream
from tacit.typing import FloatArray, IntArray

EXCESS: Final = 10.0
"""How far the replaced user's rewards exceed what they are clipped to."""
NEVER: Final = -1
"""Delay of a reward that does not come."""


@dataclass(frozen=True)
class Row:
    """One user: arms (K, d), what each arm would earn, and after how many further decisions the reward arrives."""

    arms: FloatArray
    rewards: FloatArray
    delay: int = 0


Adversary = Callable[[PrivatePolicy, np.random.Generator, int], tuple[Row, Row]]
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

    def row(self, user: int) -> Row:
        """The row of a user who is not replaced."""
        return Row(self.arms[user], self.rewards[user], int(self.delays[user]))


def unit(rng: np.random.Generator, *shape: int) -> FloatArray:
    """Uniformly distributed directions."""
    vectors = rng.standard_normal(shape)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), dtype=np.float64)


def allowed(policy: PrivatePolicy, vectors: FloatArray) -> FloatArray:
    """The same, each as long as before, within one block where the policy was told that arms fill one only."""
    support = policy.structure
    if support is None:
        return vectors
    strongest = np.argmax(np.add.reduceat(vectors * vectors, support.starts[:-1], axis=-1), axis=-1)
    kept = np.where(support.block_of == strongest[..., None], vectors, 0.0)
    lengths = np.linalg.norm(kept, axis=-1, keepdims=True)
    return np.asarray(kept * (np.linalg.norm(vectors, axis=-1, keepdims=True) / np.where(lengths > 0.0, lengths, 1.0)))


def neighbours(world: World, policy: PrivatePolicy, rng: np.random.Generator) -> tuple[Row, Row]:
    """The two rows of the replaced user, as the adversary has them, within what the policy takes.

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


def random_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
    """Both rows drawn at random."""
    first, second = (
        Row(unit(rng, arms, policy.setting.dim), policy.setting.reward_bound * rng.random(arms)) for _ in range(2)
    )
    return first, second


def _single(x: FloatArray, reward: float, arms: int) -> Row:
    return Row(np.tile(x, (arms, 1)), np.full(arms, reward))


def opposite_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
    """One arm and its opposite, with the same or with different rewards."""
    x, bound = unit(rng, policy.setting.dim), policy.setting.reward_bound
    return _single(x, bound, arms), _single(-x, bound * float(rng.integers(0, 2)), arms)


def orthogonal_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
    """Two unit vectors at a right angle: the outer products are sqrt(2) apart."""
    basis = np.linalg.qr(rng.standard_normal((policy.setting.dim, policy.setting.dim)))[0]
    bound = policy.setting.reward_bound
    first, second = (_single(basis[:, k % basis.shape[1]], bound * float(rng.integers(0, 2)), arms) for k in range(2))
    return first, second


def switching_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
    """A row that explores (long arms) and one that does not (arms of length 0 or nearly)."""
    dim, bound = policy.setting.dim, policy.setting.reward_bound
    short = 0.05 * float(rng.integers(0, 2)) * unit(rng, arms, dim)
    rows = Row(unit(rng, arms, dim), np.full(arms, bound)), Row(short, np.zeros(arms))
    return (rows[1], rows[0]) if rng.random() < 0.5 else rows


def largest_contribution(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
    """The two rows, among those in a plane with the public estimate, whose contributions lie furthest apart."""
    rows = candidates(policy, rng, policy.estimate)
    if isinstance(getattr(policy.state, "stream", None), Stream):
        values = _contributions(policy, rows)
    else:
        values = gradients(policy, rows, policy.estimate)
    return furthest(rows, values, arms)


def largest_gradient(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
    """The same for the gradients of the loss at the public estimate."""
    rows = candidates(policy, rng, policy.estimate)
    return furthest(rows, gradients(policy, rows, policy.estimate), arms)


def late_counts(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
    """An arm and its opposite, both paid in full a few decisions later."""
    x, bound = unit(rng, policy.setting.dim), policy.setting.reward_bound
    return replace(_single(x, bound, arms), delay=4), replace(_single(-x, bound, arms), delay=2)


def late_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
    """Rows as above, whose rewards arrive at different times."""
    first, second = ADVERSARIES[int(rng.integers(len(ADVERSARIES)))](policy, rng, arms)
    delays = rng.permutation(12)[:2]
    return replace(first, delay=int(delays[0])), replace(second, delay=int(delays[1]))


def missing_rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
    """A long row, and one whose reward never comes."""
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
"""Where the guarantee covers rewards that come late or never."""


def candidates(
    policy: PrivatePolicy, rng: np.random.Generator, theta: FloatArray, angles: int = 24
) -> list[tuple[FloatArray, float]]:
    """Unit vectors in a plane with ``theta`` (with a fixed direction when it is 0), each with both extreme rewards."""
    along = theta if np.linalg.norm(theta) > 0.0 else np.eye(policy.setting.dim)[0]
    along = allowed(policy, along / np.linalg.norm(along))
    across = rng.standard_normal(along.size)
    if policy.structure is not None:
        blocks = policy.structure.block_of
        across = np.where(blocks == blocks[int(np.argmax(np.abs(along)))], across, 0.0)
    across -= (across @ along) * along
    if np.linalg.norm(across) > 0.0:
        across /= np.linalg.norm(across)
    turns = 2.0 * math.pi * (np.arange(angles) + rng.random()) / angles
    vectors = [math.cos(a) * along + math.sin(a) * across for a in turns]
    bound = policy.setting.reward_bound
    return [(x / max(1.0, float(np.linalg.norm(x))), reward) for x in vectors for reward in (0.0, bound)]


def _contributions(policy: PrivatePolicy, candidates: list[tuple[FloatArray, float]]) -> FloatArray:
    """What each candidate would add to the open leaf by the policy's own steps."""
    scratch, coins = copied(policy.state), np.zeros((1, policy.coin_count))
    out, memos = np.empty((len(candidates), scratch.stream.leaf.size)), np.zeros((1, policy.memo_size))
    for position, (x, reward) in enumerate(candidates):
        scratch.stream.leaf[:] = 0.0
        policy.steps.choose(scratch, policy.as_steps_take(x[None, None]), coins, memos)
        policy.steps.learn(scratch, memos, np.array([reward]))
        out[position] = scratch.stream.leaf
    return out


def gradients(policy: PrivatePolicy, rows: list[tuple[FloatArray, float]], theta: FloatArray) -> FloatArray:
    """Of the loss at ``theta``, one line per row."""
    features = np.array([x for x, _ in rows])
    rewards = np.array([reward for _, reward in rows])
    residuals = policy.setting.link.mean(features @ theta) - rewards
    return np.asarray(residuals[:, None] * features, dtype=np.float64)


def furthest(rows: list[tuple[FloatArray, float]], values: FloatArray, arms: int) -> tuple[Row, Row]:
    """The two rows whose values lie furthest apart."""
    distances = np.linalg.norm(values[:, None] - values[None], axis=2)
    i, j = np.unravel_index(int(np.argmax(distances)), distances.shape)
    return _single(*rows[int(i)], arms), _single(*rows[int(j)], arms)


def twin(policy: PrivatePolicy) -> PrivatePolicy:
    """A second policy in the same state, generators included, to look ahead with: what it draws is drawn again."""
    return type(policy).from_snapshot(policy.snapshot())


def copied(state: Any) -> Any:
    """A state with arrays of its own."""
    return rebuild(state, flatten(state))
