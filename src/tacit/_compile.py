"""One decorator for every compiled kernel, and a cache that cannot go stale.

Numba keys its on-disk cache by the file of the *outer* function only, though callees are compiled into it: a changed
helper in another file would silently keep running in its old form.  Here every module's kernels are cached in a folder
named after a fingerprint of that module and of all modules whose kernels it uses, directly or not.  Kernels that are
generic over policy states (`generic_kernel`) may come to include any kernel of the package, so that their fingerprint
covers all of it.

``TACIT_COMPILE=0`` in the environment switches compilation off: kernels then run as the Python functions that they
are, with the same results, about a hundred times slower.  For development: an edit takes effect at once, errors have
ordinary tracebacks, a debugger steps through.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, cast

import numba
import numba.core.config
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from tacit.errors import TacitError

Function = TypeVar("Function", bound=Callable[..., object])

COMPILES = os.environ.get("TACIT_COMPILE", "1") not in ("0", "no", "off")
"""Whether kernels are compiled; the one switch."""
_PACKAGE = Path(__file__).parent
_numba_config: Any = numba.core.config
_SETTINGS = f"numba {numba.__version__}, nogil, numpy errors"


def _stamp(path: Path) -> str:
    status = path.stat()
    name = path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else path
    return f"{name} {status.st_size} {status.st_mtime_ns}"


@cache
def _package_fingerprint() -> str:
    kernels = (path for path in sorted(_PACKAGE.rglob("*.py")) if "kernel\ndef " in path.read_text(encoding="utf-8"))
    return _digest(_SETTINGS, *map(_stamp, kernels))


def _module_fingerprint(module: ModuleType, seen: set[str]) -> str:
    """Digest of a module's file and of those that its kernels come from; imports precede kernels, so all are loaded."""
    seen.add(module.__name__)
    parts = [_SETTINGS, _stamp(Path(str(module.__file__)))]
    homes = {value.py_func.__module__ for value in vars(module).values() if isinstance(value, Dispatcher)}
    for name in sorted(homes - seen):
        if name.startswith("tacit."):
            parts.append(_module_fingerprint(sys.modules[name], seen))
    return _digest(*parts)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tacit" / "kernels"


class _OwnStates(FunctionCache):
    """A cache on disk for the package's own states alone.

    A state's class is stored by reference: one of somebody's own module could not be loaded by any other program, and
    an edit of that module would go unnoticed.
    """

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the machine code for this signature, unless it is about a foreign state."""
        kinds = [getattr(argument, "instance_class", None) for argument in data.signature.args]
        if all(kind is None or kind.__module__.startswith("tacit.") for kind in kinds):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def _jit(function: Function, *, cache: bool, inlined: bool = False) -> Function:
    inline: Literal["always", "never"] = "always" if inlined else "never"
    return cast(Function, numba.njit(cache=cache, nogil=True, error_model="numpy", inline=inline)(function))


def _compile(
    function: Function, fingerprint: Callable[[], str], *, generic: bool = False, inlined: bool = False
) -> Function:
    if not COMPILES:
        return function
    previous = _numba_config.CACHE_DIR
    if not os.environ.get("NUMBA_CACHE_DIR"):
        _numba_config.CACHE_DIR = str(_cache_root() / fingerprint())
    try:
        compiled: Any = _jit(function, cache=True, inlined=inlined)
        if generic:
            compiled._cache = _OwnStates(compiled.py_func)  # type: ignore[no-untyped-call]
    finally:
        _numba_config.CACHE_DIR = previous
    return cast(Function, compiled)


def kernel(function: Function) -> Function:
    """Compile ``function`` with the settings that every hot loop of the package shares.

    No ``fastmath``: sums must not be reordered, since sensitivity arguments and reproducible rows rest on
    the arithmetic as written.  ``error_model="numpy"`` makes a division by zero an infinity, which callers
    check, and not an exception in the middle of a round.
    """
    module = sys.modules.get(function.__module__)
    if COMPILES and getattr(module, "__file__", None) is None:
        return _jit(function, cache=False)  # typed in at a prompt: there is no file that a cache could be about
    foreign = not function.__module__.startswith("tacit.")  # whose states are classes that others cannot load
    fingerprint = partial(_module_fingerprint, sys.modules[function.__module__], set())
    return _compile(function, fingerprint, generic=foreign)


def inlined_kernel(function: Function) -> Function:
    """The same for a short kernel on a state, written out in place of each call from another kernel.

    A call hands over every array of a state and counts a reference to each: with 15 arrays that takes longer than what
    most short kernels do.
    """
    return _compile(function, lambda: _module_fingerprint(sys.modules[function.__module__], set()), inlined=True)


def generic_kernel(function: Function) -> Function:
    """The same for kernels that call the steps of whatever state they are given."""
    return _compile(function, _package_fingerprint, generic=True)


def machine_code(function: Function, types: tuple[Any, ...]) -> Function:
    """A kernel for arguments of exactly these types, without the look at types that every call of a kernel takes."""
    if not COMPILES:
        return function
    compiled: Any = function
    with explained():
        return cast(Function, compiled.compile(types))


@contextmanager
def explained() -> Iterator[None]:
    """What the compiler says of a kernel, in a sentence."""
    try:
        yield
    except NumbaError as error:
        text = re.sub(r"\x1b\[\d*m", "", str(error))
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("Failed in nopython")]
        where = re.search(r'File "([^"]+)", line (\d+)', text)
        place = f" ({where[1]}, line {where[2]})" if where else ""
        raise TacitError(
            f"a kernel does not compile: {lines[0].strip()}{place}. With TACIT_COMPILE=0 it runs as plain Python, with "
            "Python's own errors"
        ) from None
