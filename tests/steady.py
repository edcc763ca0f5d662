"""Noise that is the same in every run of a test, though the policies that draw it have no seed.

A served policy takes no seed, and a test that checks what is released would otherwise fail now and then.  While tests
run, the one function that reads the operating system's entropy (`tacit.privacy.system_entropy.read`) is replaced by a
tape: bytes of a generator that the test's own name seeds.  What a fixture of a wider scope draws comes from a tape of
the fixture's name, so that it does not matter which test needs it first.

Not covered: processes that a test starts, which read the operating system's entropy as they would anywhere; and the
order of draws among threads of one test.  Tests of either say what their chance to fail is, or hold for every noise.
A test about the entropy itself is marked ``system_entropy`` and reads the real one.

``TACIT_TEST_TAPES=anything`` gives all tests other tapes: so one finds out which of them rest on the noise.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

import numpy as np

from tacit.privacy import system_entropy

MARK = "system_entropy"
OTHERS = "TACIT_TEST_TAPES"
_READ = system_entropy.read


class Tape:
    """Bytes that follow from a name; threads take turns."""

    def __init__(self, name: str) -> None:
        self.name = name
        digest = hashlib.sha256(f"{os.environ.get(OTHERS, '')}{name}".encode()).digest()
        key = int.from_bytes(digest[:16], "little")
        self._generator, self._turn = np.random.Generator(np.random.Philox(key=key)), threading.Lock()

    def read(self, count: int) -> bytes:
        """The next so many of them."""
        with self._turn:
            return self._generator.bytes(count)


@contextmanager
def entropy_of(name: str | None) -> Iterator[None]:
    """Draw from the tape of this name meanwhile, or from the operating system; then as before."""
    before = system_entropy.read
    system_entropy.read = _READ if name is None else Tape(name).read
    try:
        yield
    finally:
        system_entropy.read = before


class Effort(NamedTuple):
    """What a piece of work costs, in measures that are the same on every machine, however busy it is."""

    calls: int
    """Functions that it calls, in Python and in C."""
    peak: int
    """Bytes that it holds at a time, at most."""


def effort_of(work: Callable[[], object]) -> Effort:
    """Do it, and count; what it needs to be done once, such as imports and caches, should be there."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return Effort(calls, peak)
