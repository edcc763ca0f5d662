"""How regret grows with the horizon: fitted exponents of T, as a Markdown table.

python benchmarks/growth.py --runs 5 --seed 1
"""

from __future__ import annotations

import argparse

import numpy as np

from tacit.experiments.runner import run_all
from tacit.experiments.spec import Experiment

HORIZONS = (1_000, 3_000, 10_000, 30_000, 100_000)


def main() -> None:
    """Run the policies at all horizons, each planned for its own, and fit log regret against log T."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--epsilon", type=float, default=4.0)
    arguments = parser.parse_args()
    horizons = " | ".join(f"T = {horizon:,}" for horizon in HORIZONS)
    print(f"| epsilon = {arguments.epsilon:g}, probit, d = 3, S = 2.5 | {horizons} | exponent |")
    print("|---" * (len(HORIZONS) + 2) + "|")
    for policy in ("joint-glm", "stream-glm"):
        cells = [
            Experiment(policy, "probit", 3, 20, horizon, 2.5, epsilon=arguments.epsilon, delta=0.02)
            for horizon in HORIZONS
        ]
        rows = run_all(cells, runs=arguments.runs, seed=arguments.seed, jobs=arguments.jobs)
        means = [row["regret_mean"] for row in rows]
        exponent = np.polyfit(np.log(HORIZONS), np.log(means), 1)[0]
        texts = [f"{row['regret_mean']:.0f} ± {row['regret_se']:.0f}" for row in rows]
        print(f"| {policy} | {' | '.join(texts)} | {exponent:.2f} |", flush=True)


if __name__ == "__main__":
    main()
