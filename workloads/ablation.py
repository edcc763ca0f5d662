"""What each part of `stream-glm`'s estimate is worth: one option changed at a time, as a Markdown table.

Runs are paired: every line meets the same instances, contexts and rewards as the default.  Its regret is given; that of
the other lines is given as the difference to it, with the standard error of the difference.

python workloads/ablation.py --runs 20 --seed 1
python workloads/ablation.py --runs 2 --horizon 500      (a quick look: no setting is longer)
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.cli.progress import run
from tacit.cli.shared import INTERRUPTED
from tacit.experiments.results import Row
from tacit.experiments.spec import Experiment

OLD_PRIOR = "prior d / S^2"
VARIANTS: dict[str, dict[str, Any]] = {
    "H shrunk to the identity": {"shrinkage": "identity"},
    "H not shrunk": {"shrinkage": "none"},
    "both widths 1.25": {"width": 1.25, "noise_width": 1.25},
    "both widths 1.5": {"noise_width": 1.5},
    "no optimism": {"width": 0.0, "noise_width": 0.0},
    "blend 0 (tangents)": {"blend": 0.0},
    "blend 1/3": {"blend": 1 / 3},
    "blend 1 (secants)": {"blend": 1.0},
    OLD_PRIOR: {},
    "no head start": {"head_start": 0.0},
    "toeplitz": {"factorization": "toeplitz"},
    "tree": {"factorization": "tree"},
}


def setting(dim: int, horizon: int, contexts: str, delta: float) -> Experiment:
    """The default policy in one setting."""
    return Experiment("stream-glm", "logistic", dim, 20, horizon, 3.5, contexts=contexts, delta=delta)


SETTINGS = {
    "d = 5": setting(5, 15_000, "ball", 1e-5),
    "d = 10": setting(10, 20_000, "ball", 1e-6),
    "fixed": setting(3, 5_000, "fixed", 1e-5),
    "shift": setting(3, 5_000, "shift", 1e-5),
}
EPSILONS = (8.0, 1.0)


def varied(default: Experiment, name: str) -> Experiment:
    """The experiment with what the line changes."""
    if name == OLD_PRIOR:
        return replace(default, options={"prior": default.dim / (default.dim + 2)})
    return replace(default, options=VARIANTS[name])


def table(columns: Sequence[str], rows: Sequence[Row], lines: int) -> str:
    """A line for the default and one for each variant; ``rows`` go through the lines of a column first."""
    defaults = rows[::lines]
    texts = [f"| default | {' | '.join(_shown(row['regret_mean'], row['regret_se']) for row in defaults)} |"]
    for position, name in enumerate(VARIANTS, start=1):
        cells = [_difference(row, default) for row, default in zip(rows[position::lines], defaults, strict=True)]
        texts.append(f"| {name} | {' | '.join(cells)} |")
    runs = defaults[0]["runs"]
    heading = f"| stream-glm, {runs} runs, seed {defaults[0]['seed']} | {' | '.join(columns)} |"
    return "\n".join([heading, "|---" * (len(columns) + 1) + "|", *texts])


def _difference(row: Row, default: Row) -> str:
    differences = np.array(row["regrets"]) - np.array(default["regrets"])
    spread = float(np.std(differences, ddof=1)) if differences.size > 1 else math.nan
    return _shown(float(np.mean(differences)), spread / math.sqrt(differences.size), sign="+")


def _shown(mean: float, error: float, sign: str = "") -> str:
    return f"{mean:{sign}.1f} ± {error:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--engine", default="joblib", help="joblib or ray")
    parser.add_argument("--horizon", type=int, default=None, help="cut longer settings to this")
    given = parser.parse_args(arguments)
    columns, cells = [], []
    for name, chosen in SETTINGS.items():
        for epsilon in EPSILONS:
            horizon = min(chosen.horizon, given.horizon or chosen.horizon)
            default = replace(chosen, epsilon=epsilon, horizon=horizon)
            columns.append(f"{name}, ε = {epsilon:g}")
            cells += [default, *(varied(default, variant) for variant in VARIANTS)]
    outcome = run(cells, runs=given.runs, seed=given.seed, jobs=given.jobs, engine=given.engine)
    if not outcome.complete:
        raise SystemExit(INTERRUPTED)
    print(table(columns, outcome.rows, 1 + len(VARIANTS)))


if __name__ == "__main__":
    main()
