"""What structure is worth: regret with it and without, and the cost of a round with hundreds and thousands of features.

    python benchmarks/structure.py regret --runs 50 --seed 1
    python benchmarks/structure.py size [--decisions 20000]

`regret`: five arms with five features of their own, d = 25, S = 6, logistic, T = 20,000, delta 1e-5, as Markdown.
`size`: select and update by records, exact noise, rewards that come 1,000 decisions late, for 100 arms with ten
features of their own (d = 1,000) and for a dense schema of 200 features: time of a round, memory of the state, and of
each decision that waits for its reward.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections import deque
from typing import Any

import numpy as np

import tacit
from tacit.cli.progress import run
from tacit.experiments.spec import Experiment
from tacit.features import Category, Number, Schema
from tacit.policies.policy import Policy
from tacit.policies.state import size_in_bytes

EPSILONS = (8.0, 4.0, 2.0, 1.0)
LATE = 1_000
OWN = Schema(
    user=[Number(f"f{i}", -1, 1) for i in range(9)],
    arm=[Category("arm", [f"a{i}" for i in range(100)])],
    per_arm="arm",
)
DENSE = Schema(user=[Number(f"f{i}", -1, 1) for i in range(99)], arm=[Number(f"g{i}", -1, 1) for i in range(100)])


def regret(runs: int, seed: int) -> None:
    """Mean regret with its standard error, a line with structure and one without."""
    settings: dict[str, dict[str, Any]] = {"structure": {"blocks": 5}, "none": {}}
    experiments = [
        Experiment("stream-glm", "logistic", 25, 5, 20_000, 6.0, "blocks", epsilon, 1e-5, options=options)
        for options in settings.values()
        for epsilon in EPSILONS
    ]
    rows = run(experiments, runs=runs, seed=seed, jobs=-1, engine="joblib", journal=None).rows
    print(f"| {runs} runs, seed {seed} | " + " | ".join(f"eps {epsilon:g}" for epsilon in EPSILONS) + " |")
    print("|---" * (1 + len(EPSILONS)) + "|")
    for name, line in zip(settings, (rows[: len(EPSILONS)], rows[len(EPSILONS) :]), strict=True):
        print(f"| {name} | " + " | ".join(f"{row['regret_mean']:.0f} ± {row['regret_se']:.0f}" for row in line) + " |")


def size(decisions: int) -> None:
    """Cost of a round and memory, by schema."""
    print("| schema | d | released | mean round | p50 | p99 | state | a waiting decision |")
    print("|---|---|---|---|---|---|---|---|")
    arms: list[dict[str, Any]] = [{"arm": f"a{i}"} for i in range(100)]
    _line("100 arms x 10 features", OWN, arms, decisions)
    rng = np.random.default_rng(1)
    dense_arms = [{f"g{i}": float(value) for i, value in enumerate(line)} for line in rng.uniform(-1, 1, (10, 100))]
    _line("dense, 10 arms", DENSE, dense_arms, decisions)


def _line(name: str, schema: Schema, arms: list[dict[str, Any]], decisions: int) -> None:
    rng, prepared = np.random.default_rng(0), schema.catalogue(arms)
    fields = [field.name for field in schema.user]
    users = [dict(zip(fields, map(float, line), strict=True)) for line in rng.uniform(-1, 1, (500, len(fields)))]
    policy = tacit.make_policy("stream-glm", features=schema, epsilon=1.0, delta=1e-6, theta_bound=3.5)
    waiting: deque[tacit.Decision] = deque()
    for turn in range(300):
        waiting.append(policy.select(user=users[turn % 500], arms=prepared))
    for decision in waiting:
        policy.update(decision, 0.0)
    policy = tacit.make_policy("stream-glm", features=schema, epsilon=1.0, delta=1e-6, theta_bound=3.5)
    times = np.array([_round(policy, users[turn % 500], prepared, waiting, turn) for turn in range(decisions)]) / 1e3
    entries = schema.support.size + schema.dim
    state, each = size_in_bytes(policy.state) / 1e6, _waiting_bytes(policy, users, prepared)
    print(
        f"| {name} | {schema.dim} | {entries:,} | {times.mean():.0f} us | {np.median(times):.0f} us | "
        f"{np.quantile(times, 0.99) / 1e3:.1f} ms | {state:.2f} MB | {each:.0f} bytes |",
        flush=True,
    )


def _round(policy: Policy, user: dict[str, float], arms: Any, waiting: deque[tacit.Decision], turn: int) -> int:
    """Nanoseconds of a decision and of a reward that was waited for."""
    if turn == 0:
        waiting.clear()
    start = time.perf_counter_ns()
    waiting.append(policy.select(user=user, arms=arms))
    if len(waiting) > LATE:
        policy.update(waiting.popleft(), float(turn % 3 == 0))
    return time.perf_counter_ns() - start


def _waiting_bytes(policy: Policy, users: list[dict[str, float]], arms: Any) -> float:
    """Memory that a decision takes while it waits."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for turn in range(200):
        policy.select(user=users[turn], arms=arms)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / 200


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["regret", "size"])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decisions", type=int, default=20_000)
    arguments = parser.parse_args()
    if arguments.what == "regret":
        regret(arguments.runs, arguments.seed)
    else:
        size(arguments.decisions)


if __name__ == "__main__":
    main()
