"""Cost of a simulated round of `stream-glm`, environment included, here and in another installation, in turn.

    python benchmarks/rounds.py --other ../released/.venv/bin/python --dims 5 50 --horizons 20000 100000 --repeats 7

Both interpreters need Tacit installed.  Printed are medians of processor time in microseconds, with the noise of a
seeded run and with exact noise, and their ratios to the other installation's seeded run.  A neighbour on the machine
can slow down seconds of one run by half: each installation plays a run in turn, and the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

OPTIONS: dict[str, dict[str, Any]] = {"seeded": {}, "exact": {"noise": "exact"}}


def serve(dim: int, horizon: int, options: dict[str, Any]) -> None:
    """Play a run for each line that comes in, and answer what a round took; uses nothing that 0.1.0 lacks."""
    from tacit.experiments.spec import Experiment

    experiment = Experiment("stream-glm", "logistic", dim, 20, horizon, 3.5, "ball", 1.0, 1e-5, options=options)
    play(experiment, 0)  # loads what is loaded once
    for run, _ in enumerate(sys.stdin):
        print(play(experiment, run), flush=True)


def play(experiment: Any, run: int) -> float:
    """Microseconds for a round: contexts and rewards are drawn, and the policy plays them."""
    policy, world = experiment.make_policy(run), experiment.environment()
    start = time.process_time()
    for block in world.blocks(np.random.default_rng([1000, run])):
        policy.play(block.contexts, block.rewards)
    return 1e6 * (time.process_time() - start) / float(experiment.horizon)


class Player:
    """A process that plays runs when it is asked to."""

    def __init__(self, python: str, dim: int, horizon: int, options: dict[str, Any]) -> None:
        command = [python, __file__, "--serve", "--dims", str(dim), "--horizons", str(horizon)]
        environment = os.environ | {"TACIT_COMPILE": "now"}  # for versions up to 0.2.0, which compiled
        if python != sys.executable:
            environment.pop("PYTHONPATH", None)  # which would lead both interpreters to the same package
        self.process = subprocess.Popen(
            [*command, "--options", json.dumps(options)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def play(self) -> float:
        """Microseconds for a round of one more run."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


@contextmanager
def players(python: str, other: str | None, dim: int, horizon: int) -> Iterator[dict[str, Player]]:
    """One process for each column of the table; all of them end with the block."""
    columns = {name: Player(python, dim, horizon, options) for name, options in OPTIONS.items()}
    if other is not None:
        columns["other"] = Player(other, dim, horizon, {})
    try:
        yield columns
    finally:
        for player in columns.values():
            player.process.communicate()  # no more lines: it ends


def compare(other: str | None, dim: int, horizon: int, repeats: int) -> str:
    """A line of the table."""
    with players(sys.executable, other, dim, horizon) as columns:
        times: dict[str, list[float]] = {name: [] for name in columns}
        for repeat in range(repeats):
            for name in list(columns)[:: 1 if repeat % 2 else -1]:
                times[name].append(columns[name].play())
    medians = {name: statistics.median(found) for name, found in times.items()}
    base = medians.get("other")
    cells = [
        f"{medians[name]:7.2f}" + (f" ({medians[name] / base:.2f})" if base and name != "other" else "")
        for name in medians
    ]
    return f"{dim:3} {horizon:8}   " + "   ".join(cells)


def main() -> None:
    """Compare two installations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="interpreter of the installation to compare with")
    parser.add_argument("--dims", type=int, nargs="+", default=[5, 50])
    parser.add_argument("--horizons", type=int, nargs="+", default=[20_000])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--serve", action="store_true", help="play a run for each line of the input")
    parser.add_argument("--options", type=json.loads, default={}, help="of the policy, as JSON, for --serve")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.dims[0], arguments.horizons[0], arguments.options)
        return
    print("  d  horizon   us a round: seeded, exact" + (", the other one's; ratios to that" if arguments.other else ""))
    for dim in arguments.dims:
        for horizon in arguments.horizons:
            print(compare(arguments.other, dim, horizon, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
