"""Put faults into the code, one at a time; exits with 1 when a check does not catch the fault that it is about.

    python -m tests.mutants [--only NAME] [--quick] [--jobs N]

Rows named "no mutant" show that the checks pass on the code as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tacit.cli.progress import bar
from tacit.cli.shared import cores, show
from tacit.experiments.tables import Table
from tests.mutants.mutants import MUTANTS
from tests.mutants.trials import Finding, Trial, trials_for, try_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials that were asked for, under a progress bar, and print their table; 1 when something is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [mutant.name for mutant in MUTANTS]
    parser.add_argument("--only", metavar="NAME", action="append", choices=names, help=f"of: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="faults alone, not the checks on the code as it is")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes at work; all cores by default")
    given = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if given.only is None or mutant.name in given.only]
    trials = trials_for(chosen, quick=given.quick)
    found = _shown(trials, min(given.jobs, len(trials)))
    wrong = [finding for finding in found if finding.wrong]
    rows = tuple((finding.trial.name, finding.trial.check, finding.verdict, finding.detail) for finding in found)
    notes = tuple(f"{each.verdict}: {each.trial.name} by {each.trial.check}: {each.detail}" for each in wrong)
    title = f"{len(chosen)} mutants, each to be caught by the check that is about it"
    show(Table(title, ("mutant", "check", "verdict", "what the check says"), rows, labels=4, notes=notes))
    return 1 if wrong else 0


def _shown(trials: Sequence[Trial], jobs: int) -> list[Finding]:
    found = list[Finding]()
    with bar("mutants", len(trials)) as (progress, task):
        for finding in try_all(trials, jobs):
            found.append(finding)
            progress.update(task, completed=len(found), description=finding.trial.name)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
