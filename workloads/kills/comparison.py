"""After the last kill: what was recovered, beside an undisturbed replay of the log and all that was acknowledged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from tacit.errors import TacitError
from tacit.policies.log import Abandoned, Decided, LogEntry, Released, Rewarded
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import restore
from tacit.policies.state import flatten
from tacit.service.deployment import Deployment
from tacit.service.host import Host
from tacit.service.packing import unpack_snapshot
from workloads.kills.findings import RELEASE, Witness
from workloads.kills.tapped import Tap, archived, first_snapshot, tapped
from workloads.kills.world import DIM, arms_of, number_of

_LATER: Final = 1e3
"""Seconds after which nothing waits any more."""


def compare(folder: Path, life: int, witnesses: Mapping[str, Witness]) -> None:
    """Recover once more, and compare; ``life`` is a number that no process has had."""
    now = time.monotonic()
    store = tapped(Tap(folder, life))(folder / "store")
    try:
        deployment = Deployment(store, clock=lambda: now)
        for name, witness in witnesses.items():
            host = deployment.get(name).host
            try:
                _compare_states(archived(folder, name, host.journal.seq), first_snapshot(folder, name), host, witness)
                now += _LATER
                host.tick()
                _compare_contributions(archived(folder, name, host.journal.seq), witness)
            except TacitError as error:
                witness.expect(False, f"the log cannot be replayed: {error!r}")
            witness.count()
    finally:
        store.close()


def _compare_states(entries: list[LogEntry], first: bytes, host: Host, witness: Witness) -> None:
    """Integers and releases are those of a replay, to the bit, and so is every release that anybody has seen."""
    policy = restore(unpack_snapshot(first))
    releases = _replay(policy, entries)
    witness.found.entries += len(entries)
    ours, theirs = flatten(policy.state), flatten(host.journal.policy.state)
    differing = [path for path in ours if not np.array_equal(ours[path], theirs[path])]
    witness.expect(not differing, f"{differing} differ from an undisturbed replay")
    witness.expect(policy.fingerprint() == host.journal.policy.fingerprint(), "not the state of its log")
    witness.shows(RELEASE, host.published.releases, host.published.estimate)
    for number, value in witness.estimates.items():
        witness.expect(releases.get(number) == value, f"release {number} was seen, and is not that of a replay")
    witness.expect(witness.explained <= set(releases.values()), "an estimate was explained that no replay has")


def _replay(policy: Policy, entries: list[LogEntry]) -> dict[int, Hashable]:
    """Apply a whole log; the estimates that there have been, by number of releases."""
    assert isinstance(policy, PrivatePolicy)
    count = 0
    releases: dict[int, Hashable] = {count: tuple(policy.estimate.tolist())}
    for entry in entries:
        policy.replay([entry])
        if isinstance(entry, Released):
            count += bool(entry.values)
        elif count not in releases:
            releases[count] = tuple(policy.estimate.tolist())
    return releases


@dataclass
class _Contributions:
    """What a log says of decisions and what became of them."""

    rows: dict[int, bytes] = field(default_factory=dict)
    """By decision: the row that was decided upon."""
    outcomes: Counter[int] = field(default_factory=Counter)
    """By decision: how often it was rewarded, by default or not, or given up."""
    given_up: set[int] = field(default_factory=set)
    learned: Counter[int] = field(default_factory=Counter)
    """By number of a reward: how often it contributed."""
    owners: dict[int, int] = field(default_factory=dict)
    """By number of a reward: the decision that it was for."""

    def add(self, entry: LogEntry) -> None:
        """Take the next entry of the log."""
        if isinstance(entry, Decided):
            self.rows |= {entry.first + place: memo[:DIM].tobytes() for place, memo in enumerate(entry.memos)}
        elif isinstance(entry, Rewarded):
            self.outcomes[entry.decision] += 1
            number = number_of(entry.reward)
            if number:
                self.learned[number] += 1
                self.owners[number] = entry.decision
        elif isinstance(entry, Abandoned):
            self.outcomes[entry.decision] += 1
            self.given_up.add(entry.decision)


def _compare_contributions(entries: list[LogEntry], witness: Witness) -> None:
    """Every acknowledged decision is in the log once with its arm; every acknowledged reward contributed once."""
    log = _Contributions()
    for entry in entries:
        log.add(entry)
    decisions = {row: decision for decision, row in log.rows.items()}
    witness.expect(len(decisions) == len(log.rows), "a row was decided upon twice")
    witness.expect(set(log.outcomes.values()) <= {1}, "a decision has two outcomes")
    witness.expect(set(log.outcomes) == set(log.rows), "decisions without an outcome, though all are settled")
    witness.expect(set(log.learned.values()) <= {1}, "a reward counted twice")
    for number, arm in witness.arms.items():
        decision = decisions.get(arms_of(number)[arm].tobytes())
        witness.expect(decision is not None, f"decision {number} is lost")
        owner = log.owners.get(number, decision)
        witness.expect(owner == decision, f"reward {number} went to another decision")
        witness.expect((decision in log.given_up) or number not in witness.abandoned, f"{number} was not abandoned")
    for number in witness.rewards:
        witness.expect(log.learned[number] == 1, f"reward {number} counted {log.learned[number]} times")
    for number in witness.expired | witness.abandoned:
        witness.expect(number not in log.learned, f"reward {number} counted, though it was refused")
