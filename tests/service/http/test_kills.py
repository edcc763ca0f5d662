"""kill -9 under clients and pollers, a short form of `python -m workloads.kills http`: nothing is lost, counted twice
or drawn again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from workloads.kills.lives import Nursery
from workloads.kills.mutants import MUTANTS
from workloads.kills.served import ENOUGH, campaign

pytestmark = pytest.mark.slow

ANOTHER = r"(release|point of the history) \d+ was seen with two values|and is not that of a replay"
"""What was shown once was shown again with another value: a release, or a point of the history."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """The parent of all processes here."""
    with Nursery("http") as parent:
        yield parent


def test_a_service_that_is_killed_again_and_again(nursery: Nursery, tmp_path: Path) -> None:
    found = campaign(tmp_path, kills=30, seed=2, nursery=nursery, most=600)
    assert found.wrong == []
    assert found.kills.total() >= 30
    assert found.real_starts >= 1
    aimed = found.kills["commit"] + found.kills["snapshot"]
    assert min(found.kills["start"], found.kills["load"], aimed) > 0
    assert min(found.decisions, found.rewards, found.releases, found.polls, found.entries) > ENOUGH
    assert min(found.abandoned, found.expired) > 0


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        (
            "answers-first",
            r"went back from|decision \d+ (is lost|has two arms)|reward \d+ counted 0 times|again was answered with|"
            + ANOTHER,
        ),
        ("draws-again", f"{ANOTHER}|differ from an undisturbed replay"),
        ("publishes-first", f"{ANOTHER}|went back from|history lost"),
    ],
    ids=MUTANTS,
)
def test_the_campaign_catches_a_service_that_breaks_its_word(
    nursery: Nursery, mutant: str, words: str, tmp_path: Path
) -> None:
    """The same campaign, on a process that answers before the commit, draws anew or shows too early.

    It ends with the first thing that is wrong, after some ten kills; on a slow machine a kill hits the moment that
    matters less often.  Noise is real, and a release that is drawn again may come out the same: that all of them do, in
    three coordinates of more than 2^20 values each, has a chance far below 1e-9.
    """
    found = campaign(tmp_path, kills=600, seed=14, mutant=mutant, nursery=nursery)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError("\n".join(found.wrong))
