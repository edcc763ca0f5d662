"""Kernels of links that were registered from outside the package, and how compiled code finds them.

The package's own links are branches in `tacit.glm.link_kernels`.  A registered link has a code from ``FIRST_CODE`` on
and a row of four functions, whose addresses compiled code looks up in a table (`tacit.glm.link_machine`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import NamedTuple

from tacit._compile import kernel, when_compiler_loads
from tacit.errors import InvalidInput

FIRST_CODE = 100
"""Codes below it are the package's.  Those from it on follow the order of registration: they may not be saved."""
CAPACITY = 256
"""Links that can be registered in one process."""
MEAN, DERIVATIVE, ANTIDERIVATIVE, REWARD = 0, 1, 2, 3
"""Columns of the table, in the order of `LinkKernels`."""

COLUMNS = 4
UNKNOWN = "unknown link code, or a registered link whose function raised an error or gave NaN"


@kernel
def two_valued_reward(expected: float, reward_bound: float, uniform: float) -> float:
    """R with probability ``expected / R``, else 0."""
    return reward_bound if uniform * reward_bound < expected else 0.0


class LinkKernels(NamedTuple):
    """What a link computes from single numbers, in the Python that numba compiles (``math`` and arithmetic).

    A function of one's own that they call is decorated with ``numba.njit``.  Mean, derivative and antiderivative must
    be finite for every score with ``|z| <= 700``.
    """

    mean: Callable[[float], float]
    derivative: Callable[[float], float]
    antiderivative: Callable[[float], float]
    reward: Callable[[float, float, float], float] = two_valued_reward
    """A reward in [0, R] from its mean, R, and a number that is uniform in [0, 1)."""


class Row(NamedTuple):
    """A registered link."""

    name: str
    kernels: LinkKernels
    in_use: list[bool]
    """Holds something from the time on when its code was asked for."""


_rows: list[Row] = []
_lock = threading.Lock()
_compile_row: list[Callable[[int, Row], None]] = []
"""Where the compiler is loaded: what makes machine code of a row."""


def add_kernels(name: str, kernels: LinkKernels) -> None:
    """A new row, unless there is one like it.  Nothing is compiled before `code_of` asks for it."""
    with _lock:
        if len(_rows) == CAPACITY:
            raise InvalidInput(f"at most {CAPACITY} links can be registered in a process, {name!r} is one too many")
        if not any(row.name == name and row.kernels == kernels for row in _rows):
            _rows.append(Row(name, kernels, []))


def code_of(name: str, kernels: LinkKernels | None) -> int:
    """The code by which kernels reach these functions; where kernels are compiled, so are they the first time."""
    for position, row in enumerate(_rows):
        if row.name == name and row.kernels == kernels:
            with _lock:
                if not row.in_use:
                    for compile_row in _compile_row:
                        compile_row(position, row)
                    row.in_use.append(True)
            return FIRST_CODE + position
    raise InvalidInput(f"the link {name} is not registered: call register_link in the module that defines it")


def compile_rows(compile_row: Callable[[int, Row], None]) -> None:
    """Have the functions of all links in use compiled, and those of others when they come into use."""
    with _lock:
        for position, row in enumerate(_rows):
            if row.in_use:
                compile_row(position, row)
        _compile_row.append(compile_row)


@kernel
def registered(column: int, link: int, arguments: tuple[float, ...]) -> float:
    """What the function of this column gives for a registered link; other codes are refused."""
    return call(column, link, arguments)


def call(column: int, link: int, arguments: tuple[float, ...]) -> float:
    """Interpreted: the link's function itself."""
    if not 0 <= link - FIRST_CODE < len(_rows):
        raise ValueError(UNKNOWN)
    value = float(_rows[link - FIRST_CODE].kernels[column](*arguments))
    if value != value and math.isfinite(arguments[0]):
        raise ValueError(UNKNOWN)
    return value


def _load() -> None:
    from tacit.glm import link_machine

    link_machine.connect()


when_compiler_loads(_load)
