"""All checks pass on the code as it is, and each mutant is caught by its check and leaves no trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mutants import __main__ as command
from tests.mutants import trials
from tests.mutants.__main__ import main
from tests.mutants.checks import CHECKS
from tests.mutants.mutants import MUTANTS, Mutant, changed, present
from tests.mutants.trials import SURVIVED, Trial, tried

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


def test_command_shows_what_was_caught(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "message-short", "--jobs", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no mutant message width passes" in shown
    assert "message-short message width caught" in shown


def test_quick_command_leaves_out_the_checks_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "message-short", "--only", "n-min-ignored", "--quick", "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    assert "no mutant" not in shown
    assert shown.count("caught") == 3  # in the title too


def test_command_fails_when_a_mutant_survives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harmless = Mutant("harmless", "none", "message width", "", lambda: ())
    monkeypatch.setattr(command, "MUTANTS", (harmless,))
    assert main(["--jobs", "1"]) == 1
    assert "survived: harmless by message width" in " ".join(capsys.readouterr().out.split())


def test_a_mutant_that_is_seen_for_another_reason_survives() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "message-short")
    assert tried(Trial(mutant.check, replace(mutant, because="something else"))).verdict == SURVIVED


def test_command_fails_when_a_check_fails_without_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "CHECKS", {"message width": lambda: ["always"]})
    assert main(["--only", "message-short", "--jobs", "1"]) == 1


def test_command_refuses_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--only", "nothing"])
    assert stopped.value.code == 2
    assert "noise-halved" in capsys.readouterr().err
