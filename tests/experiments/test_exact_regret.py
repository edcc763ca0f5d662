"""Exact noise beside float noise on the same worlds, by command."""

from __future__ import annotations

import pytest
from workloads import exact_regret


def test_both_kinds_of_noise_are_played(capsys: pytest.CaptureFixture[str]) -> None:
    code = exact_regret.main(["--runs", "2", "--horizon", "40", "--jobs", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert code in (0, 1)  # two runs decide nothing
    assert [line.split("|")[1].strip() for line in lines[2:]] == list(exact_regret.SETTINGS)


def test_differences_are_those_of_runs() -> None:
    mean, error = exact_regret.difference({"regrets": [11.0, 22.0, 33.0]}, {"regrets": [10.0, 20.0, 30.0]})
    assert mean == pytest.approx(2.0)
    assert error == pytest.approx(1.0 / 3**0.5)
