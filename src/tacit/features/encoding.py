"""From records to compact rows: one path for one user, for many, and for columns.

A refusal is an answer to the one user or caller whose records it is about: where many users come at once, each is
judged apart, so that nobody learns from an error what somebody else sent.
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
from tacit.features.kernels import CENTRE, FILL_ROWS, SCATTER, Slots
from tacit.features.layout import Layout, factors
from tacit.features.records import Record, Table, is_columns, of_records, table_of
from tacit.typing import FloatArray

Refusals = dict[int, InvalidInput]
"""For each user who was refused, by number, why."""


@dataclass(frozen=True, eq=False)
class Side:
    """The fields of users, or those of arms."""

    role: str
    fields: tuple[Field, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the fields."""
        return frozenset(field.name for field in self.fields)

    @cached_property
    def _slots(self) -> list[tuple[Field, slice]]:
        found = factors(self.fields)[1:]
        return [(field, slice(first, first + slots)) for field, first, slots in found if field is not None]

    @cached_property
    def _spans(self) -> tuple[FloatArray, FloatArray]:
        spans = np.array([(0.0, 0.0)] + [field.span for field in self.fields for _ in range(field.slots)])
        return np.ascontiguousarray(spans[:, 0]), np.ascontiguousarray(spans[:, 1])

    def slots(self, table: Table, role: str) -> Slots:
        """What the records of a table say."""
        lows, highs = self._spans
        count = table.lines
        values, positions = np.empty((count, lows.size)), np.zeros((count, lows.size), dtype=np.int64)
        values.fill(1.0)
        for field, own in self._slots:
            column = table.columns.get(field.name)
            field.fill([None] * count if column is None else column, values[:, own], positions[:, own], role)
        CENTRE.call(values, lows, highs)
        return Slots(values, positions)

    def slots_of(self, records: object) -> Slots:
        """What many records say, in whatever form they come."""
        return self.slots(table_of(records, self.names, self.role).flat(), self.role)

    def slots_of_one(self, record: object) -> Slots:
        """What one record says."""
        return self.slots(of_records([record], self.names, ""), "")


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Arms that are prepared once, for as many users as there are: made by `Schema.catalogue`."""

    schema: object
    slots: Slots

    def __len__(self) -> int:
        return int(self.slots.values.shape[0])

    def take(self, arms: npt.ArrayLike) -> Catalogue:
        """The arms with these numbers, in this order: what one user can be shown."""
        chosen = np.asarray(arms)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or np.any((chosen < 0) | (chosen >= len(self))):
            raise InvalidInput(f"arms to take must be numbers from 0 to {len(self) - 1}, got {shown(arms)}")
        return Catalogue(self.schema, Slots(self.slots.values[chosen], self.slots.positions[chosen]))


Arms = Catalogue | Sequence[Record] | Mapping[str, Any] | Any
"""Arms of one user, or of all: a list of records, columns, a frame, or a catalogue."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """What a schema does with records."""

    schema: object
    layout: Layout
    users: Side
    arms: Side

    def catalogue(self, arms: Arms) -> Catalogue:
        """Arms, prepared."""
        return Catalogue(self.schema, self.arm_slots(arms))

    def arm_slots(self, arms: Arms) -> Slots:
        """The slots of arms, of which there must be at least one."""
        if isinstance(arms, Catalogue):
            if arms.schema is not self.schema and arms.schema != self.schema:
                raise InvalidInput("the catalogue was made by another schema: make one with schema.catalogue(arms)")
            slots = arms.slots
        else:
            slots = self.arms.slots_of(arms)
        if slots.values.shape[0] == 0:
            raise InvalidInput("arms must have at least one arm, got none")
        return slots

    def rows(self, user: Record, arms: Arms) -> FloatArray:
        """One user's rows, shape (K, 2 width)."""
        slots = self.arm_slots(arms)
        rows: FloatArray = self.filled(self.users.slots_of_one(user), slots, slots.values.shape[0])[0]
        return rows

    def lines(self, records: object) -> FloatArray:
        """A row for each line of columns that hold fields of users and arms, shape (N, 2 width)."""
        table = table_of(records, self.users.names | self.arms.names, "line").flat()
        users, arms = self.users.slots(table, "line"), self.arms.slots(table, "line")
        rows: FloatArray = self.filled(users, arms, 1)[:, 0]
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
        return self.filled(found, common, common.values.shape[0]), refused

    def _rows_of_table(self, users: object, arms: Table) -> tuple[FloatArray, Refusals]:
        """The same with arms in columns that have an axis of users and one of arms."""
        try:
            found, slots = self.users.slots_of(users), self.arms.slots(arms, self.arms.role)
        except InvalidInput:
            return self._rows_of_lists(_as_list(users, self.users), arms.split())
        if len(arms.shape) != 2 or arms.shape[0] != found.values.shape[0] or arms.shape[1] == 0:
            raise InvalidInput(
                f"columns of arms must have shape (N, K) with N = {found.values.shape[0]}, got {arms.shape}"
            )
        return self.filled(found, slots, arms.shape[1]), {}

    def _users_apart(self, users: Sequence[object]) -> tuple[Slots, Refusals]:
        admitted, refused = [self.users.slots(Table({}, (0,)), "")], Refusals()
        for number, user in enumerate(users):
            try:
                admitted.append(self.users.slots_of_one(user))
            except InvalidInput as error:
                refused[number] = error
        return _joined(admitted), refused

    def _rows_of_lists(self, users: Sequence[object], arms: Sequence[Any]) -> tuple[FloatArray, Refusals]:
        """The same with a list of arms for each user."""
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
                count = slots.values.shape[0]
                if admitted and count != admitted[0].shape[1]:
                    raise InvalidInput(f"all users of a batch must bring {admitted[0].shape[1]} arms, not {count}")
                admitted.append(self.filled(self.users.slots_of_one(user), slots, count))
            except InvalidInput as error:
                refused[number] = error
        if not admitted:
            return np.empty((0, 1, 2 * self.layout.width)), refused
        return np.concatenate(admitted), refused

    def filled(self, users: Slots, arms: Slots, count: int) -> FloatArray:
        """Rows of users with ``count`` arms each."""
        layout = self.layout
        rows = np.empty((users.values.shape[0], count, 2 * layout.width))
        FILL_ROWS.call(layout.table, layout.scales, layout.places, *users, *arms, rows)
        return rows

    def dense(self, rows: npt.ArrayLike) -> FloatArray:
        """Compact rows as ordinary ones, whatever the axes before the last."""
        compact = np.ascontiguousarray(rows, dtype=np.float64)
        if not compact.flags.carray:
            compact = compact.copy()  # read-only or unaligned: kernels are compiled for ordinary arrays alone
        length = 2 * self.layout.width
        if compact.ndim == 0 or compact.shape[-1] != length:
            raise InvalidInput(f"compact rows must have {length} numbers each, got the shape {compact.shape}")
        out = np.zeros((*compact.shape[:-1], self.layout.dim))
        if not SCATTER.call(compact.reshape(-1, length), out.reshape(-1, self.layout.dim)):
            raise InvalidInput(f"compact rows must have positions from 0 to {self.layout.dim - 1}, and -1 for none")
        return out


def _joined(parts: Sequence[Slots]) -> Slots:
    return Slots(np.concatenate([part.values for part in parts]), np.concatenate([part.positions for part in parts]))


def _as_list(users: Any, side: Side) -> Sequence[object]:
    """Users as a list of records that can be judged one by one."""
    if not (isinstance(users, Mapping) or is_columns(users)):
        if isinstance(users, str | bytes) or not isinstance(users, Sequence):
            raise InvalidInput(f"users must be a list of records, a dict of arrays or a frame, got {shown(users)}")
        return users
    table = table_of(users, side.names, side.role).flat()
    columns = {name: whole(column) for name, column in table.columns.items()}
    return [{name: column[line] for name, column in columns.items()} for line in range(table.lines)]
