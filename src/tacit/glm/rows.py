"""Data rows as kernels take them: preallocated buffers, a count, and a mask in place of copies."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.typing import ByteArray, FloatArray

ALL_ROWS = -1
"""``selected`` for kernels that use every row, whatever the mask says."""


def no_weights() -> FloatArray:
    """What a kernel takes for "every weight is 1"."""
    return np.empty(0)


def no_mask() -> ByteArray:
    """What a kernel takes for "no mask", together with ``ALL_ROWS``."""
    return np.empty(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Rows:
    """The first ``count`` rows of two buffers; with a mask, only those where ``mask[i] == selected``.

    The buffers may be longer than ``count`` and are not copied: a policy fills them as rewards arrive and
    keeps one mask, whose value 1 marks exploration rounds and 0 the others.
    """

    features: FloatArray
    rewards: FloatArray
    count: int
    mask: ByteArray = field(default_factory=no_mask)
    selected: int = ALL_ROWS

    def __post_init__(self) -> None:
        if self.features.ndim != 2:
            raise InvalidInput(f"features must have two axes, got shape {self.features.shape}")
        for name, buffer in (("features", self.features), ("rewards", self.rewards)):
            if buffer.dtype != np.float64 or not buffer.flags.c_contiguous:
                raise InvalidInput(f"{name} must be a contiguous float64 array, got {buffer.dtype}")
            if not 0 <= self.count <= buffer.shape[0]:
                bounds = f"[0, {buffer.shape[0]}]"
                raise InvalidInput(f"count must lie in {bounds}, the rows of {name}, got {self.count}")
        if self.selected != ALL_ROWS and self.count > self.mask.shape[0]:
            raise InvalidInput(f"mask must cover {self.count} rows, got {self.mask.shape[0]}")

    @property
    def dim(self) -> int:
        """Number of features of a row."""
        return int(self.features.shape[1])

    @classmethod
    def of(cls, features: npt.ArrayLike, rewards: npt.ArrayLike) -> Rows:
        """All rows of two array-likes of the same length, refused unless finite."""
        x = np.ascontiguousarray(features, dtype=np.float64)
        r = np.ascontiguousarray(rewards, dtype=np.float64)
        if r.shape != x.shape[:1]:
            raise InvalidInput(f"rewards must have shape {x.shape[:1]}, one for each row, got {r.shape}")
        if not (np.all(np.isfinite(x)) and np.all(np.isfinite(r))):
            raise InvalidInput("features and rewards must be finite, got a NaN or an infinity")
        return cls(x, r, x.shape[0])
