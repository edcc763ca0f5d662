"""Ids and words out of sets too large to list."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit._validate import integer_at_least
from tacit.errors import InvalidInput
from tacit.features.field import Column, Field, is_missing, is_real, listed, shown, whole
from tacit.typing import FloatArray, IntArray

_KEY_BYTES = 16, 64


@dataclass(frozen=True)
class Hashed(Field):
    """Ids or words out of a set too large to list: a keyed hash gives each token one of ``width`` places and a sign.

    A record holds one token (a string or an integer) or a list of them, of which the first ``tokens`` count; a token
    that comes twice counts twice.  Tokens at the same place are added up with their signs, and the vector is scaled to
    norm 1 (it is 0 when all cancel).  With ``tokens=1`` places exclude each other as the values of a category do.
    The hash is BLAKE2b under ``key``, in hexadecimal, which is part of the schema; without one a new key is drawn.
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
        """``user_id#0`` and so on."""
        return [f"{self.name}#{place}" for place in range(self.width)]

    def fill(self, column: Column, values: FloatArray, positions: IntArray, role: str) -> None:
        """Write the places of each record's tokens, in increasing order, and their values."""
        positions[:] = -1
        given = whole(column)
        if given and {str, int}.issuperset(map(type, given)):  # one token each
            found = [self._place(value, role, index) for index, value in enumerate(given)]
            positions[:, 0], values[:, 0] = [place for place, _ in found], [sign for _, sign in found]
            return
        for index, value in enumerate(given):
            for slot, (place, weight) in enumerate(self._places(value, role, index)):
                positions[index, slot], values[index, slot] = place, weight

    def _places(self, value: Any, role: str, index: int) -> list[tuple[int, float]]:
        """The places of a record's tokens, in increasing order, with what is there."""
        if isinstance(value, str | int):
            return [self._place(value, role, index)]
        if is_missing(value):
            return []
        tokens = [value] if isinstance(value, Integral) else self._tokens(value, role, index)
        sums: dict[int, float] = {}
        for token in tokens[: self.tokens]:
            place, sign = self._place(token, role, index)
            sums[place] = sums.get(place, 0.0) + sign
        norm = math.sqrt(math.fsum(total * total for total in sums.values()))
        return [(place, sums[place] / norm) for place in sorted(sums) if sums[place] != 0.0]

    def _tokens(self, value: Any, role: str, index: int) -> Sequence[Any]:
        tokens = listed(value) if isinstance(value, list | tuple | np.ndarray) else None
        if not isinstance(tokens, list | tuple):
            raise self.refusal(role, index, value, "give a string, an integer, a list of these, or None")
        return tokens

    def _place(self, token: Any, role: str, index: int) -> tuple[int, float]:
        """The place of a token and its sign; the letter keeps the string "7" and the integer 7 apart."""
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
        return (number >> 1) % self.width, 1.0 - 2.0 * (number & 1)

    def worst(self) -> str:
        """Any token."""
        return "token"

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Random integers: one for each record, or a list of ``tokens`` of them."""
        if self.tokens == 1:
            return rng.integers(2**62, size=shape)
        out = np.empty(shape, dtype=object)
        drawn = rng.integers(2**62, size=(out.size, self.tokens)).tolist()
        for index, tokens in enumerate(drawn):
            out.reshape(-1)[index] = tokens
        return out
