"""Entries: kernels that Python calls, run interpreted or compiled, with the same results to the bit."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

from tacit._compile.kernels import Kernel, Steps, add, is_foreign, known
from tacit._compile.kinds import Kinds, classes_in, kind_of
from tacit._compile.modes import Mode, Switch, here

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Form = tuple[str, Kinds]
"""A compiled form of an entry: the kernel's name and the kinds of its arguments."""


def is_ours(form: Form) -> bool:
    """Whether any process can import what a form is about, so that the cache takes it."""
    name, kinds = form
    return all(owner.startswith("tacit.") for owner in {name}.union(*map(classes_in, kinds)))


class Entry(Generic[Arguments, Result]):
    """A kernel that Python calls."""

    def __init__(self, kernel: Kernel) -> None:
        kernel.entered = True
        add(kernel)
        self.kernel = kernel
        self.function: Callable[Arguments, Result] = kernel.function
        self.forms: dict[Kinds, Callable[..., Result]] = {}
        """Machine code that is loaded, by the kinds of its arguments."""
        functools.update_wrapper(self, kernel.function)

    @property
    def _numba_type_(self) -> Any:
        """What numba takes this for inside of kernels: the compiled form of the function."""
        return self.function._numba_type_  # type: ignore[attr-defined]

    def __call__(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        """Run the kernel, compiled if that is to be had."""
        if Switch.mode is Mode.NEVER or named:
            return self._plainly(*arguments, **named)
        if Switch.mode is Mode.NOW:
            return self.now(*arguments, **named)
        kinds = tuple(map(kind_of, arguments))
        form = self.forms.get(kinds)
        return self._interpret(kinds, arguments) if form is None else form(*arguments)

    def now(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        """Run it compiled, and compile it first if need be."""
        if Switch.mode is Mode.NEVER or named:
            return self._plainly(*arguments, **named)
        if _collected is not None:
            return self._interpret(tuple(map(kind_of, arguments)), arguments)
        from tacit._compile import machine

        if Switch.mode is Mode.NOW:
            return cast(Result, machine.call(self.kernel, arguments))
        kinds = tuple(map(kind_of, arguments))
        if kinds not in self.forms:
            self.forms[kinds] = machine.announced_code(self.kernel, kinds)
        return self.forms[kinds](*arguments)

    def bound_now(self, kinds: Kinds) -> Callable[..., Result]:
        """The compiled form for arguments of exactly these kinds; it is compiled first if need be."""
        if Switch.mode is Mode.NEVER:
            return self._plainly
        if _collected is not None:
            return lambda *arguments: self._interpret(kinds, arguments)
        if kinds not in self.forms:
            from tacit._compile import machine

            compiled = machine.code if Switch.mode is Mode.NOW else machine.announced_code
            self.forms[kinds] = compiled(self.kernel, kinds)
        return self.forms[kinds]

    def bound(self, kinds: Kinds, changed: Callable[[], None]) -> Callable[..., Result]:
        """The form for arguments of exactly these kinds, without the look at them that every other call takes.

        While it is interpreted, ``changed`` is called when there is a better one.
        """
        if Switch.mode is Mode.NEVER:
            return self._plainly
        if Switch.mode is Mode.NOW:
            from tacit._compile import machine

            self.forms[kinds] = machine.code(self.kernel, kinds)
        found = self.forms.get(kinds)
        if found is not None:
            return found

        def either(*arguments: Any) -> Result:
            if kinds not in self.forms and (Switch.mode is Mode.BESIDE or _collected is not None):
                return self._interpret(kinds, arguments)
            changed()
            return cast(Callable[..., Result], self)(*arguments)

        return either

    def _plainly(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with np.errstate(all="ignore"):  # compiled, an infinity or NaN comes without a word; callers check
            return self.function(*arguments, **named)

    def _interpret(self, kinds: Kinds, arguments: tuple[Any, ...]) -> Result:
        if here.compiles and _collected is None:
            return self.bound_now(kinds)(*arguments)
        start = time.perf_counter()
        try:
            return cast(Callable[..., Result], self._plainly)(*arguments)
        finally:
            if _collected is not None:
                _collected.setdefault((self.kernel.name, kinds))
            else:
                from tacit._compile import beside

                beside.interpreted(self, kinds, time.perf_counter() - start)


_collected: dict[Form, None] | None = None


def collect(action: Callable[[], object]) -> list[Form]:
    """The forms that ``action`` would run; all of it is interpreted."""
    global _collected
    usual, Switch.mode, _collected = Switch.mode, Mode.BESIDE, {}
    try:
        action()
        return list(_collected)
    finally:
        Switch.mode, _collected = usual, None


_entries: dict[Callable[..., Any], Entry[..., Any]] = {}


def as_entry(function: Callable[Arguments, Result]) -> Entry[Arguments, Result]:
    """The entry of a kernel, or of a function that is to be one: a plain one, or one that numba has decorated."""
    if isinstance(function, Entry):
        return function
    plain = getattr(function, "py_func", function)
    if plain not in _entries:
        _entries[plain] = Entry(known.kernels.get(plain) or Kernel(plain, allocates=is_foreign(plain)))
    return cast(Entry[Arguments, Result], _entries[plain])


def entry(function: Callable[Arguments, Result]) -> Entry[Arguments, Result]:
    """A kernel that Python calls.  Kernels that call it too get its compiled form."""
    return _made(function, Kernel(function, allocates=is_foreign(function)))


def allocating_entry(function: Callable[Arguments, Result]) -> Entry[Arguments, Result]:
    """The same for a kernel that makes arrays of its own, or hands out an array."""
    return _made(function, Kernel(function, allocates=True))


def generic_entry(steps: Steps) -> Callable[[Callable[Arguments, Result]], Entry[Arguments, Result]]:
    """The same for kernels that call the steps of whatever state they are given as their first argument.

    ``steps`` gives the kernels that names in the function stand for, by the class of the state.
    """
    return lambda function: _made(function, Kernel(function, generic=True, steps=steps))


def _made(function: Callable[Arguments, Result], kernel: Kernel) -> Entry[Arguments, Result]:
    made: Entry[Arguments, Result] = Entry(kernel)
    _entries[function] = made
    return made
