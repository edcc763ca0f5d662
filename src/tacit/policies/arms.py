"""What several policies share when they choose an arm."""

from __future__ import annotations

import numpy as np

from tacit.typing import FloatArray, IntArray


def chosen_rows(contexts: FloatArray, arms: IntArray) -> FloatArray:
    """Features of each user's arm, shape (N, row size), from ``contexts`` of shape (N, K, row size)."""
    users, count, size = contexts.shape
    if users == 1:
        return np.asarray(contexts[0].take(arms, axis=0))
    return contexts.reshape(-1, size).take(arms + np.arange(0, users * count, count), axis=0)


def into_unit_ball(rows: FloatArray, width: int | None = None) -> FloatArray:
    """Scale rows, shape (N, size), so that none is longer than 1; of compact rows the first ``width`` numbers count.

    Input checks tolerate a rounding error above norm 1; a sensitivity bound must not.
    """
    values = rows[:, :width]
    if len(rows) == 1 and values[0].dot(values[0]) <= 1.0:
        return rows
    lengths = np.sqrt(np.vecdot(values, values))
    if lengths.max(initial=0.0) <= 1.0:
        return rows
    scaled = rows.copy()
    scaled[:, :width] *= np.where(lengths > 1.0, (1.0 - 1e-15) / np.maximum(lengths, 1.0), 1.0)[:, np.newaxis]
    return scaled
