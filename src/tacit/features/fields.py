"""Fields: what a record may say, what becomes of it, and what is meant when it says nothing.

Everything about a field is public and given in advance.  A field's vector has norm at most 1 for every record, times
the field's ``weight``, and some record attains it:

========== ========================= ============================ ========================== =====================
field      takes                     its vector                   missing                    out of range, unknown
========== ========================= ============================ ========================== =====================
`Number`   a real number             one coordinate in -1 .. 1    0, the middle of the range cut to the range
`Category` one of its values         1 at the value               0                          0, or ``other``
`Flag`     True, False, 1, 0         1 if true                    0, as False                an error
`Hashed`   a token or a list of them 1 or -1 at a hashed place    0                          there is none
========== ========================= ============================ ========================== =====================

Missing are an absent key, None, NaN, and what pandas writes for them.  Other types are errors: a number in quotation
marks is more likely a mistake than a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit._validate import finite
from tacit.errors import InvalidInput
from tacit.features.field import Column, Field, checked, is_missing, is_real, listed, read_each, shown, whole
from tacit.typing import FloatArray, IntArray


@dataclass(frozen=True)
class Number(Field):
    """A number from ``low`` to ``high``, which become -1 and 1; others are cut, infinities included.

    The range is what is plausible, stated without a look at the data.
    """

    name: str
    low: float
    high: float
    weight: float = 1.0

    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        self.check()
        for end in ("low", "high"):
            object.__setattr__(self, end, checked(finite, f"{end} of {self.name!r}", getattr(self, end)))
        if not self.low < self.high:
            raise InvalidInput(f"low of {self.name!r} must be below high, got {self.low!r} and {self.high!r}")
        finite(f"high - low of {self.name!r}", self.high - self.low)

    @property
    def span(self) -> tuple[float, float]:
        """``low`` and ``high``."""
        return self.low, self.high

    def fill(self, column: Column, values: FloatArray, positions: IntArray, role: str) -> None:
        """Write the numbers as they are; `Side` brings them to [-1, 1]."""
        if isinstance(column, np.ndarray) and column.dtype.kind in "iuf":
            with np.errstate(over="ignore"):  # a wider float beyond all of ours is an infinity, and cut
                values[:, 0] = column
            return
        given = listed(column)
        if {float, int}.issuperset(map(type, given)):
            try:
                values[:, 0] = given
            except OverflowError:  # an integer beyond all floats
                pass
            else:
                return
        values[:, 0] = read_each(given, self._read, role)

    def _read(self, value: object, role: str, index: int) -> float:
        if is_missing(value):
            return math.nan
        if not is_real(value):
            raise self.refusal(role, index, value, f"give a number from {self.low:g} to {self.high:g}, or None")
        try:
            return float(value)
        except OverflowError:
            return math.inf if value == abs(value) else -math.inf

    def worst(self) -> float:
        """The upper end."""
        return self.high

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Uniform over the range."""
        return rng.uniform(self.low, self.high, shape)


@dataclass(frozen=True)
class Category(Field):
    """One of some values, all of them strings or all of them integers; one coordinate for each.

    A value that is not listed sets no coordinate.  With ``other=True`` all such values share one more coordinate.
    """

    name: str
    values: Sequence[str] | Sequence[int]
    weight: float = 1.0
    other: bool = False

    kind: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        self.check()
        given = () if isinstance(self.values, str) or not hasattr(self.values, "__iter__") else self.values
        values = tuple(map(_plain, given))
        if not values:
            raise InvalidInput(f"values of {self.name!r} must be a list with at least one value, got {self.values!r}")
        if not isinstance(self.other, bool):
            raise InvalidInput(f"other of {self.name!r} must be True or False, got {self.other!r}")
        kinds = {type(value) for value in values}
        if kinds not in ({str}, {int}):
            raise InvalidInput(f"values of {self.name!r} must be all strings or all integers, got {shown(values)}")
        if len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            raise InvalidInput(f"values of {self.name!r} must differ, got {twice!r} more than once")
        object.__setattr__(self, "values", values)

    @property
    def excludes(self) -> bool:
        """True: a record has one value."""
        return True

    @property
    def size(self) -> int:
        """One coordinate for each value, and one for all others if asked for."""
        return len(self.values) + self.other

    def labels(self) -> list[str]:
        """``device=ios``, and ``device=(other)``."""
        return [f"{self.name}={value}" for value in self.values] + [f"{self.name}=(other)"] * self.other

    @cached_property
    def _codes(self) -> dict[object, int]:
        return {value: code for code, value in enumerate(self.values)}

    @property
    def _unknown(self) -> int:
        return len(self.values) if self.other else -1

    def fill(self, column: Column, values: FloatArray, positions: IntArray, role: str) -> None:
        """Write the numbers of the values."""
        given, get, unknown = whole(column), self._codes.get, self._unknown
        if set(map(type, given)) == {type(self.values[0])}:
            positions[:, 0] = [get(value, unknown) for value in given]
        else:
            positions[:, 0] = read_each(given, self._read, role)

    def _read(self, value: Any, role: str, index: int) -> int:
        if is_missing(value):
            return -1
        plain, wanted = _plain(value), type(self.values[0])
        if type(plain) is not wanted:
            words = "a string" if wanted is str else "an integer"
            raise self.refusal(role, index, value, f"give {words} such as {self.values[0]!r}, or None")
        return self._codes.get(plain, self._unknown)

    def worst(self) -> object:
        """The first value."""
        return self.values[0]

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Uniform over the listed values."""
        values = np.array(self.values, dtype=object)
        return np.asarray(values[rng.integers(len(self.values), size=shape)])


def _plain(value: object) -> object:
    """Strings and integers of other classes, such as those of numpy and of enumerations, as Python's own."""
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if is_real(value) and isinstance(value, Integral) else value


@dataclass(frozen=True)
class Flag(Field):
    """True or False, or 1 or 0."""

    name: str
    weight: float = 1.0

    kind: ClassVar[str] = "flag"

    def __post_init__(self) -> None:
        self.check()

    def fill(self, column: Column, values: FloatArray, positions: IntArray, role: str) -> None:
        """Write 1 for what is true and 0 for what is not."""
        given = listed(column)
        values[:, 0] = given if {bool}.issuperset(map(type, given)) else read_each(given, self._read, role)

    def _read(self, value: object, role: str, index: int) -> float:
        if is_missing(value):
            return 0.0
        if isinstance(value, Real | np.bool_) and value in (0, 1):
            return float(value)
        raise self.refusal(role, index, value, "give True or False, 1 or 0, or None")

    def worst(self) -> bool:
        """True."""
        return True

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """True in half of all cases."""
        return rng.integers(2, size=shape).astype(bool)
