"""Rewards as they come in life: late ones, those of a news site, rare ones; three tables, as Markdown.

    python benchmarks/late_and_rare.py --runs 8 --seed 1
    python benchmarks/late_and_rare.py --runs 12 --seed 1 --tables news

Late are ones after about 100 decisions and zeros after 1,000, one in twenty never; held is every reward at the age of
1,000 decisions.  Seeds below 1000 were never tuned on.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.experiments.runner import run_once
from tacit.experiments.spec import Experiment
from tacit.typing import FloatArray

AGE = {"reward_age": 1_000}
WAYS: dict[str, dict[str, Any]] = {
    "now": {},
    "late": {"rewards": "late"},
    "late, reward_age = 1,000": {"rewards": "late", "options": AGE},
    "held": {"rewards": "held"},
}


@dataclass(frozen=True)
class Study:
    """How many runs, and from which seed."""

    runs: int
    seed: int

    def regrets(self, **fields: Any) -> FloatArray:
        """Regret of each run of an experiment; the same worlds for all experiments of a setting."""
        experiment = Experiment(**fields)
        return np.array([run_once(experiment, self.seed, run).regret_curve[-1] for run in range(self.runs)])


def estimate(values: FloatArray, form: str) -> str:
    """Mean and standard error."""
    error = float(np.std(values, ddof=1)) / math.sqrt(values.size) if values.size > 1 else math.nan
    return f"{float(np.mean(values)):{form}} ± {error:{form}}"


def print_line(name: str, cells: list[str]) -> None:
    """A line of a table, as soon as it is known."""
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def print_head(title: str, columns: list[str]) -> None:
    """The first two lines of a table."""
    print_line(title, columns)
    print_line("---", ["---"] * len(columns))


def ball(study: Study) -> None:
    """What late rewards cost on `ball`: regret beyond that with immediate rewards, in the same worlds."""
    world = {"link": "logistic", "dim": 5, "arms": 20, "horizon": 20_000, "theta_norm": 3.5}
    private = {"policy": "stream-glm", "delta": 1e-6} | world
    epsilons = (math.inf, 8.0, 1.0)
    lost = float(np.mean(study.regrets(policy="random", **world))) / 20.0
    print(f"ball, d = 5, T = 20,000, S = 3.5, delta = 1e-6, {study.runs} runs, seed {study.seed}; ", end="")
    print(f"cost over immediate rewards; random loses {lost:.0f} in 1,000 rounds\n")
    print_head("rewards", [f"epsilon {epsilon:g}" for epsilon in epsilons])
    at_once = {epsilon: study.regrets(epsilon=epsilon, **private) for epsilon in epsilons}
    print_line("now: regret", [estimate(at_once[epsilon], ".0f") for epsilon in epsilons])
    for name, way in WAYS.items():
        if name != "now":
            costs = [study.regrets(epsilon=epsilon, **private, **way) - at_once[epsilon] for epsilon in epsilons]
            print_line(name, [estimate(cost, ".0f") for cost in costs])
    print()


def news(study: Study) -> None:
    """Share of the possible gain over random, and of the worst run, on the news site."""
    epsilons = (math.inf, 1.0)
    print(f"news, T = 20,000, theta_norm 3, delta = 1e-6, {study.runs} runs, seed {study.seed}; ", end="")
    print("share of the possible gain over random, and that of the worst run\n")
    print_head("features, what the policy is told, rewards", [f"epsilon {epsilon:g}" for epsilon in epsilons])
    for dim, bounds in ((25, (3.0, 12.0)), (5, (1.5, 6.0))):
        world = {"link": "logistic", "dim": dim, "arms": 5, "horizon": 20_000, "theta_norm": 3.0, "contexts": "news"}
        lost = study.regrets(policy="random", **world)
        told: dict[str, dict[str, Any]] = {
            "base_rate = 0.08": {"theta_bound": bounds[0], "base_rate": 0.08},
            "no base rate": {"theta_bound": bounds[1]},
        }
        for what, terms in told.items():
            for name in ("now", "late", "late, reward_age = 1,000"):
                private = {"policy": "stream-glm", "delta": 1e-6} | world | terms | WAYS[name]
                gains = [1.0 - study.regrets(epsilon=epsilon, **private) / lost for epsilon in epsilons]
                cells = [f"{estimate(gain, '.2f')} ({float(np.min(gain)):.2f})" for gain in gains]
                print_line(f"d = {dim}, {what}, {name}", cells)
    print()


def rare(study: Study) -> None:
    """Share of the possible gain over random where a reward is rare."""
    epsilons = (4.0, 1.0)
    world = {"link": "logistic", "dim": 10, "arms": 20, "horizon": 50_000, "theta_norm": 3.5, "base_rate": 0.01}
    lost = float(np.mean(study.regrets(policy="random", **world)))
    print(f"ball, d = 10, T = 50,000, S = 3.5, delta = 1e-6, {study.runs} runs, seed {study.seed}; ", end="")
    print("share of the possible gain over random\n")
    print_head("rewards", [f"epsilon {epsilon:g}" for epsilon in epsilons])
    private = {"policy": "stream-glm", "delta": 1e-6} | world
    gains = [1.0 - study.regrets(epsilon=epsilon, **private) / lost for epsilon in epsilons]
    print_line("base_rate = 0.01", [estimate(gain, ".3f") for gain in gains])
    print()


TABLES: dict[str, Callable[[Study], None]] = {"ball": ball, "news": news, "rare": rare}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    arguments = parser.parse_args()
    for name in arguments.tables:
        TABLES[name](Study(arguments.runs, arguments.seed))


if __name__ == "__main__":
    main()
