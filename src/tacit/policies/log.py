"""Where exact sums become public, and the log of what happened, which can be applied again.

A policy hands every exact value that it is about to release, together with its noise, to its ``publisher``: the one
seam between raw numbers and what everybody may see.  The direct one adds the two, which is the mechanism.  Another one
may write down what was released, or play it back: the audit forces the releases of one world on another to see that
nothing else differs, and a service that replays its log needs no noise at all.  What a policy does next depends on what
the publisher returns, and on nothing else of the data.

A policy that keeps a log (`Policy.keep_log`) hands over an entry for each release, decision, reward and abandoned
decision, in the order in which they happened.  A policy in the state from before, to which the entries are applied
(`Policy.replay`), ends in the same state: clocks, counts and everything that was released are equal to the bit; noise
that the mechanism goes on with, such as the buffers of a Toeplitz stream, is worked out from the releases and equal up
to rounding.

The log holds what was released and not the noise.  Decisions carry the row that they will contribute, and rewards are
raw: the log is as secret as the data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.errors import CorruptState
from tacit.policies.admission import admit_reward
from tacit.policies.clock import tick
from tacit.privacy.continual import Stream, close_leaf, is_used_up, leaf_is_due, published, replay_leaf
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

if TYPE_CHECKING:
    from tacit.policies.policy import Policy

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Released:
    """Something became public: ``kind`` says what, ``values`` are its numbers."""

    kind: str
    values: dict[str, Values]


@dataclass(frozen=True)
class Decided:
    """The clock ticked, and these users were given arms; ``memos`` are the rows that their rewards will complete."""

    first: int
    """Id of the first decision; the others follow it."""
    arms: list[int]
    memos: FloatArray


@dataclass(frozen=True)
class Rewarded:
    """A reward came."""

    decision: int
    reward: float


@dataclass(frozen=True)
class Abandoned:
    """A decision was given up: no reward of it will be taken."""

    decision: int


LogEntry = Released | Decided | Rewarded | Abandoned


def to_parts(entry: LogEntry) -> tuple[dict[str, Any], dict[str, Values]]:
    """An entry as JSON and plain arrays."""
    if isinstance(entry, Released):
        return {"entry": "Released", "kind": entry.kind}, dict(entry.values)
    if isinstance(entry, Decided):
        return {"entry": "Decided", "first": entry.first, "arms": entry.arms}, {"memos": entry.memos}
    return {"entry": type(entry).__name__} | asdict(entry), {}


def from_parts(header: Mapping[str, Any], arrays: Mapping[str, Values]) -> LogEntry:
    """The entry that gave these parts."""
    try:
        kind = header["entry"]
        if kind == "Released":
            return Released(str(header["kind"]), dict(arrays))
        if kind == "Decided":
            return Decided(int(header["first"]), [int(arm) for arm in header["arms"]], arrays["memos"])
        if kind == "Rewarded":
            return Rewarded(int(header["decision"]), float(header["reward"]))
        if kind == "Abandoned":
            return Abandoned(int(header["decision"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptState(f"not an entry of a log: {error!r}") from error
    raise CorruptState(f"not an entry of a log: {kind!r}")


class Publisher:
    """Releases things as they are planned; subclasses watch or replace what is released."""

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        """The tick of a stream before so many decisions: close the open leaf and release its sum, if it is due."""
        return close_leaf(stream, noise, users)

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        """Release a sum (``kind`` says of what) with noise of standard deviation ``sd``."""
        return exact + noise

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        """Release the shuffled sum of users' rows, by calling ``release``."""
        return release()


DIRECT = Publisher()
"""What every policy uses unless told otherwise."""


class LoggingPublisher(Publisher):
    """Releases as ``inner`` does, and hands what was released to ``sink``."""

    def __init__(self, sink: Callable[[LogEntry], None], inner: Publisher = DIRECT) -> None:
        self.sink, self._inner = sink, inner

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        due = leaf_is_due(stream)
        fresh = self._inner.leaf(stream, noise, users)
        if due:
            self.sink(Released("leaf", {"released": published(stream)} if fresh else {}))
        return fresh

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        released = self._inner.vector(kind, exact, noise, sd)
        self.sink(Released(kind, {"released": released.copy()}))
        return released

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        total = self._inner.shuffled(protocol, rows, release)
        self.sink(Released(f"shuffled sum {protocol.label}", {"sum": total.values.copy()}))
        return total


class ReplayingPublisher(Publisher):
    """Releases what a log holds: the exact values of this process matter only for what is not released yet."""

    def __init__(self) -> None:
        self._waiting: deque[Released] = deque()

    def expect(self, entry: Released) -> None:
        """Note what the log says was released next, so that the policy that is replayed releases it again."""
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


def apply_entries(policy: Policy, entries: Iterable[LogEntry], publisher: ReplayingPublisher) -> None:
    """Apply entries in order; a release waits for the decision or reward that it belongs to.

    Decisions up to the end of a span that counts them (`Span.rare`) tick together where ``play`` has them do so: no
    tick but the first of such a span finds anything due or draws noise, coins that are drawn together leave a generator
    where single draws do, and rewards come to the same before and behind these ticks.  All others tick one by one: the
    first of a span, and every one where a span counts ticks or rewards wait for their age.
    """
    clock, pending, owed = policy._clock, policy._pending, 0
    together = policy._chooses_by_releases and not pending.age
    usual, policy.publisher = policy.publisher, publisher
    try:
        for entry in entries:
            if isinstance(entry, Released):
                publisher.expect(entry)
                continue
            if isinstance(entry, Rewarded):
                _reward_again(policy, entry)
            elif isinstance(entry, Abandoned):
                pending.take(entry.decision)
            else:
                users = len(entry.arms)
                pending.check_next(entry.first, users, entry.memos)
                if together and clock.span.rare and owed + users <= clock.ticks_left:
                    owed += users
                else:
                    # Noise and coins are drawn and left: a seeded generator must be where it was.
                    earlier, owed = owed, 0
                    if earlier:
                        tick(policy, earlier)
                    tick(policy, users)
                for user in range(users):  # to iterate over a short array takes longer than all of this
                    pending.add(entry.memos[user])
            publisher.settle()
    finally:
        if owed:
            tick(policy, owed)
        policy.publisher = usual


def _reward_again(policy: Policy, entry: Rewarded) -> None:
    reward = admit_reward(entry.reward, policy.setting)
    if policy._pending.age:
        policy._pending.keep(entry.decision, reward)
    else:
        policy._learn(policy._pending.take(entry.decision), reward)
