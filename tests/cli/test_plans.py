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


def test_plan_compares_schemas(tmp_path: Path) -> None:
    target, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    files = ["--json", str(target), "--plot", str(picture)]
    stated = ["--random", "0.3", "--one-arm", "0.34", "--best", "0.38,0.4", "--decisions", "1000", "--worlds", "4"]
    shown = tacit("plan", "patients", "articles", "--arms", "4", "--epsilon", "4", *stated, "--jobs", "1", *files)
    assert "With the 28 features of patients, epsilon 4 per visit" in shown.stdout
    assert "With the 33 features of articles" in shown.stdout
    assert "a single visit" in shown.stdout
    assert "8/8" in shown.stderr
    written = json.loads(target.read_text())
    assert [outlook["schema"] for outlook in written["outlooks"]] == ["patients", "articles"]
    assert [outlook["best_rate"] for outlook in written["outlooks"]] == [0.38, 0.4]
    assert written["assumptions"]["one_arm_rate"] == 0.34
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["patients", "--random", "0.4", "--best", "0.3"], "best_rate must be above random_rate=0.4"),
        (["patients", "--random", "0.4", "--best", "1.3"], "best_rate must lie strictly between 0 and 1"),
        (["patients", "--random", "0.1", "--best", "0.5"], "best_rate must be at most 0.4"),
        (["patients", "--random", "0.1", "--best", "0.2", "--one-arm", "0.3"], "one_arm_rate must lie between"),
        (["articles", "--random", "0.1", "--best", "0.2"], "arms must be given"),
        (["patients", "--random", "0.1"], "--best"),
        (["patients", "--random", "0.1", "--best", "0.2,0.3"], "one rate or one for each of 1 schemas"),
    ],
)
def test_plan_refuses_with_words(arguments: list[str], message: str) -> None:
    assert message in tacit("plan", *arguments, code=2).stderr


def test_plan_has_help_with_an_example() -> None:
    assert "tacit plan articles" in tacit("plan", "--help").stdout.partition("Example")[2]
