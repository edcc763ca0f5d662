"""Cost of `select`, `update` and a round of `play`, here and in another environment, in turn: medians and their ratio.

    python benchmarks/latency.py --other ../released/.venv/bin/python --repeats 7 [--policies joint-glm ...]

Both interpreters need Tacit installed.  A neighbour on the machine can slow down seconds of one run by half: each
policy is measured several times in a process, a pass over all others between, and the fastest counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

WARM_UP, ROUNDS, PLAYED, PASSES = 50, 1_400, 3_000, 4
CALLS = ("select", "update", "play")
Medians = dict[str, tuple[float, ...]]


def measure(names: list[str]) -> Medians:
    """Median microseconds of each call for every policy, in its fastest pass."""
    from tacit.policies.registry import POLICIES

    chosen = names or list(POLICIES)
    passes = [{name: _measure_one(name) for name in chosen} for _ in range(PASSES)]
    return {name: tuple(map(min, *(found[name] for found in passes))) for name in chosen}


def _measure_one(name: str) -> tuple[float, ...]:
    """The same for one policy, once; uses nothing that an older version lacks."""
    from tacit.policies.registry import make_policy, policy_class

    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((PLAYED, 20, 5))
    contexts *= 0.999 / np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
    rewards = (rng.random((PLAYED, 20)) < 0.5).astype(np.float64)
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
    rounds = []
    for _ in range(3):  # the first one warms up
        policy, start = make_policy(name, **setting), time.perf_counter_ns()
        policy.play(contexts, rewards)
        rounds.append((time.perf_counter_ns() - start) / PLAYED)
    select, update = np.median(times, axis=1) / 1e3
    return float(select), float(update), min(rounds[1:]) / 1e3


def main() -> None:
    """Compare two environments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="interpreter of the environment to compare with")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--policies", nargs="*", default=[], help="only these; all when left out")
    parser.add_argument("--measure", action="store_true", help="print this environment's medians as JSON")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.policies)))
        return
    runs: dict[str, list[Medians]] = {python: [] for python in (sys.executable, arguments.other) if python}
    for python in runs:
        _run(python, arguments.policies)  # compiles
    for repeat in range(arguments.repeats):
        for python in list(runs)[:: 1 if repeat % 2 else -1]:
            runs[python].append(_run(python, arguments.policies))
        print(f"{repeat + 1} of {arguments.repeats}", file=sys.stderr)
    for name in runs[sys.executable][0]:
        print(f"{name:16}" + "".join(f"   {call} {_cell(runs, name, i)}" for i, call in enumerate(CALLS)))


def _run(python: str, names: list[str]) -> Medians:
    command = [python, __file__, "--measure", "--policies", *names]
    environment = os.environ | {"TACIT_COMPILE": "now"}  # for versions up to 0.2.0, which compiled
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    medians: Medians = json.loads(done.stdout)
    return medians


def _cell(runs: dict[str, list[Medians]], name: str, which: int) -> str:
    here, *others = (statistics.median(run[name][which] for run in medians) for medians in runs.values())
    return f"{here:6.1f} us" + "".join(f" of {other:6.1f} ({here / other:.3f})" for other in others)


if __name__ == "__main__":
    main()
