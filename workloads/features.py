"""Encoding: microseconds for one user with 20 arms, and rows per second for columns.

Records are read from JSON just before they are used, as they come from a request; the catalogue is prepared once.

python workloads/features.py --repeats 2000 --lines 200000
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tacit.features import Category, Flag, Hashed, Number, Schema

ARMS, WARM_UP = 20, 20
ONE = Schema(
    user=[
        Number("age", 0, 120),
        Category("device", ["ios", "android", "web"]),
        Flag("member"),
        Number("visits", 0, 50),
    ],
    arm=[
        Category("topic", ["news", "sport", "arts", "food"]),
        Number("minutes", 0, 60),
        Flag("new"),
        Number("price", 0, 9),
    ],
    crosses=[("device", "topic")],
)
MANY = Schema(
    user=[
        *(Category(name, [f"{name} {i}" for i in range(8)]) for name in ("device", "country", "plan")),
        *(Number(name, 0, 100) for name in ("age", "visits")),
    ],
    arm=[
        *(Category(name, [f"{name} {i}" for i in range(8)]) for name in ("topic", "format")),
        *(Number(name, 0, 100) for name in ("minutes", "price")),
        Flag("new"),
    ],
    crosses=[("device", "topic")],
)
HASHED = Schema(user=[*MANY.user[1:], Hashed("reader", 32)], arm=MANY.arm)


def records(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Columns as a list of dicts of Python's own values."""
    lists = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, line, strict=True)) for line in zip(*lists, strict=True)]


def requests(repeats: int, rng: np.random.Generator) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Users with their arms, each read from JSON just before it is asked for."""
    for _ in range(repeats):
        user, arms = records(ONE.sample_users(rng, 1))[0], records(ONE.sample_arms(rng, ARMS))
        read = json.loads(json.dumps([user, arms]))
        yield read[0], read[1]


def timed(call: Callable[..., object], *arguments: object) -> float:
    """Microseconds of one call."""
    start = time.perf_counter_ns()
    call(*arguments)
    return (time.perf_counter_ns() - start) / 1e3


def one_user(repeats: int, rng: np.random.Generator) -> None:
    """Time one user's arms, as `select` meets them."""
    catalogue = ONE.catalogue(ONE.sample_arms(rng, ARMS))
    times: dict[str, list[float]] = {}
    for user, arms in requests(repeats + WARM_UP, rng):
        for name, call, given in (
            (f"rows(user, {ARMS} arms)", ONE.rows, arms),
            (f"encode(user, {ARMS} arms)", ONE.encode, arms),
            (f"rows(user, catalogue of {ARMS})", ONE.rows, catalogue),
        ):
            times.setdefault(name, []).append(timed(call, user, given))
    print(f"| d = {ONE.dim}, 4 + 4 fields, a cross | p50 | p99 |\n|---|---|---|")
    for name, taken in times.items():
        median, high = np.quantile(taken[WARM_UP:], [0.5, 0.99])
        print(f"| {name} | {median:.1f} us | {high:.1f} us |")


def columns(lines: int, rng: np.random.Generator) -> None:
    """Time columns, the best of three."""
    print("\n| columns, 10 fields | d | rows per second |\n|---|---|---|")
    for name, schema in {"5 categories of strings": MANY, "4 of them and hashed ids": HASHED}.items():
        given = schema.sample_users(rng, lines) | schema.sample_arms(rng, lines)
        seconds = min(timed(schema.encode, given) for _ in range(3)) / 1e6
        print(f"| {name} | {schema.dim} | {lines / seconds:,.0f} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2_000)
    parser.add_argument("--lines", type=int, default=200_000)
    given = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    one_user(given.repeats, rng)
    columns(given.lines, rng)


if __name__ == "__main__":
    main()
