"""When kernels are compiled: one switch for the process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class Mode(Enum):
    """When entries are compiled."""

    NEVER = "never"
    """For development: an edit takes effect at once, errors have ordinary tracebacks, a debugger steps through."""
    BESIDE = "beside"
    """Entries run interpreted until another process has compiled them: what a policy does by default."""
    NOW = "now"
    """Each entry is compiled before its first call: for simulations, benchmarks and tests."""


def _of_environment() -> Mode:
    asked = os.environ.get("TACIT_COMPILE", "beside").lower()
    if asked in ("0", "no", "off", "never"):
        return Mode.NEVER
    return Mode.NOW if asked in ("1", "yes", "on", "now") else Mode.BESIDE


class Switch:
    """The mode of this process: that of the environment variable ``TACIT_COMPILE``, unless a program changed it."""

    mode: Mode = _of_environment()


class _Here(threading.local):
    """What holds in this thread alone."""

    compiles = False


here = _Here()


@contextmanager
def compiling_here() -> Iterator[None]:
    """In this thread entries are compiled, or loaded from the cache, before their first call; others go on as usual."""
    here.compiles = True
    try:
        yield
    finally:
        here.compiles = False


def compile_now() -> None:
    """From here on compile before the first call, unless compilation is switched off; child processes do the same."""
    if Switch.mode is Mode.BESIDE:
        Switch.mode = Mode.NOW
        os.environ["TACIT_COMPILE"] = Mode.NOW.value


@contextmanager
def compiling_now() -> Iterator[None]:
    """The same for a while, in which no other thread may call kernels; what was compiled stays so."""
    usual, environment = Switch.mode, os.environ.get("TACIT_COMPILE")
    compile_now()
    try:
        yield
    finally:
        Switch.mode = usual
        if environment is None:
            os.environ.pop("TACIT_COMPILE", None)
        else:
            os.environ["TACIT_COMPILE"] = environment
