"""A paused owner that wakes up answers nothing that was not committed under its epoch (a short campaign)."""

from __future__ import annotations

import pytest

from tests.service.postgres_server import Server

pytestmark = pytest.mark.slow


def test_paused_owners_answer_nothing_that_was_not_committed(database: str) -> None:
    from workloads.fencing import campaign

    found = campaign(database, rounds=6)
    assert found.answers > 50
    assert len(found.waits) == 6


@pytest.mark.parametrize("mutant", ["answers-first", "unfenced"])
def test_campaign_finds_owners_that_do(postgres: Server, mutant: str) -> None:
    from workloads.fencing import campaign

    for seed in range(1, 40):  # a pause may miss the moment that matters, the more often the slower the machine is
        with postgres.database() as url:
            try:
                campaign(url, rounds=4, seed=seed, mutant=mutant)
            except AssertionError:
                return
    pytest.fail("nobody noticed")
