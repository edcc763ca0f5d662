"""Logs of experiments on the command line: `tacit schema` and `tacit replay`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars
import pytest
from tests.evaluation.worlds import log_of
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.features import Category, Number, Schema

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


def test_numbers_stand_in_their_columns(log: Path, schema: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    shown = replay(log, schema, "--shares", "A=0.5,B=0.3,C=0.2", "--policy", "random", "--json", str(target))
    row, *_ = json.loads(target.read_text())
    means = [row["estimates"][name]["mean"] for name in ("replay", "inverse", "self-normalised", "doubly robust")]
    best = row["estimates"]["doubly robust"]
    cells = next(line for line in shown.stdout.splitlines() if line.strip().startswith("random ")).split()
    assert cells[1:-1] == [f"{value:.4f}" for value in (*means, best["spread"], best["error"])]
    assert best["spread"] != best["error"]


def played(log: Path, schema: Path, *arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(
        replay(log, schema, "--policy", "greedy-mle", *arguments, "--json", "-").stdout
    )
    return rows


def test_what_is_asked_for_is_what_is_played(log: Path, schema: Path, tmp_path: Path) -> None:
    shares = ["--shares", "A=0.5,B=0.3,C=0.2"]
    plain, part = played(log, schema, *shares), played(log, schema, *shares, "--lines", "100")
    assert [rows[0]["lines"] for rows in (plain, part)] == [300, 100]
    assert "at most 300" in replay(log, schema, *shares, "--lines", "301", code=2).stderr
    assert played(log, schema, *shares, "--seed", "1")[0] != plain[0] == played(log, schema, *shares, "--seed", "0")[0]
    frame = polars.read_csv(log)
    chance = polars.col("drug").replace_strict({"A": 0.5, "B": 0.3, "C": 0.2})
    doubled = frame.with_columns(p=chance, score=polars.col("cured") * 2.0)
    doubled.write_csv(tmp_path / "doubled.csv")
    assert played(tmp_path / "doubled.csv", schema, "--propensity", "p") == plain
    scored = ["--reward", "score", *shares]
    assert "score must lie in [0, 1]" in replay(tmp_path / "doubled.csv", schema, *scored, code=2).stderr
    found, *_ = played(tmp_path / "doubled.csv", schema, *scored, "--reward-bound", "2")
    assert found["options"]["reward_bound"] == 2.0
    means = [rows["estimates"]["inverse"]["mean"] for rows in (found, plain[0])]
    assert 1.5 < means[0] / means[1] < 2.5


def test_what_cannot_be_told_is_a_dash_and_what_is_doubtful_is_said(schema: Path, tmp_path: Path) -> None:
    path, target = tmp_path / "none.csv", tmp_path / "rows.json"
    log = log_of(90, {"A": 0.5, "B": 0.3, "C": 0.2})
    polars.DataFrame(log | {"cured": [0] * 90}).write_csv(path)
    arguments = ["--shares", "A=0.05,B=0.05,C=0.9", "--policy", "random"]
    picture = tmp_path / "values.png"
    shown = replay(path, schema, *arguments, "--json", str(target), "--plot", str(picture)).stdout
    cells = next(line for line in shown.splitlines() if line.strip().startswith("random ")).split()
    assert (cells[1:4], cells[6]) == (["0.0000"] * 3, "-")
    assert "nan" not in shown
    assert "inf" not in shown
    assert json.loads(target.read_text())[0]["estimates"]["doubly robust"]["error"] is None
    assert "Doubtful: " in shown
    assert "shares are wrong" in " ".join(shown.split())
    assert picture.stat().st_size > 5_000


def test_arms_of_several_fields_have_shares_by_name(tmp_path: Path) -> None:
    path, arms, schema = tmp_path / "log.csv", tmp_path / "arms.json", tmp_path / "schema.json"
    frame = polars.DataFrame({"shop": ["x", "y"] * 40, "price": [1, 2] * 40, "sold": [1, 0, 0, 0] * 20})
    frame.write_csv(path)
    arms.write_text(json.dumps([{"shop": "x", "price": 1}, {"shop": "y", "price": 2}]))
    offers = Schema(arm=[Category("shop", ["x", "y"]), Number("price", 0, 10)])
    schema.write_text(json.dumps(offers.to_json()))
    common = ["replay", str(path), "--schema", str(schema), "--reward", "sold", "--arms", str(arms), "--jobs", "1"]
    common += ["--orders", "1", "--policy", "random", "--json", "-", "--shares"]
    rows = json.loads(tacit(*common, "x, 1=0.25,y, 2=0.75").stdout)
    assert [row["fixed"] for row in rows[1:3]] == ["x, 1", "y, 2"]
    assert rows[3]["value"] == pytest.approx(0.375)  # of random arms: those who got x count three times
    assert "must name the arms" in tacit(*common, "x=0.25,y=0.75", code=2).stderr


def test_a_schema_asks_on_a_terminal(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.cli.schema.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    common = ["schema", str(log), "--leave-out", "cured", "--arm"]
    target = tmp_path / "asked.json"
    asked = tacit(*common, "smoker", "--values", "smoker=true,false", "--out", str(target), typed="18,100\nA,B,C\n")
    assert "age: smallest and largest value" in asked.stderr
    assert "drug: all values" in asked.stderr
    found = {field["name"]: field for field in json.loads(target.read_text())["user"]}
    assert (found["age"]["low"], found["age"]["high"]) == (18, 100)
    assert found["drug"]["values"] == ["A", "B", "C"]
    assert "two numbers" in tacit(*common, "drug", typed="18\n", code=2).stderr


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
        (["--shares", "A=0.5,B=0.3,C=0.2,D"], "--shares takes"),
        (["--shares", "A=0.5,B=0.3,C=0.2,C=0.2"], "one probability for each"),
        (["--shares", "equal", "--arms", str(arms)], "a list of records"),
        (["--shares", "equal", "--policy", "none"], "--policy: unknown"),
        (["--shares", "equal", "--option", "colour=red"], "no chosen policy knows it"),
    ):
        assert why in replay(log, schema, *arguments, code=2).stderr
