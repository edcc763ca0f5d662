"""`tacit study`: what policies earn in real trials, private ones too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli.shared import (
    INTERRUPTED,
    Delta,
    Jobs,
    Json,
    Runs,
    Seed,
    check_writable,
    chosen_policies,
    messages,
    numbers,
    results,
    show,
    write_json,
)

if TYPE_CHECKING:
    from tacit.studies import StudyAnswer, StudyQuestion, TrialStudy

TrialName = Literal["actg175", "thornton", "star", "penbased", "all"]
_DEFAULT_POLICIES = ("stream-glm", "greedy-mle")


def study(
    trial: Annotated[TrialName, typer.Argument(help="Which trial, or all of them.")],
    *,
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME...]", help="Policies; see: tacit policies.", show_default="stream-glm, ..."),
    ] = None,
    epsilon: Annotated[
        str, typer.Option(metavar="E[,E...]", help="Privacy of private policies; inf: noise off.")
    ] = "1,4,8,inf",
    delta: Delta = 1e-5,
    decisions: Annotated[
        int | None, typer.Option(min=1, help="Decisions of a run.", show_default="one for each person")
    ] = None,
    runs: Runs = 30,
    orders: Annotated[int, typer.Option(min=0, help="Passes over the log; 0 leaves it out.")] = 5,
    seed: Seed = 0,
    jobs: Jobs,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="The picture.", show_default="tacit-study-TRIAL.png")
    ] = None,
    json_file: Json = None,
) -> None:
    """Play policies on the people of a real trial, and tell what one arm, learning and privacy are worth there.

    Twice: with an outcome model that is fitted to the trial and that policies never see, and by the trial's log.
    Data come from packages that the extra data installs.

    \b
    Examples:
      tacit study actg175
      tacit study thornton --policy stream-glm,joint-linucb --epsilon 1,4 --runs 100
      tacit study actg175 --epsilon 1 --decisions 20000 --orders 0
      tacit study all --json studies.json
    """
    from tacit.studies import STUDIES_OF_TRIALS, StudyQuestion
    from tacit.studies.telling import rows

    pictures = _pictures(trial, list(STUDIES_OF_TRIALS) if trial == "all" else [trial], plot)
    for path in pictures.values():
        check_writable(json_file, figure=path)
    policies = tuple(chosen_policies(policy, "--policy", _DEFAULT_POLICIES))
    asked = StudyQuestion(policies, tuple(numbers(epsilon, "--epsilon")), delta, runs, orders, decisions, seed)
    answers = _played([STUDIES_OF_TRIALS[name] for name in pictures], asked, jobs)
    for answer in answers:
        _tell(answer, json_file, pictures[answer.study.name])
    write_json([rows(answer) for answer in answers], json_file)


def _pictures(trial: str, names: list[str], plot: Path | None) -> dict[str, Path]:
    """The picture of each study: the file that was asked for, with the study's name where there are several."""
    asked = plot or Path("tacit-study.png")
    several = trial == "all" or plot is None
    return {name: asked.with_stem(f"{asked.stem}-{name}") if several else asked for name in names}


def _played(studies: list[TrialStudy], asked: StudyQuestion, jobs: int) -> list[StudyAnswer]:
    """Play all studies under one progress bar; a study without its data stops before anything is played."""
    from tacit.cli import progress
    from tacit.studies import play_study
    from tacit.studies.playing import experiments_of, tasks_of, views

    for each in studies:
        for seen in views(each):
            progress.check(experiments_of(each, asked, seen))
    with progress.bar("runs", sum(tasks_of(each, asked) for each in studies)) as (bar, task):

        def count(label: str) -> None:
            bar.update(task, advance=1, description=label)

        try:
            return [play_study(each, asked, jobs=jobs, on_task=count) for each in studies]
        except KeyboardInterrupt:
            messages().print("Interrupted: a study needs all of its runs.", style="bold")
            raise typer.Exit(INTERRUPTED) from None


def _tell(answer: StudyAnswer, json_file: str | None, path: Path) -> None:
    """Print what a study says, and draw it."""
    from tacit.studies.telling import picture, sentences, table

    show(table(answer), json_file)
    for sentence in sentences(answer):
        results(json_file).print(sentence)
    picture(answer, path)
    messages().print(f"Figure: {path.resolve()}")
