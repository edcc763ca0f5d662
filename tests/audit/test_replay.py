"""Neighbours: nothing but releases differs, by no more than was charged; and where it does differ, it is seen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.audit import evidence
from tacit.audit.attacks import Replays, attack_by_probes, attack_policy, replay_many, replay_one
from tacit.audit.cases import CASES, DRIVES, Case
from tacit.audit.joint_draws import joint_findings
from tacit.audit.rehearsal import audited_policy
from tacit.audit.replay import kind_ratios, own_registry, replay
from tacit.audit.session import Cost
from tacit.audit.statistics import gaussian_bound
from tacit.audit.tasks import AuditTask
from tacit.audit.worlds import UserRow, World, driven_world, make_world, opposite_rows
from tacit.environments.arrivals import NEVER
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import POLICIES, make_policy, policy_class
from tacit.policies.state import public_part
from tacit.privacy.budget import Budget
from tacit.privacy.events import GaussianRelease
from tacit.privacy.gaussian import mu_from
from tacit.privacy.ledger import Ledger

DELTA = 1e-5


def test_every_private_policy_has_a_case() -> None:
    assert set(CASES) == {name for name in POLICIES if policy_class(name).guarantee != "none"}


@pytest.mark.parametrize("name", list(CASES))
def test_neighbours_differ_in_releases_only_and_by_what_is_charged(name: str) -> None:
    result = replay_many(CASES[name], 16, 4.0, DELTA, seed=3)
    assert result.divergences == []
    assert 0.5 < result.worst <= 1.0 + 1e-9
    assert joint_findings(result.draws, steps=result.steps) == []


@pytest.mark.parametrize(
    ("name", "drive", "kinds"),
    [
        ("stream-glm", 0, ("stream",)),
        ("joint-glm", 0, ("theta_o", "theta_tau")),
        ("joint-glm", 1, ("movers",)),
        ("joint-linucb", 0, ("stream",)),
        ("adaprivate-ts", 0, ("batch",)),
        ("shuffle-glm", 0, ("shuffled sum of score",)),
        ("shuffle-linucb", 0, ("shuffled sum of gram", "shuffled sum of moment")),
    ],
)
def test_every_kind_of_charge_is_nearly_reached_and_never_exceeded(
    name: str, drive: int, kinds: tuple[str, ...]
) -> None:
    result = replay_many(DRIVES[name][drive], 6, 4.0, DELTA, seed=0)
    assert result.divergences == []
    assert result.worst <= 1.0 + 1e-9
    for kind in kinds:
        assert result.kinds[kind] >= 0.95, kind


def test_joint_streams_reach_their_charge() -> None:
    case = Case("joint-glm", ({"horizon": 40},), groups=False)
    assert replay_many(case, 24, 4.0, DELTA, seed=1).kinds["stream"] > 0.95


@pytest.mark.parametrize("name", ["stream-glm", "joint-glm", "joint-linucb", "adaprivate-ts"])
def test_rewards_that_are_kept_are_secret_until_they_are_released(name: str) -> None:
    """Late, missing and replaced ones: public parts stay the same, and releases differ by no more than was charged."""
    batches = {"first_batch": 10} if name == "adaprivate-ts" else {}
    settings = tuple({"horizon": horizon, "reward_age": 16, **batches} for horizon in (60, None))
    result = replay_many(Case(name, settings, users=60), 16, 4.0, DELTA, seed=5)
    assert result.divergences == []
    assert 0.4 < result.worst <= 1.0 + 1e-9


@pytest.mark.parametrize("drive", [0, 1, 2], ids=["tuned", "movers", "theory"])
def test_driven_worlds_call_both_optimizers_several_times(drive: int) -> None:
    case = DRIVES["joint-glm"][drive]
    arguments = {"dim": 3, "link": "logistic", "epsilon": 4.0, "delta": DELTA, "seed": 0, **case.settings[0]}
    policy = audited_policy("joint-glm", **arguments)
    world = driven_world(np.random.default_rng(0), policy, opposite_rows, users=case.users)
    policy.play(world.arms, world.rewards)
    assert policy.state.explore.calls[()] >= 2
    assert policy.state.exploit.calls[()] >= 2
    assert policy.config.profile == ("theory" if drive == 2 else "tuned")


def test_identity_log_exact_and_secure_noise_are_replayed() -> None:
    links = {setting.get("link") for setting in CASES["joint-glm"].settings}
    noise = {setting.get("noise") for setting in CASES["stream-glm"].settings}
    assert {"identity", "log", "probit"} <= links
    assert {"secure", "exact"} <= noise


def test_same_releases_are_forced_byte_by_byte_and_anything_else_is_seen() -> None:
    """The publisher hands out world 0's bytes; a public field that differs in its last bit is a divergence."""
    case = Case("joint-linucb", ({"horizon": 40},), groups=False)
    with own_registry():
        sound = replay_one(case, 0, opposite_rows, 4.0, DELTA, 3)
    assert sound.sound
    first, second = (
        audited_policy("joint-linucb", dim=2, horizon=40, theta_bound=2.0, epsilon=4.0, delta=DELTA, seed=2)
        for _ in range(2)
    )
    second.state.stream.mechanism.expected[0] = np.nextafter(0.0, 1.0)
    world = make_world(np.random.default_rng(0), first, opposite_rows, users=1, arms=2, user=0)
    assert "though all releases are the same" in replay(first, second, world, np.random.default_rng(0)).divergences[0]


def test_linear_rows_come_close_to_the_charge() -> None:
    case = Case("joint-linucb", ({"horizon": 40},), groups=False)
    assert replay_many(case, 24, 1.0, DELTA, seed=1).worst > 0.95


def test_local_linear_reports_come_close_to_the_charge() -> None:
    assert replay_many(CASES["ldp-linucb"], 24, 1.0, DELTA, seed=1).worst > 0.95


def test_the_papers_refresh_leak_is_shown() -> None:
    case = Case("joint-glm", ({"horizon": 40, "profile": "paper"},), groups=False)
    assert replay_many(case, 12, 4.0, DELTA).divergences


def _one(name: str, first: UserRow, second: UserRow, users: int = 20, **events: Any) -> Any:
    options: dict[str, Any] = {"dim": 2, "horizon": 40, "theta_bound": 2.0, "epsilon": 4.0, "delta": DELTA, "seed": 2}
    policies = [audited_policy(name, **options) for _ in range(2)]
    rng = np.random.default_rng(0)
    world = make_world(rng, policies[0], opposite_rows, users=users, arms=2)

    def rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
        return first, second

    chosen = World(world.arms, world.rewards, world.delays, 3, rows, **events)
    with own_registry():
        return replay(policies[0], policies[1], chosen, rng)


def test_the_same_row_costs_nothing_and_one_that_never_comes_costs_its_length() -> None:
    row = UserRow(np.eye(2), np.ones(2))
    assert _one("joint-linucb", row, row).mu == 0.0
    gone = _one("joint-linucb", row, UserRow(row.arms, row.rewards, NEVER))
    assert 0.5 < gone.ratio <= 1.0
    assert gone.divergences == ()
    late = _one("joint-linucb", row, UserRow(row.arms, row.rewards, 5), save_at=7)
    assert 0.0 < late.ratio <= 1.0
    assert late.divergences == ()


def test_raw_sums_are_not_compared_and_everything_else_is() -> None:
    policy = make_policy("joint-glm", dim=2, horizon=10, theta_bound=1.0, epsilon=1.0, delta=DELTA, seed=0)
    paths = public_part(policy.state)
    assert "stream.released" in paths
    assert "exploit.theta" in paths
    secret = ("stream.leaf", "stream.mechanism.noise", "explored")
    assert not [path for path in paths if path.startswith("rows") or path in secret]


def test_public_fingerprints_tell_nothing_of_rows_and_secret_ones_do() -> None:
    """Rows that have not been released yet: other rewards, the same public state."""
    options: dict[str, Any] = {"dim": 2, "horizon": 40, "theta_bound": 2.0, "epsilon": 4.0, "delta": DELTA, "seed": 2}
    first, second = (make_policy("stream-glm", **options) for _ in range(2))
    for policy, reward in ((first, 0.0), (second, 1.0)):
        policy.update(policy.select(np.eye(2)), reward)
    assert first.public_fingerprint() == second.public_fingerprint()
    assert first.fingerprint() != second.fingerprint()
    for policy in (first, second):
        policy.select(np.eye(2))  # releases the leaf
    assert first.public_fingerprint() != second.public_fingerprint()


@pytest.mark.parametrize("name", list(CASES))
def test_attacks_by_releases_stay_below_the_claim(name: str) -> None:
    assert gaussian_bound(attack_policy(CASES[name], 4.0, DELTA, 20, 5), DELTA).epsilon <= 4.0


def test_attack_by_arms_stays_below_the_claim() -> None:
    samples = attack_by_probes(CASES["stream-glm"], 4.0, DELTA, 100, 5)
    assert np.ptp(samples.first) > 0.0
    assert gaussian_bound(samples, DELTA, threshold=None).epsilon <= 4.0


def test_a_bound_is_stated_at_the_delta_of_its_own_claim() -> None:
    """Some drives have a budget of their own: its epsilon must not stand beside a bound for another delta."""
    case = replace(CASES["stream-glm"], settings=({"horizon": 40, "epsilon": 8.0, "delta": 0.02},))
    task = AuditTask("driven", "stream-glm", 1, 4.0, 1e-5)
    result = Replays("stream-glm", 4.0, 1e-5, worst=1.0, mu=mu_from(8.0, 0.02))
    found = evidence._replayed(task, case, result, "replay, driven")
    assert found.claim == 8.0
    assert found.lower_bound == pytest.approx(8.0)
    assert "at delta 0.02" in found.detail


def test_a_row_that_moves_between_cohorts_is_compared_with_what_that_is_charged() -> None:
    """One that stays in its cohort is not."""
    ledger = Ledger(Budget(8.0, DELTA))
    release = GaussianRelease("sum", 1.0, math.sqrt(2.0), moving_sensitivity=1.0)
    ledger.charge(release, "first")
    moved = {"sum": Cost(squared=1.0)}  # by 1 in each of two sums with noise of sqrt(2)
    assert kind_ratios(moved, ledger, DELTA)["sum"] == pytest.approx(math.sqrt(2.0))
    ledger.charge(release, "second")
    ledger.charge(release, "third")
    assert kind_ratios(moved, ledger, DELTA)["sum"] == pytest.approx(1.0)
