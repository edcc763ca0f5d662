"""All checks pass on the code as it is, and each mutant is caught by its check and leaves no trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tacit.audit import evidence
from tacit.audit.checks import CHECKS
from tacit.audit.mutants import MUTANTS, Mutant, changed, present
from tacit.cli.app import app
from tacit.privacy.noise import FastNoise

WANTED = (
    "noise halved",
    "sqrt(2) missing",
    "one clip removed",
    "noise of a node reused after restore",
    "noise redrawn for a node",
    "a reward counted twice",
    "refresh triggered by private data",
    "sensitivity of the score forgotten",
    "ledger charged for fewer rounds",
    "message one bit short",
    "n_min ignored",
    "score noise is minus the matrix noise",
    "a late row is linearised at its arrival",
    "noise of the optimizers halved, charge unchanged",
    "a pair of calls charged D, movers forgotten",
    "gradient diameter times 0.7",
    "a leaf that waits at an epoch's end counted twice",
    "what an epoch carries over doubled",
    "the ridge's pull is added to exact noise before the sum",
    "a recovery keeps the open leaf",
    "a recovery draws the noise of another life",
    "two calls at a time",
    "a file that cannot be marked is resumed",
    "copies of a private policy go on",
    "no clip for rewards that come late",
    "no clip for rewards that are kept",
    "exact noise drawn earlier is handed out again",
    "choose reads raw sums, after a first release that comes late",
)


def test_the_list_of_mutants_is_complete() -> None:
    assert set(WANTED) <= {mutant.fault for mutant in MUTANTS}
    assert {mutant.check for mutant in MUTANTS} == set(CHECKS)


@pytest.mark.parametrize("name", list(CHECKS))
def test_code_as_it_is_passes(name: str) -> None:
    assert CHECKS[name]() == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant) -> None:
    assert mutant.caught()


def test_mutants_leave_no_trace() -> None:
    before = [(owner, name, present(owner, name)) for mutant in MUTANTS for owner, name, _ in mutant.changes()]
    for mutant in MUTANTS:
        with changed(*mutant.changes()):
            pass
    assert all(present(owner, name) is value for owner, name, value in before)


def _audit(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["audit", *arguments, "--jobs", "1"])
    assert result.exit_code == code, result.output
    return result


def test_command_writes_rows_and_a_picture(tmp_path: Path) -> None:
    rows, picture = tmp_path / "rows.json", tmp_path / "picture.png"
    _audit("tree,local-glm", "--runs", "50", "--pairs", "4", "--json", str(rows), "--plot", str(picture))
    found = json.loads(rows.read_text())
    assert {"name", "claim", "lower_bound", "method", "runs", "verdict"} <= set(found[0])
    assert {row["claim"] for row in found} == {1.0, 4.0, None}
    assert {row["method"] for row in found if row["claim"] is None} >= {"contract: choose reads no secrets"}
    assert {row["verdict"] for row in found} == {"holds"}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_command_fails_when_a_claim_is_refuted(tmp_path: Path) -> None:
    original = FastNoise.gaussian
    rows = tmp_path / "rows.json"
    with changed((FastNoise, "gaussian", lambda self, scale, shape: 0.5 * original(self, scale, shape))):
        _audit("toeplitz", "--epsilon", "4", "--json", str(rows), code=1)
    assert json.loads(rows.read_text())[0]["verdict"] == "refuted"


def test_command_fails_when_a_mutant_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = Mutant("harmless", "none", "message width", "", lambda: ())
    monkeypatch.setattr(evidence, "MUTANTS", (harmless,))
    monkeypatch.setattr(evidence, "CHECKS", {"message width": CHECKS["message width"]})
    assert "survived" in _audit("mutants", code=1).output


def test_command_names_what_can_be_audited() -> None:
    assert "toeplitz" in _audit("nothing", code=2).output


def test_paper_profile_is_shown_to_leak() -> None:
    (found,) = evidence.perform(evidence.paper_tasks(1e-5)[0])
    assert found.verdict == evidence.LEAK
    assert not found.failed
