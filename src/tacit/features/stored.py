"""Schemas as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from dataclasses import fields as parts_of
from typing import Any, cast

from tacit.errors import InvalidInput
from tacit.features.checks import KINDS
from tacit.features.field import Field, shown

FORMAT, VERSION = "tacit.features", 1
_NEVER_MADE_UP = ("key",)
"""What a field that is made in Python draws at random: read from JSON, it must be the same every time."""
_PARTS = {"user", "arm", "crosses", "per_arm", "intercept"}


def stored_schema(
    user: Sequence[Field],
    arm: Sequence[Field],
    crosses: Sequence[tuple[str, str]],
    per_arm: str | None,
    intercept: bool,
) -> dict[str, Any]:
    """A schema in what JSON can hold."""
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
    """The arguments of the schema that was stored, or written by hand: what is left out has its default."""
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
        name: _fields(name, value) if name in ("user", "arm") else value
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


def _fields(side: str, stored: object) -> list[Field]:
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
