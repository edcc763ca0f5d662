"""`random`: every arm with the same probability.  The regret that learning must beat."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from tacit._compile import kernel
from tacit.policies.arms import remember_arm
from tacit.policies.policy import Policy
from tacit.policies.steps import register_steps
from tacit.typing import Count, FloatArray, count


class UniformState(NamedTuple):
    """Nothing is learned; that rewards arrive is counted."""

    rewards: Count


@kernel
def _advance(state: UniformState, fresh: bool) -> int:
    return 0


@kernel
def _choose(state: UniformState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    arms = contexts.shape[0]
    arm = int(min(int(coins[0] * arms), arms - 1))
    remember_arm(contexts, arm, memo)
    coins[0] = 1.0 / arms
    return int(arm)


@kernel
def _learn(state: UniformState, memo: FloatArray, reward: float) -> None:
    state.rewards[()] += 1


register_steps(UniformState, _advance, _choose, _learn)


class UniformRandom(Policy):
    """Chooses uniformly at random and ignores rewards."""

    name: ClassVar[str] = "random"
    coin_count = 1
    states_propensity = True

    def _make_state(self) -> UniformState:
        return UniformState(count())
