"""Data rows: buffers that are filled from the front, with a mark for each row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.typing import ByteArray, Count, FloatArray, count

ALL_ROWS = -1
"""Selects every row."""
FIRST_CAPACITY = 1024
"""Rows that a new buffer has room for."""


class RowBuffer(NamedTuple):
    """Rows of data: the first ``held`` of arrays that may be longer, filled as rewards arrive.

    `make_rows` makes an empty one.

    Parameters
    ----------
    features : ndarray, shape (capacity, d)
        Feature vectors.
    rewards : ndarray, shape (capacity,)
        Rewards.
    mask : ndarray of uint8, shape (capacity,)
        Marks of the rows.
    held : Count
        Number of rows that are filled.
    """

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
    if selection.mark == ALL_ROWS:
        return features[: int(held[()])], rewards[: int(held[()])]
    own = np.flatnonzero(mask[: int(held[()])] == selection.mark)
    return features.take(own, axis=0), rewards.take(own)  # a fifth of the time of ``features[own]``


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


def make_rows(dim: int, capacity: int = FIRST_CAPACITY) -> RowBuffer:
    """Return an empty buffer of rows.

    Parameters
    ----------
    dim : int
        d: length of a feature vector.
    capacity : int, default 1024
        Number of rows that it has room for.

    Returns
    -------
    RowBuffer
        The buffer, which holds no rows.

    Examples
    --------
    >>> from tacit.extend import make_rows
    >>> rows = make_rows(dim=2, capacity=4)
    >>> rows.features.shape, rows.held.item()
    ((4, 2), 0)
    """
    return RowBuffer(np.zeros((capacity, dim)), np.zeros(capacity), np.zeros(capacity, dtype=np.uint8), count())


def append_rows(rows: RowBuffer, features: FloatArray, rewards: FloatArray, marks: int | ByteArray) -> None:
    """Append N rows to a buffer that has room for them (`make_room`).

    Parameters
    ----------
    rows : RowBuffer
        Changed in place.
    features : ndarray, shape (N, d)
        Feature vectors.
    rewards : ndarray, shape (N,)
        Rewards.
    marks : int or ndarray of uint8, shape (N,)
        Mark of all of these rows, or of each.

    Raises
    ------
    IndexError
        When the buffer is full.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.extend import append_rows, make_rows
    >>> rows = make_rows(dim=2, capacity=4)
    >>> append_rows(rows, np.ones((3, 2)), np.array([0.0, 1.0, 1.0]), marks=1)
    >>> rows.held.item(), rows.rewards.tolist()
    (3, [0.0, 1.0, 1.0, 0.0])
    """
    held = int(rows.held[()])
    if held + rewards.size > rows.rewards.size:
        raise IndexError("the row buffer is full: the steps of a policy that keeps rows name make_room")
    own = slice(held, held + rewards.size)
    rows.features[own], rows.rewards[own], rows.mask[own] = features, rewards, marks
    rows.held[()] = held + rewards.size


def make_room(state: Any, count: int) -> Any:
    """Return a state with room for ``count`` more rows: the step before ``learn`` of a policy that keeps rows.

    Parameters
    ----------
    state : NamedTuple
        State of a policy, with a `RowBuffer` in its field ``rows``.
    count : int
        Number of rows to come.

    Returns
    -------
    NamedTuple
        The state itself where there is room, else one with a longer buffer of the same rows.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> from tacit.extend import RowBuffer, make_room, make_rows
    >>> class State(NamedTuple):
    ...     rows: RowBuffer
    >>> make_room(State(make_rows(dim=2, capacity=4)), count=5).rows.features.shape
    (8, 2)
    """
    while state.rows.held[()] + count > state.rows.rewards.size:
        state = state._replace(rows=grown(state.rows))
    return state


def grown(rows: RowBuffer) -> RowBuffer:
    """A buffer of twice the size that holds these rows."""
    larger = make_rows(rows.features.shape[1], 2 * rows.rewards.size)
    held = int(rows.held[()])
    append_rows(larger, rows.features[:held], rows.rewards[:held], rows.mask[:held])
    return larger
