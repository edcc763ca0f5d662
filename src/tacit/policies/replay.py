"""A log applied again: releases are those of the log, everything else follows from them as it did before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tacit.errors import CorruptState
from tacit.policies.admission import admit_reward
from tacit.policies.log import Decided, LogEntry, Released, Rewarded, Values
from tacit.policies.publisher import Publisher
from tacit.privacy.continual import Stream, close_leaf, is_used_up, leaf_is_due, replay_leaf
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

if TYPE_CHECKING:
    from tacit.policies.policy import Policy


class ReplayingPublisher(Publisher):
    """Releases what a log holds: the exact values of this process matter only for what is not released yet."""

    def __init__(self) -> None:
        self._waiting: deque[Released] = deque()

    def expect(self, entry: Released) -> None:
        """This was released next."""
        self._waiting.append(entry)

    def settle(self) -> None:
        """Everything that was released must have been released again."""
        if self._waiting:
            raise CorruptState(f"the log holds a release that did not happen again: {self._waiting[0].kind!r}")

    def _next(self, kind: str) -> dict[str, Values]:
        found = self._waiting.popleft() if self._waiting else None
        if found is None or found.kind != kind:
            instead = "no release" if found is None else f"{found.kind!r}"
            raise CorruptState(f"{kind!r} is to be released, and the log has {instead} there: not this policy's log")
        return found.values

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        if not leaf_is_due(stream):
            return close_leaf(stream, noise, users)
        values = self._next("leaf")
        if not values:
            if not is_used_up(stream):  # closed without noise, the leaf would show its raw sum
                raise CorruptState("the log has a leaf without a release, though the stream has leaves left")
            return close_leaf(stream, noise, users)
        replay_leaf(stream, values["released"], users)
        return True

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        return np.array(self._next(kind)["released"])

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        values = self._next(f"shuffled sum {protocol.label}")["sum"]
        release()  # drawn and left: a seeded generator must be where it was
        return Aggregate(protocol, np.array(values), rows.shape[0])


def apply_entry(policy: Policy, entry: LogEntry, publisher: ReplayingPublisher) -> None:
    """Apply an entry; a release waits for the decision or reward that it belongs to."""
    if isinstance(entry, Released):
        publisher.expect(entry)
        return
    usual, policy.publisher = policy.publisher, publisher
    try:
        if isinstance(entry, Decided):
            _decide_again(policy, entry)
        elif isinstance(entry, Rewarded):
            _reward_again(policy, entry)
        else:
            policy._pending.take(entry.decision)
    finally:
        policy.publisher = usual
    publisher.settle()


def _decide_again(policy: Policy, entry: Decided) -> None:
    policy._pending.check_next(entry.first)
    if policy._pending.age:
        policy._mature()
    # Drawn and left: a seeded generator must be where it was, and what was released is in the log.
    users = len(entry.arms)
    counted = policy._counted(users)
    noise, _ = policy._draw(users, counted)
    policy._tick(noise[0], users, counted)
    for memo in np.array(entry.memos, dtype=np.float64).reshape(len(entry.arms), policy.memo_size):
        policy._pending.add(memo)


def _reward_again(policy: Policy, entry: Rewarded) -> None:
    reward = admit_reward(entry.reward, policy.setting)
    if policy._pending.age:
        policy._pending.keep(entry.decision, reward)
    else:
        policy._learn(policy._pending.take(entry.decision), reward)
