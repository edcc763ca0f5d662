"""The privacy report says in words whom it protects."""

from __future__ import annotations

import json
import math

import pytest

import tacit


@pytest.mark.parametrize(
    ("visits", "words"),
    [(1, "a single visit: epsilon is per visit"), (5, "a person with up to 5 visits: epsilon is per person")],
)
def test_a_visit_or_a_person(visits: int, words: str) -> None:
    report = tacit.make_policy("stream-glm", dim=2, epsilon=1.0, delta=1e-6, rounds_per_user=visits, seed=0).privacy
    assert report.protects.startswith(words)
    assert f"protects        {words}" in str(report)
    assert json.loads(report.to_json())["protects"] == report.protects


def test_nothing_without_privacy() -> None:
    off = tacit.make_policy("stream-glm", dim=2, epsilon=math.inf, delta=1e-6, seed=0)
    assert (off.privacy.protects, tacit.make_policy("random", dim=2).privacy.protects) == ("nothing", "nothing")


@pytest.mark.parametrize("name", ["stream-glm", "joint-glm", "shuffle-glm"])
def test_an_epsilon_above_ten_is_said_to_promise_little(name: str) -> None:
    def told(epsilon: float, visits: int = 1) -> list[str]:
        report = tacit.make_policy(
            name, dim=2, epsilon=epsilon, delta=0.1, horizon=1_000, rounds_per_user=visits, seed=0
        ).privacy
        assert all(warning in str(report) and warning in report.to_json() for warning in report.warnings)
        return [warning for warning in report.warnings if "says little" in warning]

    assert told(10.0) == told(math.inf) == []
    (text,) = told(10.5)
    assert "epsilon = 10.5 is above 10" in text
    assert "a guess about a visit by e^10.5" in text
    assert "about a person" in told(20.0, visits=3)[0]
