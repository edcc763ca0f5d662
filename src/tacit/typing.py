"""Array types used throughout the package."""

from __future__ import annotations

from typing import Annotated, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

Value = TypeVar("Value")
Secret = Annotated[Value, "secret"]
"""A field of a private policy's state that depends on rows other than through releases: raw sums, rows, noise."""
