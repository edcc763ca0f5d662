"""A schema for the log of an experiment: what its columns are, and which public facts are missing.

The kind of a column is read from its type.  Its range, or the values that it may have, are facts about the world and
not about the people in the log: they are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.errors import InvalidInput
from tacit.features import Category, Flag, Number, Schema
from tacit.features.field import Field


@dataclass(frozen=True)
class PublicFacts:
    """What is known of columns without looking at anybody's record.

    Parameters
    ----------
    ranges : mapping
        Smallest and largest value that there can be, by the names of columns of numbers.
    values : mapping
        All values that there can be, by the names of columns.
    flags : collection of str
        Columns that say yes or no.

    Examples
    --------
    >>> from tacit.evaluation import PublicFacts
    >>> PublicFacts(ranges={"age": (18.0, 100.0)}, flags={"smoker"}).ranges["age"]
    (18.0, 100.0)
    """

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    flags: Collection[str] = ()


def unknown_columns(log: Mapping[str, Any], arm: str, facts: PublicFacts, left_out: Collection[str]) -> dict[str, str]:
    """Return which columns need a fact that is not given: ``range`` or ``values``, by their names.

    Parameters
    ----------
    log : mapping
        Columns by their names.
    arm : str
        The column of arms.
    facts : PublicFacts
        What is given.
    left_out : collection of str
        Columns that are no fields of the user, such as the reward.

    Returns
    -------
    dict
        What is missing, by columns in their order.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluation import PublicFacts, unknown_columns
    >>> log = {"age": np.array([41, 23]), "sex": ["f", "m"], "drug": ["A", "B"], "cured": np.array([1, 0])}
    >>> unknown_columns(log, "drug", PublicFacts(values={"sex": ["f", "m"]}), {"cured"})
    {'age': 'range'}
    """
    for name in (arm, *left_out, *facts.ranges, *facts.values, *facts.flags):
        if name not in log:
            raise InvalidInput(f"the log has no column {name!r}; its columns are {', '.join(map(repr, log))}")
    wanted = {name: _kind(log[name]) for name in log if name != arm and name not in left_out}
    given = {*facts.ranges, *facts.values, *facts.flags}
    return {name: kind for name, kind in wanted.items() if kind != "flag" and name not in given}


def _kind(column: Any) -> str:
    """What has to be known of a column, by its type."""
    known = [value for value in column if value is not None] if isinstance(column, list) else column
    if len(known) and all(isinstance(value, bool | np.bool_) for value in known):
        return "flag"
    return "range" if isinstance(column, np.ndarray) and column.dtype.kind in "iuf" else "values"


def proposed_schema(log: Mapping[str, Any], arm: str, facts: PublicFacts, left_out: Collection[str] = ()) -> Schema:
    """Return a schema with every column as a field of the user, and parameters of their own for each arm.

    Parameters
    ----------
    log : mapping
        Columns by their names.
    arm : str
        The column of arms.  Its values are taken from the log unless they are given: arms are no persons.
    facts : PublicFacts
        Ranges and values, of all columns that need some (`unknown_columns`).
    left_out : collection of str
        Columns that are no fields of the user, such as the reward.

    Returns
    -------
    Schema
        The schema, whose ``per_arm`` is the column of arms.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluation import PublicFacts, proposed_schema
    >>> log = {"age": np.array([41, 23]), "drug": ["A", "B"], "cured": np.array([1, 0])}
    >>> proposed_schema(log, "drug", PublicFacts(ranges={"age": (18, 100)}), {"cured"}).names
    ('1 @ drug=A', 'age @ drug=A', '1 @ drug=B', 'age @ drug=B')
    """
    missing = unknown_columns(log, arm, facts, left_out)
    if missing:
        listed = ", ".join(f"{name} ({kind})" for name, kind in missing.items())
        raise InvalidInput(f"public facts are missing of {listed}")
    users = [_field(name, facts) for name in log if name != arm and name not in left_out]
    arms = facts.values.get(arm) or observed_values(log[arm])
    return Schema(user=users, arm=[Category(arm, arms)], per_arm=arm)


def _field(name: str, facts: PublicFacts) -> Field:
    if name in facts.values:
        return Category(name, list(facts.values[name]))
    if name in facts.ranges:
        return Number(name, *facts.ranges[name])
    return Flag(name)


def observed_values(column: Any) -> list[Any]:
    """Return the values of a column, sorted: of a column about people, a release that is not private."""
    values = np.asarray(column, dtype=object).tolist()
    return sorted(
        {value for value in values if value is not None and value == value}, key=lambda one: (str(type(one)), one)
    )


def observed_facts(log: Mapping[str, Any], missing: Mapping[str, str], facts: PublicFacts) -> PublicFacts:
    """Return ``facts`` with what is missing read from the log: a release that is not private."""
    ranges = {name: _range(log[name]) for name, kind in missing.items() if kind == "range"}
    values = {name: observed_values(log[name]) for name, kind in missing.items() if kind == "values"}
    return PublicFacts({**ranges, **facts.ranges}, {**values, **facts.values}, facts.flags)


def _range(column: Any) -> tuple[float, float]:
    return float(np.nanmin(column)), float(np.nanmax(column))
