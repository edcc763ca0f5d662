"""What all fields have in common, and how a value is read, refused and echoed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar, TypeGuard

import numpy as np
import numpy.typing as npt

from tacit._validate import positive
from tacit.errors import InvalidInput
from tacit.typing import FloatArray

Column = Sequence[Any] | npt.NDArray[Any]
"""The values of one field for several records."""
WEIGHTS = 1e-6, 1e6
"""Least and largest weight: squares of products of two stay far from the ends of what floats can hold."""
_SHOWN = 60


class Field:
    """Base of all fields: a name and a weight."""

    kind: ClassVar[str]
    name: str
    weight: float

    @property
    def size(self) -> int:
        """Number of coordinates of the field's vector."""
        return 1

    @property
    def slots(self) -> int:
        """The most coordinates that are nonzero at once."""
        return 1

    @property
    def excludes(self) -> bool:
        """Whether its coordinates exclude each other."""
        return False

    @property
    def span(self) -> tuple[float, float]:
        """The range of numbers, which `Side` brings to [-1, 1]; empty for what is no number."""
        return 0.0, 0.0

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers within a range."""
        return self.span[0] < self.span[1]

    def labels(self) -> list[str]:
        """Make a readable name for each coordinate.

        Returns
        -------
        list of str
            One name for each coordinate.
        """
        return [self.name]

    def fill(self, column: Column, slots: FloatArray, first: int, role: str) -> None:
        """Write what records say into their slots.

        Parameters
        ----------
        column : sequence or ndarray
            The field's value in each record.
        slots : ndarray
            Slots of `tacit.features.encoding`, which hold the value 1 at the position 0; written in place.
        first : int
            Number of the field's first slot.
        role : str
            Names the records in errors: one of the third arm begins with ``arm 2``.
        """
        raise NotImplementedError

    def worst(self) -> object:
        """Choose a value for which the field's vector has its largest norm.

        Returns
        -------
        object
            The value.
        """
        raise NotImplementedError

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Draw simulated values, uniform over what the field may say.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of the values.
        shape : tuple of int
            Shape of the result.

        Returns
        -------
        ndarray
            The values.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Raise unless name and weight are valid."""
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidInput(
                f"the name of a {type(self).__name__} must be a string, and not empty, got {self.name!r}"
            )
        weight = checked(positive, f"weight of {self.name!r}", self.weight)
        if not WEIGHTS[0] <= weight <= WEIGHTS[1]:
            raise InvalidInput(
                f"weight of {self.name!r} must lie between {WEIGHTS[0]:g} and {WEIGHTS[1]:g}, got {self.weight!r}. "
                "Leave out a field that is to count for nothing"
            )
        object.__setattr__(self, "weight", weight)

    def refusal(self, role: str, index: int, value: object, remedy: str) -> InvalidInput:
        """Make the error for a value that the field does not take, with a remedy.

        Parameters
        ----------
        role : str
            What the record stands for, such as ``user``; may be empty.
        index : int
            Number of the record.
        value : object
            What was given.
        remedy : str
            What to give in its place.

        Returns
        -------
        InvalidInput
            The error, to be raised.
        """
        where = f"{role} {index}: " if role else ""
        return InvalidInput(f"{where}field {self.name!r} of kind {self.kind} cannot be {shown(value)}: {remedy}")


def shown(value: object) -> str:
    """A value as it is echoed to the caller, cut when it is long."""
    try:
        text = repr(value)
    except Exception:  # an integer of too many digits, or an object that does not know how to show itself
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def is_missing(value: object) -> bool:
    """Whether a record that holds this says nothing: None, NaN, and what pandas writes for them."""
    if value is None:
        return True
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")


def is_real(value: object) -> TypeGuard[Real]:
    """Whether this is a number: a truth value and a span of time are none."""
    return isinstance(value, Real) and not isinstance(value, bool | np.timedelta64)


def checked(check: Callable[[str, object], float], name: str, value: object) -> float:
    """Apply ``check``, and refuse integers beyond all floats with the same error."""
    try:
        return check(name, value)
    except OverflowError as error:
        raise InvalidInput(f"{name} must be finite, got {shown(value)}") from error


def listed(column: Column) -> Sequence[Any]:
    """A column as Python's own values; times stay what they are, since they would become integers."""
    if not isinstance(column, np.ndarray):
        return column
    values: list[Any] = list(column) if column.dtype.kind in "mM" else column.tolist()
    return values


def whole(column: Column) -> Sequence[Any]:
    """A column as Python's own values, with whole numbers of float arrays as integers.

    Frames turn integers into floats where some are missing.

    From 2^53 on different integers are the same float, so that such numbers stay floats.
    """
    given = listed(column)
    if not isinstance(column, np.ndarray) or column.dtype.kind != "f":
        return given
    return [int(value) if value.is_integer() and abs(value) < 2**53 else value for value in given]


def read_each(column: Sequence[Any], read: Callable[[Any, str, int], Any], role: str) -> list[Any]:
    """``read(value, role, index)`` for each value of a column."""
    return [read(value, role, index) for index, value in enumerate(column)]
