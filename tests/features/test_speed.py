"""The benchmark of encoding runs, and encoding is not slow by a mistake."""

from __future__ import annotations

import re

import pytest
from benchmarks import features


def test_the_benchmark_prints_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    features.main(["--repeats", "200", "--lines", "20000"])
    text = capsys.readouterr().out
    medians = [float(found) for found in re.findall(r"\| ([\d.]+) us \| [\d.]+ us", text)]
    assert len(medians) == 3
    assert max(medians) < 600.0  # at most 60 on an idle machine
    rates = [int(found.replace(",", "")) for found in re.findall(r"\| ([\d,]+) \|$", text, flags=re.MULTILINE)]
    assert len(rates) == 2
    assert min(rates) > 30_000  # above 300,000 on an idle machine
