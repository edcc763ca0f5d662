"""Batches as steps see them: a clock that is public, and the rows of the open batch, which are not.

How a batch is opened and closed is in `tacit.policies.batch_policy`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from tacit.policies.admission import remember_rows
from tacit.typing import Count, FloatArray, IntArray, count

CLOSE: Final = 1
"""Event: the open batch is full."""
OPEN: Final = 2
"""Event: open a batch; the call that should have done so was interrupted."""
NONE_OPEN: Final = 0
"""End of a batch when none is open any more: too few users are left of the horizon."""
BETWEEN: Final = -1
"""End of a batch that has yet to be opened."""
BATCH_SLOT: Final = -1
"""Where a memo has the number of the decision's batch: behind the features of the arm."""
REWARD_SLOT: Final = -1
"""Where a row has its reward: in the same place."""


class BatchClock(NamedTuple):
    """Which batch is open and how far it is: a function of the number of decisions, and public."""

    number: Count
    """The open batch, from 1."""
    served: Count
    """Users who were given a place so far, in all batches."""
    end: Count
    """How many will have been served when the open batch is full; or ``NONE_OPEN``, or ``BETWEEN``."""


class BatchRows(NamedTuple):
    """Rows of a batch: a line for each of its users, of which those are filled whose rewards came."""

    lines: FloatArray
    """Features of the arm, then the reward; shape (users, d + 1)."""
    held: Count
    """Lines that are filled; the others are 0."""

    @property
    def users(self) -> int:
        """Users of the batch, who all report: those without a reward contribute 0."""
        return len(self.lines)

    @property
    def features(self) -> FloatArray:
        """Features of the filled lines, shape (held, d)."""
        return np.ascontiguousarray(self.lines[: self.held[()], :REWARD_SLOT])

    @property
    def rewards(self) -> FloatArray:
        """Rewards of the filled lines, shape (held,)."""
        return np.ascontiguousarray(self.lines[: self.held[()], REWARD_SLOT])

    def padded(self, contributions: FloatArray) -> FloatArray:
        """Contributions of the filled lines, and 0 for all other users."""
        padded = np.zeros((self.users, contributions.shape[1]))
        padded[: len(contributions)] = contributions
        return padded


def make_clock() -> BatchClock:
    """The clock before the first batch."""
    return BatchClock(number=count(), served=count(), end=count(BETWEEN))


def most_users(dim: int) -> int:
    """Users of a batch at most: its rows fit into 128 MB, and its sums are calibrated within seconds."""
    return min(4_000_000, 16_000_000 // (dim + 1))


def make_batch_rows(dim: int, users: int) -> BatchRows:
    """Room for the rows of so many users."""
    return BatchRows(np.zeros((users, dim + 1)), count())


def tick_batch(batch: BatchClock, users: int) -> int:
    """Give the next decisions a place in the open batch; otherwise the event that must come first."""
    if batch.end[()] <= NONE_OPEN:
        return OPEN if batch.end[()] == BETWEEN else 0
    if batch.served[()] + users > batch.end[()]:
        return CLOSE
    batch.served[()] += users
    return 0


def remember_arms(batch: BatchClock, contexts: FloatArray, arms: IntArray, memos: FloatArray) -> None:
    """Note the features of each user's arm, and which batch the decision belongs to."""
    remember_rows(contexts, arms, memos)
    memos[:, BATCH_SLOT] = batch.number[()]


def keep_rows(batch: BatchClock, rows: BatchRows, memos: FloatArray, rewards: FloatArray) -> None:
    """Keep the rows that are of the open batch.

    A reward that comes after its batch closed is dropped: its user has reported a contribution of 0.
    """
    if batch.end[()] <= NONE_OPEN:
        return
    held = int(rows.held[()])
    own = np.flatnonzero(memos[:, BATCH_SLOT] == batch.number[()])[: rows.users - held]
    lines = slice(held, held + own.size)
    rows.lines[lines, :REWARD_SLOT] = memos[own, :BATCH_SLOT]
    rows.lines[lines, REWARD_SLOT] = rewards[own]
    rows.held[()] = held + own.size
