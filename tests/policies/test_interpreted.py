"""Interpreted and compiled runs play the same arms and end in the same state, to the bit.

``TACIT_FULL=1`` plays 2,000 rounds of every case, as benchmarks/interpreted.py does; without it the slower cases, which
keep rows or solve often, play fewer.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.scripts import benchmark

interpreted = benchmark("interpreted")
CASES = interpreted.all_cases()
EXACT = [case for case in CASES if case.fields.get("noise") == "exact"]
QUICK = ("gloc", "ecolog", "random", "local-glm")
FULL = bool(os.environ.get("TACIT_FULL"))


def differences(cases: list[Any], rounds: int) -> dict[str, str]:
    """What differs first, by the names of the cases in which anything does."""
    played = [interpreted.run(case, rounds) for case in cases]
    others = interpreted.run_interpreted(cases, rounds)
    found = {case.name: mine.difference(other) for case, mine, other in zip(cases, played, others, strict=True)}
    return {name: difference for name, difference in found.items() if difference}


def test_quick_policies() -> None:
    cases = [case for case in CASES if case.policy in QUICK and case not in EXACT]
    assert differences(cases, interpreted.ROUNDS) == {}


@pytest.mark.parametrize("link", ["logistic", *interpreted.OTHER_LINKS])
def test_all_other_policies(link: str) -> None:
    cases = [case for case in CASES if case.policy not in QUICK and case not in EXACT]
    cases = [case for case in cases if case.fields.get("link", "logistic") == link]
    assert differences(cases, interpreted.ROUNDS if FULL else 300 if link == "logistic" else 150) == {}


def test_noise_on_a_grid() -> None:
    assert differences(EXACT, interpreted.ROUNDS if FULL else 300) == {}


def test_a_difference_is_named() -> None:
    one = interpreted.Outcome([0, 1], {"theta": "a", "moment": "b"})
    assert one.difference(one) == ""
    assert one.difference(interpreted.Outcome([0, 2], {"theta": "a"})) == "the arm of round 1"
    assert one.difference(interpreted.Outcome([0, 1], {"theta": "c"})) == "moment, theta"
