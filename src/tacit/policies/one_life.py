"""A private state goes on in one place: one call at a time, one process, one holder of its last file.

Noise drawn twice for one release can be averaged away, and a row counted twice costs twice its charge.  So calls of a
policy are serialised by a lock, a forked child is refused, and after a save the first of the object and the file that
goes on takes the other's right away (docs/theory.md, "Assumptions").
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from tacit.errors import CannotCopy, TacitError
from tacit.policies.persistence import Claim

_INSTEAD = (
    "noise drawn twice for one release is a privacy loss. To move the policy, save it and load the file in one place; "
    "to serve from several processes, let one of them own the policy and ask it"
)
_REENTERED = (
    "this thread is inside another call of the policy, whose state is between two steps: a signal handler or callback "
    "must not use it. Let it set a flag, and look at that after the call"
)
_WIPE_ON_FORK = 18
"""Linux's MADV_WIPEONFORK, for which Python has no name."""


class _ByProcess:
    """A mark like the page of `_fork_mark` where memory cannot be wiped: a system call for each look."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def __getitem__(self, index: int) -> int:
        return int(self._process == os.getpid())

    def __setitem__(self, index: int, value: int) -> None:
        self._process = os.getpid()


def _fork_mark() -> Any:
    """Page whose first byte reads 1 here and 0 after any fork.

    Servers that fork in C before they know of Python run none of its hooks; but the kernel wipes the page for them.
    """
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_WIPE_ON_FORK)
    except (AttributeError, OSError, ValueError):
        return _ByProcess()
    page[0] = 1
    return page


ALIVE: Any = _fork_mark()
make_lock: Callable[[], Any] = threading.RLock
make_running: Callable[[], Any] = threading.Lock
_LIVES: WeakSet[PolicyLife] = WeakSet()
"""Every life of this process, for the children that it forks."""


def _forked(process: int) -> CannotCopy:
    return CannotCopy(f"this policy belongs to process {process}, of which this one is a fork: {_INSTEAD}")


class _Ended:
    """The lock of a private policy in a process that was forked from its own."""

    def __init__(self, process: int) -> None:
        self._process = process

    def __enter__(self) -> None:
        raise _forked(self._process)

    def __exit__(self, *error: object) -> None:
        """Never reached."""


class PolicyLife:
    """The locks, process and claim of one policy.

    Every call that touches the state is made inside ``with life.free(), life.turn()``, or, where nanoseconds count, by
    the parts of these.  Other threads wait at ``lock``, which lets its own thread in again; a call that has passed it
    and finds ``running`` locked is inside of another call of the same thread.  Both are context managers by themselves,
    so that no signal can come between their being taken and noted.
    """

    def __init__(self, *, private: bool) -> None:
        if not ALIVE[0]:
            begin_child()
        self._private = private
        self._process = os.getpid()
        self.lock: Any = make_lock()
        self.running: Any = make_running()
        self.claim: Claim | None = None
        """Claim of the last saved file; None once it was resumed."""
        _LIVES.add(self)

    def free(self) -> Any:
        """The lock to wait at, of this process: one that was forked by C code has yet to be told."""
        if not ALIVE[0]:
            begin_child()
        return self.lock

    def turn(self) -> Any:
        """The lock to hold during a call, for a thread that holds ``free`` already; raises inside of another call."""
        if self.running.locked():
            raise TacitError(_REENTERED)
        return self.running

    def begin_child(self) -> None:
        """In a forked child: a private life ended there; any other gets locks that no thread holds."""
        self.lock, self.running = _Ended(self._process) if self._private else make_lock(), make_running()

    def go_on(self) -> None:
        """Learn or draw: takes the right to go on from the file of the last save, or raises when it is taken."""
        if self.claim is not None:
            self.claim.take()
            self.claim = None

    def saved(self, claim: Claim) -> None:
        """The state is about to be written to a file, which may be resumed in its place from then on."""
        self.claim = claim if self._private else None

    def refuse_copies(self, how: str) -> None:
        """Raise, unless there is nothing private to protect."""
        if self._private:
            raise CannotCopy(f"a private policy cannot be {how}: {_INSTEAD}")


def begin_child() -> None:
    """In a forked child, before anything else: no life of the parent goes on here."""
    for life in list(_LIVES):
        life.begin_child()
    ALIVE[0] = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin_child)
