"""Schemas on the command line: `tacit simulate --schema` and `tacit plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tacit.cli.app import app

SHORT = ["--runs", "2", "--jobs", "1"]


def tacit(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


def simulate(*arguments: str, code: int = 0) -> Any:
    return tacit("simulate", "--policy", "random,greedy-mle", "--horizon", "300", *SHORT, *arguments, code=code)


def test_simulate_plays_users_of_a_schema(tmp_path: Path) -> None:
    target, picture = tmp_path / "rows.json", tmp_path / "regret.png"
    shown = simulate("--schema", "articles", "--json", str(target), "--plot", str(picture), "--rewards", "held")
    rows = json.loads(target.read_text())
    assert [(row["dim"], row["arms"], row["contexts"]) for row in rows] == [(33, 20, "schema")] * 2
    assert picture.stat().st_size > 10_000
    assert "contexts schema" in shown.stdout


def test_arms_are_those_of_the_schema_or_as_many_as_are_asked_for() -> None:
    for arguments, arms in (([], 4), (["--arms", "3"], 3), (["--arms", "30"], 4)):
        shown = simulate("--schema", "patients", "--json", "-", *arguments)
        assert json.loads(shown.stdout)[0]["arms"] == arms


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schema", "articles", "--dim", "3"], "--dim"),
        (["--schema", "articles", "--contexts", "ball"], "--contexts"),
        (["--contexts", "schema"], "--schema FILE"),
        (["--schema", "nowhere.json"], "no schema 'nowhere.json'"),
        (["--schema", "articles", "--option", "features=1"], "use --schema"),
    ],
)
def test_what_does_not_go_with_a_schema_is_refused_with_words(arguments: list[str], message: str) -> None:
    assert message in simulate(*arguments, code=2).stderr


def test_plan_says_from_when_on_it_pays(tmp_path: Path) -> None:
    target, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    files = ["--json", str(target), "--plot", str(picture)]
    shown = tacit("plan", "patients", "--epsilon", "4", "--base-rate", "0.3", "--decisions", "1500", *SHORT, *files)
    assert "At epsilon 4 per visit it" in shown.stdout
    assert "noise off" in shown.stdout
    assert "a single visit" in shown.stdout
    assert "6/6" in shown.stderr
    written = json.loads(target.read_text())
    assert [outlook["epsilon"] for outlook in written["outlooks"]] == [4.0, "inf"]
    assert set(written["outlooks"][0]["gains"]) == {"1000", "1500"}
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--effect", "1.2", "--theta-norm", "2"], "give one of them"),
        (["--runs", "1"], "at least 2"),
        (["--effect", "50"], "effect must be above 1 and at most"),
        (["--base-rate", "1.5"], "base_rate"),
        (["--epsilon", "inf"], "noise off is played anyway"),
    ],
)
def test_plan_refuses_with_words(arguments: list[str], message: str) -> None:
    assert message in tacit("plan", "patients", "--decisions", "1000", *arguments, code=2).stderr


def test_plan_has_help_with_an_example() -> None:
    assert "tacit plan articles" in tacit("plan", "--help").stdout.partition("Example")[2]
