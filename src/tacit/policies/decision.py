"""Decisions that wait for their rewards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.errors import InvalidInput
from tacit.typing import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Decision:
    """One user's decision: play ``arm``; report the reward with the decision or with its ``id``."""

    arm: int
    id: int


class Pending:
    """What learning needs to know of each decision whose reward may still come.

    A decision expires after ``window`` further decisions.  That depends on the clock alone, never on whether anyone's
    reward arrived, and keeps memory bounded when rewards get lost.
    """

    def __init__(self, memo_size: int, window: int) -> None:
        self.memo_size = memo_size
        self._window = window
        self._memos: dict[int, FloatArray] = {}
        self._next_id = 0
        self._oldest = 0

    @property
    def decisions(self) -> int:
        """Number of decisions made so far."""
        return self._next_id

    def add(self, memo: FloatArray) -> int:
        """Remember ``memo`` and return the decision's id."""
        identity = self._next_id
        self._memos[identity] = memo
        self._next_id += 1
        while self._oldest < self._next_id - self._window:
            self._memos.pop(self._oldest, None)
            self._oldest += 1
        return identity

    def skip(self, count: int) -> None:
        """Count decisions whose rewards were taken in at once."""
        self._next_id += count
        while self._oldest < self._next_id - self._window and self._memos:
            self._memos.pop(self._oldest, None)
            self._oldest += 1
        self._oldest = max(self._oldest, self._next_id - self._window)

    def find(self, decision: Decision | int) -> int:
        """The id of a decision whose reward may be reported now; an error names what is wrong otherwise."""
        identity = decision.id if isinstance(decision, Decision) else decision
        if isinstance(identity, bool) or not isinstance(identity, int | np.integer):
            raise InvalidInput(f"decision must be a Decision or its integer id, not {identity!r}")
        identity = int(identity)
        if identity in self._memos:
            return identity
        if not 0 <= identity < self._next_id:
            raise InvalidInput(f"decision id {identity} is unknown: ids run from 0 to {self._next_id - 1}")
        if identity < self._oldest:
            raise InvalidInput(
                f"decision id {identity} has expired: rewards are taken for the last {self._window} decisions; "
                f"raise reward_window if yours come later"
            )
        raise InvalidInput(f"decision id {identity} already has its reward: a reward counts once")

    def memo(self, identity: int) -> FloatArray:
        """What was remembered of decision ``identity``."""
        return self._memos[identity]

    def discard(self, identity: int) -> None:
        """The reward of decision ``identity`` has been taken in."""
        del self._memos[identity]

    def to_arrays(self) -> dict[str, FloatArray | IntArray]:
        """All fields as arrays, for saving."""
        ids = np.array(list(self._memos), dtype=np.int64)
        memos = np.array(list(self._memos.values()), dtype=np.float64).reshape(ids.size, self.memo_size)
        return {"ids": ids, "memos": memos, "clock": np.array([self._next_id, self._oldest], dtype=np.int64)}

    def restore(self, ids: IntArray, memos: FloatArray, clock: IntArray) -> None:
        """Put back what ``to_arrays`` gave."""
        rows = np.ascontiguousarray(memos, dtype=np.float64).reshape(ids.size, self.memo_size)
        self._memos = {int(i): memo.copy() for i, memo in zip(ids, rows, strict=True)}
        self._next_id, self._oldest = int(clock[0]), int(clock[1])
