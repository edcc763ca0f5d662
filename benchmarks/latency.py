"""Latency of `select` and `update`, here and in another environment, in turn: medians and their ratio.

    python benchmarks/latency.py --other ../released/.venv/bin/python --repeats 7

Both interpreters need Tacit installed.  A machine that slows down slows down both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

WARM_UP, ROUNDS = 50, 1_400
Medians = dict[str, tuple[float, float]]


def measure() -> Medians:
    """Median microseconds of both calls for every policy; uses nothing that an older version lacks."""
    from tacit.policies.registry import POLICIES, make_policy, policy_class

    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((WARM_UP + ROUNDS, 20, 5))
    contexts *= 0.999 / np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
    found: Medians = {}
    for name in POLICIES:
        setting: dict[str, Any] = {"dim": 5, "horizon": 15_000, "link": "logistic", "theta_bound": 3.5, "seed": 0}
        if policy_class(name).guarantee != "none":
            setting |= {"epsilon": 4.0, "delta": 1e-5}
        policy, times = make_policy(name, **setting), np.empty((2, ROUNDS))
        for t in range(-WARM_UP, ROUNDS):
            start = time.perf_counter_ns()
            decision = policy.select(contexts[t])
            middle = time.perf_counter_ns()
            policy.update(decision, float(t % 2))
            if t >= 0:
                times[:, t] = middle - start, time.perf_counter_ns() - middle
        select, update = np.median(times, axis=1) / 1e3
        found[name] = float(select), float(update)
    return found


def main() -> None:
    """Compare two environments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="interpreter of the environment to compare with")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--measure", action="store_true", help="print this environment's medians as JSON")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure()))
        return
    runs: dict[str, list[Medians]] = {python: [] for python in (sys.executable, arguments.other) if python}
    for python in runs:
        _run(python)  # compiles
    for repeat in range(arguments.repeats):
        for python in list(runs)[:: 1 if repeat % 2 else -1]:
            runs[python].append(_run(python))
        print(f"{repeat + 1} of {arguments.repeats}", file=sys.stderr)
    for name in runs[sys.executable][0]:
        print(
            f"{name:16}" + "".join(f"   {call} {_cell(runs, name, i)}" for i, call in enumerate(("select", "update")))
        )


def _run(python: str) -> Medians:
    done = subprocess.run([python, __file__, "--measure"], capture_output=True, text=True, check=True)
    medians: Medians = json.loads(done.stdout)
    return medians


def _cell(runs: dict[str, list[Medians]], name: str, which: int) -> str:
    here, *others = (statistics.median(run[name][which] for run in medians) for medians in runs.values())
    return f"{here:6.1f} us" + "".join(f" against {other:6.1f} ({here / other:.3f})" for other in others)


if __name__ == "__main__":
    main()
