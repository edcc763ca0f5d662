"""Logs of experiments on the command line: `tacit schema` and `tacit replay`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pytest
from tests.evaluation.worlds import log_of
from typer.testing import CliRunner

from tacit.cli.app import app

FACTS = ["--range", "age=18,100", "--values", "drug=A,B,C"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "trial.csv"
    polars.DataFrame(log_of(300, {"A": 0.5, "B": 0.3, "C": 0.2})).write_csv(path)
    return path


def tacit(*arguments: str, code: int = 0, typed: str | None = None) -> Any:
    result = CliRunner().invoke(app, list(arguments), input=typed)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def schema(log: Path) -> Path:
    path = log.with_name("schema.json")
    tacit("schema", str(log), "--arm", "drug", "--leave-out", "cured", *FACTS, "--out", str(path))
    return path


def replay(log: Path, schema: Path, *arguments: str, code: int = 0) -> Any:
    common = ["--schema", str(schema), "--reward", "cured", "--jobs", "1", "--orders", "2"]
    return tacit("replay", str(log), *common, *arguments, code=code)


def test_a_schema_is_proposed_from_what_is_public(log: Path) -> None:
    shown = tacit("schema", str(log), "--arm", "drug", "--leave-out", "cured", *FACTS)
    assert [field["name"] for field in json.loads(shown.stdout)["user"]] == ["age", "smoker"]
    assert "Norm:" in shown.stderr
    refused = tacit("schema", str(log), "--arm", "drug", "--leave-out", "cured", code=2)
    assert "--range age=..." in refused.stderr
    read = tacit("schema", str(log), "--arm", "drug", "--leave-out", "cured", "--from-data")
    assert "not private: age" in read.stderr
    for flag, wrong, why in (
        ("--range", "age=1", "two numbers"),
        ("--range", "age", "COLUMN="),
        ("--values", "age=a,b", "are not all such"),
        ("--values", "weight=1,2", "no column 'weight'"),
    ):
        assert why in tacit("schema", str(log), "--arm", "drug", "--leave-out", "cured", flag, wrong, code=2).stderr


def test_what_policies_would_have_earned(log: Path, schema: Path, tmp_path: Path) -> None:
    target, picture = tmp_path / "rows.json", tmp_path / "values.png"
    arguments = ["--shares", "A=0.5,B=0.3,C=0.2", "--epsilon", "1,inf", "--policy", "stream-glm,random"]
    shown = replay(log, schema, *arguments, "--json", str(target), "--plot", str(picture))
    rows = json.loads(target.read_text())
    policies = [(row["policy"], row["options"].get("epsilon")) for row in rows if "policy" in row]
    assert policies == [("stream-glm", 1.0), ("stream-glm", "inf"), ("random", None)]
    assert [row["fixed"] for row in rows[3:]] == ["A", "B", "C", "random arms", "as they were given"]
    assert all(0.2 < row["estimates"]["doubly robust"]["mean"] < 0.9 for row in rows[:3])
    assert picture.stat().st_size > 10_000
    assert "no private release" in shown.stdout


def test_shares_may_be_counted_within_strata(log: Path, schema: Path) -> None:
    arguments = ["--stratum", "smoker", "--policy", "random", "--orders", "1"]
    assert "counted in the log" in replay(log, schema, *arguments).stdout
    rows = json.loads(replay(log, schema, *arguments, "--json", "-").stdout)
    assert rows[0]["estimates"]["replay"]["spread"] is None  # one order has none


def test_bad_values_are_refused_before_anything_is_played(log: Path, schema: Path, tmp_path: Path) -> None:
    arms = tmp_path / "arms.json"
    arms.write_text("{}")
    for arguments, why in (
        ([], "one of shares"),
        (["--shares", "A=x,B=0.5"], "--shares takes"),
        (["--shares", "equal", "--arms", str(arms)], "a list of records"),
        (["--shares", "equal", "--policy", "none"], "--policy: unknown"),
        (["--shares", "equal", "--option", "colour=red"], "no chosen policy knows it"),
    ):
        assert why in replay(log, schema, *arguments, code=2).stderr
