"""What every policy must do, whatever its algorithm."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import CorruptState, InvalidInput, StateInUse, TacitError
from tacit.policies.continual_policy import ContinualPolicy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import POLICIES, policy_class
from tests.contracts.policies import ARMS, DIM, HORIZON, JOINT, PRIVATE, make, rounds, walk

every_policy = pytest.mark.parametrize("name", list(POLICIES))
private_policy = pytest.mark.parametrize("name", PRIVATE)


@every_policy
def test_same_seed_same_arms_other_seed_other_state(name: str) -> None:
    contexts, rewards = rounds(120)
    first, second = make(name), make(name)
    assert walk(first, contexts, rewards) == walk(second, contexts, rewards)
    assert first.fingerprint() == second.fingerprint()
    if name in PRIVATE:
        third = make(name, seed=4)
        walk(third, contexts, rewards)
        assert third.fingerprint() != first.fingerprint()


@every_policy
def test_the_simulators_loop_is_select_and_update_in_turn(name: str) -> None:
    contexts, rewards = rounds(150)
    by_hand, at_once = make(name), make(name)
    assert walk(by_hand, contexts, rewards) == list(at_once.play(contexts, rewards))
    rest, outcome = rounds(60, seed=12)
    assert walk(by_hand, rest, outcome) == walk(at_once, rest, outcome)


@every_policy
def test_a_loaded_policy_goes_on_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    contexts, rewards = rounds(200)
    whole, split = make(name), make(name)
    expected = walk(whole, contexts, rewards)
    arms = walk(split, contexts[:90], rewards[:90])
    waiting = split.select(contexts[90])
    split.save(tmp_path / "state")
    loaded = tacit.load(tmp_path / "state")
    assert loaded.fingerprint() == split.fingerprint()
    loaded.update(waiting.id, float(rewards[90, waiting.arm]))
    arms += [waiting.arm, *walk(loaded, contexts[91:], rewards[91:])]
    assert arms == expected
    assert loaded.fingerprint() == whole.fingerprint()


@every_policy
def test_rewards_may_be_late_out_of_order_or_missing(name: str) -> None:
    contexts, rewards = rounds(120)
    policy = make(name)
    decisions = [policy.select(user) for user in contexts]
    order = np.random.default_rng(0).permutation(len(decisions))
    for position in order[:80]:
        decision = decisions[position]
        policy.update(decision.id, float(rewards[position, decision.arm]))
    with pytest.raises(InvalidInput, match="already has its reward"):
        policy.update(decisions[order[0]], 1.0)
    policy.select(contexts[0])
    policy.update(decisions[order[100]], 1.0)


@every_policy
def test_bad_input_is_named_and_changes_nothing(name: str) -> None:
    contexts, rewards = rounds(40)
    policy = make(name)
    walk(policy, contexts, rewards)
    waiting = policy.select(contexts[0])
    good = contexts[0]
    with_nan, too_long = good.copy(), good.copy()
    with_nan[1, 1] = np.nan
    too_long[2] = 1.0
    before = policy.fingerprint()
    shapes = (good[:, :2], good[0], np.zeros((0, DIM)), "text", [[1, 2], [3]], None)
    for bad in (*shapes, with_nan, too_long, np.inf * good):
        with pytest.raises(InvalidInput, match="contexts"):
            policy.select(bad)
    for reward in (-0.1, 1.1, math.nan, math.inf, "much", None):
        with pytest.raises(InvalidInput, match="reward"):
            policy.update(waiting, reward)  # type: ignore[arg-type]
    for identity in (waiting.id + 1, -1, 0, "0", None, 1.5, True):
        with pytest.raises(InvalidInput, match="decision"):
            policy.update(identity, 1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="rewards"):
        policy.play(contexts, rewards + 0.5)
    with pytest.raises(InvalidInput, match="shape"):
        policy.play(contexts, rewards[:-1])
    assert policy.fingerprint() == before


@every_policy
def test_arm_sets_may_change_in_size(name: str) -> None:
    policy = make(name)
    for count in (1, 5, 2, 30):
        decision = policy.select(np.full((count, DIM), 0.1))
        assert 0 <= decision.arm < count
        policy.update(decision, 1.0)


@every_policy
def test_zero_and_identical_arms_are_fine(name: str) -> None:
    policy = make(name)
    for _ in range(30):
        policy.update(policy.select(np.zeros((ARMS, DIM))), 0.0)
    assert np.all(np.isfinite(policy.play(np.full((50, ARMS, DIM), 0.3), np.ones((50, ARMS)))))


@every_policy
def test_decisions_go_on_after_the_horizon(name: str) -> None:
    contexts, rewards = rounds(HORIZON + 30)
    policy = make(name)
    policy.play(contexts[:HORIZON], rewards[:HORIZON])
    spent, charged = policy.privacy.spent_mu, len(policy.ledger.entries) if isinstance(policy, PrivatePolicy) else 0
    walk(policy, contexts[HORIZON:], rewards[HORIZON:])
    assert policy.decisions == HORIZON + 30
    if policy.privacy.spent_mu != spent:  # calls that the budget was reserved for may come late
        assert isinstance(policy, ContinualPolicy)
        added = {entry.event.name for entry in policy.ledger.entries[charged:]}
        assert added <= {event.name for event in policy.planned_calls()}
    assert policy.privacy.spent_epsilon <= policy.privacy.target_epsilon * (1.0 + 1e-9)


@every_policy
def test_old_decisions_expire_by_the_clock(name: str) -> None:
    policy = make(name, reward_window=5)
    contexts, _ = rounds(8)
    decisions = [policy.select(user) for user in contexts]
    with pytest.raises(InvalidInput, match="expired"):
        policy.update(decisions[2], 1.0)
    policy.update(decisions[3], 1.0)


@every_policy
def test_a_batch_is_decided_on_one_tick(name: str) -> None:
    policy = make(name)
    contexts, rewards = rounds(20)
    decisions = [decision for decision in policy.select_batch(contexts) if isinstance(decision, tacit.Decision)]
    assert [decision.id for decision in decisions] == list(range(20))
    for decision, outcome in zip(decisions, rewards, strict=True):
        policy.update(decision, float(outcome[decision.arm]))
    assert policy.select_batch(np.zeros((0, ARMS, DIM))) == []
    with pytest.raises(InvalidInput, match="contexts"):
        policy.select_batch(contexts[0])


@every_policy
def test_everybody_of_a_batch_is_learned_from_by_the_own_arm(name: str) -> None:
    policy = make(name)
    contexts, _ = rounds(12)
    for arms, decision in zip(contexts, policy.select_batch(contexts), strict=True):
        assert isinstance(decision, tacit.Decision)
        np.testing.assert_array_equal(policy._pending.memo(decision.id)[:DIM], arms[decision.arm])


@private_policy
def test_the_sources_of_a_policy_do_not_share_a_generator(name: str) -> None:
    policy = make(name)
    sources = policy.randomness
    draws = [sources.ticks.gaussian(1.0, 50), sources.events.gaussian(1.0, 50), sources.coins.random(50)]
    assert np.unique(np.abs(np.concatenate(draws))).size == 150


@every_policy
def test_unknown_options_and_links_are_refused_with_what_is_possible(name: str) -> None:
    with pytest.raises(InvalidInput, match="nonsense"):
        make(name, nonsense=1)
    with pytest.raises(ValueError, match="logistic"):
        make(name, link="cauchit")
    for bad in ({"dim": 0}, {"horizon": 0}, {"theta_bound": -1.0}, {"theta_bound": math.nan}, {"reward_bound": 0.0}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            make(name, **bad)


def test_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="joint-glm"):
        tacit.make_policy("thompson", dim=2)


@private_policy
def test_the_budget_is_never_exceeded_and_the_report_says_what_was_spent(name: str) -> None:
    contexts, rewards = rounds(HORIZON)
    policy = make(name)
    policy.play(contexts, rewards)
    report = policy.privacy
    assert 0.0 < report.spent_epsilon <= 4.0 * (1.0 + 1e-9)
    text = str(report)
    assert "epsilon = 4" in text
    assert policy.guarantee in text.lower()
    assert policy.randomness.ticks.describe() in text


@private_policy
def test_a_private_policy_needs_its_budget(name: str) -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        policy_class(name)(dim=DIM, horizon=HORIZON, link="logistic", theta_bound=2.0)
    for bad in ({"epsilon": -1.0}, {"epsilon": math.nan}, {"delta": 0.0}, {"delta": 1.0}, {"rounds_per_user": 0}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            make(name, **bad)


@private_policy
def test_without_a_limit_there_is_no_noise_and_the_report_says_so(name: str) -> None:
    contexts, rewards = rounds(100)
    first, second = make(name, epsilon=math.inf, seed=1), make(name, epsilon=math.inf, seed=2)
    if not first.coin_count:
        assert walk(first, contexts, rewards) == walk(second, contexts, rewards)
    assert "noise is off" in str(first.privacy)


@pytest.mark.parametrize("name", JOINT)
def test_more_rounds_for_each_user_mean_more_noise(name: str) -> None:
    rows: dict[str, Any] = {"blend": 0.5} if name == "stream-glm" else {}  # which otherwise follows from the budget
    once, thrice = make(name, **rows), make(name, rounds_per_user=3, **rows)
    # Rounding to a grid, which follows from the budget, adds one part in 1,000 to a sensitivity at most.
    assert 3.0 / 1.001 < thrice.noise_scale / once.noise_scale < 3.0 * 1.001


@private_policy
def test_a_state_is_resumed_once_copies_included(name: str, tmp_path: Path) -> None:
    contexts, rewards = rounds(30)
    policy = make(name)
    walk(policy, contexts, rewards)
    original, copy = tmp_path / "a", tmp_path / "b"
    policy.save(original)
    shutil.copy(original, copy)
    loaded = tacit.load(original)
    for path in (original, copy):
        with pytest.raises(StateInUse, match="already"):
            tacit.load(path)
    with pytest.raises(StateInUse, match="already"):
        policy.select(contexts[0])
    walk(loaded, contexts, rewards)


@private_policy
def test_a_policy_that_went_on_leaves_its_saved_state_stale(name: str, tmp_path: Path) -> None:
    contexts, _ = rounds(3)
    policy = make(name)
    policy.save(tmp_path / "state")
    policy.select(contexts[0])
    with pytest.raises(StateInUse, match="already"):
        tacit.load(tmp_path / "state")
    policy.save(tmp_path / "state")
    tacit.load(tmp_path / "state")


@every_policy
def test_corrupt_files_are_refused(name: str, tmp_path: Path) -> None:
    policy = make(name)
    path = tmp_path / "state"
    policy.save(path)
    whole = path.read_bytes()
    for damaged in (b"", b"nonsense", whole[: len(whole) // 2], whole[:200] + b"\x00\xff" + whole[202:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptState):
            tacit.load(path)
    with pytest.raises(FileNotFoundError):
        tacit.load(tmp_path / "missing")


@private_policy
def test_unseeded_policies_use_the_operating_systems_entropy(name: str) -> None:
    policy = make(name, seed=None)
    kind = "secure" if policy.guarantee == "shuffle" else "exact"  # bits of the shuffle model are whole numbers anyway
    assert policy.randomness.ticks.name == policy.randomness.events.name == kind
    assert kind in str(policy.privacy)
    assert "operating-system entropy" in str(policy.privacy)


@private_policy
def test_without_a_registry_nothing_is_resumed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    make(name).save(tmp_path / "state")
    monkeypatch.setenv("TACIT_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(TacitError, match="TACIT_STATE_DIR"):
        tacit.load(tmp_path / "state")


def test_a_derivative_that_underflows_is_no_error() -> None:
    policy = make("stream-glm", link="probit", theta_bound=45.0, blend=1.0, scale=0.5)  # without a search
    assert math.isinf(policy.setting.kappa)
