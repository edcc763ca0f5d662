"""What happened to a policy, as values that can be kept and applied again.

A policy that keeps a log (`Policy.keep_log`) hands over an entry for each release, decision, reward and abandoned
decision, in the order in which they happened.  A policy in the state from before, to which the entries are applied
(`Policy.replay`), ends in the same state: clocks, counts and everything that was released are equal to the bit; noise
that the mechanism goes on with, such as the buffers of a Toeplitz stream, is worked out from the releases and equal up
to rounding.

The log holds what was released and not the noise.  Decisions carry the row that they will contribute, and rewards are
raw: the log is as secret as the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy.typing as npt

from tacit.errors import CorruptState
from tacit.policies.publisher import DIRECT, Publisher
from tacit.privacy.continual import Stream, leaf_is_due, published
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

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
