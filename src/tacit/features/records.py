"""Records in the forms that callers have them, as one column for each field.

One record is a mapping.  Many are a list of mappings, a dict of arrays, or a frame of pandas or polars, neither of
which is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import InvalidInput
from tacit.features.field import Column, shown

Record = Mapping[str, Any]
"""What is known of one user or one arm: values by the names of fields."""


class ColumnTable(NamedTuple):
    """Columns by name, all of one length; a field without a column is missing everywhere."""

    columns: Mapping[str, Column]
    shape: tuple[int, ...]
    """(N,), or (N, K) for arms of N users in columns of two axes, whose lines then follow each other."""

    @property
    def lines(self) -> int:
        """Number of records."""
        return math.prod(self.shape)

    def flat(self) -> ColumnTable:
        """The table itself, if its columns have one axis."""
        if len(self.shape) != 1:
            raise InvalidInput(f"columns must have one axis, got the shape {self.shape}")
        return self

    def split(self) -> list[dict[str, Column]]:
        """Columns of shape (N, K) as N times columns of K lines."""
        size = math.prod(self.shape[1:])
        return [
            {name: column[user * size : (user + 1) * size] for name, column in self.columns.items()}
            for user in range(self.shape[0])
        ]


def is_columns(records: object) -> bool:
    """Whether this is a frame, or a mapping that holds arrays: lists in a mapping are tokens of one record."""
    if isinstance(records, Mapping):
        return any(_is_array(value) for value in records.values())
    return hasattr(records, "columns")


def _is_array(value: object) -> bool:
    return getattr(value, "ndim", 0) > 0 or hasattr(value, "to_numpy")


def table_of(records: object, names: frozenset[str], role: str) -> ColumnTable:
    """Many records as columns; ``role`` says in errors what they are."""
    if not isinstance(records, list) and (isinstance(records, Mapping) or is_columns(records)):
        return _of_columns(records, names, role)
    return of_records(records, names, role)


def of_records(records: object, names: frozenset[str], role: str) -> ColumnTable:
    """A list of mappings as columns."""
    if isinstance(records, str | bytes) or not isinstance(records, Sequence):
        raise InvalidInput(f"{role}s must be a list of records, a dict of arrays or a frame, got {shown(records)}")
    for index, record in enumerate(records):
        if type(record) is not dict or not names.issuperset(record):  # which most are: nothing else is looked at then
            _check_record(record, names, f"{role} {index}: " if role else "")
    return ColumnTable({name: [record.get(name) for record in records] for name in names}, (len(records),))


def _check_record(record: object, names: frozenset[str], where: str) -> None:
    """Refuse what is not a mapping, and names that the schema does not have."""
    if not isinstance(record, Mapping):
        raise InvalidInput(f"{where}a record must be a mapping from names of fields to values, got {shown(record)}")
    if not record.keys() <= names:
        _refuse_names(record.keys() - names, names, where)


def _refuse_names(unknown: Any, names: frozenset[str], where: str) -> None:
    listed = ", ".join(sorted(map(repr, names))) or "none"
    name = min(map(shown, unknown))
    raise InvalidInput(f"{where}the schema has no field {name} here; its fields are {listed}. Leave others out")


def _of_columns(records: Any, names: frozenset[str], role: str) -> ColumnTable:
    given = list(records if isinstance(records, Mapping) else records.columns)
    if len(set(given)) < len(given):
        raise InvalidInput(f"columns of {role}s must have different names, got {shown(given)}")
    if not names.issuperset(given):
        _refuse_names(set(given) - names, names, "")
    columns = {name: _column(name, records[name]) for name in given}
    if not columns:
        raise InvalidInput(f"columns of {role}s must have at least one column, got none")
    shapes = {
        name: np.shape(column) if isinstance(column, np.ndarray) else (len(column),) for name, column in columns.items()
    }
    shape = shapes[given[0]]
    for name, other in shapes.items():
        if other != shape:
            raise InvalidInput(f"all columns must have the same shape: {given[0]!r} has {shape}, {name!r} has {other}")
    flat = {name: column.reshape(-1) if isinstance(column, np.ndarray) else column for name, column in columns.items()}
    return ColumnTable(flat, shape)


def _column(name: str, column: Any) -> Column:
    if hasattr(column, "to_numpy"):
        column = column.to_numpy()
    if isinstance(column, list | tuple):
        return column
    if not isinstance(column, np.ndarray) or column.ndim == 0:
        raise InvalidInput(f"column {name!r} must be an array or a list, got {shown(column)}")
    return column
