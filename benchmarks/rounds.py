"""Cost of a simulated round, environment included, here and in another installation, in turn.

    python benchmarks/rounds.py --other ../released/.venv/bin/python --policies joint-glm gloc --horizons 15000
    python benchmarks/rounds.py --other ../released/.venv/bin/python --policies all --links logistic probit log

Both interpreters need Tacit installed.  Printed are medians of processor time in microseconds and their ratio.  A
neighbour on the machine can slow down seconds of one run by half: each installation plays a run in turn, and the
median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import product
from typing import Any, Final

import numpy as np

THETA_NORMS: Final = {"logistic": 3.5, "probit": 2.5, "identity": 1.0, "log": 1.0}


def serve(policy: str, link: str, dim: int, horizon: int, options: dict[str, Any]) -> None:
    """Play a run for each line that comes in, and answer what a round took; uses nothing that 0.1.0 lacks."""
    from tacit.experiments.spec import Experiment
    from tacit.policies.registry import policy_class

    epsilon, delta = (None, None) if policy_class(policy).guarantee == "none" else (1.0, 1e-5)
    experiment = Experiment(policy, link, dim, 20, horizon, THETA_NORMS[link], "ball", epsilon, delta, options)
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

    def __init__(self, python: str, case: tuple[str, str, int, int], options: dict[str, Any]) -> None:
        environment = os.environ | {"TACIT_COMPILE": "now"}  # for versions up to 0.2.0, which compiled
        if python != sys.executable:
            environment.pop("PYTHONPATH", None)  # which would lead both interpreters to the same package
        self.process = subprocess.Popen(
            [python, __file__, "--serve", json.dumps([*case, options])],
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


def compare(other: str | None, case: tuple[str, str, int, int], options: dict[str, Any], repeats: int) -> str:
    """Measure one case in both installations: a line of the table."""
    with ExitStack() as ended:
        players = [Player(sys.executable, case, options)] + ([Player(other, case, {})] if other else [])
        for player in players:
            ended.callback(player.process.communicate)  # no more lines: it ends
        times: list[list[float]] = [[] for _ in players]
        for repeat in range(repeats):
            for player, found in list(zip(players, times, strict=True))[:: 1 if repeat % 2 else -1]:
                found.append(player.play())
    medians = [statistics.median(found) for found in times]
    policy, link, dim, horizon = case
    cells = [f"{median:8.2f}" for median in medians] + ([f"{medians[0] / medians[1]:6.2f}"] if other else [])
    return f"{policy:15} {link:9} {dim:3} {horizon:8,} " + " ".join(cells)


def main() -> None:
    """Compare two installations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="interpreter of the installation to compare with")
    parser.add_argument("--policies", nargs="+", default=["stream-glm"], help="names, or 'all'")
    parser.add_argument("--links", nargs="+", default=["logistic"], choices=THETA_NORMS)
    parser.add_argument("--dims", type=int, nargs="+", default=[5])
    parser.add_argument("--horizons", type=int, nargs="+", default=[20_000])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--options", type=json.loads, default={}, help="""of the policies here, as JSON, such as '{"noise": "exact"}'"""
    )
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    from tacit.policies.registry import POLICIES, policy_class

    names = POLICIES if given.policies == ["all"] else given.policies
    print("policy          link        d        T  us/round" + ("    other  ratio" if given.other else ""))
    for policy, link, dim, horizon in product(names, given.links, given.dims, given.horizons):
        if link in policy_class(policy).links:
            print(compare(given.other, (policy, link, dim, horizon), given.options, given.repeats), flush=True)


if __name__ == "__main__":
    main()
