"""Kernels that several policies share when they choose an arm."""

from __future__ import annotations

import math

from tacit._compile import inlined_kernel
from tacit.linalg.solve import dot
from tacit.typing import FloatArray


@inlined_kernel
def ball_share(x: FloatArray) -> float:
    """What scales features into the unit ball.

    Input checks tolerate a rounding error above norm 1; a sensitivity bound must not.
    """
    norm = math.sqrt(dot(x, x))
    return 1.0 if norm <= 1.0 else (1.0 - 1e-15) / norm


@inlined_kernel
def remember_arm(contexts: FloatArray, arm: int, memo: FloatArray) -> None:
    """Copy the arm's features to the front of ``memo``, scaled into the unit ball."""
    x = contexts[arm]
    shrink = ball_share(x)
    for i in range(x.shape[0]):
        memo[i] = shrink * x[i]


@inlined_kernel
def remember_compact_arm(contexts: FloatArray, arm: int, memo: FloatArray) -> None:
    """The same for a compact row (`tacit.linalg.blocks`): values are scaled, positions are not."""
    row = contexts[arm]
    width = row.shape[0] // 2
    shrink = ball_share(row[:width])
    for k in range(width):
        memo[k] = shrink * row[k]
        memo[width + k] = row[width + k]
