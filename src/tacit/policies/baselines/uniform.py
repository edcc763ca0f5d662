"""`random`: every arm with the same probability.  The regret that learning must beat."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit.policies.arms import remember_arm
from tacit.policies.base import Policy
from tacit.policies.steps import register_steps
from tacit.typing import FloatArray


class UniformState(NamedTuple):
    """Nothing is learned; a count shows that rewards arrive."""

    rewards: FloatArray


@kernel
def _advance(state: UniformState, fresh: bool) -> int:
    return 0


@kernel
def _choose(state: UniformState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    count = contexts.shape[0]
    arm = int(min(int(coins[0] * count), count - 1))
    remember_arm(contexts, arm, memo)
    return int(arm)


@kernel
def _learn(state: UniformState, memo: FloatArray, reward: float) -> None:
    state.rewards[0] += 1.0
    state.rewards[1] += reward


register_steps(UniformState, _advance, _choose, _learn)


class UniformRandom(Policy):
    """Chooses uniformly at random and ignores rewards."""

    name: ClassVar[str] = "random"
    coin_count = 1

    def _build(self) -> None:
        self.state = UniformState(np.zeros(2))
