"""From records to compact rows: one path for one user, for many, and for columns.

A record becomes *slots*: each slot is a value and a position within its field's vector; one that says nothing has the
value 0.  The first slot of every record is the constant 1.  N records with S slots are an array of shape (2, N, S), all
values and then all positions.  A row is made of products of a slot of the user and a slot of the arm
(`tacit.features.layout.Products`), all of which are computed with one gather and one product.  Those that are 0 are
left out.  Positions of the others increase: terms and the slots of a field are in this order, and what `Layout.places`
rearranges is blocks, of which a row has one.

A refusal is an answer to the one user or caller whose records it is about: where many users come at once, each is
judged apart, so that an error tells a user nothing about what others sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.features.field import Field, shown, whole
from tacit.features.layout import Layout, factors
from tacit.features.records import ColumnTable, Record, is_columns, of_records, table_of
from tacit.linalg.blocks import compact_rows, dense_rows
from tacit.typing import FloatArray

_MOST_ROWS = 1 << 12
"""Rows that are made at a time: what they take stays in a processor's cache."""
Refusals = dict[int, InvalidInput]
"""Errors of refused users, by the user's number."""


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a schema: the fields of users, or those of arms."""

    role: str
    fields: tuple[Field, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the fields."""
        return frozenset(field.name for field in self.fields)

    @cached_property
    def _firsts(self) -> list[tuple[Field, int]]:
        """Each field with the number of its first slot."""
        return [(field, first) for field, first, _ in factors(self.fields) if field is not None]

    @cached_property
    def _blank(self) -> FloatArray:
        """The slots of a record before its fields are read: the value 1 at the position 0."""
        size = 1 + sum(field.slots for field in self.fields)
        return np.array([[[1.0] * size], [[0.0] * size]])

    @cached_property
    def _ranges(self) -> FloatArray:
        """Low ends, high ends and lengths of the ranges of n numbers, shape (3, 1, n).

        Slots of numbers follow the constant's.
        """
        spans = [(*field.span, field.span[1] - field.span[0]) for field in self.fields if field.is_number]
        return np.array(spans).reshape(-1, 1, 3).T.copy()

    def slots(self, table: ColumnTable, role: str) -> FloatArray:
        """The slots of the records of a table."""
        count, ranges = table.lines, self._ranges
        slots = self._blank.repeat(count, 1)
        for field, first in self._firsts:
            column = table.columns.get(field.name)
            field.fill([None] * count if column is None else column, slots, first, role)
        if ranges.size:
            _centre(slots[0, :, 1 : 1 + ranges.shape[2]], *ranges)
        return slots

    def slots_of(self, records: object) -> FloatArray:
        """The slots of many records, given in any of the forms of `table_of`."""
        return self.slots(table_of(records, self.names, self.role).flat(), self.role)

    def slots_of_one(self, record: object) -> FloatArray:
        """The slots of one record."""
        return self.slots(of_records([record], self.names, ""), "")


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Arms that are prepared once, for as many users as there are: made by `Schema.catalogue`.

    Parameters
    ----------
    schema : Schema
        The schema that prepared them.
    slots : array, shape (2, K, slots)
        Values and positions of the arms' fields.

    Examples
    --------
    >>> from tacit.features import Category, Schema
    >>> schema = Schema(arm=[Category("topic", ["news", "arts"])])
    >>> catalogue = schema.catalogue([{"topic": "news"}, {"topic": "arts"}, {"topic": "news"}])
    >>> schema.encode({}, catalogue.take([2, 1])).shape
    (2, 3)
    """

    schema: object
    slots: FloatArray

    def __len__(self) -> int:
        return int(self.slots.shape[1])

    def take(self, arms: npt.ArrayLike) -> Catalogue:
        """Return some of the arms: what one user can be shown.

        Parameters
        ----------
        arms : sequence of int
            Their numbers, from 0.

        Returns
        -------
        Catalogue
            These arms, in this order.
        """
        chosen = np.asarray(arms)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or np.any((chosen < 0) | (chosen >= len(self))):
            raise InvalidInput(f"arms to take must be numbers from 0 to {len(self) - 1}, got {shown(arms)}")
        return Catalogue(self.schema, self.slots[:, chosen])


Arms = Catalogue | Sequence[Record] | Mapping[str, Any] | Any
"""Arms of one user, or of all: a list of records, columns, a frame, or a catalogue."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """Encodes records of a schema."""

    schema: object
    layout: Layout
    users: Side
    arms: Side

    def catalogue(self, arms: Arms) -> Catalogue:
        """Prepare arms for repeated use."""
        return Catalogue(self.schema, self.arm_slots(arms))

    def arm_slots(self, arms: Arms) -> FloatArray:
        """The slots of arms, of which there must be at least one."""
        if isinstance(arms, Catalogue):
            if arms.schema is not self.schema and arms.schema != self.schema:
                raise InvalidInput("the catalogue was made by another schema: make one with schema.catalogue(arms)")
            slots = arms.slots
        else:
            slots = self.arms.slots_of(arms)
        if slots.shape[1] == 0:
            raise InvalidInput("arms must have at least one arm, got none")
        return slots

    def rows(self, user: Record, arms: Arms, dense: bool = False) -> FloatArray:
        """One user's rows, shape (K, 2 width), or (K, d) if they are to be dense."""
        slots = self.arm_slots(arms)
        rows: FloatArray = self.filled(self.users.slots_of_one(user), slots, slots.shape[1], dense)[0]
        return rows

    def lines(self, records: object, dense: bool = False) -> FloatArray:
        """A row for each line of columns that hold fields of users and arms, shape (N, 2 width) or (N, d)."""
        table = table_of(records, self.users.names | self.arms.names, "line").flat()
        users, arms = self.users.slots(table, "line"), self.arms.slots(table, "line")
        rows: FloatArray = self.filled(users, arms, 1, dense)[:, 0]
        return rows

    def rows_of(self, users: object, arms: Arms) -> tuple[FloatArray, Refusals]:
        """The rows of all valid users in order, shape (N, K, 2 width), and for each other user why not."""
        if isinstance(arms, Sequence) and len(arms) and not isinstance(arms[0], Mapping):
            return self._rows_of_lists(_as_list(users, self.users), arms)
        if is_columns(arms):
            table = table_of(arms, self.arms.names, self.arms.role)
            if len(table.shape) > 1:
                return self._rows_of_table(users, table)
        common = self.arm_slots(arms)
        try:
            found, refused = self.users.slots_of(users), Refusals()
        except InvalidInput:
            found, refused = self._users_apart(_as_list(users, self.users))
        return self.filled(found, common, common.shape[1]), refused

    def _rows_of_table(self, users: object, arms: ColumnTable) -> tuple[FloatArray, Refusals]:
        """Rows and refusals for arms in columns that have an axis of users and one of arms."""
        try:
            found, slots = self.users.slots_of(users), self.arms.slots(arms, self.arms.role)
        except InvalidInput:
            return self._rows_of_lists(_as_list(users, self.users), arms.split())
        if len(arms.shape) != 2 or arms.shape[0] != found.shape[1] or arms.shape[1] == 0:
            raise InvalidInput(f"columns of arms must have shape (N, K) with N = {found.shape[1]}, got {arms.shape}")
        return self.filled(found, slots, arms.shape[1]), {}

    def _users_apart(self, users: Sequence[object]) -> tuple[FloatArray, Refusals]:
        admitted, refused = [self.users.slots(ColumnTable({}, (0,)), "")], Refusals()
        for number, user in enumerate(users):
            try:
                admitted.append(self.users.slots_of_one(user))
            except InvalidInput as error:
                refused[number] = error
        return np.concatenate(admitted, axis=1), refused

    def _rows_of_lists(self, users: Sequence[object], arms: Sequence[Any]) -> tuple[FloatArray, Refusals]:
        """Rows and refusals for a list of arms for each user."""
        if len(users) != len(arms):
            raise InvalidInput(f"arms must be one list for all or one for each of {len(users)} users, got {len(arms)}")
        try:
            return self._all_at_once(users, arms), {}
        except InvalidInput:
            return self._apart(users, arms)

    def _all_at_once(self, users: Sequence[object], arms: Sequence[Any]) -> FloatArray:
        if any(not isinstance(own, list | tuple) or len(own) != len(arms[0]) for own in arms):
            raise InvalidInput("arms of different forms, or not as many for every user")
        flat = [arm for own in arms for arm in own]
        return self.filled(self.users.slots_of(users), self.arm_slots(flat), len(arms[0]))

    def _apart(self, users: Sequence[object], arms: Sequence[Any]) -> tuple[FloatArray, Refusals]:
        admitted: list[FloatArray] = []
        refused = Refusals()
        for number, (user, own) in enumerate(zip(users, arms, strict=True)):
            try:
                slots = self.arm_slots(own)
                count = slots.shape[1]
                if admitted and count != admitted[0].shape[1]:
                    raise InvalidInput(f"all users of a batch must bring {admitted[0].shape[1]} arms, not {count}")
                admitted.append(self.filled(self.users.slots_of_one(user), slots, count))
            except InvalidInput as error:
                refused[number] = error
        if not admitted:
            return np.empty((0, 1, 2 * self.layout.width)), refused
        return np.concatenate(admitted), refused

    def filled(self, users: FloatArray, arms: FloatArray, count: int, dense: bool = False) -> FloatArray:
        """Make the rows of N users with ``count`` arms each, compact or with all of their d numbers.

        There are N ``count`` arms, user by user, or ``count`` that all users have in common.
        """
        total, shared = users.shape[1], arms.shape[1] == count
        step = max(1, _MOST_ROWS // count)
        if total <= step:
            return self._filled(users, arms, count, dense)
        rows = np.empty((total, count, self.layout.dim if dense else 2 * self.layout.width))
        for start in range(0, total, step):
            stop = start + step
            offered = arms if shared else arms[:, start * count : stop * count]
            rows[start:stop] = self._filled(users[:, start:stop], offered, count, dense)
        return rows

    def _filled(self, users: FloatArray, arms: FloatArray, count: int, dense: bool) -> FloatArray:
        layout, products, width = self.layout, self.layout.products, self.layout.width
        own, offered = users.take(products.user, 2), arms.take(products.arm, 2).reshape(2, -1, count, width)
        values = (own[0, :, np.newaxis] * offered[0]).reshape(-1, width)
        values *= products.scale
        starts = own[1] * products.stride + products.start
        positions = (starts[:, np.newaxis] + offered[1]).reshape(-1, width)
        there = values != 0.0
        found, places = values[there], layout.places.take(positions[there].astype(np.int64))
        if dense:
            rows = np.zeros((len(values), layout.dim))
            rows.reshape(-1)[np.flatnonzero(there) // width * layout.dim + places] = found
        else:
            there.sort()  # a row's entries come last now, and first when it is read backwards
            rows = compact_rows(there[:, ::-1], places, found)
        return rows.reshape(-1, count, rows.shape[1])

    def dense(self, rows: npt.ArrayLike) -> FloatArray:
        """Compact rows as ordinary ones, with any number of axes before the last."""
        compact = np.asarray(rows, dtype=np.float64)
        width, dim = self.layout.width, self.layout.dim
        if compact.ndim == 0 or compact.shape[-1] != 2 * width:
            raise InvalidInput(f"compact rows must have {2 * width} numbers each, got the shape {compact.shape}")
        positions = compact[..., width:]
        if not ((positions >= -1.0) & (positions < dim)).all():
            raise InvalidInput(f"compact rows must have positions from 0 to {dim - 1}, and -1 for none")
        return dense_rows(compact.reshape(-1, 2 * width), dim).reshape(*compact.shape[:-1], dim)


def _centre(values: FloatArray, low: FloatArray, high: FloatArray, length: FloatArray) -> None:
    """Bring numbers from [low, high] to [-1, 1], in place: outside is cut, NaN is 0."""
    np.maximum(values, low, out=values)
    np.minimum(values, high, out=values)
    values -= low
    values /= length
    values += values
    values -= 1.0
    values[values != values] = 0.0  # NaN


def _as_list(users: Any, side: Side) -> Sequence[object]:
    """Users as a list of records that can be judged one by one."""
    if not (isinstance(users, Mapping) or is_columns(users)):
        if isinstance(users, str | bytes) or not isinstance(users, Sequence):
            raise InvalidInput(f"users must be a list of records, a dict of arrays or a frame, got {shown(users)}")
        return users
    table = table_of(users, side.names, side.role).flat()
    columns = {name: whole(column) for name, column in table.columns.items()}
    return [{name: column[line] for name, column in columns.items()} for line in range(table.lines)]
