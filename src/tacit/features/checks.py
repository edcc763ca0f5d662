"""What a schema may be, in Python and as JSON: every refusal names what is wrong and what helps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from dataclasses import fields as parts_of
from typing import Any, TypeVar, cast

from tacit.errors import InvalidInput
from tacit.features.field import Field, shown
from tacit.features.fields import Category, Flag, Hashed, Number
from tacit.features.layout import Layout

KINDS: dict[str, type[Field]] = {kind.kind: kind for kind in (Number, Category, Flag, Hashed)}
MOST_COORDINATES = 10_000
FORMAT, VERSION = "tacit.features", 1
_NEVER_MADE_UP = ("key",)
"""Attributes that Python draws at random when they are left out: in JSON they must be given."""
_PARTS = {"user", "arm", "crosses", "per_arm", "intercept"}
Thing = TypeVar("Thing", bound=Hashable)


def check_schema(user: object, arm: object, crosses: object, per_arm: object, intercept: object) -> dict[str, Any]:
    """Check the arguments of a schema; returns them by name, in the form in which they are kept."""
    users, arms = _fields("user", user), _fields("arm", arm)
    for name in _repeated(field.name for field in (*users, *arms)):
        raise InvalidInput(f"names must differ over user and arm, got {name!r} more than once: rename one of them")
    if not isinstance(intercept, bool):
        raise InvalidInput(f"intercept must be True or False, got {shown(intercept)}")
    if per_arm is not None:
        _check_per_arm(per_arm, users, arms, intercept)
    pairs = _crosses(crosses, users, arms, per_arm)
    return {"user": users, "arm": arms, "crosses": pairs, "per_arm": per_arm, "intercept": intercept}


def check_layout(layout: Layout) -> None:
    """Refuse schemas without coordinates, with too many, or with two of the same name."""
    dim = layout.dim
    if dim == 0:
        raise InvalidInput("the schema has no coordinate: give it a field, or intercept=True")
    if dim > MOST_COORDINATES:
        largest = max(layout.terms, key=lambda term: term.size)
        raise InvalidInput(
            f"the schema has {dim:,} coordinates, {largest.size:,} of them in {largest.title!r}, and at most "
            f"{MOST_COORDINATES:,} are possible: make categories coarser, take Hashed in their place, or drop a cross"
        )
    for name in _repeated(layout.names):
        raise InvalidInput(f"two coordinates would be called {name!r}: rename a field or a value")


def _repeated(things: Iterable[Thing]) -> list[Thing]:
    """Things that occur more than once, in the order of their first occurrence."""
    return [thing for thing, count in Counter(things).items() if count > 1]


def _fields(name: str, fields: object) -> tuple[Field, ...]:
    if isinstance(fields, str) or not isinstance(fields, Sequence):
        raise InvalidInput(f"{name} must be a list of fields, got {shown(fields)}")
    for field in fields:
        if type(field) not in KINDS.values():
            words = ", ".join(kind.__name__ for kind in KINDS.values())
            raise InvalidInput(f"{name} must hold fields ({words}), got {shown(field)}")
    return tuple(fields)


def _check_per_arm(per_arm: object, users: Sequence[Field], arms: Sequence[Field], intercept: bool) -> None:
    categories = [field.name for field in arms if isinstance(field, Category)]
    if not isinstance(per_arm, str) or per_arm not in categories:
        raise InvalidInput(f"per_arm must name a Category of arm, one of {categories}, got {shown(per_arm)}")
    if not users and not intercept:
        raise InvalidInput(f"per_arm={per_arm!r} has nothing to multiply: give user a field, or intercept=True")


def _crosses(crosses: object, users: Sequence[Field], arms: Sequence[Field], per_arm: object) -> tuple[Any, ...]:
    if isinstance(crosses, str) or not isinstance(crosses, Sequence):
        raise InvalidInput(f"crosses must be a list of pairs of names, got {shown(crosses)}")
    known = tuple(dict.fromkeys(field.name for field in side) for side in (users, arms))  # sets that keep their order
    pairs = tuple(_pair(cross, *known) for cross in crosses)
    for pair in _repeated(pairs):
        raise InvalidInput(f"crosses has {pair!r} more than once: leave one out")
    for user, arm in pairs:
        if arm == per_arm:
            raise InvalidInput(
                f"the cross {(user, arm)!r} is redundant: with per_arm={arm!r} every field of the user has parameters "
                "of its own for each value already. Leave it out"
            )
    return pairs


def _pair(cross: object, users: Collection[str], arms: Collection[str]) -> tuple[str, str]:
    if isinstance(cross, str) or not isinstance(cross, Sequence) or len(cross) != 2:
        raise InvalidInput(f"a cross must be a pair (field of user, field of arm), got {shown(cross)}")
    for side, name, names in (("user", cross[0], users), ("arm", cross[1], arms)):
        if not isinstance(name, str) or name not in names:
            raise InvalidInput(
                f"the cross {shown(tuple(cross))} must name a field of user first and one of arm second: "
                f"{shown(name)} is not among those of {side}, {list(names)}"
            )
    return cross[0], cross[1]


# Schemas as JSON


def stored_schema(
    user: Sequence[Field],
    arm: Sequence[Field],
    crosses: Sequence[tuple[str, str]],
    per_arm: str | None,
    intercept: bool,
) -> dict[str, Any]:
    """A schema as a dictionary that JSON can hold."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "user": [_stored(field) for field in user],
        "arm": [_stored(field) for field in arm],
        "crosses": [list(cross) for cross in crosses],
        "per_arm": per_arm,
        "intercept": intercept,
    }


def _stored(field: Field) -> dict[str, Any]:
    named = {part.name: getattr(field, part.name) for part in parts_of(cast(Any, field))}
    return {"kind": field.kind} | {
        name: list(value) if isinstance(value, tuple) else value for name, value in named.items()
    }


def parts_in(stored: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    """The arguments of a schema from JSON, stored or written by hand; parts that are left out have their defaults."""
    content = _content(stored)
    if content.get("format", FORMAT) != FORMAT or content.get("version", VERSION) != VERSION:
        raise InvalidInput(
            f"a stored schema must have the format {FORMAT!r} and the version {VERSION}, got "
            f"{shown(content.get('format'))} and {shown(content.get('version'))}: was it written by Schema.to_json?"
        )
    found = set(content) - {"format", "version"}
    if found - _PARTS:
        raise InvalidInput(f"a stored schema has {sorted(_PARTS)}, got {shown(sorted(map(str, found)))}")
    return {
        name: _stored_fields(name, value) if name in ("user", "arm") else value
        for name, value in content.items()
        if name in _PARTS
    }


def _content(stored: object) -> Mapping[str, Any]:
    if isinstance(stored, str | bytes | bytearray):
        try:
            stored = json.loads(stored)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"a stored schema must be JSON: {error}") from error
    if not isinstance(stored, Mapping):
        raise InvalidInput(f"a stored schema must be a mapping, got {shown(stored)}")
    return stored


def _stored_fields(side: str, stored: object) -> list[Field]:
    if not isinstance(stored, list | tuple):
        raise InvalidInput(f"{side} of a stored schema must be a list of fields, got {shown(stored)}")
    return [_field(side, number, one) for number, one in enumerate(stored)]


def _field(side: str, number: int, stored: object) -> Field:
    where = f"field {number} of {side} in a stored schema"
    kind = stored.get("kind") if isinstance(stored, Mapping) else None
    if not isinstance(stored, Mapping) or not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput(f"{where} must be a mapping with a kind out of {sorted(KINDS)}, got {shown(stored)}")
    made: Any = KINDS[kind]
    known = {part.name: part.default is MISSING or part.name in _NEVER_MADE_UP for part in parts_of(made)}
    given = {name: value for name, value in stored.items() if name != "kind" and (value or name not in _NEVER_MADE_UP)}
    if set(given) - set(known) or any(needed and name not in given for name, needed in known.items()):
        needs = sorted(name for name, needed in known.items() if needed)
        raise InvalidInput(
            f"{where} must have {needs}, and may have {sorted(set(known) - set(needs))}, got {shown(stored)}"
        )
    field: Field = made(**given)
    return field
