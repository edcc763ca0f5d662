"""kill -9 under load without HTTP, a short form of `python -m workloads.kills host`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from workloads.kills.hosted import campaign
from workloads.kills.served import ENOUGH
from workloads.kills.tapped import Tap

pytestmark = pytest.mark.slow


def test_hosts_that_are_killed_again_and_again(tmp_path: Path) -> None:
    """What a life gets done before it is killed is a matter of the machine: more follow until it is enough."""
    done = Counter[str]()
    for number in range(20):
        (folder := tmp_path / str(number)).mkdir()
        found = campaign(folder, kills=8, seed=2 + number, most=200)
        assert found.wrong == []
        assert found.kills.total() >= 8
        done += Counter({name: getattr(found, name) for name in ("decisions", "rewards", "releases", "entries")})
        if len(done) == 4 and min(done.values()) > ENOUGH:
            return
    pytest.fail(f"too little was done: {done}")


def test_a_life_keeps_its_log_once(tmp_path: Path) -> None:
    """Of entries with one number the copy of the latest life counts: what comes after it needs a later number."""
    Tap(tmp_path, 3).keep("linear", 0, [b"entry"])
    with pytest.raises(ValueError, match="life 3 has kept a log already"):
        Tap(tmp_path, 3)
    Tap(tmp_path, 4)
