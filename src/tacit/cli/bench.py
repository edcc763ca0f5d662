"""`tacit bench`: regret and speed of every policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.shared import (
    CONTEXTS,
    BaseRate,
    Delta,
    Engine,
    Jobs,
    Journal,
    Json,
    Module,
    Rewards,
    Runs,
    Seed,
    ThetaBound,
    check_writable,
    chosen_contexts,
    chosen_links,
    chosen_policies,
    chosen_rewards,
    integers,
    load,
    messages,
    numbers,
    one,
    show,
    write_text,
)

app = typer.Typer(help="Benchmarks: regret and speed of every policy.", no_args_is_help=True, rich_markup_mode=None)

Policies = Annotated[
    str | None, typer.Option(metavar="NAME[,NAME...]", help="Policies; see: tacit policies.", show_default="all")
]
Dims = Annotated[str, typer.Option(metavar="D[,D...]", help="Dimensions.")]
ThetaNorm = Annotated[float, typer.Option(help="Length of the true parameter, S.")]
Markdown = Annotated[Path | None, typer.Option(metavar="FILE.md", help="Write the table as Markdown.")]


@app.command("regret")
def regret(
    *,
    policies: Policies = None,
    contexts: Annotated[str, typer.Option(metavar="KIND[,KIND...]", help="Kinds of contexts.")] = CONTEXTS,
    links: Annotated[str, typer.Option(metavar="LINK[,LINK...]", help="Links.")] = "logistic,probit",
    dims: Dims = "3,5,10",
    epsilon: Annotated[str, typer.Option(metavar="E[,E...]", help="Privacy of private policies.")] = "1,4,8",
    delta: Delta = 1e-5,
    arms: Annotated[int, typer.Option(min=1, help="Arms in each round, K (assouad has 2 d, news 5).")] = 20,
    horizon: Annotated[int, typer.Option(min=1, help="Rounds, T.")] = 5_000,
    theta_norm: ThetaNorm = 3.0,
    theta_bound: ThetaBound = None,
    base_rate: BaseRate = None,
    rewards: Rewards = "now",
    runs: Runs = 5,
    seed: Seed = 0,
    jobs: Jobs,
    engine: Engine = "joblib",
    journal: Journal = None,
    module: Module = None,
    markdown: Markdown = None,
    json_file: Json = None,
) -> None:
    """Leaderboard: every policy on every kind of contexts, link and dimension.

    \b
    Examples:
      tacit bench regret --dims 3 --links probit --runs 3
      tacit bench regret --contexts ball,news --dims 5 --links logistic --base-rate 0.08 --rewards late
      tacit bench regret --markdown docs/leaderboard.md --journal leaderboard.jsonl
    """
    from tacit.cli import progress
    from tacit.experiments import leaderboard

    check_writable(markdown, json_file, journal)
    fixed: dict[str, Any] = {"modules": load(module), "arms": arms, "horizon": horizon}
    fixed |= {"theta_norm": theta_norm, "theta_bound": theta_bound, "base_rate": base_rate, "delta": delta}
    fixed |= {"rewards": chosen_rewards(rewards, "--rewards")}
    kinds = chosen_contexts(contexts, "--contexts")
    varied: dict[str, Any] = {
        "link": chosen_links(links, "--links"),
        "dim": integers(dims, "--dims"),
        "contexts": kinds,
    }
    varied |= {"policy": chosen_policies(policies, "--policies")}
    experiments, refused = progress.runnable(leaderboard.grid(fixed, varied, numbers(epsilon, "--epsilon")))
    outcome = progress.run(experiments, runs=runs, seed=seed, jobs=jobs, engine=engine, journal=journal)
    table = leaderboard.table(outcome.rows, kinds, [f"Left out: {text}" for text in refused])
    show(table, json_file, outcome.rows)
    if markdown is not None:
        write_text(table.markdown(), markdown)
    outcome.finish()


@app.command("speed")
def speed(
    policies: Policies = None,
    dims: Dims = "3,5,10,20,50",
    arms: Annotated[str, typer.Option(metavar="K[,K...]", help="Numbers of arms.")] = "20",
    horizons: Annotated[str, typer.Option(metavar="T[,T...]", help="Horizons.")] = "10000",
    link: Annotated[str, typer.Option(help="Link; a policy without it takes its own first.")] = "logistic",
    epsilon: Annotated[float, typer.Option(help="Privacy of private policies.")] = 4.0,
    delta: Delta = 1e-5,
    theta_norm: ThetaNorm = 3.0,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each measurement; the best one counts.")] = 3,
    seconds: Annotated[float, typer.Option(help="A run that takes longer is cut, and not repeated.")] = 20.0,
    module: Module = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw cost against d and T.")] = None,
    markdown: Markdown = None,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add machine, commit and figures; compare with the last ones.")
    ] = None,
    json_file: Json = None,
) -> None:
    """Microseconds per round, latency of single decisions, memory, and how they grow with d and T.

    One process, one policy after the other: run it on an idle machine.

    \b
    Examples:
      tacit bench speed --policies joint-glm,random --dims 3,5,10
      tacit bench speed --arms 20,100 --history speed.jsonl --plot speed.png
      tacit bench speed --policies stream-glm --dims 5 --horizons 10000,1000000
    """
    from tacit.cli import progress
    from tacit.experiments import speed as measuring

    check_writable(history, markdown, json_file, figure=plot)
    fixed: dict[str, Any] = {"modules": load(module), "theta_norm": theta_norm, "delta": delta}
    fixed |= {"link": one(chosen_links(link, "--link"), "--link")}
    varied: dict[str, Any] = {"policy": chosen_policies(policies, "--policies"), "dim": integers(dims, "--dims")}
    varied |= {"arms": integers(arms, "--arms"), "horizon": integers(horizons, "--horizons")}
    experiments, refused = progress.runnable(measuring.grid(fixed, varied, epsilon))
    rows = []
    with progress.bar("measurements", len(experiments)) as (bar, task):
        for experiment in experiments:
            bar.update(task, description=f"{experiment.policy} d={experiment.dim}")
            rows.append(measuring.measure(experiment, repeats, seconds))
            bar.advance(task)
    table = measuring.table(rows, measuring.recall(history))
    show(table, json_file, rows)
    for text in refused:
        messages().print(f"Left out: {text}")
    if markdown is not None:
        write_text(table.markdown(), markdown)
    if history is not None:
        measuring.remember(rows, history)
    if plot is not None and rows:
        from tacit.experiments import plots

        plots.cost(rows, plot)
        messages().print(f"Figure: {plot}")
