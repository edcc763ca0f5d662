"""Processes that are going to be killed: what each is told, and a parent that has loaded everything and forks them.

A start from nothing takes seconds, most of which are imports.  The parent imports once, has neither threads nor an open
store, and forks a process for each line that it reads; so a life takes a fraction of a second.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Literal

from workloads.kills.tapped import Aim

Form = Literal["host", "http"]
ROOT: Final = Path(__file__).parents[2]
LISTENING: Final = "listening"
"""How the line begins that a process says when it has recovered."""
GONE: Final = "gone"
_PATIENCE: Final = 120.0


@dataclass(frozen=True)
class Spec:
    """What a process is told."""

    folder: str
    life: int
    seed: int = 0
    port: int = 0
    mutant: str | None = None
    aim: Aim | None = None

    def to_json(self) -> str:
        """As a line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Spec:
        """The spec that gave this line."""
        found = json.loads(line)
        return cls(**found | {"aim": found["aim"] and Aim(**found["aim"])})


class Life:
    """A process, as whoever is going to kill it sees it."""

    def __init__(self, pid: int, words: IO[bytes]) -> None:
        self.pid, self._words = pid, words
        self.listening = self.gone = False
        self.code = 0

    def hear(self, patience: float) -> bool:
        """Wait for the next thing that it says, or its end; whether there was any."""
        if not select.select([self._words], [], [], max(0.0, patience))[0]:
            return False
        line = self._words.readline().decode()
        self.listening = self.listening or line.startswith(LISTENING)
        if not line or line.startswith(GONE):
            self.gone, self.code = True, self._code(line)
        return True

    def _code(self, line: str) -> int:
        return int(line.split()[1]) if line else -1

    def settle(self) -> None:
        """Wait until it listens, or is gone."""
        while not self.listening and not self.gone:
            if not self.hear(_PATIENCE):
                raise TimeoutError(f"a process has not begun to listen in {_PATIENCE:g} seconds")

    def last(self, seconds: float) -> None:
        """Wait so long, or until it is gone."""
        end = time.monotonic() + seconds
        while not self.gone and self.hear(end - time.monotonic()):
            pass

    def ask_to_stop(self) -> None:
        """As an operator does."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> int:
        """kill -9, if it is not gone yet; its exit code."""
        if not self.gone:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        while not self.gone:
            if not self.hear(_PATIENCE):
                raise TimeoutError("a process that was killed does not end")
        return self.code


class StartedLife(Life):
    """A process that was started from nothing."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as words:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=words, bufsize=0)
        assert self._process.stdout is not None
        super().__init__(self._process.pid, self._process.stdout)

    def _code(self, line: str) -> int:
        self._words.close()
        return self._process.wait(_PATIENCE)


class Nursery:
    """The parent of forked processes of one form."""

    def __init__(self, form: Form) -> None:
        command = [sys.executable, "-m", "workloads.kills.nursery", form]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._newest: Life | None = None
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        if not line:
            raise ChildProcessError("the parent of the processes has ended")
        return line

    def bear(self, spec: Spec) -> Life:
        """Start a process; the one before must be gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(spec.to_json().encode() + b"\n")
        self._newest = Life(int(self._line()), self._process.stdout)
        return self._newest

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._newest is not None:
            self._newest.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(_PATIENCE)
