"""When processes die: while they start and recover, at work, in a commit or a snapshot, while they stop."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from workloads.kills.findings import Findings
from workloads.kills.lives import Life, StartedLife
from workloads.kills.tapped import Aim, struck

_LONGEST: Final = 0.8
"""Seconds at work before the kill, at most."""
_COMMITS, _SNAPSHOTS = 20, 3
"""Of these a process that is aimed at dies in one."""
_LONGEST_COMMIT, _LONGEST_SNAPSHOT = 0.005, 0.03
"""Seconds, about."""
_LONGEST_STOP: Final = 0.4


class Killer:
    """Decides when a process dies, and sees to it."""

    def __init__(self, folder: Path, seed: int, found: Findings) -> None:
        self._folder, self._random, self._found = folder, random.Random(seed), found
        self._starts: dict[type[Life], float] = {Life: 0.1, StartedLife: 2.5}
        """Seconds that a process takes until it listens, about."""

    def kill_one(self, start: Callable[[Aim | None], Life], *, stops: bool) -> None:
        """Start a process and kill it; it must not end in any other way.

        ``stops`` says whether it stops when it is asked to, and may be killed meanwhile.
        """
        draw = self._random.random()
        if draw < 0.3:
            self._kill(self._working(start, self._aimed()))
        elif draw < 0.4 and stops:
            self._kill_stopping(self._working(start))
        elif draw < 0.75:
            self._kill(self._working(start))
        else:
            life = start(None)
            life.last(self._random.random() * 1.2 * self._starts[type(life)])
            self._kill(life)

    def _working(self, start: Callable[[Aim | None], Life], aim: Aim | None = None) -> Life:
        """A process that has worked for a while, or has come to die where it was aimed to."""
        begun = time.monotonic()
        life = start(aim)
        life.settle()
        self._starts[type(life)] += 0.3 * (time.monotonic() - begun - self._starts[type(life)])
        life.last(_LONGEST if aim else self._random.random() * _LONGEST)
        return life

    def _aimed(self) -> Aim:
        rng = self._random
        if rng.random() < 0.5:
            return Aim("commit", rng.randint(1, _COMMITS), rng.random() * _LONGEST_COMMIT)
        return Aim("snapshot", rng.randint(1, _SNAPSHOTS), rng.random() * _LONGEST_SNAPSHOT)

    def _kill_stopping(self, life: Life) -> None:
        life.ask_to_stop()
        life.last(self._random.random() * _LONGEST_STOP)
        if life.kill() == 0:
            self._found.stopped += 1
        else:
            self._kill(life, "stop")

    def _kill(self, life: Life, place: str = "load") -> None:
        itself, code = life.gone and place == "load", life.kill()
        if itself and code == -signal.SIGKILL:
            place = struck(self._folder)[-1]
        elif not life.listening:
            place = "start"
        self._found.kills[place] += 1
        self._found.expect(code == -signal.SIGKILL, f"a process ended by itself, with code {code}: {self._log()}")

    def _log(self) -> str:
        path = self._folder / "log"
        return path.read_text()[-2_000:] if path.exists() else ""
