"""CPU of the service for a pair of a decision and its reward, here and in another tree, in turn: their ratio.

    python benchmarks/service_cost.py --other ../before/src --runs 10 [--wait 2]

``--other`` is the folder ``src`` of another checkout, run by the same interpreter.  Every run is a `tacit bench serve`
of its own, with a new store; ratios are taken between neighbours in time.  ``--wait`` is the policy's reward_wait: with
a short one decisions are settled and forgotten while it is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import stats

HERE = Path(__file__).resolve().parents[1] / "src"


def cpu_per_pair(source: Path, seconds: float, wait: float) -> float:
    """Milliseconds of the server's processor time for a pair, at 16 connections."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        options = ["--connections", "16", "--batch", "0", "--repeats", "1"]
        options += ["--seconds", str(seconds), "--wait", str(wait), "--json", str(rows)]
        subprocess.run(
            [sys.executable, "-m", "tacit", "bench", "serve", *options],
            env=os.environ | {"PYTHONPATH": str(source)},
            check=True,
            capture_output=True,
        )
        return float(json.loads(rows.read_text())[0]["cpu_ms_per_pair"])


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
