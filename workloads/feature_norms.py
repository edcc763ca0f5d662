"""Norms of rows: random schemas meet hostile records, and every row must have norm at most 1.

The worst row of each schema must have norm at least 0.99: a scale that wastes nothing.  The command fails otherwise.

python workloads/feature_norms.py --schemas 1000 --records 1000 --seed 1
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.features import Category, Flag, Hashed, Number, Schema

LEAST_WORST = 0.99
KEY = "00112233445566778899aabbccddeeff"
NUMBERS: list[Any] = [None, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0, -0.0, 10**400, -(10**400), 0.1, 7]
TOKENS: list[Any] = ["", "x", "\ud800", "a" * 10_000, 0, -1, 2**64, 10**5000, -(10**5000), "7", 7]
Field = Number | Category | Flag | Hashed


def random_schema(rng: np.random.Generator) -> Schema:
    """A schema with up to 4 fields on each side, crosses of some of them, and perhaps parameters per arm."""
    while True:
        user = [random_field(rng, f"u{i}") for i in range(rng.integers(0, 5))]
        arm = [random_field(rng, f"a{i}") for i in range(rng.integers(0, 5))]
        categories = [field.name for field in arm if isinstance(field, Category)]
        per_arm = str(rng.choice(categories)) if categories and rng.random() < 0.5 else None
        crosses = [(u.name, a.name) for u in user for a in arm if a.name != per_arm and rng.random() < 0.3]
        intercept = bool(rng.random() < 0.7)
        if intercept or user or (arm and per_arm is None):
            return Schema(user, arm, crosses, per_arm, intercept)


def random_field(rng: np.random.Generator, name: str) -> Field:
    """A field of any kind, with a weight that is often not 1."""
    weight = float(10.0 ** rng.uniform(-3.0, 3.0)) if rng.random() < 0.5 else 1.0
    kind = rng.integers(4)
    if kind == 0:
        low = float(rng.normal() * 10.0 ** rng.uniform(-5.0, 5.0))
        return Number(name, low, low + float(10.0 ** rng.uniform(-3.0, 6.0)), weight=weight)
    if kind == 1:
        size = int(rng.integers(1, 6))
        values: Any = [f"v{i}" for i in range(size)] if rng.random() < 0.5 else list(range(size))
        return Category(name, values, weight=weight, other=bool(rng.random() < 0.5))
    if kind == 2:
        return Flag(name, weight=weight)
    return Hashed(name, int(rng.integers(1, 9)), tokens=int(rng.integers(1, 5)), key=KEY, weight=weight)


def hostile_value(rng: np.random.Generator, field: Field) -> Any:
    """What a field can be told without an error: missing, out of range, unknown, at an end, ordinary."""
    if isinstance(field, Number):
        near = [field.low, field.high, math.nextafter(field.high, math.inf), float(rng.uniform(field.low, field.high))]
        return _one_of(rng, NUMBERS + near * 3)
    if isinstance(field, Category):
        unknown = [None, math.nan, "unknown" if isinstance(field.values[0], str) else -5]
        return _one_of(rng, [*unknown, *field.values, *field.values])
    if isinstance(field, Flag):
        return _one_of(rng, [None, math.nan, True, False, 1, 0, 1.0, np.True_])
    several = [_one_of(rng, TOKENS) for _ in range(rng.integers(0, 8))]
    return _one_of(rng, [None, [], several, several, tuple(several), _one_of(rng, TOKENS), int(rng.integers(2**62))])


def _one_of(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def hostile_record(rng: np.random.Generator, fields: Sequence[Any]) -> dict[str, Any]:
    """A record that leaves some fields out."""
    return {field.name: hostile_value(rng, field) for field in fields if rng.random() < 0.9}


def hostile_records(rng: np.random.Generator, schema: Schema, count: int) -> list[dict[str, Any]]:
    """Records with fields of users and arms together."""
    return [hostile_record(rng, (*schema.user, *schema.arm)) for _ in range(count)]


def norms(schema: Schema, rng: np.random.Generator, records: int) -> tuple[float, float]:
    """The largest norm among hostile records, and that of the worst row."""
    rows = schema.encode(hostile_records(rng, schema, records))
    user, arm = schema.worst()
    worst = schema.encode(user, [arm])
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))  # NaN would show as well
    return float(np.max(lengths)), float(np.linalg.norm(worst))


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all schemas and print what was found; 1 when a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    rng = np.random.default_rng(given.seed)
    schemas = [random_schema(rng) for _ in range(given.schemas)]
    found = np.array([norms(schema, rng, given.records) for schema in schemas])
    largest, least_worst = np.max(found), np.min(found[:, 1])  # NaN if one of them is
    dims = [schema.dim for schema in schemas]
    print(f"{given.schemas:,} schemas (d from {min(dims)} to {max(dims)}), {given.records:,} hostile records each")
    print(
        f"largest norm of all: 1 - {1.0 - largest:.2e}; least norm of a schema's worst row: 1 - {1.0 - least_worst:.2e}"
    )
    return 0 if largest <= 1.0 and least_worst >= LEAST_WORST else 1


if __name__ == "__main__":
    raise SystemExit(main())
