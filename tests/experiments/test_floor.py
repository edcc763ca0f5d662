"""The bare loop of the benchmark is the policy's arithmetic: same draws, same arms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.floor import compare, covers, play_floor, play_policy
from tests.experiments.test_speed import experiment

from tacit.errors import InvalidInput


@pytest.mark.parametrize("changes", [{}, {"dim": 5, "theta_norm": 3.5}, {"epsilon": 0.5}])
def test_the_floor_plays_the_arms_of_the_policy(changes: dict[str, Any]) -> None:
    policy, bare = (play(experiment(**changes), np.random.default_rng(3), 5) for play in (play_policy, play_floor))
    assert np.array_equal(bare.arms, policy.arms)
    assert bare.regret == pytest.approx(policy.regret, rel=1e-9)


@pytest.mark.parametrize(
    "changes", [{"link": "probit"}, {"contexts": "shift"}, {"base_rate": 0.1}, {"options": {"shrinkage": "none"}}]
)
def test_the_floor_refuses_what_it_does_not_play(changes: dict[str, Any]) -> None:
    assert not covers(experiment(**changes))
    with pytest.raises(InvalidInput, match="bare loop"):
        play_floor(experiment(**changes), np.random.default_rng(0), 0)


def test_policy_and_floor_are_measured_alike() -> None:
    policy, floor = compare(experiment(horizon=300), repeats=2)
    assert min(policy, floor) > 0.0
