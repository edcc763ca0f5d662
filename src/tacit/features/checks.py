"""What a schema may be: every refusal names what is wrong and what helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from tacit.errors import InvalidInput
from tacit.features.field import Field, shown
from tacit.features.fields import Category, Flag, Number
from tacit.features.hashed import Hashed
from tacit.features.layout import Layout

KINDS: dict[str, type[Field]] = {kind.kind: kind for kind in (Number, Category, Flag, Hashed)}
MOST_COORDINATES = 10_000
Thing = TypeVar("Thing", bound=Hashable)


def check_schema(user: object, arm: object, crosses: object, per_arm: object, intercept: object) -> dict[str, Any]:
    """The parts of a schema, checked, in the form in which they are kept."""
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
    """Those that occur more than once, in the order in which they came first."""
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
