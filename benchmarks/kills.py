"""kill -9 under load: nothing acknowledged is lost or counted twice, and no release is seen with two values.

    python benchmarks/kills.py --kills 1000

A process serves two policies from a store in a folder, with groups of several requests, repeated ids, rewards that are
held, default rewards and frequent snapshots.  It writes down what it is about to commit, what was acknowledged, and
what others could see.  It is killed at random moments, also while it recovers, and started again on the same folder.
In the end the whole log, from the first snapshot on, is replayed undisturbed and compared with the last recovery.

``--mutant`` breaks the process in a stated way; the campaign must then fail.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tacit.policies.log import Abandoned, Decided, Entry, Rewarded
from tacit.policies.policy import Policy
from tacit.policies.registry import restore
from tacit.policies.replay import ReplayingPublisher
from tacit.policies.state import flatten
from tacit.privacy.continual import Stream, close_leaf_from_python, leaf_is_due
from tacit.service.deployment import Deployment, Served
from tacit.service.host import Answer, Refusal, Request
from tacit.service.packing import unpack_entry, unpack_snapshot
from tacit.service.published import publish
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Group, Lease
from tacit.typing import FloatArray

DIM: Final = 3
BODIES: Final[dict[str, dict[str, Any]]] = {
    "linear": {
        "policy": "joint-linucb",
        "factorization": "tree",
        "default_reward": 0.0,
        "hold": True,
        "reward_wait": 0.08,
        "event_memory": 1e6,
    },
    "stream": {"policy": "stream-glm", "hold": False, "reward_wait": 0.08, "event_memory": 1e6},
}
SHARED: Final[dict[str, Any]] = {"dim": DIM, "epsilon": 4.0, "delta": 0.01, "theta_bound": 2.0}
MUTANTS: Final = ("answers-first", "draws-again", "publishes-first")
_FRAME: Final = struct.Struct("<QI")
_UNIT: Final = float(1 << 30)
"""Rewards are numbers of their decisions in units of this: each says whose it is."""
_EVERY: Final = 60
"""Entries between snapshots."""
_LONGEST_LIFE: Final = 0.5


def arms_of(number: int) -> FloatArray:
    """Arms that no other decision has."""
    rows = np.random.default_rng(number).standard_normal((4, DIM))
    return np.asarray(0.9 * rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float64)


# The process that is killed


class TappedStore(SQLiteStore):
    """Writes every group to an archive before it is committed, and keeps the first snapshot of each journal."""

    archive: Path

    def append(self, lease: Lease, seq: int, group: Group) -> int:
        frames = [_FRAME.pack(n, len(entry)) + entry for n, entry in enumerate(group.entries, seq + 1)]
        if frames:
            _write(self.archive / f"{lease.journal}.log", b"".join(frames))
        return self._commit(lease, seq, group)

    def _commit(self, lease: Lease, seq: int, group: Group) -> int:
        return super().append(lease, seq, group)

    def compact(self, lease: Lease, seq: int, snapshot: bytes) -> None:
        first = self.archive / f"{lease.journal}.first"
        if not first.exists():
            part = first.with_suffix(".part")
            part.write_bytes(snapshot)
            part.rename(first)
        super().compact(lease, seq, snapshot)


class LateStore(TappedStore):
    """The mutant ``answers-first``: a group is committed a moment after it was acknowledged."""

    _late: threading.Thread | None = None

    def append(self, lease: Lease, seq: int, group: Group) -> int:
        self.finish()
        self._late = threading.Thread(target=self._later, args=(lease, seq, group))
        self._late.start()
        return seq + len(group.entries)

    def _later(self, lease: Lease, seq: int, group: Group) -> None:
        time.sleep(0.01)
        super().append(lease, seq, group)

    def finish(self) -> None:
        if self._late is not None:
            self._late.join()

    def find(self, *given: Any) -> Any:
        self.finish()
        return super().find(*given)

    def scan(self, *given: Any) -> Any:
        self.finish()
        return super().scan(*given)

    def compact(self, *given: Any) -> None:
        self.finish()
        super().compact(*given)


def _draw_again() -> None:
    """The mutant ``draws-again``: a recovery draws what was committed anew."""
    usual = ReplayingPublisher.leaf

    def leaf(self: ReplayingPublisher, stream: Stream, noise: FloatArray, users: int) -> bool:
        if not leaf_is_due(stream):
            return usual(self, stream, noise, users)
        self._next("leaf")
        return close_leaf_from_python(stream, noise, users)

    ReplayingPublisher.leaf = leaf  # type: ignore[method-assign]


def _publish_first(served: Served) -> None:
    """The mutant ``publishes-first``: others see a group before it is committed."""
    host, usual = served.host, served.host.journal.commit

    def commit() -> None:
        if host.journal.released_in_group:
            number = host.published.releases + host.journal.released_in_group
            host.published = publish(host.journal.policy, "online", number, ())
            time.sleep(0.01)
        usual()

    host.journal.commit = commit  # type: ignore[method-assign]


def _write(path: Path, data: bytes) -> None:
    """All of it in one call, which a kill does not tear."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


class Life:
    """One life of the process: load until it is killed."""

    def __init__(self, folder: Path, seed: int, mutant: str | None) -> None:
        self._folder, self._random = folder, random.Random(seed)
        if mutant == "draws-again":
            _draw_again()
        store = (LateStore if mutant == "answers-first" else TappedStore)(folder / "store")
        store.archive = folder
        self._deployment = Deployment(store)
        for name, body in BODIES.items():
            served, _ = self._deployment.put(name, SHARED | body)
            served.host.journal._every = _EVERY
            if mutant == "publishes-first":
                _publish_first(served)
        self._numbers = {name: _last_number(folder, name) for name in BODIES}

    def run(self) -> None:
        """Work until the end of the process; somebody else looks all the time."""
        threading.Thread(target=self._look, daemon=True).start()
        end = time.monotonic() + 30.0
        while time.monotonic() < end:
            for name in BODIES:
                self._group(self._deployment.get(name))
            if self._random.random() < 0.2:
                time.sleep(0.01)
                self._deployment.tick()

    def _look(self) -> None:
        seen: dict[str, Any] = {}
        while True:
            for name in BODIES:
                found = self._deployment.get(name).host.published
                if found is not seen.get(name) and found.estimate is not None:
                    seen[name] = found
                    look = [found.releases, np.array(found.estimate).tobytes().hex(), found.decisions]
                    self._note({"policy": name, "seen": look})
            time.sleep(0.0005)

    def _note(self, what: dict[str, Any]) -> None:
        _write(self._folder / "told", json.dumps(what).encode() + b"\n")

    def _group(self, served: Served) -> None:
        """New decisions, old ones again, rewards new and old, all in one group; then what was answered."""
        newest, rng = self._numbers[served.name], self._random
        fresh = list(range(newest + 1, newest + 1 + rng.randrange(1, 5)))
        self._numbers[served.name] = fresh[-1]
        asked = fresh + [rng.randint(max(1, newest - 30), newest) for _ in range(rng.randrange(3)) if newest]
        rewarded = [rng.randint(max(1, newest - 12), fresh[-1]) for _ in range(rng.randrange(6))]
        self._note({"policy": served.name, "asked": asked})
        requests: list[Request] = [
            served.intake.decision("n", contexts=arms_of(number).tolist(), event_id=str(number))[1] for number in asked
        ]
        requests += [served.intake.reward("n", str(number), reward=number / _UNIT) for number in rewarded]
        answers = served.host.process(requests)
        decided = [[n, a.arm] for n, a in zip(asked, answers, strict=False) if isinstance(a, Answer)]
        late = answers[len(asked) :]
        told = [[n, a.name if isinstance(a, Refusal) else "ok"] for n, a in zip(rewarded, late, strict=True)]
        self._note({"policy": served.name, "decided": decided, "rewarded": told, "expected": len(asked)})


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    """What all lives have told, in order; a line that a kill has torn is left out."""
    path = folder / "told"
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def _last_number(folder: Path, name: str) -> int:
    return max((max(told["asked"]) for told in _lines(folder) if told["policy"] == name and "asked" in told), default=0)


def zygote() -> None:
    """Loads everything once, then forks a life for each line that it reads; says its number."""
    with tempfile.TemporaryDirectory() as folder:
        deployment = Deployment(SQLiteStore(Path(folder) / "store"))
        for name, body in BODIES.items():
            served, _ = deployment.put(name, SHARED | body)
            for number in range(5):
                request = served.intake.decision("n", contexts=arms_of(number).tolist(), event_id=str(number))[1]
                served.host.process([request, served.intake.reward("n", str(number), reward=0.5)])
        deployment.close()
    print("ready", flush=True)
    for line in sys.stdin:
        folder_name, seed, mutant = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                Life(Path(folder_name), seed, mutant).run()
            except BaseException as error:
                _write(Path(folder_name) / "errors", f"{error!r}\n".encode())
            os._exit(1)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("gone", flush=True)


# The campaign


@dataclass
class Findings:
    """What a campaign has seen; ``wrong`` is empty where all is well."""

    kills: int = 0
    decisions: int = 0
    rewards: int = 0
    releases: int = 0
    entries: int = 0
    wrong: list[str] = field(default_factory=list)

    def expect(self, right: bool, words: str) -> None:
        """Note what is wrong, unless it is right."""
        if not right:
            self.wrong.append(words)


def campaign(folder: Path, kills: int, seed: int, mutant: str | None = None) -> Findings:
    """Kill as often as asked, then look at everything."""
    rng, found = random.Random(seed), Findings()
    command = [sys.executable, str(Path(__file__).resolve()), "--zygote"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(kills):
            process.stdin.write(json.dumps([str(folder), rng.randrange(1 << 30), mutant]) + "\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            time.sleep(rng.random() * _LONGEST_LIFE)
            os.kill(child, signal.SIGKILL)
            process.stdout.readline()
            found.kills += 1
        process.stdin.close()
    errors = folder / "errors"  # a store that is found damaged, a failed commit: whatever ends a life but a kill
    found.expect(not errors.exists(), f"a life ended by itself: {errors.read_text() if errors.exists() else ''}")
    for name in BODIES:
        _check_policy(folder, name, found)
    return found


def _check_policy(folder: Path, name: str, found: Findings) -> None:
    arms, rewards = _check_told(folder, name, found)
    clock = [time.monotonic()]
    store = SQLiteStore(folder / "store")
    try:
        deployment = Deployment(store, clock=lambda: clock[0])
        host = deployment.get(name).host
        recovered, seq = host.journal.policy, host.journal.seq
        value = np.array(host.published.estimate).tobytes().hex()
        seen = dict(_seen(folder, name)).get(host.published.releases, value)
        found.expect(seen == value, f"{name}: the last recovery shows another release")
        _check_replay(folder, name, seq, recovered, found)
        clock[0] += 1e3  # everything that waits is settled
        host.journal._every = 1 << 40
        before = host.journal.seq
        while host.unsettled:
            host.process(())
        rest = [unpack_entry(entry) for entry in store.claim(name).entries][before - host.journal.snapshot_seq :]
        _check_contributions(name, _archived(folder, name, seq) + rest, arms, rewards, found)
    finally:
        store.close()


def _seen(folder: Path, name: str) -> Iterator[tuple[int, str]]:
    for told in _lines(folder):
        if told["policy"] == name and "seen" in told:
            yield told["seen"][0], told["seen"][1]


def _check_told(folder: Path, name: str, found: Findings) -> tuple[dict[int, int], set[int]]:
    """Arms and rewards that were acknowledged; each id has one arm, each number of releases one value."""
    arms: dict[int, int] = {}
    rewards, expired = set[int](), set[int]()
    for told in _lines(folder):
        if told["policy"] != name or "decided" not in told:
            continue
        found.expect(len(told["decided"]) == told["expected"], f"{name}: a decision was refused")
        for number, arm in told["decided"]:
            found.expect(arms.setdefault(number, arm) == arm, f"{name}: decision {number} has two arms")
        for number, answer in told["rewarded"]:
            if answer == "ok":
                rewards.add(number)
                found.expect(number not in expired, f"{name}: reward {number} was taken after it had expired")
            elif answer == "EXPIRED":
                expired.add(number)
            elif answer != "UNKNOWN_EVENT" or number in arms:  # asked for, and never acknowledged: there may be none
                found.wrong.append(f"{name}: reward {number} was refused: {answer}")
    values: dict[int, str] = {}
    for number, value in _seen(folder, name):
        found.expect(values.setdefault(number, value) == value, f"{name}: release {number} was seen with two values")
    found.decisions += len(arms)
    found.rewards += len(rewards)
    found.releases += len(values)
    found.expect(not rewards & expired, f"{name}: rewards were taken and had expired: {sorted(rewards & expired)}")
    return arms, rewards


def _archived(folder: Path, name: str, last: int) -> list[Entry]:
    """All entries of the log up to ``last``; where a number was written more than once, the last one was committed."""
    data, position, entries = (folder / f"{name}.log").read_bytes(), 0, dict[int, bytes]()
    while position + _FRAME.size <= len(data):
        seq, length = _FRAME.unpack_from(data, position)
        position += _FRAME.size + length
        entries[seq] = data[position - length : position]
    return [unpack_entry(entries[seq]) for seq in range(1, last + 1)]


def _check_replay(folder: Path, name: str, seq: int, recovered: Policy, found: Findings) -> None:
    """The last recovery is the undisturbed replay of the whole log: integers and releases equal to the bit."""
    undisturbed = restore(unpack_snapshot((folder / f"{name}.first").read_bytes()))
    try:
        entries = _archived(folder, name, seq)
        found.entries += len(entries)
        for entry in entries:
            undisturbed.replay(entry)
    except (KeyError, ValueError, Exception) as error:
        found.wrong.append(f"{name}: the log cannot be replayed: {error!r}")
        return
    ours, theirs = flatten(undisturbed.state), flatten(recovered.state)
    differing = [path for path in ours if not np.array_equal(ours[path], theirs[path])]
    found.expect(not differing, f"{name}: {differing} differ from an undisturbed replay")
    found.expect(undisturbed.fingerprint() == recovered.fingerprint(), f"{name}: not the state of its log")


def _check_contributions(
    name: str, entries: list[Entry], arms: dict[int, int], rewards: set[int], found: Findings
) -> None:
    """Every acknowledged decision is in the log once with its arm; every acknowledged reward contributed once."""
    memos, rows = Counter[bytes](), dict[int, bytes]()
    outcomes, learned = Counter[int](), Counter[int]()
    owner = dict[int, int]()
    for entry in entries:
        if isinstance(entry, Decided):
            for place, memo in enumerate(entry.memos):
                rows[entry.first + place] = memo[:DIM].tobytes()
                memos[rows[entry.first + place]] += 1
        elif isinstance(entry, Rewarded):
            outcomes[entry.decision] += 1
            if entry.reward > 0.0:
                number = round(entry.reward * _UNIT)
                learned[number] += 1
                owner[number] = entry.decision
        elif isinstance(entry, Abandoned):
            outcomes[entry.decision] += 1
    found.expect(set(outcomes.values()) <= {1}, f"{name}: a decision has two outcomes")
    found.expect(set(outcomes) == set(rows), f"{name}: decisions without an outcome, though all are settled")
    found.expect(set(memos.values()) <= {1}, f"{name}: a row was decided upon twice")
    for number, arm in arms.items():
        found.expect(memos[arms_of(number)[arm].tobytes()] == 1, f"{name}: decision {number} is lost")
    for number in rewards:
        found.expect(learned[number] == 1, f"{name}: reward {number} counted {learned[number]} times")
    for number, decision in owner.items():
        mine = number in arms and rows.get(decision) == arms_of(number)[arms[number]].tobytes()
        found.expect(number not in arms or mine, f"{name}: reward {number} went to another decision")
    found.expect(set(learned.values()) <= {1}, f"{name}: a reward counted twice")


def main() -> None:
    """Run the campaign; exits with 1 when anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant", choices=MUTANTS)
    parser.add_argument("--zygote", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.zygote:
        zygote()
        return
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = campaign(Path(folder), arguments.kills, arguments.seed, arguments.mutant)
    print(
        f"{found.kills:,} kills in {time.monotonic() - begun:.0f} s: {found.decisions:,} decisions and "
        f"{found.rewards:,} rewards acknowledged, {found.releases:,} releases seen, {found.entries:,} entries replayed"
    )
    for words in found.wrong[:20]:
        print(words)
    if found.wrong:
        raise SystemExit(f"{len(found.wrong)} things are wrong")


if __name__ == "__main__":
    main()
