"""`random`: every arm with the same probability.  The regret that learning must beat."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from tacit.policies.admission import remember_rows
from tacit.policies.clock import NO_END, Span
from tacit.policies.exploring import uniform_arms
from tacit.policies.policy import Policy
from tacit.policies.steps import Steps, idle
from tacit.typing import Count, FloatArray, IntArray, count


class UniformState(NamedTuple):
    """State of `random`: the number of rewards; nothing is learned from them."""

    rewards: Count


def choose(state: UniformState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose an arm for each of N users by their coins, and leave its probability in place of the coin."""
    arms = uniform_arms(contexts.shape[1], coins[:, 0])
    remember_rows(contexts, arms, memos)
    coins[:, 0] = 1.0 / contexts.shape[1]
    return arms


def learn(state: UniformState, memos: FloatArray, rewards: FloatArray) -> None:
    """Count N rewards."""
    state.rewards[()] += rewards.size


class UniformRandom(Policy):
    """Chooses uniformly at random and ignores rewards."""

    name: ClassVar[str] = "random"
    _coin_count = 1
    _states_propensity = True
    _steps = Steps(choose, learn, idle)
    _chooses_by_releases = True  # or by nothing at all

    def _next_span(self) -> Span:
        return Span(NO_END, 0, 0.0, rare=True)

    def _make_state(self) -> UniformState:
        return UniformState(count())
