"""`tacit audit`: rows and pictures, options that reach the policies, and an exit code for what went wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.audit.seldom import Seldom
from typer.testing import CliRunner

from tacit.audit import evidence
from tacit.audit.tasks import paper_tasks
from tacit.cli.app import app
from tacit.policies import registry
from tacit.privacy.noise import FastNoise

pytestmark = pytest.mark.slow

SHORT = ("--epsilon", "4", "--runs", "20", "--pairs", "3", "--jobs", "1")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._REGISTERED, "seldom", Seldom)


def audit(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["audit", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_command_writes_rows_and_a_picture(tmp_path: Path) -> None:
    rows, picture = tmp_path / "rows.json", tmp_path / "picture.png"
    asked = ("--runs", "50", "--pairs", "4", "--jobs", "1", "--json", str(rows), "--plot", str(picture))
    audit("tree,local-glm", *asked)
    found = json.loads(rows.read_text())
    assert {"name", "claim", "lower_bound", "method", "runs", "verdict"} <= set(found[0])
    assert {row["claim"] for row in found} == {1.0, 4.0, None}
    assert {row["method"] for row in found if row["claim"] is None} >= {"contract: choose reads no secrets"}
    assert {row["verdict"] for row in found} == {"holds"}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_command_fails_when_a_claim_is_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = FastNoise.gaussian
    rows = tmp_path / "rows.json"
    monkeypatch.setattr(FastNoise, "gaussian", lambda self, scale, shape: 0.5 * original(self, scale, shape))
    audit("toeplitz", "--epsilon", "4", "--jobs", "1", "--json", str(rows), code=1)
    assert json.loads(rows.read_text())[0]["verdict"] == "refuted"


@pytest.mark.parametrize("name", ["nothing", "mutants"])
def test_command_names_what_can_be_audited(name: str) -> None:
    assert "toeplitz" in audit(name, code=2).output


def test_paper_profile_is_shown_to_leak() -> None:
    (found,) = evidence.perform(paper_tasks(1e-5)[0])
    assert found.verdict == evidence.LEAK
    assert not found.failed


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
        (("seldom", "--option", "seldom:nonsense=1"), "seldom does not know it. Its options are seldom: "),
        (("seldom", "--option", "stream-glm:period=9"), "stream-glm is not among the chosen policies seldom"),
        (("seldom", "--option", "horizon=9"), "use --horizon"),
        (("seldom", "--option", "period"), "KEY=VALUE"),
        (("seldom", "--option", "period=0"), "period"),
        (("tree", "--horizon", "9"), "are for policies"),
        (("service", "--option", "link=log"), "are for policies"),
    ],
)
def test_options_that_cannot_be_used_are_refused(arguments: tuple[str, ...], message: str) -> None:
    assert message in audit(*arguments, code=2).output
