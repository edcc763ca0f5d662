"""Experiments under a progress bar: checks first, then runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tacit.cli.shared import INTERRUPTED, messages
from tacit.errors import TacitError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tacit.experiments.results import Row
    from tacit.experiments.spec import Experiment


@dataclass(frozen=True)
class Outcome:
    """Rows, and whether all runs were finished."""

    rows: list[Row]
    done: int
    total: int

    @property
    def complete(self) -> bool:
        """Whether all runs were finished."""
        return self.done >= self.total

    def finish(self) -> None:
        """Leave with the exit code of Ctrl-C when runs are missing."""
        if not self.complete:
            messages().print(f"Interrupted: {self.done} of {self.total} runs were finished.", style="bold")
            raise typer.Exit(INTERRUPTED)


def run(
    experiments: Sequence[Experiment],
    *,
    runs: int,
    seed: int,
    jobs: int,
    engine: str = "joblib",
    journal: Path | None = None,
) -> Outcome:
    """Run all experiments and show on standard error how many runs are done, and the time that remains."""
    from tacit.experiments.runner import run_all

    check(experiments)
    total, done = runs * len(experiments), 0
    with bar("runs", total) as (progress, task):

        def count(experiment: Experiment) -> None:
            nonlocal done
            done += 1
            progress.update(task, completed=done, description=experiment.label)

        rows = run_all(
            list(experiments),
            runs=runs,
            seed=seed,
            jobs=min(jobs, max(1, total)),
            engine=engine,
            journal=journal,
            on_run=count,
        )
        progress.update(task, description="runs")
    return Outcome(rows, done, total)


@contextmanager
def bar(title: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
    """A progress bar: how many are done, time elapsed and time remaining."""
    from rich import progress as parts

    columns = (
        parts.TextColumn("{task.description:<22}"),
        parts.BarColumn(bar_width=30),
        parts.MofNCompleteColumn(),
        parts.TextColumn("done,"),
        parts.TimeElapsedColumn(),
        parts.TextColumn("elapsed,"),
        parts.TimeRemainingColumn(),
        parts.TextColumn("remaining"),
    )
    with parts.Progress(*columns, console=messages()) as progress:
        yield progress, progress.add_task(title, total=total)


def check(experiments: Sequence[Experiment]) -> None:
    """Refuse bad settings before anything is run."""
    from tacit.experiments.runner import prepare

    for experiment in experiments:
        prepare(experiment, rounds=0)


def runnable(experiments: Sequence[Experiment]) -> tuple[list[Experiment], list[str]]:
    """Split experiments into those whose policies accept their setting, and sentences that say why others do not."""
    kept, refused = [], []
    for experiment in experiments:
        try:
            check([experiment])
        except TacitError as error:
            where = f"{experiment.contexts}, {experiment.link}, d = {experiment.dim}"
            refused.append(f"{experiment.label} ({where}): {error}")
        else:
            kept.append(experiment)
    return kept, refused
