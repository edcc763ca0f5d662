"""What the compiled form of a kernel depends on in its arguments, in words that fit into JSON.

Numba has types of its own for this.  These can be told without numba, and handed to another process.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

Kind = str | tuple[Any, ...]
"""A number's kind is a letter; that of an array or a tuple begins with ``array`` or ``tuple``."""
Kinds = tuple[Kind, ...]
TRUTH, INTEGER, FLOAT = "b", "i", "f"
_met: dict[str, type] = {}


def array_kind(axes: int, numbers: str = "<f8") -> Kind:
    """A writable array in the order of C."""
    return ("array", numbers, axes, "C", True)


def kind_of(value: Any) -> Kind:
    """The kind of an argument."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        order = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return ("array", value.dtype.str, value.ndim, order, bool(flags.writeable))
    if isinstance(value, bool | np.bool_):
        return TRUTH
    if isinstance(value, float | np.floating):
        return FLOAT
    if isinstance(value, int | np.integer):
        return INTEGER
    if isinstance(value, tuple):
        return ("tuple", class_name(type(value)), tuple(map(kind_of, value)))
    raise TypeError(f"a kernel takes numbers, arrays and tuples of them, not {type(value).__name__}")


def class_name(kind: type) -> str:
    """A class as ``module:name``; nothing for a plain tuple."""
    if kind is tuple:
        return ""
    name = f"{kind.__module__}:{kind.__qualname__}"
    _met[name] = kind
    return name


def from_json(value: Any) -> Any:
    """A kind, or a tuple of kinds, as it was before JSON made lists of its tuples."""
    return tuple(map(from_json, value)) if isinstance(value, list) else value


def classes_in(kind: Kind) -> set[str]:
    """The named tuples that a kind mentions, as ``module:name``."""
    if isinstance(kind, str) or kind[0] != "tuple":
        return set()
    return set().union({kind[1]} - {""}, *map(classes_in, kind[2]))


def found(name: str) -> Any:
    """What ``module:name`` stands for: also a class inside of a function, if this process has met it."""
    if name in _met:
        return _met[name]
    module, _, path = name.partition(":")
    value: Any = importlib.import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    return value
