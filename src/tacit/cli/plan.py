"""`tacit plan`: how many decisions until it pays, for one's own schema."""

from __future__ import annotations

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
    check_figure,
    check_writable,
    messages,
    numbers,
    results,
    show,
    write_json,
)

if TYPE_CHECKING:
    from tacit.experiments.plan import Assumptions, Plan
    from tacit.experiments.spec import Experiment
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

    check_figure(plot)
    check_writable(json_file)
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
    """The plan, under a progress bar."""
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
    from tacit.experiments import plan_tables

    console = results(json_file)
    console.print()
    for sentence in plan_tables.sentences(expected):
        console.print(sentence)
    show(plan_tables.table(expected), json_file)
    write_json(expected.to_dict(), json_file)
