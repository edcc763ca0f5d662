"""`tacit plan`: how many decisions until it pays, for one's own schema."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.shared import (
    INTERRUPTED,
    Delta,
    Jobs,
    Json,
    Refused,
    Runs,
    Seed,
    check_writable,
    messages,
    numbers,
    results,
    show,
)

if TYPE_CHECKING:
    from tacit.experiments.plan import Assumptions, Outlook, Plan
    from tacit.experiments.spec import Experiment
    from tacit.experiments.tables import Table
    from tacit.features import Schema


def plan(
    schema: Annotated[str, typer.Argument(metavar="FILE", help="A schema as JSON, or articles, patients, shops.")],
    *,
    epsilon: Annotated[str, typer.Option(metavar="E[,E...]", help="Budgets to compare.")] = "1,4",
    delta: Delta = 1e-6,
    rounds_per_user: Annotated[
        int, typer.Option(min=1, help="Visits of one person that epsilon covers together; 1: epsilon is per visit.")
    ] = 1,
    base_rate: Annotated[
        float,
        typer.Option(
            metavar="P", help="How often an arm that is neither good nor bad is rewarded: about your click rate."
        ),
    ] = 0.1,
    effect: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="How many times as often as a random arm the best one for each user is rewarded.",
            show_default="1.5",
        ),
    ] = None,
    theta_norm: Annotated[
        float | None, typer.Option(help="Length of the true parameter, in place of --effect.", show_default="by effect")
    ] = None,
    decisions: Annotated[int, typer.Option(min=100, help="Decisions to look ahead.")] = 100_000,
    arms: Annotated[
        int | None, typer.Option(min=2, help="Arms to choose from.", show_default="those of per_arm, or 20")
    ] = None,
    runs: Runs = 10,
    seed: Seed = 0,
    jobs: Jobs,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the gain against decisions.")] = None,
    json_file: Json = None,
) -> None:
    """Tell from how many decisions on it pays to learn under privacy, for your features, click rate and epsilon.

    Plays stream-glm against random arms on simulated users of your schema, and with the noise off as the ceiling.

    \b
    Examples:
      tacit plan articles --base-rate 0.08 --epsilon 1,2,4
      tacit plan my_schema.json --base-rate 0.02 --effect 2 --decisions 300000 --plot plan.png
      tacit plan patients --base-rate 0.4 --effect 1.2 --rounds-per-user 5
    """
    from tacit.experiments.plan import Assumptions
    from tacit.experiments.schemas import load_schema

    check_writable(json_file, figure=plot)
    if effect is not None and theta_norm is not None:
        raise Refused("--effect and --theta-norm say the same in two ways: give one of them")
    if runs == 1:
        raise Refused("--runs must be at least 2: a single run has no standard error")
    asked = Assumptions(
        epsilons=tuple(numbers(epsilon, "--epsilon")),
        delta=delta,
        rounds_per_user=rounds_per_user,
        base_rate=base_rate,
        effect=1.5 if effect is None else effect,
        theta_norm=theta_norm,
        decisions=decisions,
        arms=arms,
    )
    expected = _played(load_schema(schema), asked, runs, seed, jobs)
    _shown(expected, json_file)
    if plot is not None:
        from tacit.experiments import plots

        plots.gains(expected, plot)
        messages().print(f"Figure: {plot}")


def _played(schema: Schema, asked: Assumptions, runs: int, seed: int, jobs: int) -> Plan:
    """Play the plan under a progress bar."""
    from tacit.cli import progress
    from tacit.experiments.plan import experiments_of
    from tacit.experiments.plan import plan as expect

    experiments = experiments_of(schema, asked)
    progress.check(experiments)
    with progress.bar("runs", runs * len(experiments)) as (bar, task):

        def count(experiment: Experiment) -> None:
            bar.update(task, advance=1, description=experiment.label)

        try:
            return expect(schema, asked, runs=runs, seed=seed, jobs=jobs, on_run=count)
        except KeyboardInterrupt:
            messages().print("Interrupted: there is no plan without all runs.", style="bold")
            raise typer.Exit(INTERRUPTED) from None


def _shown(expected: Plan, json_file: str | None) -> None:
    console = results(json_file)
    console.print()
    for sentence in sentences(expected):
        console.print(sentence)
    show(table(expected), json_file, expected.to_dict())


def sentences(expected: Plan) -> list[str]:
    """Say for each epsilon from when on it pays."""
    per = "visit" if expected.assumptions.rounds_per_user == 1 else "person"
    return [_sentence(expected, outlook, per) for outlook in expected.outlooks]


def _sentence(expected: Plan, outlook: Outlook, per: str) -> str:
    from tacit.experiments.tables import rounded

    name = "With the noise off" if math.isinf(outlook.epsilon) else f"At epsilon {outlook.epsilon:g} per {per}"
    reached = outlook.gains[expected.assumptions.decisions]
    if outlook.pays_from is None:
        return f"{name} it does not pay within {expected.assumptions.decisions:,} decisions."
    mostly = "" if outlook.mostly_from is None else f" (nine runs of ten: {rounded(outlook.mostly_from)})"
    return (
        f"{name} it pays from about {rounded(outlook.pays_from)} decisions on{mostly}, and gains {reached:.0%} of what "
        f"is possible in {expected.assumptions.decisions:,}."
    )


def table(expected: Plan) -> Table:
    """Tabulate random arms, each epsilon, the noise off, and the best arms."""
    from tacit.experiments.tables import Table

    marks = expected.milestones
    gains = tuple(f"{'gain by' if number == 0 else ''}\n{mark:,}" for number, mark in enumerate(marks))
    columns = ("", "pays\nfrom", "9 runs\nof 10", *gains, "mean\nreward", "of the\nlast tenth")
    random, best = _percent(expected.random_rate), _percent(expected.best_rate)
    rows = [
        ("random arms", "-", "-", *("0.00" for _ in marks), random, random),
        *(_line(expected, outlook) for outlook in expected.outlooks),
        ("best arms", "-", "-", *("1.00" for _ in marks), best, best),
    ]
    return Table(_title(expected), columns, tuple(rows), notes=_notes(expected))


def _line(expected: Plan, outlook: Outlook) -> tuple[str, ...]:
    from tacit.experiments.tables import rounded

    name = "noise off" if math.isinf(outlook.epsilon) else f"epsilon {outlook.epsilon:g}"
    pays = ("not yet" if found is None else rounded(found) for found in (outlook.pays_from, outlook.mostly_from))
    gains = (f"{outlook.gains[mark]:.2f}" for mark in expected.milestones)
    return name, *pays, *gains, _percent(outlook.rate), _percent(outlook.late_rate)


def _percent(rate: float) -> str:
    return f"{100.0 * rate:.2f}%"


def _title(expected: Plan) -> str:
    asked = expected.assumptions
    return (
        f"What to expect: stream-glm, d = {expected.dim}, K = {expected.arms}, {asked.decisions:,} decisions, "
        f"delta = {asked.delta:g}, base rate {asked.base_rate:g}"
    )


def _notes(expected: Plan) -> tuple[str, ...]:
    from tacit.privacy.report import protection_text

    asked = expected.assumptions
    ratio = expected.best_rate / expected.random_rate
    return (
        f"Protected is {protection_text(asked.rounds_per_user)}.",
        f"Assumed: a random arm earns {_percent(expected.random_rate)}, the best arm for each user "
        f"{_percent(expected.best_rate)}, {ratio:.2f} times as much.",
        "pays from: decisions after which all rewards so far, averaged over runs, exceed those of random arms for good "
        "by more than two standard errors; 9 runs of 10: after which they exceed them in nine of ten runs.",
        "gain by: share of what the best arms would have earned over random ones until then.",
        f"Means of {expected.runs} runs, each with a true parameter of its own. stream-glm was told "
        f"base_rate={asked.base_rate:g} and theta_bound={expected.theta_norm:.2f}, its length.",
    )
