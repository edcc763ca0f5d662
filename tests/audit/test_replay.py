"""Neighbours: nothing but releases differs, by no more than was charged; and where it does differ, it is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.audit.attacks import attack_by_probes, attack_policy
from tacit.audit.cases import CASES, Case, replay_many
from tacit.audit.replay import own_registry, public_arrays, replay
from tacit.audit.statistics import gaussian_bound
from tacit.audit.worlds import NEVER, Row, World, make_world, opposite_rows
from tacit.policies.base import Policy
from tacit.policies.registry import POLICIES, make_policy, policy_class

DELTA = 1e-5


def test_every_private_policy_has_a_case() -> None:
    assert set(CASES) == {name for name in POLICIES if policy_class(name).guarantee != "none"}


@pytest.mark.parametrize("name", list(CASES))
def test_neighbours_differ_in_releases_only_and_by_what_is_charged(name: str) -> None:
    result = replay_many(CASES[name], 16, 4.0, DELTA, seed=3)
    assert result.divergences == []
    assert 0.5 < result.worst <= 1.0 + 1e-9
    draws = np.concatenate(result.draws)
    if draws.size:
        assert abs(float(np.std(draws)) - 1.0) < 5.0 / np.sqrt(2.0 * draws.size)


def test_linear_rows_come_close_to_the_charge() -> None:
    case = Case("joint-linucb", ({"horizon": 40},), groups=False)
    assert replay_many(case, 24, 1.0, DELTA, seed=1).worst > 0.95


def test_the_papers_refresh_leak_is_shown() -> None:
    case = Case("joint-glm", ({"horizon": 40, "profile": "paper"},), groups=False)
    assert replay_many(case, 12, 4.0, DELTA).divergences


def _one(name: str, first: Row, second: Row, users: int = 20, **events: Any) -> Any:
    options: dict[str, Any] = {"dim": 2, "horizon": 40, "theta_bound": 2.0, "epsilon": 4.0, "delta": DELTA, "seed": 2}
    policies = [make_policy(name, **options) for _ in range(2)]
    rng = np.random.default_rng(0)
    world = make_world(rng, policies[0], opposite_rows, users=users, arms=2)

    def rows(policy: Policy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
        return first, second

    chosen = World(world.arms, world.rewards, world.delays, 3, rows, **events)
    with own_registry():
        return replay(policies[0], policies[1], chosen, rng)


def test_the_same_row_costs_nothing_and_one_that_never_comes_costs_its_length() -> None:
    row = Row(np.eye(2), np.ones(2))
    assert _one("joint-linucb", row, row).mu == 0.0
    gone = _one("joint-linucb", row, Row(row.arms, row.rewards, NEVER))
    assert 0.5 < gone.ratio <= 1.0
    assert gone.divergences == ()
    late = _one("joint-linucb", row, Row(row.arms, row.rewards, 5), save_at=7)
    assert 0.0 < late.ratio <= 1.0
    assert late.divergences == ()


def test_raw_sums_are_not_compared_and_everything_else_is() -> None:
    policy = make_policy("joint-glm", dim=2, horizon=10, theta_bound=1.0, epsilon=1.0, delta=DELTA, seed=0)
    paths = public_arrays(policy.state)
    assert "stream.released" in paths
    assert "theta" in paths
    assert not [path for path in paths if path.startswith("rows") or path in ("stream.leaf", "stream.nodes")]


@pytest.mark.parametrize("name", list(CASES))
def test_attacks_by_releases_stay_below_the_claim(name: str) -> None:
    assert gaussian_bound(attack_policy(CASES[name], 4.0, DELTA, 20, 5), DELTA).epsilon <= 4.0


def test_attack_by_arms_stays_below_the_claim() -> None:
    samples = attack_by_probes(CASES["stream-glm"], 4.0, DELTA, 100, 5)
    assert np.ptp(samples.first) > 0.0
    assert gaussian_bound(samples, DELTA, threshold=None).epsilon <= 4.0
