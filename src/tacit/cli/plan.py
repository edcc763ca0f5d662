"""`tacit plan`: what one's own schemas may be expected to gain under privacy, from rates that one states."""

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
    Seed,
    check_writable,
    messages,
    numbers,
    results,
    show,
)

if TYPE_CHECKING:
    from tacit.experiments.plan import Assumptions, Outlook, Plan
    from tacit.experiments.tables import Table
    from tacit.features import Schema


def plan(
    schemas: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Schemas as JSON, or articles, patients, shops.")
    ],
    *,
    random: Annotated[float, typer.Option(metavar="P", help="How often a random arm earns its reward, such as 0.09.")],
    best: Annotated[
        str,
        typer.Option(
            metavar="P[,P...]",
            help="How often you believe the best arm for each user earns it, as far as the schema tells users apart; "
            "one for all schemas, or one for each.",
        ),
    ],
    one_arm: Annotated[
        float | None,
        typer.Option(metavar="P", help="How often the best arm earns it if everybody gets it.", show_default="unknown"),
    ] = None,
    epsilon: Annotated[str, typer.Option(metavar="E[,E...]", help="Budgets to compare; inf: no privacy.")] = "1,4",
    delta: Delta = 1e-6,
    rounds_per_user: Annotated[
        int, typer.Option(min=1, help="Visits of one person that epsilon covers together; 1: epsilon is per visit.")
    ] = 1,
    decisions: Annotated[int, typer.Option(min=1_000, help="Decisions to look ahead.")] = 20_000,
    arms: Annotated[
        int | None, typer.Option(min=2, help="Arms that a user is offered.", show_default="those that the schema lists")
    ] = None,
    worlds: Annotated[int, typer.Option(min=4, help="Simulated worlds in which the rates hold.")] = 20,
    seed: Seed = 0,
    jobs: Jobs,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the gain against decisions.")] = None,
    json_file: Json = None,
) -> None:
    """Tell what to expect of learning under privacy, for your schemas and the rates that you know or believe.

    Plays stream-glm in simulated worlds in which these rates hold, and which differ in all that the rates leave open.
    The gain is the share of what the best arms would earn over random ones.

    \b
    Examples:
      tacit plan articles --random 0.08 --best 0.12 --arms 10
      tacit plan few.json many.json --random 0.09 --one-arm 0.11 --best 0.125,0.13 --plot plan.png
      tacit plan patients --random 0.4 --best 0.5 --rounds-per-user 5 --decisions 50000
    """
    from tacit.experiments.plan import Assumptions
    from tacit.experiments.schemas import load_schema

    check_writable(json_file, figure=plot)
    bests = numbers(best, "--best")
    if len(bests) not in (1, len(schemas)):
        raise Refused(f"--best takes one rate or one for each of {len(schemas)} schemas, not {len(bests)}")
    asked = Assumptions(
        random_rate=random,
        best_rate=max(bests),
        one_arm_rate=one_arm,
        epsilons=tuple(numbers(epsilon, "--epsilon")),
        delta=delta,
        rounds_per_user=rounds_per_user,
        decisions=decisions,
        arms=arms,
    )
    best_rates = dict(zip(schemas, bests * len(schemas), strict=False))
    expected = _played({name: load_schema(name) for name in schemas}, asked, best_rates, worlds, seed, jobs)
    for sentence in sentences(expected):
        results(json_file).print(sentence)
    show(table(expected), json_file, expected.to_dict())
    if plot is not None:
        from tacit.experiments import plots

        plots.gains(expected, plot)
        messages().print(f"Figure: {plot}")


def _played(
    schemas: dict[str, Schema], asked: Assumptions, best_rates: dict[str, float], worlds: int, seed: int, jobs: int
) -> Plan:
    """Play the plan under a progress bar."""
    from tacit.cli import progress
    from tacit.environments.stated import stated_arms
    from tacit.experiments.plan import plan as expect

    for schema in schemas.values():
        stated_arms(schema, asked.arms)  # refused before a bar is drawn
    with progress.bar("worlds", worlds * len(schemas)) as (bar, task):

        def count(name: str) -> None:
            bar.update(task, advance=1, description=Path(name).stem)

        try:
            return expect(schemas, asked, best_rates=best_rates, worlds=worlds, seed=seed, jobs=jobs, on_world=count)
        except KeyboardInterrupt:
            messages().print("Interrupted: there is no plan without all worlds.", style="bold")
            raise typer.Exit(INTERRUPTED) from None


def sentences(expected: Plan) -> list[str]:
    """Say for each schema and epsilon what share may be gained."""
    asked = expected.assumptions
    per = "visit" if asked.rounds_per_user == 1 else "person"
    return [
        f"With the {outlook.dim} features of {Path(outlook.schema).stem}, {_budget(outlook)}"
        f"{'' if math.isinf(outlook.epsilon) else f' per {per}'}, {asked.decisions:,} decisions gain "
        f"{outlook.gain:.2f} of what is possible (between {outlook.low:.2f} and {outlook.high:.2f})."
        for outlook in expected.outlooks
    ]


def _budget(outlook: Outlook) -> str:
    return "without privacy" if math.isinf(outlook.epsilon) else f"epsilon {outlook.epsilon:g}"


def table(expected: Plan) -> Table:
    """Tabulate each schema at each epsilon."""
    from tacit.experiments.tables import Table

    columns = (
        "schema",
        "features",
        "arms",
        "theta_bound",
        "",
        "gain",
        "of nine\nsites of ten",
        "of nine\nlives of ten",
        "mean\nreward",
        "half of it\nfrom",
        "80% of it\nfrom",
    )
    rows = tuple(_line(expected, outlook) for outlook in expected.outlooks)
    return Table(_title(expected), columns, rows, notes=_notes(expected))


def _line(expected: Plan, outlook: Outlook) -> tuple[str, ...]:
    from tacit.experiments.tables import rounded

    asked = expected.assumptions
    reward = asked.random_rate + outlook.gain * (outlook.best_rate - asked.random_rate)
    reached = ("later" if found is None else rounded(found) for found in (outlook.half_from, outlook.most_from))
    return (
        Path(outlook.schema).stem,
        str(outlook.dim),
        str(outlook.arms),
        f"{outlook.theta_bound:g}",
        _budget(outlook),
        f"{outlook.gain:.2f}",
        f"{outlook.low:.2f} to {outlook.high:.2f}",
        f"{outlook.life_low:.2f} to {outlook.life_high:.2f}",
        f"{reward:.2%}",
        *reached,
    )


def _title(expected: Plan) -> str:
    asked = expected.assumptions
    one_arm = "unknown" if asked.one_arm_rate is None else f"{asked.one_arm_rate:.2%}"
    bests = ", ".join(f"{rate:.2%}" for rate in dict.fromkeys(outlook.best_rate for outlook in expected.outlooks))
    return (
        f"What to expect of stream-glm: {asked.decisions:,} decisions, delta = {asked.delta:g}; stated are "
        f"{asked.random_rate:.2%} for random arms, {one_arm} for one arm, {bests} for the best ones"
    )


def _notes(expected: Plan) -> tuple[str, ...]:
    from tacit.experiments.plan import LIVES
    from tacit.privacy.report import protection_text

    asked = expected.assumptions
    narrower = "If you know what the best arm earns when everybody gets it, say it (--one-arm): it narrows intervals."
    return (
        f"Protected is {protection_text(asked.rounds_per_user)}.",
        "gain: share of what the best arms would have earned over random ones until then, and from how many decisions "
        "on it is half or 80%.",
        "nine sites of ten: mean gain of a site, over worlds in which the rates hold; nine lives of ten: gain of one "
        "run, with its luck.",
        f"{expected.worlds} worlds, {LIVES} lives in each. The policy is told base_rate={asked.random_rate:g} and the "
        "theta_bound of the table, which is recommended.",
        *(() if asked.one_arm_rate is not None else (narrower,)),
    )
