"""Regret of `stream-glm` over settings and epsilons, as a Markdown table; seeds below 1000 were never tuned on.

python benchmarks/stream_regret.py --runs 20 --seed 1                           (delta = 0.02, as in the paper)
python benchmarks/stream_regret.py --runs 50 --seed 1 --settings deployment     (small delta, longer runs)
"""

from __future__ import annotations

import argparse
from typing import Any

from tacit.experiments.results import Row
from tacit.experiments.runner import run_all
from tacit.experiments.spec import Experiment


def setting(
    link: str, dim: int, horizon: int, norm: float, contexts: str = "ball", delta: float = 0.02
) -> dict[str, Any]:
    """One line of the table."""
    shape = {"link": link, "dim": dim, "arms": 20, "horizon": horizon, "theta_norm": norm}
    return shape | {"contexts": contexts, "delta": delta}


PAPER = {
    "probit, d = 3, T = 5,000, S = 2": setting("probit", 3, 5_000, 2.0),
    "probit, d = 3, T = 5,000, S = 2.5": setting("probit", 3, 5_000, 2.5),
    "probit, d = 3, T = 5,000, S = 3": setting("probit", 3, 5_000, 3.0),
    "logistic, d = 5, T = 15,000, S = 3.5": setting("logistic", 5, 15_000, 3.5),
    "probit, d = 5, T = 5,000, S = 3": setting("probit", 5, 5_000, 3.0),
    "logistic, d = 3, T = 5,000, S = 3.5, fixed": setting("logistic", 3, 5_000, 3.5, "fixed"),
    "logistic, d = 3, T = 5,000, S = 3.5, shift": setting("logistic", 3, 5_000, 3.5, "shift"),
}
DEPLOYMENT = {
    "d = 10, T = 20,000, δ = 1e-6": setting("logistic", 10, 20_000, 3.5, delta=1e-6),
    "d = 5, T = 100,000, δ = 1e-6": setting("logistic", 5, 100_000, 3.5, delta=1e-6),
    "d = 5, T = 15,000, δ = 1e-5": setting("logistic", 5, 15_000, 3.5, delta=1e-5),
    "d = 20, T = 100,000, δ = 1e-6": setting("logistic", 20, 100_000, 3.5, delta=1e-6),
    "d = 20, T = 100,000, δ = 0.02": setting("logistic", 20, 100_000, 3.5),
    "d = 3, T = 5,000, fixed, δ = 1e-5": setting("logistic", 3, 5_000, 3.5, "fixed", delta=1e-5),
    "d = 3, T = 5,000, shift, δ = 1e-5": setting("logistic", 3, 5_000, 3.5, "shift", delta=1e-5),
    "probit, d = 3, S = 2.5, δ = 0.02": setting("probit", 3, 5_000, 2.5),
}
TABLES = {"paper": PAPER, "deployment": DEPLOYMENT}
EPSILONS = (8.0, 4.0, 2.0, 1.0)


def cell(row: Row) -> str:
    """Mean, standard error, and the worst run as a multiple of the mean."""
    return f"{row['regret_mean']:.1f} ± {row['regret_se']:.1f} (max {row['regret_max'] / row['regret_mean']:.1f}x)"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--settings", choices=list(TABLES), default="paper")
    arguments = parser.parse_args()
    print(f"| stream-glm, {arguments.runs} runs, seed {arguments.seed} | epsilon 8 | 4 | 2 | 1 |")
    print("|---|---|---|---|---|")
    for name, chosen in TABLES[arguments.settings].items():
        experiments = [Experiment("stream-glm", epsilon=epsilon, **chosen) for epsilon in EPSILONS]
        rows = run_all(experiments, runs=arguments.runs, seed=arguments.seed, jobs=arguments.jobs)
        print(f"| {name} | {' | '.join(map(cell, rows))} |", flush=True)


if __name__ == "__main__":
    main()
