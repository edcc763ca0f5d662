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

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit._validate import finite, integer_at_least
from tacit.errors import InvalidInput
from tacit.features.field import Column, Field, checked, is_missing, is_real, listed, read_each, shown, whole
from tacit.typing import FloatArray

_KEY_BYTES = 16, 64


@dataclass(frozen=True)
class Number(Field):
    """A number from ``low`` to ``high``, which become -1 and 1; others are cut, infinities included.

    The range is what is plausible, stated without a look at the data.

    Parameters
    ----------
    name : str
        Key of the value in a record.
    low, high : float
        Ends of the range.
    weight : float
        Factor on the field's vector.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.features import Number, Schema
    >>> schema = Schema(user=[Number("age", 0, 80)], intercept=False)
    >>> schema.encode({"age": np.array([0, 60, 95])}).round(6)
    array([[-1. ],
           [ 0.5],
           [ 1. ]])
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

    def fill(self, column: Column, slots: FloatArray, first: int, role: str) -> None:
        # numbers as they are; `Side` brings them to [-1, 1]
        if isinstance(column, np.ndarray) and column.dtype.kind in "iuf":
            with np.errstate(over="ignore"):  # a wider float beyond all of ours is an infinity, and cut
                slots[0, :, first] = column
            return
        given = listed(column)
        if {float, int}.issuperset(map(type, given)):
            try:
                slots[0, :, first] = given
            except OverflowError:  # an integer beyond all floats
                pass
            else:
                return
        slots[0, :, first] = read_each(given, self._read, role)

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
        return self.high

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        return rng.uniform(self.low, self.high, shape)


@dataclass(frozen=True)
class Category(Field):
    """One of some values, all of them strings or all of them integers; one coordinate for each.

    Parameters
    ----------
    name : str
        Key of the value in a record.
    values : list of str, or list of int
        All values that have a coordinate; a value that is not listed sets none.
    weight : float
        Factor on the field's vector.
    other : bool
        Whether all values that are not listed share one more coordinate.

    Examples
    --------
    >>> from tacit.features import Category, Schema
    >>> Schema(user=[Category("device", ["ios", "android"], other=True)], intercept=False).names
    ('device=ios', 'device=android', 'device=(other)')
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
        return [f"{self.name}={value}" for value in self.values] + [f"{self.name}=(other)"] * self.other

    @cached_property
    def _codes(self) -> dict[object, int]:
        return {value: code for code, value in enumerate(self.values)}

    @property
    def _unknown(self) -> int:
        return len(self.values) if self.other else -1

    def fill(self, column: Column, slots: FloatArray, first: int, role: str) -> None:
        # numbers of the values; one that has none has the value 0
        given, get, unknown = whole(column), self._codes.get, self._unknown
        if set(map(type, given)) == {type(self.values[0])}:
            codes = [get(value, unknown) for value in given]
        else:
            codes = read_each(given, self._read, role)
        slots[1, :, first] = codes
        if -1 in codes:
            slots[0, :, first] = [code >= 0 for code in codes]

    def _read(self, value: Any, role: str, index: int) -> int:
        if is_missing(value):
            return -1
        plain, wanted = _plain(value), type(self.values[0])
        if type(plain) is not wanted:
            words = "a string" if wanted is str else "an integer"
            raise self.refusal(role, index, value, f"give {words} such as {self.values[0]!r}, or None")
        return self._codes.get(plain, self._unknown)

    def worst(self) -> object:
        return self.values[0]

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        # only those that are listed
        values = np.array(self.values, dtype=object)
        return np.asarray(values[rng.integers(len(self.values), size=shape)])


def _plain(value: object) -> object:
    """Strings and integers of other classes, such as those of numpy and of enumerations, as Python's own."""
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if is_real(value) and isinstance(value, Integral) else value


@dataclass(frozen=True)
class Flag(Field):
    """True or False, or 1 or 0.

    Parameters
    ----------
    name : str
        Key of the value in a record.
    weight : float
        Factor on the field's vector.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.features import Flag, Schema
    >>> schema = Schema(user=[Flag("member")], intercept=False)
    >>> schema.encode({"member": np.array([True, False])}).round(6)
    array([[1.],
           [0.]])
    """

    name: str
    weight: float = 1.0

    kind: ClassVar[str] = "flag"

    def __post_init__(self) -> None:
        self.check()

    def fill(self, column: Column, slots: FloatArray, first: int, role: str) -> None:
        given = listed(column)
        slots[0, :, first] = given if {bool}.issuperset(map(type, given)) else read_each(given, self._read, role)

    def _read(self, value: object, role: str, index: int) -> float:
        if is_missing(value):
            return 0.0
        if isinstance(value, Real | np.bool_) and value in (0, 1):
            return float(value)
        raise self.refusal(role, index, value, "give True or False, 1 or 0, or None")

    def worst(self) -> bool:
        return True

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        return rng.integers(2, size=shape).astype(bool)


@dataclass(frozen=True)
class Hashed(Field):
    """Ids or words out of a set too large to list: a keyed hash gives each token one of ``width`` places and a sign.

    A record holds one token (a string or an integer) or a list of them, of which the first ``tokens`` count; a token
    that comes twice counts twice.  Tokens at the same place are added up with their signs, and the vector is scaled to
    norm 1 (it is 0 when all cancel).  With ``tokens=1`` places exclude each other as the values of a category do.
    The hash is BLAKE2b.

    Parameters
    ----------
    name : str
        Key of the value in a record.
    width : int
        Number of places.
    tokens : int
        Number of tokens that count.
    key : str
        Key of the hash in hexadecimal, which is part of the schema; a new one is drawn by default.
    weight : float
        Factor on the field's vector.

    Examples
    --------
    >>> from tacit.features import Hashed, Schema
    >>> Schema(user=[Hashed("word", width=3)], intercept=False).names
    ('word#0', 'word#1', 'word#2')
    """

    name: str
    width: int
    tokens: int = 1
    key: str = ""
    weight: float = 1.0

    kind: ClassVar[str] = "hashed"

    def __post_init__(self) -> None:
        self.check()
        for bound in ("width", "tokens"):
            number = integer_at_least(f"{bound} of {self.name!r}", getattr(self, bound), 1)
            object.__setattr__(self, bound, number)
        key = self.key if self.key not in (None, "") else secrets.token_hex(_KEY_BYTES[0])
        try:
            length = len(bytes.fromhex(key))
        except (TypeError, ValueError):
            length = 0
        if not _KEY_BYTES[0] <= length <= _KEY_BYTES[1]:
            raise InvalidInput(
                f"key of {self.name!r} must be {2 * _KEY_BYTES[0]} to {2 * _KEY_BYTES[1]} hexadecimal digits, got "
                f"{shown(key)}. secrets.token_hex({_KEY_BYTES[0]}) makes one"
            )
        object.__setattr__(self, "key", bytes.fromhex(key).hex())

    @property
    def excludes(self) -> bool:
        """Whether a record has one token, so that places exclude each other."""
        return self.tokens == 1

    @property
    def size(self) -> int:
        """The number of places."""
        return self.width

    @property
    def slots(self) -> int:
        """One slot for each token that counts."""
        return min(self.tokens, self.width)

    @cached_property
    def _hash(self) -> Any:
        return hashlib.blake2b(key=bytes.fromhex(self.key), digest_size=8)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}  # which cannot be pickled

    def labels(self) -> list[str]:
        return [f"{self.name}#{place}" for place in range(self.width)]

    def fill(self, column: Column, slots: FloatArray, first: int, role: str) -> None:
        # places of each record's tokens, in increasing order, and their values
        slots[0, :, first : first + self.slots] = 0.0
        given = whole(column)
        if given and {str, int}.issuperset(map(type, given)):  # one token each
            found = [self._place(value, role, index) for index, value in enumerate(given)]
            slots[0, :, first], slots[1, :, first] = [sign for sign, _ in found], [place for _, place in found]
            return
        for index, value in enumerate(given):
            for slot, said in enumerate(self._places(value, role, index), first):
                slots[:, index, slot] = said

    def _places(self, value: Any, role: str, index: int) -> list[tuple[float, int]]:
        """What a record's tokens say and at which places, in increasing order of places."""
        if isinstance(value, str | int):
            return [self._place(value, role, index)]
        if is_missing(value):
            return []
        tokens = [value] if isinstance(value, Integral) else self._tokens(value, role, index)
        sums: dict[int, float] = {}
        for token in tokens[: self.tokens]:
            sign, place = self._place(token, role, index)
            sums[place] = sums.get(place, 0.0) + sign
        norm = math.sqrt(math.fsum(total * total for total in sums.values()))
        return [(sums[place] / norm, place) for place in sorted(sums) if sums[place] != 0.0]

    def _tokens(self, value: Any, role: str, index: int) -> Sequence[Any]:
        tokens = listed(value) if isinstance(value, list | tuple | np.ndarray) else None
        if not isinstance(tokens, list | tuple):
            raise self.refusal(role, index, value, "give a string, an integer, a list of these, or None")
        return tokens

    def _place(self, token: Any, role: str, index: int) -> tuple[float, int]:
        """The sign of a token and its place; the letter keeps the string "7" and the integer 7 apart."""
        if isinstance(token, str):
            text = b"s" + token.encode("utf-8", "surrogatepass")
        elif type(token) is int or (is_real(token) and isinstance(token, Integral)):
            number = int(token)
            text = b"i" + number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        else:
            raise self.refusal(role, index, token, "a token is a string or an integer")
        hashing = self._hash.copy()
        hashing.update(text)
        number = int.from_bytes(hashing.digest(), "big")
        return 1.0 - 2.0 * (number & 1), (number >> 1) % self.width

    def worst(self) -> str:
        # any token
        return "token"

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        # one integer for each record, or a list of ``tokens`` of them
        if self.tokens == 1:
            return rng.integers(2**62, size=shape)
        out = np.empty(shape, dtype=object)
        drawn = rng.integers(2**62, size=(out.size, self.tokens)).tolist()
        for index, tokens in enumerate(drawn):
            out.reshape(-1)[index] = tokens
        return out
