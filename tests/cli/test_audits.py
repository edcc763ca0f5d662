"""`tacit audit`: options that reach the policies, and an exit code for what was not exercised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.audit.seldom import Seldom
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.policies import registry

SHORT = ("--epsilon", "4", "--runs", "20", "--pairs", "3", "--jobs", "1")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._REGISTERED, "seldom", Seldom)


def audit(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["audit", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_options_and_horizon_reach_the_policy(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    chosen = ("--option", "period=7", "--option", "honest=true", "--horizon", "35")
    output = audit("seldom", *chosen, *SHORT, "--json", str(rows)).output
    assert "Nothing refuted" in output
    found = {row["method"]: row for row in json.loads(rows.read_text())}
    contract = found["contract: choose reads no secrets"]
    assert contract["detail"] == "releases after 6, 13, 20, 27 decisions"
    assert contract["claim"] is None
    assert found["replay"]["verdict"] == "holds"


def test_what_was_not_exercised_is_named_and_fails(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    chosen = ("--option", "period=40", "--option", "honest=true", "--horizon", "30")
    output = audit("seldom", *chosen, *SHORT, "--json", str(rows), code=1).output
    verdicts = {row["verdict"] for row in json.loads(rows.read_text())}
    assert verdicts == {"not exercised"}
    assert "not exercised: seldom by replay" in output
    assert "claims were not exercised: nothing is known of them" in output


def test_a_policy_that_reads_raw_sums_is_refuted() -> None:
    output = audit("seldom", *SHORT, code=1).output
    assert "refuted: seldom by contract: choose reads no secrets: after 40 decisions choose read" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("seldom", "--option", "nonsense=1"), "no chosen policy knows it"),
        (("seldom", "--option", "horizon=9"), "use --horizon"),
        (("seldom", "--option", "period"), "KEY=VALUE"),
        (("seldom", "--option", "period=0"), "period"),
        (("tree", "--horizon", "9"), "are for policies"),
        (("mutants", "--option", "link=log"), "are for policies"),
    ],
)
def test_options_that_cannot_be_used_are_refused(arguments: tuple[str, ...], message: str) -> None:
    assert message in audit(*arguments, code=2).output
