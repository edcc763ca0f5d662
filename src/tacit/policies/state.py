"""States, nested ``NamedTuple``s, as flat dictionaries of arrays and back, what of them is secret, and snapshots.

What changes is an array: a number that changes is an array without axes, read and written as ``state.ticks[()]``.
What does not change, the constants, are plain numbers in a ``NamedTuple`` of their own.  They follow from the
configuration and are not saved; nor are arrays that never change, which are annotated ``Fixed[...]``.

A field of a private policy's state is *public* when it depends on rows through releases only, and *secret* otherwise:
raw sums, rows, noise.  The secret ones are annotated ``Secret[...]``; a nested state speaks for itself.  The audit
checks it: with the same releases all public fields are the same, byte for byte, for any rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput

if TYPE_CHECKING:
    from tacit.policies.policy import Policy

State = TypeVar("State", bound=tuple[Any, ...])
Array = npt.NDArray[Any]


def flatten(state: tuple[Any, ...], prefix: str = "") -> dict[str, Array]:
    """Every array of a state that changes under its dotted path; constants are left out."""
    return _arrays(state, prefix, "fixed")


@cache
def _marked(kind: type, mark: str) -> frozenset[str]:
    hints = get_type_hints(kind, include_extras=True)
    return frozenset(name for name, hint in hints.items() if mark in getattr(hint, "__metadata__", ()))


def _arrays(state: tuple[Any, ...], prefix: str, *left_out: str) -> dict[str, Array]:
    """Every array but those of fields with one of these marks, under its dotted path."""
    without = frozenset().union(*(_marked(type(state), mark) for mark in left_out))
    arrays: dict[str, Array] = {}
    for field, value in zip(_fields(state), state, strict=True):
        if field in without:
            continue
        if isinstance(value, tuple):
            arrays.update(_arrays(value, f"{prefix}{field}.", *left_out))
        elif isinstance(value, np.ndarray):
            arrays[f"{prefix}{field}"] = value
    return arrays


def public_part(state: tuple[Any, ...], prefix: str = "") -> dict[str, Array]:
    """Every array that depends on rows through releases only, under its dotted path."""
    return _arrays(state, prefix, "secret", "fixed")


def rebuild(template: State, arrays: Mapping[str, Array], prefix: str = "") -> State:
    """A state with the constants of ``template`` and the arrays that ``flatten`` gave.

    Shapes may have grown, types may not differ.
    """
    values: list[Any] = []
    fixed = _marked(type(template), "fixed")
    for field, value in zip(_fields(template), template, strict=True):
        path = f"{prefix}{field}"
        if isinstance(value, tuple):
            values.append(rebuild(value, arrays, f"{path}."))
        elif isinstance(value, np.ndarray) and field not in fixed:
            values.append(_checked(path, value, arrays))
        else:
            values.append(value)
    return type(template)(*values)


def size_in_bytes(state: tuple[Any, ...]) -> int:
    """Memory of all arrays of a state, those that never change included."""
    return sum(array.nbytes for array in _arrays(state, "").values())


def _fields(state: tuple[Any, ...]) -> tuple[str, ...]:
    fields: tuple[str, ...] = getattr(type(state), "_fields", ())
    return fields


def _checked(path: str, expected: Array, arrays: Mapping[str, Array]) -> Array:
    if path not in arrays:
        raise InvalidInput(f"saved state lacks the array {path!r}: the file is corrupt or of another version")
    found = arrays[path]
    if found.dtype != expected.dtype or found.ndim != expected.ndim:
        raise InvalidInput(
            f"saved array {path!r} is {found.dtype} with {found.ndim} axes, not {expected.dtype} with "
            f"{expected.ndim}: the file is corrupt or of another version"
        )
    return np.array(found, order="C")  # ascontiguousarray would give a number an axis


@dataclass(frozen=True)
class Snapshot:
    """The whole state of a policy as JSON and plain arrays, from which it goes on as if nothing had happened.

    ``header`` holds what JSON can hold (policy, configuration, ledger, randomness), ``arrays`` all the rest.
    """

    header: dict[str, Any]
    arrays: dict[str, Array]

    def group(self, prefix: str) -> dict[str, Array]:
        """The arrays below ``prefix``, without it."""
        start = f"{prefix}."
        return {path.removeprefix(start): array for path, array in self.arrays.items() if path.startswith(start)}

    def copied(self) -> Snapshot:
        """This snapshot with arrays of its own: those of a policy change with it."""
        return Snapshot(self.header, {path: np.array(array) for path, array in self.arrays.items()})

    def digest(self) -> str:
        """Hash of all of it."""
        return digest(self.header, self.arrays)


def taken(policy: Policy) -> Snapshot:
    """The whole state of a policy, as a snapshot that shares its arrays."""
    arrays = {f"state.{path}": array for path, array in flatten(policy.state).items()}
    arrays |= {f"pending.{path}": array for path, array in policy._pending.to_arrays().items()}
    return Snapshot(policy._header(), arrays)


def digest(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Hash of JSON and arrays."""
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for path in sorted(arrays):
        found.update(path.encode())
        found.update(np.ascontiguousarray(arrays[path]).tobytes())
    return found.hexdigest()
