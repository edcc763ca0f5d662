"""A trial runs one check, on the code as it is or with one fault in place; its finding is a row of the report.

A trial is a value, so that another process can run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from joblib import Parallel, delayed

from tests.mutants.checks import CHECKS
from tests.mutants.mutants import Mutant

PASSES, FAILS, CAUGHT, SURVIVED = "passes", "fails", "caught", "survived"


@dataclass(frozen=True)
class Trial:
    """A check, and the fault that is in place while it runs; without one the code is as it is."""

    check: str
    mutant: Mutant | None = None

    @property
    def name(self) -> str:
        """Name of the mutant, or that there is none."""
        return "no mutant" if self.mutant is None else self.mutant.name


@dataclass(frozen=True)
class Finding:
    """What a trial showed."""

    trial: Trial
    verdict: str
    detail: str

    @property
    def wrong(self) -> bool:
        """Whether a mutant survived, or a check fails on the code as it is."""
        return self.verdict in (SURVIVED, FAILS)


def trials_for(mutants: Sequence[Mutant], *, quick: bool = False) -> list[Trial]:
    """The checks of these mutants on the code as it is, then the mutants; mutants alone where it is to be quick.

    A check that fails on the code as it is would catch anything: only both together show that it sees a fault.
    """
    needed = set() if quick else {mutant.check for mutant in mutants}
    checks = [Trial(name) for name in CHECKS if name in needed]
    return checks + [Trial(mutant.check, mutant) for mutant in mutants]


def tried(trial: Trial) -> Finding:
    """Run a trial."""
    if trial.mutant is None:
        found = CHECKS[trial.check]()
        return Finding(trial, FAILS if found else PASSES, "; ".join(found[:1]))
    found = trial.mutant.caught()
    return Finding(trial, CAUGHT if found else SURVIVED, "; ".join(found[:1]) or trial.mutant.fault)


def try_all(trials: Sequence[Trial], jobs: int = 1) -> Iterator[Finding]:
    """Run all trials, in order, several at a time."""
    if jobs == 1:
        yield from map(tried, trials)
    else:
        yield from Parallel(n_jobs=jobs, return_as="generator")(delayed(tried)(trial) for trial in trials)
