"""Experiments under a progress bar: checks first, then compilation, then runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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
        """Whether nothing is missing."""
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

    prepare(experiments, jobs, engine)
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


def prepare(experiments: Sequence[Experiment], jobs: int, engine: str = "joblib") -> None:
    """Refuse bad settings, and have the kernels of every policy ready in the processes that will run them."""
    from tacit._compile.entries import collect
    from tacit.experiments.runner import prepare as check
    from tacit.experiments.runner import prepare_all

    least_private = {experiment.policy: experiment for experiment in sorted(experiments, key=_epsilon)}
    compile_missing(list(least_private.values()), jobs)
    for experiment in experiments:
        collect(partial(check, experiment, rounds=0))  # interpreted: this process loads no compiler
    with messages().status("Loading kernels ..."):
        prepare_all(list(least_private.values()), jobs, engine)


def compile_missing(experiments: Sequence[Experiment], jobs: int) -> None:
    """Compile on all cores what the cache lacks, under a bar that says what and how much is left."""
    from tacit._compile.places import cache_root
    from tacit.experiments import compiling

    missing = compiling.missing(experiments)
    if not missing:
        return
    started = time.perf_counter()
    messages().print("Compiling the kernels that the cache lacks:", style="dim")
    with bar("looking for them", 1) as (progress, task):

        def show(name: str, done: int, total: int) -> None:
            progress.update(task, description=name or "compiled", completed=done, total=total)

        compiling.compile_all(missing, jobs, show)
    elapsed = time.perf_counter() - started
    messages().print(f"Kernels are compiled ({elapsed:.0f} s) and kept in {cache_root()}.", style="dim")


def _epsilon(experiment: Experiment) -> float:
    """The least private run of a policy is the soonest to have used all of its kernels."""
    return experiment.epsilon or 0.0


def runnable(experiments: Sequence[Experiment]) -> tuple[list[Experiment], list[str]]:
    """The experiments whose policies accept their setting, and why the others do not."""
    from tacit.experiments.runner import prepare as rehearse

    kept, refused = [], []
    for experiment in experiments:
        try:
            rehearse(experiment, rounds=0)
        except TacitError as error:
            where = f"{experiment.contexts}, {experiment.link}, d = {experiment.dim}"
            refused.append(f"{experiment.label} ({where}): {error}")
        else:
            kept.append(experiment)
    return kept, refused
