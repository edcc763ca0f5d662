"""The clock of a policy: ticks before decisions, spans of ticks between public events, and rewards on their way.

A tick releases what is due, has the policy take it in, and hands out the random numbers of the decisions that follow.
Rewards wait in a queue until a release could depend on them, or something looks at the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from tacit.policies.policy import Policy

NO_END = 1 << 30
"""Ticks of a span that nothing ends."""
QUEUE = 256
"""Rewards that are learned from together: a call of NumPy costs about the same for one row and for a hundred."""
_NOTHING, _NO_COINS = np.zeros(0), np.zeros((1, 0))
_CHUNK = 1 << 17
"""Numbers of contexts that ``play`` chooses by at a time: what the processor's cache holds."""
_AHEAD = 64
"""Rounds that ``play`` chooses ahead at most, where a reward may come between them (`Steps.until_change`)."""


class Span(NamedTuple):
    """Ticks that may follow each other without anything between them, and the noise that they draw."""

    ticks: int
    noise_size: int
    noise_scale: float
    rare: bool = False
    """Whether ``ticks`` counts decisions, and only the first tick draws noise, in whole numbers."""


class Clock:
    """Where a policy is between two ticks."""

    __slots__ = ("span", "ticks_left", "unlearned")

    def __init__(self) -> None:
        self.span = Span(0, 0, 0.0)
        self.ticks_left = 0
        """How many ticks of the span may still follow; none when the state was replaced."""
        self.unlearned: list[tuple[FloatArray, float]] = []
        """Memos and rewards that were taken in and not summed yet; ``Policy.state`` shows none without them."""


def tick(policy: Policy, users: int) -> FloatArray:
    """Tick before the decisions of ``users``, and return their coins, shape (users, coin count)."""
    clock, counted = policy._clock, users
    if policy._pending.age:
        learn_matured(policy)
        counted = policy._counted(users)
    begins = clock.ticks_left <= 0
    if begins:
        clock.span = policy._next_span()
        clock.ticks_left = clock.span.ticks
    span, noise = clock.span, _NOTHING
    if span.noise_size and (begins or not span.rare):
        noise = _noise(policy, span, users if policy._noise_for_each else 1).reshape(-1)
    clock.ticks_left -= counted if span.rare else 1
    if begins and span.rare and span.noise_size:
        clock.ticks_left = 0  # if this tick is interrupted, the next one asks the state whether its leaf is due
    if policy._coin_count:
        coins = policy.randomness.coins.random((users, policy._coin_count))
    else:
        coins = _NO_COINS if users == 1 else np.zeros((users, 0))
    release(policy, noise, users, counted)
    return coins


def release(policy: Policy, noise: FloatArray, users: int, counted: int) -> None:
    """Release what is due before the decisions of ``users`` with this noise, and have the policy take it in.

    The clock of releases counts them as ``counted`` decisions: with ``reward_age`` those that come of age.
    """
    if policy._clock.unlearned and (noise.size or not policy._clock.span.rare):
        learn_queued(policy)
    fresh = policy._close(noise, counted)  # may replace the state
    event = policy._steps.advance(policy._state, fresh, users)
    if event:
        policy._on_event(event)


def learn_queued(policy: Policy) -> None:
    """Learn from what waits: many at a time where choices depend on releases alone, else one by one.

    Taken out first: an interruption may lose rewards, and never counts one twice.
    """
    queue, most = policy._clock.unlearned, QUEUE if policy._chooses_by_releases else 1
    while queue:
        memos, rewards = zip(*queue[:most], strict=True)
        del queue[:most]
        policy._learn_rows(np.concatenate(memos).reshape(len(memos), -1), np.array(rewards))


def learn_matured(policy: Policy, further: int = 1) -> None:
    """Take in the rewards that ``reward_age`` has kept of decisions old enough after so many ``further`` ones."""
    if policy._pending.age:
        queue = policy._clock.unlearned
        queue += policy._pending.matured(further)
        if not policy._chooses_by_releases or len(queue) >= QUEUE:
            learn_queued(policy)


def play(policy: Policy, contexts: FloatArray, rewards: FloatArray) -> IntArray:
    """Play whole rounds, span by span; ``contexts`` are in the form that steps take."""
    count, clock, pending = contexts.shape[0], policy._clock, policy._pending
    clock.ticks_left = 0  # spans of its own: if it is interrupted, the next decision begins another
    learn_queued(policy)  # before those of these rounds, as they came
    arms, start = np.empty(count, dtype=np.int64), 0
    while start < count:
        learn_matured(policy)  # those of the span before, which come before this one's release
        span = clock.span = policy._next_span()
        stop = min(count, start + _rounds_of(policy, span))
        _play_rounds(policy, span, contexts[start:stop], rewards[start:stop], arms[start:stop])
        start = stop
    learn_matured(policy, further=0)
    if not pending.age:
        pending.skip(count)
    return arms


def _rounds_of(policy: Policy, span: Span) -> int:
    """How many rounds a span is long: longer than what it counts where decisions are too young to be counted."""
    most = span.ticks + policy._pending.age
    return span.ticks + most - policy._counted(most) if span.rare else span.ticks


def _play_rounds(policy: Policy, span: Span, contexts: FloatArray, rewards: FloatArray, arms: IntArray) -> None:
    """Play the rounds of a span: together where only its first tick can release anything, else one by one."""
    count, together, age = arms.size, span.rare and policy._chooses_by_releases, policy._pending.age
    noise = _noise(policy, span, 1 if span.rare else count)
    coins = policy.randomness.coins.random((count, policy._coin_count))
    if together:
        release(policy, noise[0], count, policy._counted(count))
    most, start = max(1.0, _CHUNK // contexts[0].size) if together else 1.0, 0
    while start < count:
        part = slice(start, min(count, start + int(most)))
        if not together:
            learn_matured(policy)
            release(policy, noise[start] if start < len(noise) else _NOTHING, 1, policy._counted(1))
        played = _play_part(policy, contexts[part], rewards[part], coins[part], arms[part])
        start += played
        if policy._steps.until_change is not None and not age:
            most = min(1.5 * most, _AHEAD) if start == part.stop else max(1.0, 0.5 * played)


def _play_part(policy: Policy, contexts: FloatArray, rewards: FloatArray, coins: FloatArray, arms: IntArray) -> int:
    """Choose, and learn or keep the rewards until they come of age; return the number of users played."""
    memos, until_change = np.empty((arms.size, policy._pending.memo_size)), policy._steps.until_change
    arms[:] = policy._steps.choose(policy._state, contexts, coins, memos)
    earned = rewards[0][arms] if arms.size == 1 else rewards[np.arange(arms.size), arms]
    if until_change is not None:
        kept = until_change(policy._state, memos)
        memos, earned = memos[:kept], earned[:kept]
    take_in = policy._pending.keep_many if policy._pending.age else policy._learn_rows
    take_in(memos, earned)
    return len(memos)


def _noise(policy: Policy, span: Span, ticks: int) -> FloatArray:
    """What the span draws for so many ticks, a line for each."""
    shape = (ticks, span.noise_size)
    if span.noise_size == 0:
        return np.zeros(shape)
    source = policy.randomness.ticks
    return source.integers(span.noise_scale, shape) if span.rare else source.gaussian(span.noise_scale, shape)
