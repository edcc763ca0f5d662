"""A private state goes on in one place: one call at a time, one process, one holder of its last file.

Noise drawn twice for one release can be averaged away, and a row counted twice costs twice its charge.  So calls of a
policy are serialised by a lock, a forked child is refused, and after a save whoever goes on first, the object or the
file, takes the other's right away (docs/theory.md, "Assumptions").
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from weakref import WeakSet

from tacit.errors import CannotCopy, TacitError
from tacit.policies.persistence import Claim

_INSTEAD = (
    "noise drawn twice for one release is a privacy loss. To move the policy, save it and load the file in one place; "
    "to serve from several processes, let one of them own the policy and ask it"
)
_LIVES: WeakSet[OneLife] = WeakSet()
"""Every life of this process, for the children that it forks."""


class OneLife:
    """The lock, process and claim of one policy; a context manager around every call that touches its state."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._process = os.getpid()
        self._forked = False
        self._lock = threading.RLock()
        self._entered = False
        self._claim: Claim | None = None
        _LIVES.add(self)

    def __enter__(self) -> None:
        # Before the lock: a child that was forked while another thread held it would wait for ever.
        if self._private and (self._forked or self._process != os.getpid()):
            raise CannotCopy(f"this policy belongs to process {self._process}, of which this one is a fork: {_INSTEAD}")
        self._lock.acquire()
        if self._entered:  # a lock that one thread may take twice: a plain one would wait for ever here
            self._lock.release()
            raise TacitError(
                "this thread is inside another call of the policy, whose state is between two steps: a signal handler "
                "or callback must not use it. Let it set a flag, and look at that after the call"
            )
        self._entered = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        self._lock.release()

    def begin_child(self) -> None:
        """In a forked child: a private life ended there; any other gets a lock that nobody holds."""
        self._forked = True
        self._lock, self._entered = threading.RLock(), False

    def go_on(self) -> None:
        """Learn or draw: takes the right to go on from the file of the last save, or raises when it is taken."""
        if self._claim is not None:
            self._claim.take()
            self._claim = None

    def saved(self, claim: Claim) -> None:
        """The state was written to a file, which may be resumed in its place from now on."""
        self._claim = claim if self._private else None

    def refuse_copies(self, how: str) -> None:
        """Raise, unless there is nothing private to protect."""
        if self._private:
            raise CannotCopy(f"a private policy cannot be {how}: {_INSTEAD}")


def _begin_child() -> None:
    for life in list(_LIVES):
        life.begin_child()


if hasattr(os, "register_at_fork"):  # process ids alone may repeat: in another namespace, or after the parent's end
    os.register_at_fork(after_in_child=_begin_child)
