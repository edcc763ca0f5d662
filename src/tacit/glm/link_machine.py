"""How compiled code finds the kernels of links that were registered from outside the package.

Their addresses are in a table, which compiled code knows by the name of a symbol.  Machine code therefore does not
depend on the links that are registered: what was compiled or cached before a link was registered reaches it all the
same, and a link that is edited costs the compilation of its own four functions and of nothing else.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import numba
from llvmlite import ir
from numba import extending
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher

from tacit.errors import InvalidInput
from tacit.glm.link_table import CAPACITY, COLUMNS, FIRST_CODE, REWARD, UNKNOWN, Row, call, compile_rows

_SYMBOL = "tacit_registered_links"
_addresses = (ctypes.c_void_p * (COLUMNS * CAPACITY))()
_njit = numba.njit(nogil=True, error_model="numpy")
_intrinsic: Callable[[Callable[..., Any]], Any] = extending.intrinsic
_compiled: list[Any] = []
"""Machine code whose addresses are in the table: it lives as long as the process."""


def connect() -> None:
    """Fill the table, and let compiled code see it."""
    llvmlite.binding.add_symbol(_SYMBOL, ctypes.addressof(_addresses))
    compile_rows(_compile_row)


def _compile_row(position: int, row: Row) -> None:
    functions: tuple[Callable[..., float], ...] = row.kernels
    first = COLUMNS * position
    callbacks = [_callback(row.name, function, first + i) for i, function in enumerate(functions)]
    _compiled.extend(callbacks)
    for column, callback in enumerate(callbacks):
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
        if entry % COLUMNS == REWARD:
            return numba.cfunc(number(number, number, number))(
                lambda mean, bound, uniform: checked(mean, bound, uniform)
            )
        return numba.cfunc(number(number))(lambda z: checked(z))
    except Exception as error:  # whatever numba says about somebody's own code
        what, why = getattr(function, "__name__", repr(function)), " ".join(str(error).split())
        raise InvalidInput(f"link {name}: numba cannot compile {what}, nor what it calls: {why[:300]}") from error


@extending.overload(call)
def _compiled_call(column: Any, link: Any, arguments: Any) -> Callable[..., float]:
    def implementation(column: Any, link: Any, arguments: Any) -> float:
        position = link - FIRST_CODE
        address = _address(COLUMNS * position + column) if 0 <= position < CAPACITY else 0
        if address == 0:
            raise ValueError(UNKNOWN)
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
