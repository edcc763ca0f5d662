"""`tacit bench serve`: how many durable decisions and rewards a second the service takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.shared import Json, check_writable, integers, messages, show, write_json
from tacit.errors import ServiceUnavailable

if TYPE_CHECKING:
    from tacit.experiments.tables import Table
    from tacit.service.load.measurement import LoadPlan

FAILED = 1


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
    """Durable pairs of a decision and its reward, beside a bare echo and a bare loop of fdatasync.

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
    numbers = tuple(integers(connections, "--connections"))
    plan = LoadPlan(numbers, seconds, repeats, batch, wait, database)
    rows = _measured(plan)
    for table in tables(rows, plan):
        show(table, json_file)
    write_json(rows, json_file)


def _measured(plan: LoadPlan) -> list[dict[str, Any]]:
    """Measure under a progress bar; a server that fails is told of, without a traceback."""
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
            raise typer.Exit(FAILED) from error
        bar.update(task, description="measurements", completed=plan.steps)
    return rows


def tables(rows: list[dict[str, Any]], plan: LoadPlan) -> list[Table]:
    """One table of pairs, and one of batches where there were any."""
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
