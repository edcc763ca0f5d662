"""Exact noise costs no regret: `stream-glm` with it beside the same with `fast` noise, as a Markdown table.

Runs are paired: both meet the same instances, contexts and rewards.  Exact noise comes from the operating system and
cannot be seeded, so that its column differs a little from call to call.  The command fails when a difference is larger
than three standard errors: with two it would, by chance, in one setting of 22.

python workloads/exact_regret.py --runs 80 --seed 1
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tacit.cli.progress import run
from tacit.cli.shared import INTERRUPTED
from tacit.experiments.results import Row
from tacit.experiments.spec import Experiment

SETTINGS = {
    "d = 5, T = 5,000, delta = 1e-6": Experiment("stream-glm", "logistic", 5, 20, 5_000, 3.5, epsilon=1.0, delta=1e-6),
    "d = 3, T = 5,000, fixed, delta = 1e-5": Experiment(
        "stream-glm", "logistic", 3, 20, 5_000, 3.5, contexts="fixed", epsilon=1.0, delta=1e-5
    ),
}
TOO_FAR = 3.0
"""Standard errors."""


def difference(exact: Row, fast: Row) -> tuple[float, float]:
    """Mean of exact - fast over runs, and its standard error."""
    paired = np.array(exact["regrets"]) - np.array(fast["regrets"])
    return float(np.mean(paired)), float(np.std(paired, ddof=1)) / math.sqrt(paired.size)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; 1 when exact noise makes a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=80, help="at least 2")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--horizon", type=int, default=None, help="cut longer settings to this")
    given = parser.parse_args(arguments)
    cells = [
        replace(chosen, horizon=min(chosen.horizon, given.horizon or chosen.horizon), options={"noise": noise})
        for chosen in SETTINGS.values()
        for noise in ("exact", "fast")
    ]
    outcome = run(cells, runs=given.runs, seed=given.seed, jobs=given.jobs)
    if not outcome.complete:
        return INTERRUPTED
    print(f"| epsilon = 1, {given.runs} runs, seed {given.seed} | exact | fast | exact - fast | in standard errors |")
    print("|---|---|---|---|---|")
    farthest = 0.0
    for name, exact, fast in zip(SETTINGS, outcome.rows[::2], outcome.rows[1::2], strict=True):
        mean, error = difference(exact, fast)
        regrets = " | ".join(f"{row['regret_mean']:.1f} ± {row['regret_se']:.1f}" for row in (exact, fast))
        print(f"| {name} | {regrets} | {mean:+.1f} ± {error:.1f} | {mean / error:+.1f} |")
        farthest = max(farthest, abs(mean / error))
    return 0 if farthest <= TOO_FAR else 1


if __name__ == "__main__":
    raise SystemExit(main())
