"""The campaign through HTTP: `tacit serve` is killed again and again under clients and pollers."""

from __future__ import annotations

import itertools
import random
import socket
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Final

from workloads.kills.callers import Caller
from workloads.kills.comparison import compare
from workloads.kills.connection import HOST, Address
from workloads.kills.findings import Findings, Witness
from workloads.kills.killing import Killer
from workloads.kills.lives import Life, Nursery, Spec, StartedLife
from workloads.kills.pollers import Page, Poller, Reader
from workloads.kills.shown import Shown
from workloads.kills.tapped import Aim
from workloads.kills.world import BODIES

CONNECTIONS: Final = 12
ENOUGH: Final = 100
"""Decisions, rewards, releases and polls without which a campaign says little."""
_REAL_EVERY: Final = 50
_FIRST_REAL: Final = 10
"""Every so many kills, from this one on, the process was started from nothing."""
_PORTS: Final = range(15_000, 30_000)
"""Below those that systems give to clients: a client that connects to its own port would talk to itself."""


def free_port() -> int:
    """A port that nobody listens on."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        try:
            socket.create_server((HOST, port)).close()
        except OSError:
            continue
        return port
    raise OSError("no port is free")


class Campaign:
    """One store, whose service is killed under load."""

    def __init__(self, folder: Path, seed: int, connections: int, mutant: str | None) -> None:
        self.found = Findings()
        self._folder, self._mutant, self._random = folder, mutant, random.Random(seed)
        self._address = Address(free_port(), folder / "store")
        self._lives = itertools.count()
        self._witnesses = {name: Witness(name, self.found) for name in BODIES}
        numbers, made = itertools.count(1), threading.Event()
        seeds = [self._random.randrange(1 << 30) for _ in range(connections)]
        self._callers = [Caller(self._address, self._witnesses, numbers, made, each) for each in seeds]
        shown = {name: Shown(witness) for name, witness in self._witnesses.items()}
        self._pollers: list[Poller] = [kind(self._address, shown, made) for kind in (Reader, Page)]

    def run(self, kills: int, most: int, nursery: Nursery) -> Findings:
        """Kill as often as asked, or until something is wrong; then look at everything.

        On a slow machine little happens between two kills: then it goes on until enough has, or ``most`` are done.
        """
        for thread in (*self._callers, *self._pollers):
            thread.start()
        killer = Killer(self._folder, self._random.randrange(1 << 30), self.found)
        while (number := self.found.kills.total()) < (most if self._too_little() else kills) and not self.found.wrong:
            real = number % _REAL_EVERY == _FIRST_REAL and self._mutant is None
            killer.kill_one(self._started if real else partial(self._born, nursery), stops=not real)
            self.found.real_starts += real
        self._finish(self._born(nursery, None))
        self.found.polls = sum(poller.polls for poller in self._pollers)
        compare(self._folder, next(self._lives), self._witnesses)
        return self.found

    def _too_little(self) -> bool:
        """Whether something has not happened, or not often, that the campaign is about."""
        own, kills = self._witnesses.values(), self.found.kills
        often = (
            sum(len(witness.arms) for witness in own),
            sum(len(witness.rewards) for witness in own),
            sum(len(witness.estimates) for witness in own),
            sum(poller.polls for poller in self._pollers),
        )
        rare = (
            sum(len(witness.abandoned) for witness in own),
            sum(len(witness.expired) for witness in own),
            *(kills["start"], kills["load"], kills["commit"] + kills["snapshot"]),
        )
        return min(often) <= ENOUGH or min(rare) == 0

    def _born(self, nursery: Nursery, aim: Aim | None) -> Life:
        """A process that was forked."""
        life = next(self._lives)
        return nursery.bear(Spec(str(self._folder), life, port=self._address.port, mutant=self._mutant, aim=aim))

    def _started(self, aim: Aim | None) -> Life:
        """A process that was started from nothing.

        Its store has no taps, and the next life keeps its log; so it must not stop by itself, which would erase that.
        """
        place = ("--data", str(self._address.store), "--port", str(self._address.port))
        command = [sys.executable, "-m", "tacit", "serve", *place, "--no-log-requests"]
        return StartedLife(command, self._folder / "log")

    def _finish(self, life: Life) -> None:
        """Let everybody be answered and look once more; then the last kill, which nobody waits for."""
        life.settle()
        for threads in (self._callers, self._pollers):
            for thread in threads:
                thread.stop()
            for thread in threads:
                thread.join()
        life.kill()


def campaign(
    folder: Path,
    kills: int,
    seed: int,
    mutant: str | None = None,
    *,
    nursery: Nursery | None = None,
    connections: int = CONNECTIONS,
    most: int = 0,
) -> Findings:
    """Kill as often as asked, and up to ``most`` times if little happens; then look at everything."""
    if nursery is not None:
        return Campaign(folder, seed, connections, mutant).run(kills, max(kills, most), nursery)
    with Nursery("http") as own:
        return Campaign(folder, seed, connections, mutant).run(kills, max(kills, most), own)
