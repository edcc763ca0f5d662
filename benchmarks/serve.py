"""How fast the service is: durable pairs of a decision and its reward, beside a bare echo and a bare loop of fdatasync.

    python -m benchmarks.serve
    python -m benchmarks.serve --connections 16 --seconds 1 --repeats 1 --json load.json
    python -m benchmarks.serve --database postgresql://tacit@localhost/empty

One process serves stream-glm with d = 5 and K = 20, another one generates the load: run it on an idle machine.  The
store is in a folder for temporary files; the variable TMPDIR says on which disk.  Exit code 1 when a server fails.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from itertools import count

from workloads.load.measurement import LoadPlan, Row, measure

from tacit.cli.shared import Refused, check_writable, show, write_json
from tacit.errors import TacitError
from tacit.experiments.tables import Table, number


def tables(rows: list[Row], plan: LoadPlan) -> list[Table]:
    """Pairs, and batches where there were any."""
    pairs = [row for row in rows if "batch" not in row]
    return [_pairs_table(pairs, plan), *(_batch_table(row) for row in rows if "batch" in row)]


def _pairs_table(rows: list[Row], plan: LoadPlan) -> Table:
    cells = [
        (
            str(row["connections"]),
            f"{row['pairs_per_second']:,.0f}",
            *(_latencies(row, name) for name in ("", "decision_", "reward_")),
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
    notes = (
        f"Medians over {plan.repeats} rounds of {plan.seconds:g} s. A pair is a decision, then its reward: "
        "both on the disk when answered.",
        "echo: two requests of the same bytes to an application that reads them and answers a constant; "
        "share: pairs to those of the echo beside it.",
        "CPU: processor time of the serving process. fdatasync: writes of 4 kB, one after the other.",
    )
    title = f"Decision service: stream-glm, d = 5, K = 20, {'PostgreSQL' if plan.database else 'SQLite'}"
    narrow = ((0,), (1, 6), (2,), (3, 4), (5, 7), (8, 9))
    return Table(title, (*columns, "share", "fdatasync/s"), tuple(cells), notes=notes, narrow=narrow)


def _batch_table(row: Row) -> Table:
    columns = ("batches of", "connections", "decisions/s", "p50/p99 ms\nbatch", "CPU ms\ndecision")
    rate = f"{row['decisions_per_second']:,.0f}"
    cells = (str(row["batch"]), str(row["connections"]), rate, _latencies(row), _cpu(row["cpu_ms_per_decision"]))
    return Table("Decisions in batches", columns, (cells,))


def _latencies(row: Row, name: str = "") -> str:
    return f"{number(row[f'{name}p50_ms'])} / {number(row[f'{name}p99_ms'])}"


def _cpu(spent: float | None) -> str:
    return "-" if spent is None else f"{spent:.3f}"


def main() -> None:
    """Measure, say on standard error what is under way, and print; what fails is told without a traceback."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="length of each measurement, its warm-up aside")
    parser.add_argument("--connections", type=int, nargs="+", metavar="N", help="connections at a time")
    parser.add_argument("--batch", type=int, help="decisions of a batch; 0 for no batches")
    parser.add_argument("--repeats", type=int, help="measurements whose median counts")
    parser.add_argument("--wait", type=float, help="reward_wait of the policy, in seconds")
    parser.add_argument("--database", metavar="URL", help="an empty PostgreSQL database, in place of SQLite")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON; - for standard output")
    parser.set_defaults(**asdict(LoadPlan()))
    given = vars(parser.parse_args())
    target, numbers = given.pop("json"), count(1)
    try:
        check_writable(target)
        plan = LoadPlan(**given)
        rows = measure(plan, lambda what: print(f"{next(numbers)}/{plan.steps} {what}", file=sys.stderr, flush=True))
    except (TacitError, Refused, OSError) as error:
        sys.exit(str(error))
    for table in tables(rows, plan):
        show(table, target)
    write_json(rows, target)


if __name__ == "__main__":
    main()
