"""Data rows: buffers that are filled from the front, with a mark for each row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.typing import ByteArray, Count, FloatArray, count

ALL_ROWS = -1
"""The mark of a selection of all rows."""


class RowBuffer(NamedTuple):
    """Rows of data: the first ``held`` of arrays that may be longer, filled as rewards arrive."""

    features: FloatArray
    rewards: FloatArray
    mask: ByteArray
    """A mark for each row, such as 1 for exploration rounds and 0 for others."""
    held: Count


class Selection(NamedTuple):
    """The rows of a buffer that have this mark, or all of them if it is ``ALL_ROWS``."""

    rows: RowBuffer
    mark: int


def selected(selection: Selection) -> tuple[FloatArray, FloatArray]:
    """Features, shape (n, d), and rewards of the rows of a selection; views where it has every row."""
    features, rewards, mask, held = selection.rows
    own: slice | npt.NDArray[np.intp] = slice(int(held[()]))
    if selection.mark != ALL_ROWS:
        own = np.flatnonzero(mask[own] == selection.mark)
    return features[own], rewards[own]


def rows_of(features: npt.ArrayLike, rewards: npt.ArrayLike) -> RowBuffer:
    """A full buffer of these rows, unmarked; refused unless there is a finite reward for each finite row."""
    x = np.ascontiguousarray(features, dtype=np.float64)
    r = np.ascontiguousarray(rewards, dtype=np.float64)
    if x.ndim != 2:
        raise InvalidInput(f"features must have two axes, got shape {x.shape}")
    if r.shape != x.shape[:1]:
        raise InvalidInput(f"rewards must have shape {x.shape[:1]}, one for each row, got {r.shape}")
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(r))):
        raise InvalidInput("features and rewards must be finite, got a NaN or an infinity")
    return RowBuffer(x, r, np.zeros(r.size, dtype=np.uint8), count(r.size))
