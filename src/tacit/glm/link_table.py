"""Kernels of links that were registered from outside the package, and how compiled code finds them.

The package's own links are branches in `tacit.glm.link_kernels`.  A registered link has a code from ``FIRST_CODE`` on
and a row of four addresses in a table, which compiled code knows by the name of a symbol.  Machine code therefore does
not depend on the links that are registered: what was compiled or cached before a link was registered reaches it all
the same, and a link that is edited costs the compilation of its own four functions and of nothing else.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding  # type: ignore[import-untyped]
import numba
from llvmlite import ir
from numba import extending
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher

from tacit._compile import COMPILES, kernel
from tacit.errors import InvalidInput

FIRST_CODE = 100
"""Codes below it are the package's.  Those from it on follow the order of registration: they may not be saved."""
CAPACITY = 256
"""Links that can be registered in one process."""
MEAN, DERIVATIVE, ANTIDERIVATIVE, REWARD = 0, 1, 2, 3
"""Columns of the table, in the order of `LinkKernels`."""

_COLUMNS = 4
_UNKNOWN = "unknown link code, or a registered link whose function raised an error or gave NaN"
_SYMBOL = "tacit_registered_links"
_addresses = (ctypes.c_void_p * (_COLUMNS * CAPACITY))()
llvmlite.binding.add_symbol(_SYMBOL, ctypes.addressof(_addresses))


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


class _Row(NamedTuple):
    name: str
    kernels: LinkKernels
    compiled: list[Any]
    """Machine code whose addresses are in the table: it lives as long as the process."""


_njit = numba.njit(nogil=True, error_model="numpy")
_intrinsic: Callable[[Callable[..., Any]], Any] = extending.intrinsic
_rows: list[_Row] = []
_lock = threading.Lock()


def add_kernels(name: str, kernels: LinkKernels) -> None:
    """A new row, unless there is one like it.  Nothing is compiled before `code_of` asks for it."""
    with _lock:
        if len(_rows) == CAPACITY:
            raise InvalidInput(f"at most {CAPACITY} links can be registered in a process, {name!r} is one too many")
        if not any(row.name == name and row.kernels == kernels for row in _rows):
            _rows.append(_Row(name, kernels, []))


def code_of(name: str, kernels: LinkKernels | None) -> int:
    """The code by which compiled kernels reach these functions; the first time, they are compiled."""
    for position, row in enumerate(_rows):
        if row.name == name and row.kernels == kernels:
            _make_ready(position)
            return FIRST_CODE + position
    raise InvalidInput(f"the link {name} is not registered: call register_link in the module that defines it")


def _make_ready(position: int) -> None:
    row, first = _rows[position], _COLUMNS * position
    with _lock:
        if COMPILES and not row.compiled:
            functions: tuple[Callable[..., float], ...] = row.kernels
            row.compiled[:] = [_callback(row.name, function, first + i) for i, function in enumerate(functions)]
            for column, callback in enumerate(row.compiled):
                _addresses[first + column] = callback.address


def _callback(name: str, function: Callable[..., float], entry: int) -> Any:
    """Machine code that can be called at its address: ``function``, except that it gives NaN in place of raising.

    The call counts as free of side effects, since loops around it would be slower otherwise, for the package's links
    too.  An error or a NaN therefore takes the function out of the table, and every later call raises.
    """
    inner: Any = function if isinstance(function, Dispatcher) else _njit(function)

    @_njit
    def checked(*numbers: float) -> float:
        value = math.nan
        try:
            value = float(inner(*numbers))
        except Exception:
            value = math.nan
        if value != value and math.isfinite(numbers[0]):
            _remove(entry)
        return value

    number = numba.float64
    try:
        if entry % _COLUMNS == REWARD:
            return numba.cfunc(number(number, number, number))(
                lambda mean, bound, uniform: checked(mean, bound, uniform)
            )
        return numba.cfunc(number(number))(lambda z: checked(z))
    except Exception as error:  # whatever numba says about somebody's own code
        what, why = getattr(function, "__name__", repr(function)), " ".join(str(error).split())
        raise InvalidInput(f"link {name}: numba cannot compile {what}, nor what it calls: {why[:300]}") from error


@kernel
def registered(column: int, link: int, arguments: tuple[float, ...]) -> float:
    """What the function of this column gives for a registered link; other codes are refused."""
    return _call(column, link, arguments)


def _call(column: int, link: int, arguments: tuple[float, ...]) -> float:
    """Without compilation: the link's function itself."""
    if not 0 <= link - FIRST_CODE < len(_rows):
        raise ValueError(_UNKNOWN)
    return float(_rows[link - FIRST_CODE].kernels[column](*arguments))


@extending.overload(_call)
def _compiled_call(column: Any, link: Any, arguments: Any) -> Callable[..., float]:
    def implementation(column: Any, link: Any, arguments: Any) -> float:
        position = link - FIRST_CODE
        address = _address(_COLUMNS * position + column) if 0 <= position < CAPACITY else 0
        if address == 0:
            raise ValueError(_UNKNOWN)
        return float(_call_address(address, arguments))

    return implementation


def _entry(context: Any, builder: Any, index: Any) -> Any:
    """Pointer to an entry of the table."""
    table = context.get_c_value(builder, ir.ArrayType(cgutils.intp_t, len(_addresses)), _SYMBOL)
    return builder.gep(table, [ir.Constant(cgutils.intp_t, 0), index])


@_intrinsic
def _address(typing_context: Any, index: Any) -> Any:
    """The address in the table, 0 where there is none."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(_entry(context, builder, values[0]))

    return numba.intp(numba.intp), generate


@_intrinsic
def _remove(typing_context: Any, index: Any) -> Any:
    """Clear an entry of the table."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store(ir.Constant(cgutils.intp_t, 0), _entry(context, builder, values[0]))
        return context.get_dummy_value()

    return numba.void(numba.intp), generate


@_intrinsic
def _call_address(typing_context: Any, address: Any, arguments: Any) -> Any:
    """Call the function of numbers at this address, as one without side effects."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        numbers = cgutils.unpack_tuple(builder, values[1])
        kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()] * len(numbers))
        function = builder.inttoptr(values[0], kind.as_pointer())
        return builder.call(function, numbers, attrs=("readnone", "nounwind"))

    return numba.float64(numba.intp, arguments), generate
