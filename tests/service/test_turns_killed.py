"""Processes on one database that are killed, or paused in their turns, lose nothing (short campaigns)."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def test_nothing_is_lost_by_processes_that_are_killed_in_their_turns(database: str) -> None:
    from workloads.turns import WAYS, campaign

    found = campaign(database, kills=6)
    assert found.kills == dict.fromkeys(WAYS, 2)
    assert min(len(found.decided), len(found.kept), len(found.releases)) > 20
    assert found.late


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        ("answers-first", "two arms|is lost"),
        ("blind", "two values|two arms|is lost|has not begun|not the next one|by (itself|themselves)"),
    ],
)
def test_the_campaign_finds_processes_that_break_their_word(mutant: str, words: str, database: str) -> None:
    """Of arms that are told before they are chosen one in four is right, of dozens: nothing here rests on luck."""
    from workloads.turns import campaign

    from tacit.errors import TacitError

    with pytest.raises((AssertionError, TacitError), match=words):
        campaign(database, kills=3, mutant=mutant)
