"""The coordinates of a schema: terms, their scales, their names, and which of them can occur together.

A row is a list of terms, each the product of a factor of the user (a field's vector, or the constant 1) and a factor of
the arm.  The squared norm of a term is the product of the squared norms of its factors, so the squared norm of a row is
a sum of products of nonnegative numbers, each of them at most its field's squared weight.  In the records of
`Schema.worst` all of them reach it at once: the sum of the largest products is the exact maximum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tacit.features.field import Field
from tacit.features.support import ABSENT, Support, supported
from tacit.typing import FloatArray, IntArray

SHRINK = 1.0 - 2.0**-40
"""Factor on all rows, so that none is refused for the last bits of its norm."""


class Factor(NamedTuple):
    """One side of a term: a field, or the constant 1 when there is none, and the slots that it is read from."""

    field: Field | None
    first: int
    slots: int = 1

    @property
    def size(self) -> int:
        """Number of coordinates of its vector."""
        return self.field.size if self.field else 1

    @property
    def weight(self) -> float:
        """The largest norm of its vector."""
        return self.field.weight if self.field else 1.0

    @property
    def title(self) -> str:
        """The field's name."""
        return self.field.name if self.field else "1"

    @property
    def labels(self) -> list[str]:
        """A name for each of its coordinates."""
        return self.field.labels() if self.field else ["1"]


CONSTANT = Factor(None, 0)


def factors(fields: Sequence[Field]) -> list[Factor]:
    """The factors of one side, the constant first; its slot comes first, then those of numbers, then all others."""
    first, firsts = 1, dict[str, int]()
    for field in sorted(fields, key=lambda field: not field.is_number):
        firsts[field.name] = first
        first += field.slots
    return [CONSTANT] + [Factor(field, firsts[field.name], field.slots) for field in fields]


class Term(NamedTuple):
    """A factor of the user times one of the arm."""

    user: Factor
    arm: Factor
    own: bool = False
    """Whether the user's factor has separate parameters for each value of the arm's (``per_arm``)."""

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.user.size * self.arm.size

    @property
    def slots(self) -> int:
        """The most coordinates that are nonzero at once."""
        return self.user.slots * self.arm.slots

    @property
    def weight(self) -> float:
        """The largest norm of the term, before rows are scaled."""
        return self.user.weight * self.arm.weight

    def names(self) -> list[str]:
        """One name for each coordinate."""
        return [self.joined(user, arm) for user in self.user.labels for arm in self.arm.labels]

    def joined(self, user: str, arm: str) -> str:
        """``age``, ``device=ios x topic=news``, ``age @ topic=news``, ``1``."""
        if self.own or (self.user.field and self.arm.field):
            return f"{user} {'@' if self.own else 'x'} {arm}"
        return arm if self.arm.field else user

    @property
    def title(self) -> str:
        """The name of the whole term."""
        return self.joined(self.user.title, self.arm.title)


def terms_of(
    user: Sequence[Field],
    arm: Sequence[Field],
    crosses: Sequence[tuple[str, str]],
    per_arm: str | None,
    intercept: bool,
) -> Iterator[Term]:
    """The terms of a schema: what belongs to the user, what belongs to the arm, and crosses.

    With ``per_arm`` what belongs to the user is multiplied by that category; `Schema` says what that makes redundant.
    """
    users, arms = factors(user)[0 if intercept else 1 :], factors(arm)[1:]
    category = next((factor for factor in arms if factor.title == per_arm), CONSTANT)
    yield from (Term(factor, category, own=per_arm is not None) for factor in users)
    yield from (Term(CONSTANT, factor) for factor in arms if factor is not category)
    named = {factor.title: factor for factor in (*users, *arms) if factor.field}
    yield from (Term(named[one], named[other]) for one, other in crosses)


class Products(NamedTuple):
    """A column for each product of a slot of the user and a slot of the arm."""

    user: IntArray
    """The user's slot."""
    arm: IntArray
    """The arm's slot."""
    start: FloatArray
    """First coordinate of the term, in the order of terms: one line of floats, as positions are."""
    stride: FloatArray
    """Coordinates of the term for each position of the user's slot."""
    scale: FloatArray
    """What the product is multiplied by."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The terms of a schema in their order, with scales, names and structure."""

    terms: tuple[Term, ...]

    @cached_property
    def dim(self) -> int:
        """Number of coordinates."""
        return sum(term.size for term in self.terms)

    @cached_property
    def width(self) -> int:
        """The most coordinates that are nonzero in one row."""
        return sum(term.slots for term in self.terms)

    @cached_property
    def norm_bound(self) -> float:
        """The largest norm of a row before it is scaled."""
        return math.sqrt(math.fsum(term.weight * term.weight for term in self.terms))

    @cached_property
    def scales(self) -> FloatArray:
        """For each term what its products are multiplied by: the largest value of its coordinates."""
        return np.array([term.weight * SHRINK / self.norm_bound for term in self.terms])

    @cached_property
    def products(self) -> Products:
        """The products of slots that a row is made of, in the order of terms."""
        columns: list[tuple[int, int, int, int]] = []
        start = 0
        for user, arm, _ in self.terms:
            pairs = ((user.first + i, arm.first + j) for i in range(user.slots) for j in range(arm.slots))
            columns += [(*pair, start, arm.size) for pair in pairs]
            start += user.size * arm.size
        scales = np.repeat(self.scales, [term.slots for term in self.terms])
        table = np.array(columns, dtype=np.int64).T.copy()
        starts, strides = table[2:, np.newaxis].astype(np.float64)
        return Products(table[0], table[1], starts, strides, scales)

    @cached_property
    def _ordered(self) -> tuple[Support, IntArray]:
        return supported(self._demands(), self.width)

    @property
    def support(self) -> Support:
        """Which coordinates can be nonzero together."""
        return self._ordered[0]

    @property
    def order(self) -> IntArray:
        """The coordinates in the order of terms, listed block by block."""
        return self._ordered[1]

    @cached_property
    def places(self) -> IntArray:
        """Final position of each coordinate, in the order of terms."""
        places = np.empty(self.dim, dtype=np.int64)
        places[self.order] = np.arange(self.dim)
        return places

    @cached_property
    def names(self) -> tuple[str, ...]:
        """One readable name for each coordinate."""
        raw = [name for term in self.terms for name in term.names()]
        return tuple(raw[i] for i in self.order)

    @cached_property
    def coordinate_scales(self) -> FloatArray:
        """The largest absolute value of each coordinate."""
        return np.repeat(self.scales, [term.size for term in self.terms])[self.order]

    def _demands(self) -> IntArray:
        """What each coordinate demands: a column for each field whose coordinates exclude each other."""
        demanding = [
            factor.field for term in self.terms for factor in term[:2] if factor.field and factor.field.excludes
        ]
        columns = {field.name: column for column, field in enumerate(dict.fromkeys(demanding))}
        demands = np.full((self.dim, max(1, len(columns))), ABSENT, dtype=np.int64)
        start = 0
        for term in self.terms:
            within = np.arange(term.size)
            users, arms = within // term.arm.size, within % term.arm.size
            for factor, positions in ((term.user, users), (term.arm, arms)):
                if factor.field and factor.field.name in columns:
                    demands[start : start + term.size, columns[factor.field.name]] = positions
            start += term.size
        return demands
