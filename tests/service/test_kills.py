"""kill -9 under load without HTTP, a short form of `python -m benchmarks.kills host`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.kills.hosted import campaign
from benchmarks.kills.served import ENOUGH


def test_hosts_that_are_killed_again_and_again(tmp_path: Path) -> None:
    found = campaign(tmp_path, kills=8, seed=2, most=200)
    assert found.wrong == []
    assert found.kills.total() >= 8
    assert min(found.decisions, found.rewards, found.releases, found.entries) > ENOUGH
