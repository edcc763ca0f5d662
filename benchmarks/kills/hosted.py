"""The campaign without HTTP: processes that hand groups of requests to hosts are killed again and again."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.kills.comparison import compare
from benchmarks.kills.findings import RELEASE, Findings, Witness
from benchmarks.kills.hosted_life import told_lines
from benchmarks.kills.killing import Killer
from benchmarks.kills.lives import Nursery, Spec
from benchmarks.kills.world import BODIES


def campaign(
    folder: Path, kills: int, seed: int, mutant: str | None = None, nursery: Nursery | None = None
) -> Findings:
    """Kill as often as asked, then look at everything."""
    if nursery is None:
        with Nursery("host") as own:
            return campaign(folder, kills, seed, mutant, own)
    rng, found = random.Random(seed), Findings()
    killer = Killer(folder, seed, found)
    specs = (Spec(str(folder), life, rng.randrange(1 << 30), mutant=mutant) for life in itertools.count())
    for _ in range(kills):
        killer.kill_one(lambda aim: nursery.bear(replace(next(specs), aim=aim)), stops=False)
    witnesses = {name: Witness(name, found) for name in BODIES}
    for told in told_lines(folder):
        _hear(witnesses[told["policy"]], told)
    compare(folder, kills, witnesses)
    return found


def _hear(witness: Witness, told: dict[str, Any]) -> None:
    """One line of what a process has written down."""
    if "seen" in told:
        number, estimate = told["seen"]
        witness.shows(RELEASE, number, tuple(estimate))
        witness.found.polls += 1
    if "decided" not in told:
        return
    witness.expect(len(told["decided"]) == told["expected"], "a decision was refused")
    for number, arm in told["decided"]:
        witness.decided(number, arm)
    for number, answer in told["rewarded"]:
        if answer == "ok":
            witness.rewarded(number)
        elif answer == "EXPIRED":
            witness.refused(number)
        elif answer != "UNKNOWN_EVENT" or number in witness.arms:  # asked for, never acknowledged: there may be none
            witness.expect(False, f"reward {number} was refused: {answer}")
