"""The benchmark of encoding runs, and encoding does no more work than it should."""

from __future__ import annotations

import re

import numpy as np
import pytest
from workloads import features

from tacit.features import Schema
from tests.steady import effort_of


def test_the_benchmark_prints_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    features.main(["--repeats", "200", "--lines", "20000"])
    text = capsys.readouterr().out
    medians = [float(found) for found in re.findall(r"\| ([\d.]+) us \| [\d.]+ us", text)]
    assert len(medians) == 3
    assert min(medians) > 0.0
    rates = [int(found.replace(",", "")) for found in re.findall(r"\| ([\d,]+) \|$", text, flags=re.MULTILINE)]
    assert len(rates) == 2
    assert min(rates) > 0


@pytest.mark.parametrize(("prepared", "most"), [(False, 350), (True, 100)])
def test_one_user_takes_a_few_calls_for_each_arm(prepared: bool, most: int) -> None:
    """60 microseconds at most on a quiet machine."""
    rng = np.random.default_rng(0)
    ((user, arms),) = features.requests(1, rng)
    given = features.ONE.catalogue(features.ONE.sample_arms(rng, features.ARMS)) if prepared else arms
    features.ONE.rows(user, given)
    assert effort_of(lambda: features.ONE.rows(user, given)).calls < most


@pytest.mark.parametrize(("schema", "most"), [(features.MANY, 7), (features.HASHED, 16)], ids=["many", "hashed"])
def test_columns_take_a_look_at_each_text_and_no_more(schema: Schema, most: int) -> None:
    """Above 300,000 rows a second on a quiet machine: a call for each of 5 texts in a row, and some to hash one."""
    lines = 20_000
    rng = np.random.default_rng(0)
    given = schema.sample_users(rng, lines) | schema.sample_arms(rng, lines)
    schema.encode(given)
    effort = effort_of(lambda: schema.encode(given))
    assert effort.calls < most * lines
    assert effort.peak < 2 * 8 * lines * schema.dim  # the rows themselves, and half as much
