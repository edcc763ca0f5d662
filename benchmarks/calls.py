"""Cost of `select` and `update` for one user, here and in another installation, in turn.

    python benchmarks/calls.py --other ../released/.venv/bin/python --dims 5 20 50 200 --schema
    python benchmarks/calls.py --policies joint-glm gloc

A policy that has seen 10,000 rounds decides for users with 20 arms, and learns their rewards.  `--schema` measures
`stream-glm` by records as well: 48 arms with 21 features of their own, d = 1,008.  Printed are processor times of a
pair of calls in microseconds: the median of blocks of 50 pairs, most of which release nothing, and the mean of all
pairs with the releases among them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.in_turn import measured, serve

ARMS, ROUNDS, BLOCK, BLOCKS = 20, 10_000, 50, 8
BY_RECORDS = 0
"""Stands for the schema in place of a dimension."""


def measure(policy: str, dim: int) -> Callable[[int], list[float]]:
    """Return a function that takes blocks of pairs and returns what each took; uses nothing that 0.2.0 lacks."""
    from tacit.policies.registry import make_policy, policy_class

    setting: dict[str, Any] = {"link": "logistic", "theta_bound": 3.0, "seed": 1}
    if policy_class(policy).guarantee != "none":
        setting |= {"epsilon": 1.0, "delta": 1e-6}
    rng = np.random.default_rng(1000 + dim)
    if dim == BY_RECORDS:
        schema, calls = _schema(), _requests(rng)
        made = make_policy(policy, features=schema, **setting)
        catalogue = schema.catalogue([{"article": number} for number in range(48)])
        requests = [{"user": user, "arms": catalogue.take(shown)} for user, shown in calls]
        for turn in range(ROUNDS // 10):  # a tenth of the rounds: there is no `play` by records
            made.update(made.select(**requests[turn % len(requests)]), float(turn % 3 == 0))
    else:
        made = make_policy(policy, dim=dim, horizon=1_000_000, **setting)
        for _ in range(ROUNDS // 500):
            made.play(_arms(rng, 500, dim), (rng.random((500, ARMS)) < 0.4).astype(float))
        requests = [{"contexts": arms} for arms in _arms(rng, BLOCK, dim)]
    rewards = (rng.random(BLOCK) < 0.4).astype(float).tolist()

    def block() -> float:
        start = time.process_time_ns()
        for request, reward in zip(requests, rewards, strict=True):
            made.update(made.select(**request), reward)
        return (time.process_time_ns() - start) / BLOCK / 1e3

    return lambda turn: [block() for _ in range(BLOCKS)]


def _arms(rng: np.random.Generator, users: int, dim: int) -> Any:
    """Arms of so many users, uniform in the unit ball."""
    points = rng.standard_normal((users, ARMS, dim))
    lengths = 0.999 * rng.random((users, ARMS, 1)) ** (1.0 / dim)
    return points * lengths / np.linalg.norm(points, axis=2, keepdims=True)


def _schema() -> Any:
    from tacit.features import Category, Flag, Number, Schema

    return Schema(
        user=[
            *(Number(name, 0, 100) for name in ("age", "visits", "minutes")),
            Category("device", ["phone", "tablet", "computer"]),
            Category("region", list("abcdef")),
            Category("hour", list("mnop")),
            *map(Flag, ("subscriber", "old", "mail", "app")),
        ],
        arm=[Category("article", list(range(48)))],
        per_arm="article",
    )


def _requests(rng: np.random.Generator) -> list[tuple[dict[str, Any], Any]]:
    """Users, and which articles each of them is shown."""
    numbers = {"age": 100.0, "visits": 100.0, "minutes": 100.0}
    choices = {"device": ["phone", "tablet", "computer"], "region": list("abcdef"), "hour": list("mnop")}
    flags = {name: [False, True] for name in ("subscriber", "old", "mail", "app")}
    found = []
    for _ in range(BLOCK):
        user: dict[str, Any] = {name: float(rng.uniform(0, most)) for name, most in numbers.items()}
        user |= {name: values[rng.integers(len(values))] for name, values in (choices | flags).items()}
        found.append((user, rng.choice(48, ARMS, replace=False)))
    return found


def main() -> None:
    """Compare two installations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="interpreter of the installation to compare with")
    parser.add_argument("--policies", nargs="+", default=["stream-glm"])
    parser.add_argument("--dims", type=int, nargs="*", default=[5])
    parser.add_argument("--schema", action="store_true", help="also measure stream-glm by records, d = 1,008")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(measure(*given.serve))
        return
    cases = [[policy, dim] for policy in given.policies for dim in given.dims]
    pythons = [sys.executable] + ([given.other] if given.other else [])
    print("policy              d    median" + ("    other  ratio" if given.other else "") + "      mean")
    for policy, dim in cases + ([["stream-glm", BY_RECORDS]] if given.schema else []):
        times = [np.array(found) for found in measured(__file__, [policy, dim], pythons, given.repeats)]
        print(f"{policy:15} {dim or 1_008:5} " + _cells(np.median, times) + "  " + _cells(np.mean, times), flush=True)


def _cells(middle: Callable[[Any], Any], times: list[Any]) -> str:
    """Medians over the runs of what ``middle`` makes of a run, and their ratio."""
    values = [statistics.median(float(middle(run)) for run in found) for found in times]
    return " ".join([f"{value:8.2f}" for value in values] + [f"{values[0] / other:6.2f}" for other in values[1:]])


if __name__ == "__main__":
    main()
