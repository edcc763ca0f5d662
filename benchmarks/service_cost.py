"""CPU of the service for a pair of a decision and its reward, here and in another tree, in turn: their ratio.

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


def cpu_per_pair(source: Path, seconds: float, wait: float) -> float:
    """Milliseconds of the server's processor time for a pair, at 16 connections."""
    os.environ["PYTHONPATH"] = str(source)  # of the servers, which are processes of their own
    (row,) = measure(LoadPlan((16,), seconds, repeats=1, batch=0, wait=wait), lambda step: None)
    return float(row["cpu_ms_per_pair"])


def main() -> None:
    """Measure in turn and print each pair, the mean ratio and its 95% interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--wait", type=float, default=600.0)
    asked = parser.parse_args()
    ratios = []
    for run in range(asked.runs):
        order = (HERE, asked.other) if run % 2 else (asked.other, HERE)
        found = {source: cpu_per_pair(source, asked.seconds, asked.wait) for source in order}
        ratios.append(found[HERE] / found[asked.other])
        print(f"run {run + 1:2}: {found[HERE]:.4f} ms here, {found[asked.other]:.4f} ms there, {ratios[-1]:.3f}")
    mean, error = float(np.mean(ratios)), float(stats.sem(ratios))
    half = error * float(stats.t.ppf(0.975, asked.runs - 1))
    print(f"ratio {mean:.3f}, 95% interval {mean - half:.3f} to {mean + half:.3f}")


if __name__ == "__main__":
    main()
