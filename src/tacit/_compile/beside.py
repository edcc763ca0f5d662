"""Compilation beside the program: decisions go on interpreted while another process fills the cache.

A program that makes a handful of decisions never gets here.  Once interpreted kernels have taken `PATIENCE` seconds, a
thread loads numba and has what is missing compiled by another process (`tacit._compile.worker`); the machine code is
then loaded from the cache, and the entries' next calls run it.  Results are the same to the bit, so that nobody can
tell when the switch was, except by a clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from typing import Any

from tacit._compile.entries import Entry, Form, is_ours
from tacit._compile.kinds import Kinds
from tacit._compile.places import cache_root, can_write
from tacit.errors import CompilationWarning

PATIENCE = 0.2
"""Seconds of interpreted work after which compilation pays: about what it takes to notice."""
_POLL = 0.05
_said: set[str] = set()
Wanted = tuple[Entry[..., Any], Kinds]


class _Beside:
    """What this process has asked for."""

    def __init__(self) -> None:
        self.wanted: dict[Form, Wanted] = {}
        self.spent = 0.0
        self.thread: threading.Thread | None = None
        self.lock = threading.RLock()  # a signal handler may get here in the middle of `add`
        self.failed = False

    def add(self, entry: Entry[..., Any], kinds: Kinds, seconds: float) -> None:
        with self.lock:
            self.spent += seconds
            self.wanted.setdefault((entry.kernel.name, kinds), (entry, kinds))
            if self.spent >= PATIENCE and self.thread is None and not self.failed:
                self.start()

    def start(self) -> None:
        """Begin to work.  Where no thread can be had, as at the end of a program, decisions go on all the same."""
        self.thread = threading.Thread(target=self.work, name="tacit-compile")
        try:
            self.thread.start()
        except RuntimeError:
            self.failed, self.thread = True, None

    def take(self) -> list[Wanted]:
        """What is wanted and not there; without any, the thread is over."""
        with self.lock:
            left = [(entry, kinds) for entry, kinds in self.wanted.values() if kinds not in entry.forms]
            if not left or not _program_runs():
                self.thread = None
                return []
            return left

    def work(self) -> None:
        try:
            while wanted := self.take():
                _make(wanted)
        except Exception as error:
            self.failed, self.thread = True, None
            _say(f"kernels stay interpreted, since they could not be compiled: {error}")


_state = _Beside()


def interpreted(entry: Entry[..., Any], kinds: Kinds, seconds: float) -> None:
    """An entry ran interpreted for so long; its compiled form would be welcome."""
    _state.add(entry, kinds, seconds)


def wait() -> None:
    """Wait until everything that was asked for is compiled; what tests and benchmarks do between two measurements."""
    thread = _state.thread
    if thread is not None:
        thread.join()


def forget_after_fork() -> None:
    """A forked process has no such thread, and asks anew."""
    global _state
    _state = _Beside()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_after_fork)


def _program_runs() -> bool:
    """Whether the main thread is still there: this one must not keep a program from ending."""
    return threading.main_thread().is_alive()


def _make(wanted: list[Wanted]) -> None:
    """Compile in another process what the cache lacks, and load everything."""
    from tacit._compile import machine

    missing = [one for one in wanted if not machine.is_cached(one[0].kernel, one[1])]
    ours = [one for one in missing if is_ours((one[0].kernel.name, one[1]))]
    if ours and can_write():
        with suppress(OSError):  # where no process can be started, this one compiles
            _compile_elsewhere(ours)
    elif ours:
        _say(
            f"kernels cannot be kept in {cache_root() or 'any folder'}, so that they are compiled anew in memory each "
            "time: set TACIT_CACHE to a folder that can be written, or fill one beforehand with `tacit warm`"
        )
    for entry, kinds in wanted:
        if not _program_runs():
            return
        entry.forms[kinds] = machine.code(entry.kernel, kinds)


def _compile_elsewhere(wanted: list[Wanted]) -> None:
    """Run the worker until it is done.  Should this program end first, it goes on: the next one finds its kernels."""
    lines = [json.dumps([entry.kernel.name, kinds]) for entry, kinds in wanted]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    worker = subprocess.Popen(
        [sys.executable, "-m", "tacit._compile.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    assert worker.stdin is not None
    with worker.stdin as pipe:
        pipe.write("\n".join(lines).encode())
    while worker.poll() is None:
        if not _program_runs():
            return
        time.sleep(_POLL)


def _say(text: str) -> None:
    """Once for each text: more kernels may be asked for later, and meet the same obstacle."""
    if text not in _said:
        _said.add(text)
        warnings.warn(text, CompilationWarning, stacklevel=2)
