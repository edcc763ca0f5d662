"""Every row has norm at most 1 and the worst one has norm 1: the command's short form, and weights."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from workloads.feature_norms import hostile_records, main, norms, random_schema

from tacit.features import Category, Flag, Hashed, Number, Schema

WORST = 1.0 - 2.0**-40


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_random_schemas_are_within_the_ball_and_the_worst_one_is_at_its_edge(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(12):
        schema = random_schema(rng)
        largest, worst = norms(schema, rng, 100)
        assert largest <= 1.0
        assert worst == pytest.approx(WORST, abs=1e-14)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schemas", "3", "--records", "50", "--seed", "5"]) == 0
    assert "3 schemas" in capsys.readouterr().out


def test_rows_come_close_to_the_bound_by_themselves() -> None:
    """A bound that only the stated worst case reaches would be suspicious: hostile records reach it too."""
    rng = np.random.default_rng(3)
    largest = [norms(random_schema(rng), rng, 400)[0] for _ in range(30)]
    assert np.mean(np.array(largest) > 0.999) > 0.5


def test_weights_weigh_features_against_each_other() -> None:
    schema = Schema([Number("x", 0, 1, weight=3.0)], [Flag("f", weight=2.0)], crosses=[("x", "f")], intercept=False)
    assert schema.scales == pytest.approx(np.array([3.0, 2.0, 6.0]) / 7.0)
    row = schema.encode({"x": 0}, [{"f": True}])[0]
    assert row == pytest.approx(np.array([-3.0, 2.0, -6.0]) / 7.0)


def test_extreme_weights_stay_within_the_ball() -> None:
    schema = Schema(
        [Number("x", 0, 1, weight=1e6), Hashed("id", 3, tokens=3, weight=1e-6)],
        [Number("y", 0, 1, weight=1e6), Flag("f", weight=1e-6)],
        crosses=[("x", "y"), ("id", "f")],
    )
    user, arm = schema.worst()
    assert np.linalg.norm(schema.encode(user, [arm])) == pytest.approx(WORST, abs=1e-14)


def test_many_terms_stay_within_the_ball() -> None:
    """Rounding adds up over coordinates: the margin of 2^-40 holds for thousands of them."""
    schema = Schema(
        [Number(f"x{i}", -1, 1) for i in range(70)],
        [Number(f"y{i}", -1, 1) for i in range(70)],
        crosses=[(f"x{i}", f"y{j}") for i in range(70) for j in range(70)],
    )
    user, arm = schema.worst()
    row = schema.encode(user, [arm])[0]
    total = 0.0
    for value in row.tolist():  # one after the other
        total += value * value
    assert 0.99 < total <= 1.0
    assert math.fsum(value * value for value in row.tolist()) <= 1.0


def test_the_worst_records_fit_into_json() -> None:
    schema = Schema([Number("x", 0, 1), Hashed("id", 3)], [Category("a", [1, 2]), Flag("f")], per_arm="a")
    assert json.loads(json.dumps(schema.worst())) == list(schema.worst())


def test_no_row_holds_anything_but_numbers() -> None:
    rng = np.random.default_rng(9)
    for _ in range(20):
        schema = random_schema(rng)
        rows = schema.encode(hostile_records(rng, schema, 100))
        assert np.all(np.isfinite(rows))
        assert np.all(np.abs(rows) <= schema.scales)
