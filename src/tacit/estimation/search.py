"""Branch and bound over boxes, many boxes at a time: how sensitivities are found where no formula gives them.

The search goes depth first: it looks at the middle of a box, keeps the largest value so far, and leaves the box alone
if nothing in it can be larger by more than the tolerance, else goes on with its parts, one after the other.  What it
finds is part of released results, so that it must be the same to the bit in every implementation.

Python would take seconds for a million boxes, one at a time.  But values do not depend on the order of visits; only
the decision what to leave alone does, through the largest value so far.  All boxes that the search could visit below
some box, given the largest value when it comes there, are therefore evaluated together, level by level.  Where none
of them has a larger value, the search would have visited exactly these, and it goes on behind them.  Otherwise the
visits are gone through in their order, with values that are there already.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tacit.typing import FloatArray

Positions = npt.NDArray[np.int64]
"""Boxes of one level, a column for each: how many equal boxes lie before it along each axis (a row)."""
Best = TypeVar("Best", float, FloatArray)
_BATCH = 150_000
"""Boxes that are evaluated ahead at most, and thrown away if there are more."""
_SLICE = 16_384
_FINER = 16


class Space(Protocol):
    """A function over boxes, each of which is split into equal parts; all boxes of a level have the same shape."""

    parts: ClassVar[int]
    """Into how many parts a box is split."""

    def values(self, level: int, boxes: Positions) -> FloatArray:
        """The function in the middle of each box."""

    def room(self, level: int) -> float:
        """By how much the function can be larger elsewhere in a box of this level."""

    def enough(self, best: Best) -> Best:
        """What nothing in a box may exceed if it is to be left alone, given the largest value so far."""

    def repeated(self, level: int, boxes: Positions) -> npt.NDArray[np.bool_]:
        """Boxes that need not be split since others are like them."""

    def split(self, level: int, boxes: Positions) -> Positions:
        """The parts of each box, those of one box next to each other, in the order in which they are visited."""


class _Tree(NamedTuple):
    """Boxes below some box, level by level, that a search could visit."""

    values: list[FloatArray]
    first_part: list[Positions]
    """Where the parts of a box begin in the next level; -1 if it was left alone."""


def largest_value(space: Space, dimensions: int, limit: int) -> float:
    """The largest value that the search finds, or NaN when it would have to look at ``limit`` boxes."""
    waiting, best, visited = [(0, 0, np.zeros((dimensions, 1), dtype=np.int64))], 0.0, 0
    while waiting:
        level, later, box = waiting.pop()
        tree = None if later > 0 else _possible_visits(space, level, box, best)
        if tree is None:
            # Too much for one batch: one visit alone, and the next batches some levels below, at a 16th of the size.
            later = later if later > 0 else round(math.log(_FINER, space.parts))
            values = space.values(level, box)
            best, visited = max(best, float(values[0])), visited + 1
            if _must_split(space, level, box, values, np.array([best]))[0]:
                parts = space.split(level, box)
                waiting.extend((level + 1, later - 1, parts[:, i : i + 1]) for i in reversed(range(space.parts)))
        elif max(float(np.max(values)) for values in tree.values) <= best:
            visited += sum(values.size for values in tree.values)
        else:
            best, count = _visit_in_order(space, level, tree, best)
            visited += count
        if visited >= limit:
            return math.nan
    return best


def _must_split(
    space: Space, level: int, boxes: Positions, values: FloatArray, best: FloatArray
) -> npt.NDArray[np.bool_]:
    left_alone = (values + space.room(level) <= space.enough(best)) | space.repeated(level, boxes)
    return np.asarray(~left_alone)


def _possible_visits(space: Space, level: int, box: Positions, best: float) -> _Tree | None:
    """All that could be visited from ``box`` on, since the largest value never falls; None if that is too much."""
    tree, boxes, seen, total = _Tree([], []), box, np.array([[best]]), 0
    while boxes.shape[1]:
        total += boxes.shape[1]
        if total > _BATCH:
            return None
        values = _values(space, level, boxes)
        # Who comes to a box has seen the boxes that it is part of, and those of their parts that came before.
        seen = np.maximum(np.maximum.accumulate(values.reshape(seen.size, -1), axis=1), seen)
        is_open = _must_split(space, level, boxes, values, seen.ravel())
        tree.values.append(values)
        tree.first_part.append(np.where(is_open, space.parts * (np.cumsum(is_open) - 1), -1))
        boxes, level = space.split(level, boxes[:, is_open]), level + 1
        seen = seen.ravel()[is_open, np.newaxis]
    return tree


def _values(space: Space, level: int, boxes: Positions) -> FloatArray:
    """Values of all boxes, computed in slices that fit into the processor's cache."""
    slices = range(0, boxes.shape[1], _SLICE)
    return np.concatenate([space.values(level, boxes[:, first : first + _SLICE]) for first in slices])


def _visit_in_order(space: Space, level: int, tree: _Tree, best: float) -> tuple[float, int]:
    """The visits one after the other: the largest value after them, and their number."""
    values, parts = [line.tolist() for line in tree.values], [line.tolist() for line in tree.first_part]
    rooms = [space.room(level + depth) for depth in range(len(values))]
    waiting, visited = [(0, 0)], 0
    while waiting:
        depth, i = waiting.pop()
        visited += 1
        value, first = values[depth][i], parts[depth][i]
        best = max(best, value)
        if first >= 0 and not value + rooms[depth] <= space.enough(best):
            waiting.extend((depth + 1, first + part) for part in range(space.parts - 1, -1, -1))
    return best, visited


def distinct(keys: Positions) -> tuple[Positions, Positions]:
    """The different keys, and where each stands among them: `numpy.unique`, without sorting where keys are dense."""
    low, span = int(keys.min()), int(keys.max() - keys.min()) + 1
    if span > 8 * keys.size + 1024:
        found, places = np.unique(keys, return_inverse=True)
        return found, places
    there = np.zeros(span, dtype=np.bool_)
    there[keys - low] = True
    return np.flatnonzero(there) + low, (np.cumsum(there) - 1)[keys - low]


def middles(level: int, positions: Positions, width: float) -> FloatArray:
    """Middles of the parts at these positions of [0, ``width``], halved ``level`` times, as halving rounds them."""
    middle, half = np.full(positions.shape, 0.5 * width), 0.5 * width
    for bit in range(level - 1, -1, -1):
        half *= 0.5
        middle += np.where(positions >> bit & 1, half, -half)
    return middle


def mapped(function: Callable[[float], float], numbers: FloatArray) -> FloatArray:
    """A function of the C library for each number: numpy has its own, which round differently."""
    return np.fromiter(map(function, numbers.tolist()), dtype=np.float64, count=numbers.size)
