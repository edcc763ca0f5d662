"""An audit does not pass what it has not seen: lives are long enough for releases, or the verdict says so."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tacit.audit import evidence
from tacit.audit.attacks import Replays, attack_by_probes, attack_policy, replay_many
from tacit.audit.cases import CASES, Case, case_for
from tacit.audit.contracts import Broken, Subject, choose_reads_no_secrets
from tacit.audit.evidence import HOLDS, NOT_EXERCISED, REFUTED, Evidence, perform
from tacit.audit.rehearsal import SEVERAL, fewer, rehearse
from tacit.audit.statistics import Samples
from tacit.audit.tasks import AuditTask, tasks_for
from tacit.errors import InvalidInput
from tacit.policies import registry
from tests.audit.seldom import Seldom

DELTA = 1e-5
NEVER = 10**6
SMALL: dict[str, Any] = {"dim": 2, "epsilon": 4.0, "delta": DELTA, "seed": 0, "theta_bound": 2.0}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._REGISTERED, "seldom", Seldom)


def done(kind: str, runs: int = 2, **options: Any) -> dict[str, Evidence]:
    found = perform(AuditTask(kind, "seldom", runs, 4.0, DELTA, options=options))
    return {each.method: each for each in found}


# Rehearsals


def test_a_rehearsal_finds_several_releases_and_the_horizon_that_they_take() -> None:
    life = rehearse(Seldom, {**SMALL, "horizon": 40, "period": 50, "ends": True})
    assert life.releases == (49, 99, 149, 199)
    assert life.options["horizon"] == 320
    assert life.users(40) == 201
    assert life.users(500) == 500
    rng = np.random.default_rng(0)
    replaced = {life.replaced(rng) for _ in range(200)}
    assert max(replaced) < 99
    assert {48, 98} <= replaced


def test_a_horizon_that_was_asked_for_stays() -> None:
    life = rehearse(Seldom, {**SMALL, "horizon": 120, "period": 50}, fixed=True)
    assert life.releases == (49, 99)
    assert life.options["horizon"] == 120
    assert not rehearse(Seldom, {**SMALL, "horizon": 40, "period": 50}, fixed=True).exercised


def test_a_rehearsal_gives_up() -> None:
    life = rehearse(Seldom, {**SMALL, "period": 300}, longest=200)
    assert not life.exercised
    assert life.users(40) == 40


def test_a_longer_horizon_that_brings_no_more_releases_is_not_asked_for() -> None:
    def two_releases(horizon: int, **options: Any) -> Seldom:
        return Seldom(**SMALL, horizon=horizon, period=horizon // 2, ends=True)

    life = rehearse(two_releases, {"horizon": 40})
    assert len(life.releases) == 2
    assert life.options["horizon"] == 40


@pytest.mark.parametrize("name", list(CASES))
def test_policies_of_the_package_release_within_a_short_rehearsal(name: str) -> None:
    dim = 2 if registry.policy_class(name).guarantee == "shuffle" else 3
    make = partial(registry.make_policy, name)
    life = rehearse(make, {**SMALL, "dim": dim, "horizon": 400})  # type: ignore[arg-type]
    assert len(life.releases) >= min(SEVERAL, 2)


def test_longer_lives_are_fewer() -> None:
    assert fewer(48, 40, 40, 12) == 48
    assert fewer(1_000, 4_000, 40, 12) == 40
    assert fewer(48, 4_000, 40, 12) == 12
    assert fewer(4, 4_000, 40, 12) == 4


# Settings of the package's own cases show something


@pytest.mark.parametrize(
    ("name", "setting"), [(name, index) for name, case in CASES.items() for index in range(0, len(case.settings), 3)]
)
def test_settings_are_exercised(name: str, setting: int) -> None:
    """Every third one; they all pass it."""
    case = replace(CASES[name], settings=CASES[name].settings[setting : setting + 1])
    assert any(replay_many(case, 1, 4.0, DELTA, seed=seed).mu > 0.0 for seed in range(3))


# Verdicts


def test_raw_sums_in_choose_are_found_after_a_late_first_release() -> None:
    """With a first release after a thousand decisions, when an audit of forty would be over."""
    make = partial(Seldom, **{**SMALL, "seed": 3}, period=1_000)
    subject = Subject.rehearsed(make)
    assert subject.releases[0] == 999
    with pytest.raises(Broken, match="after 1000 decisions choose read one of"):
        choose_reads_no_secrets(subject)
    assert choose_reads_no_secrets(replace(subject, make=partial(make, honest=True))) > 4


def test_contracts_are_evidence() -> None:
    found = done("contracts", period=60)
    assert found["contract: choose reads no secrets"].verdict == REFUTED
    assert found["contract: choose keeps the state"].verdict == HOLDS
    assert {each.verdict for each in done("contracts", period=60, honest=True).values()} == {HOLDS}


def test_replays_are_as_long_as_the_policy_needs() -> None:
    found = done("replay", 8, period=60, honest=True)
    assert {each.verdict for each in found.values()} == {HOLDS}
    assert "lives have 241 decisions" not in found["replay"].detail  # eight pairs of them were asked for, and played
    result = replay_many(case_for("seldom", {"period": 60, "honest": True}), 8, 4.0, DELTA)
    assert result.users == 241
    assert 0.5 < result.worst <= 1.0 + 1e-9
    assert done("replay", 24, period=60)["replay"].verdict == REFUTED


def test_attacks_are_as_long_as_the_policy_needs() -> None:
    case = case_for("seldom", {"period": 60, "honest": True})
    samples = attack_policy(case, 4.0, DELTA, 3, 0, {"period": 60, "honest": True})
    assert np.all(samples.first != 0.0)
    probes = attack_by_probes(case, 4.0, DELTA, 20, 0, {"period": 60, "honest": True})
    assert np.ptp(probes.first) > 0.0


@pytest.mark.parametrize("kind", ["contracts", "replay", "policy", "probes"])
def test_a_policy_that_releases_nothing_is_not_exercised(kind: str) -> None:
    found = done(kind, 20, period=NEVER, horizon=200)
    assert len(found) >= 2
    assert {each.verdict for each in found.values()} == {NOT_EXERCISED}
    assert all(each.failed for each in found.values())
    assert {each.row()["verdict"] for each in found.values()} == {"not exercised"}


def test_samples_that_are_all_equal_prove_nothing() -> None:
    task = AuditTask("mechanism", "tree", 20)
    same = evidence._judged(task, Samples(np.ones(20), np.ones(20)), 0.0)
    assert {each.verdict for each in same} == {NOT_EXERCISED}
    varied = evidence._judged(task, Samples(np.arange(20.0), np.arange(20.0)), 0.0)
    assert {each.verdict for each in varied} == {HOLDS}


def test_replays_without_a_shift_or_a_draw_prove_nothing() -> None:
    task, case = AuditTask("replay", "stream-glm", 4), CASES["stream-glm"]
    nothing = Replays("stream-glm", 1.0, DELTA, pairs=4)
    replayed = evidence._replayed(task, case, nothing, "replay, driven")
    assert replayed.verdict == NOT_EXERCISED
    assert replayed.detail == "no release of any pair differed between the worlds"
    assert evidence._noise(task, nothing).verdict == NOT_EXERCISED
    assert evidence._joint(task, nothing).verdict == NOT_EXERCISED


# Options


def test_options_reach_every_setting_and_leave_out_those_that_do_not_go_with_them() -> None:
    case = case_for("joint-linucb", {"noise": "exact", "horizon": 30})
    assert {setting["noise"] for setting in case.settings} == {"exact"}
    assert {setting["horizon"] for setting in case.settings} == {30}
    assert not [setting for setting in case.settings if setting.get("factorization") == "toeplitz"]
    assert case.own_horizon
    assert replay_many(case, 4, 4.0, DELTA).mu > 0.0
    with pytest.raises(InvalidInput, match="noise"):
        case_for("joint-linucb", {"noise": "loud"})
    assert case_for("joint-linucb") is CASES["joint-linucb"]


def test_rewards_that_come_too_late_are_those_that_never_come() -> None:
    options = {"reward_age": 3, "horizon": 60}
    assert replay_many(case_for("joint-linucb", options), 8, 4.0, DELTA).divergences == []
    found = perform(AuditTask("contracts", "joint-linucb", 1, 4.0, DELTA, options=options))
    assert {each.verdict for each in found} == {HOLDS}


def test_driven_worlds_have_settings_of_their_own() -> None:
    terms: dict[str, Any] = {"epsilons": [1.0, 4.0], "delta": DELTA}
    plain = tasks_for(["joint-linucb"], **terms)
    with_options = tasks_for(["joint-linucb"], **terms, options={"joint-linucb": {"horizon": 30}})
    assert [task.kind for task in plain].count("driven") == 1
    assert [task.kind for task in with_options].count("driven") == 0
    assert {task.options["horizon"] for task in with_options} == {30}
    assert [task.kind for task in plain].count("contracts") == 1


def test_a_case_of_ones_own_is_played_as_it_is() -> None:
    case = Case("seldom", ({"horizon": 40, "period": 10},), users=40, groups=False)
    assert replay_many(case, 2, 4.0, DELTA).users == 0
