"""Kernels before anything is compiled: what they are, and what the compiler will be told of them.

A *kernel* is a Python function on numbers, arrays and tuples of them, in the part of Python that numba compiles.  Its
name stays bound to the function itself: interpreted kernels call each other as plain functions.  What Python calls is
an *entry* (`tacit._compile.entries`).  Only entries are compiled with a way in from Python; all other kernels are
compiled as parts of them.

Nothing here imports numba, which takes longer than the first hundred decisions (`tacit._compile.machine` does).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Steps = Callable[[type], dict[str, Callable[..., Any]]]
"""For a class of states, the kernels that names in a generic function stand for."""


@dataclass(eq=False)
class Kernel:
    """What the compiler is told of a kernel."""

    function: Callable[..., Any]
    allocates: bool = False
    inlined: bool = False
    generic: bool = False
    """Whether it is about whatever state it is given, whose class and steps can be in any module."""
    steps: Steps | None = None
    entered: bool = False
    """Whether Python calls it."""

    @property
    def name(self) -> str:
        """Where the kernel is found, as ``module:name``."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


@dataclass
class _Known:
    """All kernels, and what is to be done when the compiler is loaded."""

    kernels: dict[Callable[..., Any], Kernel] = field(default_factory=dict)
    on_load: list[Callable[[], None]] = field(default_factory=list)
    attach: Callable[[Kernel], None] | None = None
    """What tells the compiler of a kernel, once it is loaded."""


known = _Known()


def add(kernel: Kernel) -> None:
    """Let the compiler know of a kernel, now or when it is loaded."""
    known.kernels[kernel.function] = kernel
    if known.attach is not None:
        known.attach(kernel)


def when_compiler_loads(action: Callable[[], None]) -> None:
    """Have ``action``, which may import numba, run before anything is compiled: at once if numba is loaded already."""
    known.on_load.append(action)
    if known.attach is not None:
        action()


def is_foreign(function: Callable[..., Any]) -> bool:
    """Whether a function is not the package's own.  Foreign kernels may do what numba can do, and allocate."""
    return not function.__module__.startswith("tacit.")


def kernel(function: Function) -> Function:
    """A kernel that other kernels call.

    Compiled without ``fastmath``: sums must not be reordered, since sensitivity arguments and reproducible rows rest on
    the arithmetic as written.  A division by zero is an infinity, which callers check.  Nothing is allocated, and no
    references to arrays are counted: with 15 arrays in a state that would take longer than what most kernels do.
    Kernels of other packages may do what numba can do, array expressions included.
    """
    add(Kernel(function, allocates=is_foreign(function)))
    return function


def allocating_kernel(function: Function) -> Function:
    """The same for a kernel that makes arrays of its own, or hands out an array."""
    add(Kernel(function, allocates=True))
    return function


def inlined_kernel(function: Function) -> Function:
    """The same for a short kernel on a state, written out in place of each call from another kernel.

    A call hands over every array of a state: with 15 arrays that takes longer than what most short kernels do.
    """
    add(Kernel(function, inlined=True, allocates=is_foreign(function)))
    return function


def generic_kernel(function: Function) -> Function:
    """The same for kernels on any state that has certain fields, whatever its class."""
    add(Kernel(function, generic=True))
    return function


def resolved_by_type(function: Callable[..., Any], chosen: Callable[..., Any]) -> None:
    """Inside of kernels, ``function`` stands for the kernel that ``chosen`` gives for the types of its arguments.

    A named tuple's type has the tuple's class as ``instance_class``.  ``chosen`` has the parameters of ``function``.
    A call, not ``inline="always"``: with such overloads numba 0.68 compiled the ``advance`` of `stream-glm` to wrong
    results, without a word, once its filter was an inlined kernel.  What exactly sets it off is not known.
    """

    def tell() -> None:
        from numba.extending import overload

        overload(function, strict=False)(chosen)

    when_compiler_loads(tell)
