"""Kernels as machine code: everything that needs numba.

Importing this module loads numba and tells it of all kernels.  A kernel's name in a module is the Python function
itself; numba finds the compiled form through its attribute ``_numba_type_``.
"""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import numba
import numpy as np
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from tacit._compile.cache import KernelCache
from tacit._compile.kernels import Kernel, known
from tacit._compile.kinds import FLOAT, INTEGER, TRUTH, Kind, Kinds, class_name, found
from tacit.errors import TacitError

_NUMBERS = {TRUTH: types.boolean, INTEGER: types.int64, FLOAT: types.float64}
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_dispatchers: dict[Callable[..., Any], Dispatcher] = {}
_of_states: dict[tuple[Callable[..., Any], str], Dispatcher] = {}
"""Those of generic kernels, by the class of the state."""
_lock = threading.RLock()


def _attach(kernel: Kernel) -> None:
    """Make numba see the compiled form wherever another kernel names this one."""
    function: Any = kernel.function
    if kernel.steps is None:
        _dispatchers[function] = _dispatcher(kernel, function)
        function._numba_type_ = types.Dispatcher(_dispatchers[function])
    if kernel.inlined:  # what numba looks at to write a function out in place of its call
        function.targetoptions, function.py_func = {"inline": "always"}, function


def _dispatcher(kernel: Kernel, function: Callable[..., Any]) -> Dispatcher:
    inline = "always" if kernel.inlined else "never"
    options = _OPTIONS | {"inline": inline, "_nrt": kernel.allocates, "no_cpython_wrapper": not kernel.entered}
    made: Any = numba.njit(**options)(function)
    made._cache = KernelCache(kernel)
    return cast(Dispatcher, made)


def _dispatcher_for(kernel: Kernel, state_type: str) -> Any:
    """The dispatcher of a kernel, or of a generic one with the steps of this class of states in place."""
    if kernel.steps is None:
        return _dispatchers[kernel.function]
    key = kernel.function, state_type
    if key not in _of_states:
        generic: Any = kernel.function
        names = generic.__globals__ | kernel.steps(found(state_type))
        special = FunctionType(generic.__code__, names, generic.__name__, generic.__defaults__)
        special.__module__, special.__qualname__ = generic.__module__, generic.__qualname__
        _of_states[key] = _dispatcher(kernel, special)
    return _of_states[key]


def numba_type(kind: Kind) -> Any:
    """The type that numba has for a kind."""
    if isinstance(kind, str):
        return _NUMBERS[kind]
    if kind[0] == "array":
        _, numbers, axes, order, writable = kind
        return types.Array(numba.from_dtype(np.dtype(numbers)), axes, order, readonly=not writable)
    inner = tuple(map(numba_type, kind[2]))
    return types.BaseTuple.from_types(inner, found(kind[1]) if kind[1] else None)


def code(kernel: Kernel, kinds: Kinds) -> Callable[..., Any]:
    """Machine code for arguments of these kinds: from the cache, else compiled now."""
    with _lock:
        collects = gc.isenabled()
        gc.disable()  # a compiler makes millions of objects and hardly any garbage: a tenth of its time
        try:
            dispatcher = _dispatcher_for(kernel, _state_in(kinds))
            return cast(Callable[..., Any], dispatcher.compile(tuple(map(numba_type, kinds))))
        except NumbaError as error:
            raise _explanation(error) from None
        finally:
            if collects:
                gc.enable()


def announced_code(kernel: Kernel, kinds: Kinds) -> Callable[..., Any]:
    """The same, with a word to whoever waits for a compiler in the middle of a program of their own."""
    if not is_cached(kernel, kinds):
        what = _state_in(kinds).partition(":")[2] or kernel.function.__name__
        print(f"tacit: compiling {what}, once; `tacit warm` does it beforehand", file=sys.stderr, flush=True)
    return code(kernel, kinds)


def is_cached(kernel: Kernel, kinds: Kinds) -> bool:
    """Whether `code` would find it in the cache."""
    with _lock:
        dispatcher = _dispatcher_for(kernel, _state_in(kinds))
        signature = tuple(map(numba_type, kinds))
        return signature in dispatcher.overloads or dispatcher._cache.holds(signature, dispatcher.targetctx.codegen())


def call(kernel: Kernel, arguments: tuple[Any, ...]) -> Any:
    """Run the compiled form, which is compiled first if need be."""
    if kernel.steps is None:
        dispatcher: Any = _dispatchers[kernel.function]
    else:
        dispatcher = _dispatcher_for(kernel, class_name(type(arguments[0])))
    try:
        return dispatcher(*arguments)
    except NumbaError as error:
        raise _explanation(error) from None


def _state_in(kinds: Kinds) -> str:
    first = kinds[0]
    return "" if isinstance(first, str) or first[0] != "tuple" else first[1]


def _explanation(error: NumbaError) -> TacitError:
    """What the compiler says of a kernel, in a sentence."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip() and "Failed in nopython" not in line]
    where = re.search(r'File "([^"]+)", line (\d+)', text)
    place = f" ({where[1]}, line {where[2]})" if where else ""
    if "NRT required" in text:
        lines[0] = "it makes an array, or assigns one to another, which takes @allocating_kernel"
    return TacitError(
        f"a kernel does not compile: {lines[0]}{place}. With TACIT_COMPILE=0 it runs as plain Python, with Python's "
        "own errors"
    )


def _load() -> None:
    with _lock:
        for kernel in list(known.kernels.values()):
            _attach(kernel)
        known.attach = _attach
        for action in known.on_load:
            action()


_load()
