"""Policies do what the recorded rows say (`tests/oracle`): two seeds of usual cases, one of all other small ones.

All seeds of all cases: ``python -m tests.oracle compare``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.policies.registry import POLICIES
from tests.oracle import __main__ as oracle
from tests.oracle.__main__ import main, record
from tests.oracle.cases import LINKS, Case, Outcome, all_cases, chosen_cases, play, play_seeds
from tests.oracle.comparison import Comparison, compare
from tests.oracle.explained import Explanation, reason_for
from tests.oracle.rows import SEEDS, Rows, pack, read, unpack
from tests.steady import OTHERS

LARGEST_DIM, LONGEST = 3, 1_000
CASES = [case for case in all_cases() if case.world.dim <= LARGEST_DIM or case.world.contexts in ("blocks", "schema")]


@cache
def recorded() -> Rows:
    """The file of rows, read once."""
    return read()


@pytest.mark.parametrize("case", [case for case in CASES if case.world.horizon <= LONGEST], ids=lambda case: case.name)
def test_policies_do_what_was_recorded(case: Case) -> None:
    if case.takes_entropy and OTHERS in os.environ:
        pytest.skip(f"{OTHERS} replaces the tape that this case's noise was drawn from")
    found = compare(case, play_seeds(case, 1 if case.title else 2), recorded())
    assert found.same or reason_for(case.name, found.differing) is not None, str(found)


def test_every_policy_link_and_case_has_rows() -> None:
    rows = recorded()
    assert list(rows.cases) == [case.name for case in all_cases()]
    wanted = {(name, link) for name in POLICIES for link in LINKS if link in tacit.policy_class(name).links}
    for dim in (3, 8):
        assert {(case.policy, case.world.link) for case in chosen_cases(f"*/d{dim}")} == wanted
    assert all(len(row.regret) == len(rows.worlds[row.world]) == SEEDS for row in rows.cases.values())


@cache
def _stream() -> tuple[Case, Outcome]:
    (case,) = chosen_cases("stream-glm/logistic/d3")
    return case, play(case, 0)


def _compared(**changes: Any) -> Comparison:
    case, outcome = _stream()
    return compare(case, [outcome._replace(**changes)], recorded())


def test_a_comparison_says_what_differs_and_from_where_on() -> None:
    _, outcome = _stream()
    assert outcome.sums is not None
    assert _compared().same
    arms, sums = outcome.arms.copy(), outcome.sums.copy()
    arms[41] = (arms[41] + 1) % 4
    sums[0] += 1
    changed = _compared(arms=arms)
    assert changed.differing == {"arms"}
    assert (changed.same_arms, changed.first_round) == (0, 42)
    changed = _compared(sums=sums)
    assert changed.differing == {"sums"}
    assert 0.0 < changed.sums_apart < 1e-6
    assert _compared(sums=None).differing == {"sums"}
    assert _compared(charged=2).differing == {"charged"}
    assert _compared(regret=outcome.regret * (1.0 + 1e-8)).differing == {"regret"}
    assert _compared(regret=outcome.regret * (1.0 + 1e-12)).same
    assert outcome.estimate is not None
    changed = _compared(estimate=outcome.estimate * (1.0 + 1e-5))
    assert changed.differing == {"estimate"}
    assert 1e-6 < changed.drift < 1e-4
    assert _compared(estimate=outcome.estimate * (1.0 + 1e-8)).same
    assert _compared(estimate=None).differing == {"estimate"}
    instance = outcome.instance
    assert _compared(instance=instance._replace(rewards="000000")).differing == {"rewards"}
    assert _compared(instance=instance._replace(checksum=instance.checksum + 1e-6)).differing == {"contexts"}
    rounded = _compared(instance=instance._replace(contexts="000000"))
    assert rounded.same
    assert rounded.rounded


def test_an_explanation_covers_what_it_names_and_no_more() -> None:
    known = [Explanation("joint-*", frozenset({"arms"}), "ties"), Explanation("*/d3", frozenset({"sums"}), "rounding")]
    assert reason_for("joint-glm/log/d3", frozenset({"arms"}), known) == "ties"
    assert reason_for("joint-glm/log/d3", frozenset({"arms", "sums"}), known) == "ties; rounding"
    assert reason_for("joint-glm/log/d8", frozenset({"arms", "sums"}), known) is None
    assert reason_for("stream-glm/log/d3", frozenset({"arms"}), known) is None


def test_an_explained_difference_must_leave_the_regret_within_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.oracle.comparison.reason_for", lambda case, differing: "meant")
    case, _ = _stream()
    outcomes = play_seeds(case, 5)
    arms = (outcomes[0].arms + 1) % 4
    near = compare(case, [outcomes[0]._replace(arms=arms), *outcomes[1:]], recorded())
    assert near.reason == "meant"
    far = compare(
        case, [outcome._replace(arms=arms, regret=outcome.regret + 100.0) for outcome in outcomes], recorded()
    )
    assert far.reason is None
    assert "standard errors" in str(far)


@pytest.mark.parametrize("values", [[0], [3, 0, 1, 2], [-5, 2**40, 7], [9, 9]])
def test_packed_arrays_come_back(values: list[int]) -> None:
    assert unpack(pack(np.array(values))).tolist() == values


def test_rows_that_are_there_are_not_overwritten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["oracle", "record"])
    with pytest.raises(SystemExit):
        main()
    assert "--anew" in capsys.readouterr().err


def test_cases_without_rows_are_added_and_all_others_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written here: what would be is looked at."""
    case, played = chosen_cases("adaprivate-ts/logistic/d3")[0], list[str]()
    known, written = recorded(), list[Rows]()

    def play_again(cases: Sequence[Case], seeds: int, jobs: int) -> Iterator[tuple[Case, list[Outcome]]]:
        played.extend(each.name for each in cases)
        return ((each, play_seeds(each, SEEDS)) for each in cases)

    monkeypatch.setattr(oracle, "played", play_again)
    monkeypatch.setattr(oracle, "write", written.append)
    record(1, Rows({name: row for name, row in known.cases.items() if name != case.name}, known.worlds))
    assert played == [case.name]
    assert list(written[0].cases) == list(known.cases)
    assert written[0].cases[case.name].regret == known.cases[case.name].regret
    assert written[0].worlds == known.worlds
