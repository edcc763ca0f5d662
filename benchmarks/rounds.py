"""Cost of a simulated round, environment included, here and in another installation, in turn.

    python benchmarks/rounds.py --other ../released/.venv/bin/python --policies joint-glm gloc --horizons 15000
    python benchmarks/rounds.py --other ../released/.venv/bin/python --policies all --links logistic probit log

Both interpreters need Tacit installed.  Printed are medians of processor time in microseconds and their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.in_turn import measured, serve

THETA_NORMS: Final = {"logistic": 3.5, "probit": 2.5, "identity": 1.0, "log": 1.0}


def experiment_of(policy: str, link: str, dim: int, horizon: int, options: dict[str, Any]) -> Any:
    """The experiment that is played; uses nothing that 0.1.0 lacks."""
    from tacit.experiments.spec import Experiment
    from tacit.policies.registry import policy_class

    epsilon, delta = (None, None) if policy_class(policy).guarantee == "none" else (1.0, 1e-5)
    return Experiment(policy, link, dim, 20, horizon, THETA_NORMS[link], "ball", epsilon, delta, options)


def play(experiment: Any, run: int) -> float:
    """Microseconds for a round: contexts and rewards are drawn, and the policy plays them."""
    policy, world = experiment.make_policy(run), experiment.environment()
    start = time.process_time()
    for block in world.blocks(np.random.default_rng([1000, run])):
        policy.play(block.contexts, block.rewards)
    return 1e6 * (time.process_time() - start) / float(experiment.horizon)


def compare(other: str | None, case: tuple[str, str, int, int], options: dict[str, Any], repeats: int) -> str:
    """Measure one case in both installations: a line of the table."""
    pythons = [sys.executable] + ([other] if other else [])
    medians = [statistics.median(found) for found in measured(__file__, [*case, options], pythons, repeats)]
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
        experiment = experiment_of(*given.serve)
        serve(lambda run: play(experiment, run))
        return
    from tacit.policies.registry import POLICIES, policy_class

    names = POLICIES if given.policies == ["all"] else given.policies
    print("policy          link        d        T  us/round" + ("    other  ratio" if given.other else ""))
    for policy, link, dim, horizon in product(names, given.links, given.dims, given.horizons):
        if link in policy_class(policy).links:
            print(compare(given.other, (policy, link, dim, horizon), given.options, given.repeats), flush=True)


if __name__ == "__main__":
    main()
