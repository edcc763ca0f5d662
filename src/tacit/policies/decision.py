"""Decisions that wait for their rewards."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np

from tacit.errors import AlreadyRewarded, CorruptState, ExpiredDecision, InvalidInput, UnknownDecision
from tacit.typing import FloatArray, IntArray

_FIRST_RANDOM_ID = 1 << 51
"""Ids of a life begin at a random place from here to 2^52: exact in JSON, and no other life's."""


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
        self._first_id = 0
        self._next_id = 0
        self._oldest = 0
        self._earlier = 0

    @property
    def decisions(self) -> int:
        """Number of decisions made so far, those of lives before a recovery included."""
        return self._earlier + self._next_id - self._first_id

    def add(self, memo: FloatArray) -> int:
        """Remember ``memo`` and return the decision's id."""
        identity = self._next_id
        self._memos[identity] = memo
        self._next_id += 1
        while self._oldest < self._next_id - self._window:
            self._memos.pop(self._oldest, None)
            self._oldest += 1
        return identity

    def check_next(self, identity: int) -> None:
        """Refuse an entry of a log whose decision is not the next one."""
        if identity != self._next_id:
            raise CorruptState(f"decision {identity} of the log is not the next one, which is {self._next_id}")

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
        if not self._first_id <= identity < self._next_id:
            raise UnknownDecision(self._unknown(identity))
        if identity < self._oldest:
            raise ExpiredDecision(
                f"decision id {identity} has expired: rewards are taken for the last {self._window} decisions; "
                f"raise reward_window if yours come later"
            )
        raise AlreadyRewarded(f"decision id {identity} already has its reward: a reward counts once")

    def _unknown(self, identity: int) -> str:
        if self._next_id == self._first_id:
            return f"decision id {identity} is unknown: no decision has been made yet"
        known = f"ids run from {self._first_id} to {self._next_id - 1}"
        lost = "; rewards of decisions from before the recovery are lost" if self._earlier else ""
        return f"decision id {identity} is unknown: {known}{lost}"

    def take(self, decision: Decision | int) -> FloatArray:
        """What was remembered of a decision, which is then done with; an error names what is wrong otherwise."""
        identity = decision.id if type(decision) is Decision else decision
        if type(identity) is int:  # the common case, on the path of every reward
            memo = self._memos.pop(identity, None)
            if memo is not None:
                return memo
        return self._memos.pop(self.find(decision))

    def memo(self, identity: int) -> FloatArray:
        """What was remembered of decision ``identity``."""
        return self._memos[identity]

    def recover(self) -> None:
        """Forget all waiting decisions, and number further ones as no earlier life of this state can have."""
        self._earlier = self.decisions
        self._memos.clear()
        self.renumber()

    def renumber(self) -> None:
        """Begin a new range of ids, at random; none of them waits."""
        self._first_id = self._next_id = _FIRST_RANDOM_ID + secrets.randbelow(_FIRST_RANDOM_ID)
        self._oldest = self._first_id

    def to_arrays(self) -> dict[str, FloatArray | IntArray]:
        """All fields as arrays, for saving."""
        ids = np.array(list(self._memos), dtype=np.int64)
        memos = np.array(list(self._memos.values()), dtype=np.float64).reshape(ids.size, self.memo_size)
        clock = np.array([self._next_id, self._oldest, self._first_id, self._earlier], dtype=np.int64)
        return {"ids": ids, "memos": memos, "clock": clock}

    def restore(self, ids: IntArray, memos: FloatArray, clock: IntArray) -> None:
        """Put back what ``to_arrays`` gave."""
        rows = np.ascontiguousarray(memos, dtype=np.float64).reshape(ids.size, self.memo_size)
        self._memos = {int(i): memo.copy() for i, memo in zip(ids, rows, strict=True)}
        self._next_id, self._oldest, self._first_id, self._earlier = (int(value) for value in clock)
