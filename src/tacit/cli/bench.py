"""`tacit bench`: regret and speed of every policy, and how many decisions and rewards a second the service takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    write_json,
    write_text,
)
from tacit.errors import ServiceUnavailable

if TYPE_CHECKING:
    from tacit.experiments.tables import Table
    from tacit.service.load.measurement import LoadPlan

app = typer.Typer(
    help="Benchmarks: regret and speed of every policy, speed of the service.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

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


@app.command("serve")
def serve(
    *,
    seconds: Annotated[float, typer.Option(min=0.05, help="Length of each measurement, its warm-up aside.")] = 5.0,
    connections: Annotated[str, typer.Option(metavar="N[,N...]", help="Connections at a time.")] = "1,16,64",
    batch: Annotated[int, typer.Option(min=0, help="Decisions of a batch; 0 for no batches.")] = 50,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements whose median counts.")] = 3,
    wait: Annotated[float, typer.Option(min=0.001, help="reward_wait of the policy, in seconds.")] = 600.0,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="An empty PostgreSQL database, in place of SQLite.")
    ] = None,
    json_file: Json = None,
) -> None:
    """Measure durable pairs of a decision and its reward, beside a bare echo and a bare loop of fdatasync.

    One process serves stream-glm with d = 5 and K = 20, another one generates the load: run it on an idle machine. The
    store is in a folder for temporary files; the variable TMPDIR says on which disk. Exit code 1 when a server fails.

    \b
    Examples:
      tacit bench serve
      tacit bench serve --seconds 1 --connections 16 --repeats 1 --json load.json
      tacit bench serve --database postgresql://tacit@localhost/empty
    """
    check_writable(json_file)
    import uvicorn  # noqa: F401 - found out before anything is begun

    from tacit.service.load.measurement import LoadPlan

    if database is not None:
        import psycopg  # noqa: F401
    plan = LoadPlan(tuple(integers(connections, "--connections")), seconds, repeats, batch, wait, database)
    rows = _measured(plan)
    for table in tables(rows, plan):
        show(table, json_file)
    write_json(rows, json_file)


def _measured(plan: LoadPlan) -> list[dict[str, Any]]:
    """Measure under a progress bar; a server that fails is reported without a traceback."""
    from tacit.cli import progress
    from tacit.service.load.measurement import measure

    begun = 0
    with progress.bar("starting servers", plan.steps) as (bar, task):

        def count(description: str) -> None:
            nonlocal begun
            bar.update(task, description=description, completed=begun)
            begun += 1

        try:
            rows = measure(plan, count)
        except ServiceUnavailable as error:
            messages().print(str(error), style="bold", markup=False)
            raise typer.Exit(1) from error
        bar.update(task, description="measurements", completed=plan.steps)
    return rows


def tables(rows: list[dict[str, Any]], plan: LoadPlan) -> list[Table]:
    """Tabulate pairs, and batches where there were any."""
    return [
        _pairs_table([row for row in rows if "batch" not in row], plan),
        *(_batch_table(row) for row in rows if "batch" in row),
    ]


def _pairs_table(rows: list[dict[str, Any]], plan: LoadPlan) -> Table:
    from tacit.experiments.tables import Table

    cells = [
        (
            str(row["connections"]),
            f"{row['pairs_per_second']:,.0f}",
            *(_both(row, name) for name in ("", "decision_", "reward_")),
            _cpu(row["cpu_ms_per_pair"]),
            f"{row['echo_pairs_per_second']:,.0f}",
            _cpu(row["echo_cpu_ms_per_pair"]),
            f"{row['share_of_echo']:.2f}",
            f"{row['fdatasyncs_per_second']:,.0f}",
        )
        for row in rows
    ]
    latencies = (f"p50/p99 ms\n{name}" for name in ("pair", "decision", "reward"))
    columns = ("connections", "pairs/s", *latencies, "CPU ms\npair", "pairs/s\necho", "CPU ms\necho")
    store = "SQLite" if plan.database is None else "PostgreSQL"
    notes = (
        f"Medians over {plan.repeats} rounds of {plan.seconds:g} s. A pair is a decision, then its reward: "
        "both on the disk when answered.",
        "echo: two requests of the same bytes to an application that reads them and answers a constant; "
        "share: pairs to those of the echo beside it.",
        "CPU: processor time of the serving process. fdatasync: writes of 4 kB, one after the other.",
    )
    title = f"Decision service: stream-glm, d = 5, K = 20, {store}"
    narrow = ((0,), (1, 6), (2,), (3, 4), (5, 7), (8, 9))
    return Table(title, (*columns, "share", "fdatasync/s"), tuple(cells), notes=notes, narrow=narrow)


def _batch_table(row: dict[str, Any]) -> Table:
    from tacit.experiments.tables import Table

    columns = ("batches of", "connections", "decisions/s", "p50/p99 ms\nbatch", "CPU ms\ndecision")
    rate = f"{row['decisions_per_second']:,.0f}"
    cells = (str(row["batch"]), str(row["connections"]), rate, _both(row, ""), _cpu(row["cpu_ms_per_decision"]))
    return Table("Decisions in batches", columns, (cells,))


def _both(row: dict[str, Any], name: str) -> str:
    from tacit.experiments.tables import number

    return f"{number(row[f'{name}p50_ms'])} / {number(row[f'{name}p99_ms'])}"


def _cpu(spent: float | None) -> str:
    return "-" if spent is None else f"{spent:.3f}"
