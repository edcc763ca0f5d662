"""Replays of logs: what the estimators are, and that their intervals hold."""

from __future__ import annotations

import numpy as np
import pytest
from workloads.coverage import SCHEMA, SETTINGS, private_values, replays, too_seldom

import tacit
from tacit.errors import InvalidInput
from tacit.evaluation import Contender, Pass, Trial, estimates_of, fixed_values, make_trial, replay, replay_pass
from tacit.evaluation.estimators import kept_lines, mean_of, reward_model, self_normalised
from tacit.evaluation.replay import METHODS
from tests.evaluation.worlds import log_of


def trial_of(lines: int, shares: dict[str, float], seed: int = 0, smokers: float = 0.5) -> Trial:
    return make_trial(SCHEMA, log_of(lines, shares, seed, smokers), reward="cured", shares=shares)


EQUAL = dict.fromkeys("ABC", 1 / 3)
UNEQUAL = {"A": 0.6, "B": 0.3, "C": 0.1}


@pytest.mark.parametrize("policy", ["stream-glm", "greedy-mle"])
def test_where_shares_are_equal_replay_is_the_self_normalised_estimate(policy: str) -> None:
    options = {"epsilon": 4.0, "delta": 1e-5} if policy == "stream-glm" else {}
    (found,) = replay(trial_of(400, EQUAL), [Contender(policy, options)], orders=3)
    assert found.estimates["replay"].mean == pytest.approx(found.estimates["self-normalised"].mean, rel=1e-12)
    assert 80 < found.learned < 200


def test_a_policy_learns_from_matching_lines_alone() -> None:
    trial, policy = trial_of(300, EQUAL), tacit.make_policy("greedy-mle", features=SCHEMA)
    played = replay_pass(trial, policy, np.arange(300), np.zeros(300))
    again = tacit.make_policy("greedy-mle", features=SCHEMA)
    for line in range(300):
        decision = again.select_admitted(again.arm_form.rounds(trial.rows[line : line + 1]))
        assert decision.arm == played.chosen[line]
        if decision.arm == trial.given[line]:
            again.update(decision, trial.rewards[line])
        else:
            again.abandon(decision)
    assert np.array_equal(played.learned, played.chosen == trial.given)
    assert policy.fingerprint() == again.fingerprint()


def test_lines_are_kept_alike_whatever_the_arm() -> None:
    trial = trial_of(30_000, UNEQUAL)
    kept = kept_lines(trial.shares, np.random.default_rng(1).random(trial.size))
    shares = np.bincount(trial.given[kept], minlength=3) / kept.sum()
    assert np.allclose(shares, 1 / 3, atol=4 * np.sqrt(2 / 9 / kept.sum()))  # of kept lines every arm has as many


def test_estimators_by_hand() -> None:
    weights, rewards = np.array([2.0, 0.0, 4.0]), np.array([1.0, 1.0, 0.0])
    found = self_normalised(weights, rewards)
    assert found.value == pytest.approx(1 / 3)
    assert found.error == pytest.approx(np.hypot(2 * 2 / 3, 4 / 3) / 6)
    assert mean_of(np.array([1.0, 3.0])) == (2.0, 1.0)
    assert mean_of(np.array([1.0])).error == np.inf
    assert np.isnan(mean_of(np.empty(0)).value)
    assert np.isnan(self_normalised(np.zeros(3), rewards).value)


def test_a_reward_model_sees_earlier_lines_only() -> None:
    trial, chosen = trial_of(500, EQUAL), np.zeros(500, dtype=np.int64)
    before = reward_model(trial.rows, trial.given, trial.rewards, chosen)
    changed = trial.rewards.copy()
    changed[300:] = 1.0 - changed[300:]
    after = reward_model(trial.rows, trial.given, changed, chosen)
    for ours, theirs in zip(before, after, strict=True):
        assert np.array_equal(ours[:301], theirs[:301])
        assert not np.array_equal(ours[301:], theirs[301:])
    late = trial.rewards[200:]
    assert np.mean((before[0][200:] - late) ** 2) < 0.95 * np.var(late), "it predicts nothing"


def test_a_model_that_is_exact_leaves_the_noise_of_rewards_only() -> None:
    """Doubly robust estimates vary less than inverse weights where features tell rewards."""
    trial = trial_of(2_000, UNEQUAL, smokers=0.5)
    best = Pass(np.arange(2_000), np.zeros(2_000, dtype=np.int64), trial.given == 0)
    found = estimates_of(trial, best)
    assert found["doubly robust"].error < found["inverse"].error
    truth = fixed_values(trial)["A"].value
    for method, estimate in found.items():
        assert abs(estimate.value - truth) < 4 * estimate.error, method


def test_fixed_choices_are_weighted_by_the_shares() -> None:
    unequal, equal = trial_of(60_000, UNEQUAL, seed=1), trial_of(60_000, EQUAL, seed=2)
    ours, theirs = fixed_values(unequal), fixed_values(equal)
    for name in ("A", "B", "C", "random arms"):
        assert abs(ours[name].value - theirs[name].value) < 4 * np.hypot(ours[name].error, theirs[name].error), name
    assert ours["as they were given"].value == pytest.approx(unequal.rewards.mean())


def test_rows_follow_from_the_seed_and_not_from_the_number_of_jobs() -> None:
    trial = trial_of(150, UNEQUAL)
    contenders = [Contender("stream-glm", {"epsilon": 4.0, "delta": 1e-5}), Contender("random")]
    one, two = (replay(trial, contenders, orders=3, seed=5, jobs=jobs) for jobs in (1, 2))
    assert one == two
    assert replay(trial, contenders, orders=3, seed=6) != one


def test_lines_may_be_drawn_with_replacement() -> None:
    (found,) = replay(trial_of(100, EQUAL), [Contender("random")], orders=2, lines=450)
    assert found.lines == 450
    assert 90 < found.learned < 210


def test_bad_numbers_are_refused() -> None:
    trial = trial_of(50, EQUAL)
    for wrong in ({"orders": 0}, {"lines": 0}):
        with pytest.raises(InvalidInput):
            replay(trial, [Contender("random")], **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", SETTINGS)
def test_intervals_hold_the_value_of_the_run(setting: str) -> None:
    """A short form of `workloads/coverage.py`; seeds are fixed, so that the outcome is no matter of chance."""
    held = replays(setting, 60, seed=2, lines=600)
    assert set(held) == set(METHODS)
    assert not any(too_seldom(count, 60) for count in held.values()), held


def test_intervals_of_private_values_hold() -> None:
    held = private_values(1.0, 150, seed=2, lines=2_000)
    assert not any(too_seldom(count, 150) for count in held.values()), held
    assert min(held.values()) < 150, "an interval that always holds says nothing"


def test_too_seldom_is_a_test_that_can_fail() -> None:
    assert too_seldom(48, 60)
    assert not too_seldom(57, 60)
