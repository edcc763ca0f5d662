"""A power loss takes nothing that was acknowledged; with less syncing the same search finds what it takes."""

from __future__ import annotations

import random

import pytest

from tests.service.crash_states import File, search
from tests.service.recorded_disk import Event

pytestmark = pytest.mark.slow


def test_no_acknowledgement_is_lost() -> None:
    outcome = search(750, "FULL", seed=1)
    assert outcome.states == 750
    assert outcome.unsynced > 600  # most states have writes that may be dropped, torn or reordered
    assert outcome.lost == []


def test_the_search_finds_what_less_syncing_loses() -> None:
    outcome = search(60, "NORMAL", seed=1)
    assert any("acknowledged steps are gone" in found for found in outcome.lost)


def test_the_search_finds_a_database_without_any_order_of_writes() -> None:
    outcome = search(60, "OFF", seed=1)
    assert any("acknowledged steps are gone" in found for found in outcome.lost)
    assert any("damaged" in found for found in outcome.lost)


def test_synced_writes_survive_and_others_may_not() -> None:
    """The model of the disk itself."""
    file = File(b"a" * 2048).take(Event("write", "f", 0, b"b" * 1024)).take(Event("sync", "f"))
    file = file.take(Event("write", "f", 512, b"c" * 1024))
    seen = {file.after_loss(random.Random(seed)) for seed in range(300)}
    assert all(content is not None and content[:512] == b"b" * 512 and content[1536:] == b"a" * 512 for content in seen)
    middles = {content[512:1536] for content in seen if content is not None}
    assert middles == {one + two for one in (b"b" * 512, b"c" * 512) for two in (b"a" * 512, b"c" * 512)}


def test_a_deleted_file_may_be_back_until_its_successor_is_synced() -> None:
    file = File(b"old").take(Event("delete", "f")).take(Event("write", "f", 0, b"new"))
    assert {file.after_loss(random.Random(seed)) for seed in range(100)} >= {b"old", b"new", None}
    assert file.take(Event("sync", "f")).after_loss(random.Random(1)) == b"new"
