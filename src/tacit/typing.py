"""Array types used throughout the package, and the numbers of a state that change."""

from __future__ import annotations

from typing import Annotated, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]
BoolArray = npt.NDArray[np.bool_]

Value = TypeVar("Value")
Secret = Annotated[Value, "secret"]
"""A field of a private policy's state that depends on rows other than through releases: raw sums, rows, noise."""
Fixed = Annotated[Value, "fixed"]
"""A field that holds an array and never changes: it follows from the configuration, and is not saved."""


class Scalar(Protocol):
    """A number of a state that changes: an array without axes, read and written as ``x[()]``.

    ``x.item()`` reads it as a number of Python, which is faster.
    """

    def item(self) -> float:
        """Read the number.

        Returns
        -------
        float
            Its value now.
        """

    def __getitem__(self, index: tuple[()], /) -> float: ...
    def __setitem__(self, index: tuple[()], value: float, /) -> None: ...


class Count(Protocol):
    """A whole number of a state that changes: an integer array without axes, read and written as a `Scalar` is."""

    def item(self) -> int:
        """Read the whole number.

        Returns
        -------
        int
            Its value now.
        """

    def __getitem__(self, index: tuple[()], /) -> int: ...
    def __setitem__(self, index: tuple[()], value: int, /) -> None: ...


def scalar(value: float = 0.0) -> Scalar:
    """Return an array without axes, a number of a state that steps change.

    Parameters
    ----------
    value : float, optional
        Its first value.

    Returns
    -------
    Scalar
        The array; ``state.number[()]`` reads it.

    Examples
    --------
    >>> scalar(0.5)
    array(0.5)
    """
    return cast(Scalar, np.array(value, dtype=np.float64))


def count(value: int = 0) -> Count:
    """Return an array without axes, a number of a state that steps change.

    Parameters
    ----------
    value : int, optional
        Its first value.

    Returns
    -------
    Count
        The array; ``state.number[()]`` reads it.

    Examples
    --------
    >>> count(3)
    array(3)
    """
    return cast(Count, np.array(value, dtype=np.int64))
