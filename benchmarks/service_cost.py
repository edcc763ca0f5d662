"""CPU of the service for a pair of a decision and its reward, and pairs per second, here and in another tree, in turn.

    python -m benchmarks.service_cost --other ../before/src --runs 10 [--wait 2]

``--other`` is the folder ``src`` of another checkout, whose service is run by the same interpreter, under the load
generator of this one.  Every run has a new store; ratios are taken between neighbours in time.  ``--wait`` is the
policy's reward_wait: with a short one decisions are settled and forgotten while it is measured.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from scipy import stats
from workloads.load.measurement import LoadPlan, measure

HERE = Path(__file__).resolve().parents[1] / "src"


def measured(source: Path, seconds: float, wait: float) -> tuple[float, float]:
    """Milliseconds of the server's processor time for a pair, and pairs per second, at 16 connections."""
    os.environ["PYTHONPATH"] = str(source)  # of the servers, which are processes of their own
    (row,) = measure(LoadPlan((16,), seconds, repeats=1, batch=0, wait=wait), lambda step: None)
    return float(row["cpu_ms_per_pair"]), float(row["pairs_per_second"])


def summary(name: str, ratios: list[float]) -> str:
    """The mean ratio and its 95% interval."""
    mean, error = float(np.mean(ratios)), float(stats.sem(ratios))
    half = error * float(stats.t.ppf(0.975, len(ratios) - 1))
    return f"{name}: ratio {mean:.3f}, 95% interval {mean - half:.3f} to {mean + half:.3f}"


def main() -> None:
    """Measure in turn and print each pair of runs, the mean ratios and their 95% intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--wait", type=float, default=600.0)
    asked = parser.parse_args()
    cpu, rates = [], []
    for run in range(asked.runs):
        order = (HERE, asked.other) if run % 2 else (asked.other, HERE)
        found = {source: measured(source, asked.seconds, asked.wait) for source in order}
        (here, pairs), (there, other_pairs) = found[HERE], found[asked.other]
        cpu.append(here / there)
        rates.append(pairs / other_pairs)
        print(f"run {run + 1:2}: {here:.4f} ms here, {there:.4f} ms there, {cpu[-1]:.3f}; pairs/s {rates[-1]:.3f}")
    print(summary("CPU per pair", cpu))
    print(summary("pairs per second", rates))


if __name__ == "__main__":
    main()
