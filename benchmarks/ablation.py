"""What each part of `stream-glm` is worth: one option changed at a time, as a Markdown table.

python benchmarks/ablation.py --runs 20 --seed 7 > ablation.md
"""

from __future__ import annotations

import argparse
from typing import Any

from tacit._compile import compile_now
from tacit.experiments.runner import run_all
from tacit.experiments.spec import Experiment

SETTINGS: dict[str, dict[str, Any]] = {
    "probit d=3 S=2": {"link": "probit", "dim": 3, "arms": 20, "horizon": 5_000, "theta_norm": 2.0},
    "logistic d=5 S=3.5": {"link": "logistic", "dim": 5, "arms": 20, "horizon": 15_000, "theta_norm": 3.5},
    "logistic d=3 fixed": {
        "link": "logistic",
        "dim": 3,
        "arms": 20,
        "horizon": 5_000,
        "theta_norm": 3.5,
        "contexts": "fixed",
    },
    "logistic d=3 shift": {
        "link": "logistic",
        "dim": 3,
        "arms": 20,
        "horizon": 5_000,
        "theta_norm": 3.5,
        "contexts": "shift",
    },
}
VARIANTS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "factorization: binary tree": {"factorization": "tree"},
    "plain prefix instead of the filter": {"filtered": False},
    "score scale x 1/2": {"scale": 0.5},
    "score scale x 2": {"scale": 2.0},
    "weights: tangent only": {"blend": 0.0},
    "weights: secant only": {"blend": 1.0},
    "prior (lambda) x 1/4": {"prior": 0.25},
    "prior (lambda) x 4": {"prior": 4.0},
    "width 0 (greedy)": {"width": 0.0},
    "width 0.6": {"width": 0.6},
    "width 2.5": {"width": 2.5},
}


def experiment(setting: dict[str, Any], options: dict[str, Any], epsilon: float) -> Experiment:
    """One cell; a changed scale is a multiple of the derived one, which depends on the setting."""
    plain = Experiment("stream-glm", epsilon=epsilon, delta=0.02, **setting)
    if "scale" in options:
        derived = float(plain.make_policy(0).state.constants.scale)
        options = {"scale": options["scale"] * derived}
    return Experiment("stream-glm", epsilon=epsilon, delta=0.02, options=options, **setting)


def main() -> None:
    """Run all cells and print the table."""
    compile_now()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--epsilon", type=float, default=2.0)
    arguments = parser.parse_args()
    cells = [experiment(s, o, arguments.epsilon) for o in VARIANTS.values() for s in SETTINGS.values()]
    rows = run_all(cells, runs=arguments.runs, seed=arguments.seed, jobs=arguments.jobs)
    print(f"| epsilon = {arguments.epsilon:g}, {arguments.runs} runs | {' | '.join(SETTINGS)} |")
    print("|---" * (len(SETTINGS) + 1) + "|")
    for position, name in enumerate(VARIANTS):
        line = rows[position * len(SETTINGS) : (position + 1) * len(SETTINGS)]
        texts = [f"{row['regret_mean']:.0f} ± {row['regret_se']:.0f}" for row in line]
        print(f"| {name} | {' | '.join(texts)} |")


if __name__ == "__main__":
    main()
