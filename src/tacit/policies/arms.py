"""Kernels that several policies share when they choose an arm."""

from __future__ import annotations

import math

from tacit._compile import inlined_kernel
from tacit.linalg.solve import dot
from tacit.typing import FloatArray


@inlined_kernel
def remember_arm(contexts: FloatArray, arm: int, memo: FloatArray) -> None:
    """Copy the arm's features to the front of ``memo``, scaled into the unit ball.

    Input checks tolerate a rounding error above norm 1; a sensitivity bound must not.
    """
    x = contexts[arm]
    norm = math.sqrt(dot(x, x))
    shrink = 1.0 if norm <= 1.0 else (1.0 - 1e-15) / norm
    for i in range(x.shape[0]):
        memo[i] = shrink * x[i]
