"""The campaign without HTTP: processes that hand groups of requests to hosts are killed again and again."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from workloads.kills.comparison import compare
from workloads.kills.findings import RELEASE, Findings, Witness
from workloads.kills.hosted_life import told_lines
from workloads.kills.killing import Killer
from workloads.kills.lives import Nursery, Spec
from workloads.kills.served import ENOUGH
from workloads.kills.world import BODIES


def campaign(
    folder: Path, kills: int, seed: int, mutant: str | None = None, nursery: Nursery | None = None, *, most: int = 0
) -> Findings:
    """Kill as often as asked, and up to ``most`` times if little happens; then look at everything."""
    if nursery is None:
        with Nursery("host") as own:
            return campaign(folder, kills, seed, mutant, own, most=most)
    rng, found = random.Random(seed), Findings()
    killer = Killer(folder, seed, found)
    specs = (Spec(str(folder), life, rng.randrange(1 << 30), mutant=mutant) for life in itertools.count())
    while (done := found.kills.total()) < kills or (done < most and _too_little(folder)):
        killer.kill_one(lambda aim: nursery.bear(replace(next(specs), aim=aim)), stops=False)
    witnesses = {name: Witness(name, found) for name in BODIES}
    for told in told_lines(folder):
        _hear(witnesses[told["policy"]], told)
    compare(folder, next(specs).life, witnesses)
    return found


def _too_little(folder: Path) -> bool:
    """Whether processes were so slow that little was acknowledged and released."""
    told = list(told_lines(folder))
    decisions = sum(len(each.get("decided", ())) for each in told)
    rewards = sum(answer == "ok" for each in told for _, answer in each.get("rewarded", ()))
    releases = len({(each["policy"], each["seen"][0]) for each in told if "seen" in each})
    return bool(min(decisions, rewards, releases) <= ENOUGH)


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
