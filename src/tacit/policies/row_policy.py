"""Rows that a policy keeps: a buffer that compiled kernels fill and Python enlarges.

A kernel cannot reallocate an array of its state.  It appends while there is room; ``advance`` ends with
``return grow_flag(rows)``, which asks the Python side for a buffer of twice the size in time for the next reward, and
``update`` looks too, since rewards of several decisions may arrive between two ticks.
"""

from __future__ import annotations

import numpy as np

from tacit._compile import inlined_kernel
from tacit.glm.rows import RowBuffer
from tacit.policies.policy import Policy
from tacit.typing import FloatArray, count

__all__ = ["FIRST_CAPACITY", "GROW", "RowBuffer", "RowPolicy", "append_row", "grow_flag", "grown", "make_rows"]

GROW = 1 << 20
"""Event of a full buffer: a bit that no other event uses."""
FIRST_CAPACITY = 1024


@inlined_kernel
def append_row(rows: RowBuffer, x: FloatArray, reward: float, mark: int) -> None:
    """Append a row (the first d entries of ``x``) whose mask is ``mark``; there must be room for it."""
    position = rows.held[()]
    if position >= rows.rewards.shape[0]:
        raise IndexError("the row buffer is full: a policy that keeps rows enlarges it before the next reward")
    for i in range(rows.features.shape[1]):
        rows.features[position, i] = x[i]
    rows.rewards[position] = reward
    rows.mask[position] = mark
    rows.held[()] = position + 1


@inlined_kernel
def grow_flag(rows: RowBuffer) -> int:
    """``GROW`` when the next row would not fit, else 0."""
    return GROW if rows.held[()] >= rows.rewards.shape[0] else 0


def make_rows(dim: int, capacity: int = FIRST_CAPACITY) -> RowBuffer:
    """An empty buffer."""
    return RowBuffer(np.zeros((capacity, dim)), np.zeros(capacity), np.zeros(capacity, dtype=np.uint8), count())


def grown(rows: RowBuffer) -> RowBuffer:
    """The same rows in a buffer of twice the size."""
    larger = make_rows(rows.features.shape[1], 2 * rows.rewards.shape[0])
    held = int(rows.held[()])
    larger.features[:held] = rows.features[:held]
    larger.rewards[:held] = rows.rewards[:held]
    larger.mask[:held] = rows.mask[:held]
    larger.held[()] = held
    return larger


class RowPolicy(Policy):
    """A policy whose state has a ``rows`` field; a subclass with further events calls ``super()._on_event``."""

    def _on_event(self, flag: int) -> None:
        if flag & GROW:
            self.state = self.state._replace(rows=grown(self.state.rows))
        if flag & ~GROW:
            super()._on_event(flag & ~GROW)

    def _learn(self, memo: FloatArray, reward: float) -> None:
        rows: RowBuffer = self.state.rows
        if rows.held[()] >= rows.rewards.shape[0]:
            self._on_event(GROW)
        super()._learn(memo, reward)
