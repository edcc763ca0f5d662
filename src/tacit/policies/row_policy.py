"""Policies that keep rows, in a buffer that is enlarged when it is full."""

from __future__ import annotations

import numpy as np

from tacit.glm.rows import RowBuffer
from tacit.policies.policy import Policy
from tacit.typing import ByteArray, FloatArray, count

__all__ = ["FIRST_CAPACITY", "RowBuffer", "RowPolicy", "append_rows", "grown", "make_rows"]

FIRST_CAPACITY = 1024


def make_rows(dim: int, capacity: int = FIRST_CAPACITY) -> RowBuffer:
    """An empty buffer."""
    return RowBuffer(np.zeros((capacity, dim)), np.zeros(capacity), np.zeros(capacity, dtype=np.uint8), count())


def grown(rows: RowBuffer) -> RowBuffer:
    """A buffer of twice the size that holds these rows."""
    larger = make_rows(rows.features.shape[1], 2 * rows.rewards.shape[0])
    held = int(rows.held[()])
    append_rows(larger, rows.features[:held], rows.rewards[:held], rows.mask[:held])
    return larger


def append_rows(rows: RowBuffer, features: FloatArray, rewards: FloatArray, marks: int | ByteArray) -> None:
    """Append N rows, shape (N, d), with their rewards and marks; there must be room for them (`RowPolicy`)."""
    held = int(rows.held[()])
    if held + rewards.size > rows.rewards.size:
        raise IndexError("the row buffer is full: a policy that keeps rows enlarges it before the next reward")
    own = slice(held, held + rewards.size)
    rows.features[own], rows.rewards[own], rows.mask[own] = features, rewards, marks
    rows.held[()] = held + rewards.size


class RowPolicy(Policy):
    """A policy whose state has a ``rows`` field, with room for the rows of the rewards that ``learn`` is given."""

    def _learn_rows(self, memos: FloatArray, rewards: FloatArray) -> None:
        while self._state.rows.held[()] + rewards.size > self._state.rows.rewards.shape[0]:
            self._state = self._state._replace(rows=grown(self._state.rows))
        super()._learn_rows(memos, rewards)
