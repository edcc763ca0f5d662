"""Rows that a policy keeps: a buffer that compiled kernels fill and Python enlarges.

A kernel cannot reallocate an array of its state.  It appends while there is room; ``advance`` ends with
``return grow_flag(rows)``, which asks the Python side for a buffer of twice the size in time for the next reward, and
``update`` looks too, since rewards of several decisions may arrive between two ticks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit.linalg.vectors import copy_into
from tacit.policies.base import Policy
from tacit.typing import ByteArray, FloatArray, IntArray

GROW = 1 << 20
"""Event of a full buffer: a bit that no other event uses."""
FIRST_CAPACITY = 1024


class RowBuffer(NamedTuple):
    """The first ``count[0]`` rows are data, in the form that `tacit.glm.likelihood` takes; raw, and as secret as it."""

    features: FloatArray
    rewards: FloatArray
    mask: ByteArray
    count: IntArray  # type: ignore[assignment]  # hides tuple.count, which nobody misses


@kernel
def append_row(rows: RowBuffer, x: FloatArray, reward: float, mark: int) -> bool:
    """Append a row (the first d entries of ``x``) whose mask is ``mark``; False, and nothing kept, when it is full."""
    position = rows.count[0]
    if position >= rows.rewards.shape[0]:
        return False
    copy_into(x[: rows.features.shape[1]], rows.features[position])
    rows.rewards[position] = reward
    rows.mask[position] = mark
    rows.count[0] = position + 1
    return True


@kernel
def grow_flag(rows: RowBuffer) -> int:
    """``GROW`` when the next row would not fit, else 0."""
    return GROW if rows.count[0] >= rows.rewards.shape[0] else 0


def make_rows(dim: int, capacity: int = FIRST_CAPACITY) -> RowBuffer:
    """An empty buffer."""
    return RowBuffer(
        np.zeros((capacity, dim)), np.zeros(capacity), np.zeros(capacity, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    )


def grown(rows: RowBuffer) -> RowBuffer:
    """The same rows in a buffer of twice the size."""
    larger = make_rows(rows.features.shape[1], 2 * rows.rewards.shape[0])
    held = int(rows.count[0])
    larger.features[:held] = rows.features[:held]
    larger.rewards[:held] = rows.rewards[:held]
    larger.mask[:held] = rows.mask[:held]
    larger.count[0] = held
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
        if rows.count.item(0) >= rows.rewards.shape[0]:
            self._on_event(GROW)
        super()._learn(memo, reward)

    def _drop_raw(self) -> None:
        super()._drop_raw()
        self.state = self.state._replace(rows=make_rows(self.setting.dim))
