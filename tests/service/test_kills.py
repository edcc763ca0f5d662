"""kill -9 under load, a short form of ``benchmarks/kills.py``: nothing is lost, counted twice or drawn again."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.kills import campaign


def test_a_service_that_is_killed_again_and_again(tmp_path: Path) -> None:
    found = campaign(tmp_path, kills=30, seed=2)
    assert found.wrong == []
    assert found.kills == 30
    assert min(found.decisions, found.rewards, found.releases, found.entries) > 100


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        ("answers-first", r"decision \d+ (is lost|has two arms)|reward \d+ counted 0 times"),
        ("draws-again", r"release \d+ was seen with two values|differ from an undisturbed replay"),
        ("publishes-first", r"release \d+ was seen with two values"),
    ],
)
def test_the_campaign_catches_a_service_that_breaks_its_word(mutant: str, words: str, tmp_path: Path) -> None:
    """The same campaign, on a process that answers before the commit, draws anew or shows too early."""
    found = campaign(tmp_path, kills=12, seed=3, mutant=mutant)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError("\n".join(found.wrong))
