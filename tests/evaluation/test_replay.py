"""Replays of logs: what the estimators are, and that their intervals hold."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from workloads.coverage import SCHEMA, SETTINGS, private_values, replays, too_seldom

import tacit
from tacit.errors import InvalidInput
from tacit.evaluation import Contender, Pass, Trial, estimates_of, fixed_values, make_trial, replay, replay_pass
from tacit.evaluation.estimators import ValueEstimate, kept_lines, mean_of, reward_model, self_normalised
from tacit.evaluation.replay import METHODS, summary_of
from tacit.features import Category, Number, Schema
from tacit.glm.likelihood import Fit, FitStatus
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


@pytest.mark.parametrize("shares", [EQUAL, UNEQUAL])
def test_a_policy_learns_from_matching_lines_that_are_kept(shares: dict[str, float]) -> None:
    trial, policy = trial_of(300, shares), tacit.make_policy("greedy-mle", features=SCHEMA)
    coins = np.random.default_rng(0).random(300)
    played = replay_pass(trial, policy, np.arange(300), coins)
    kept = coins < min(shares.values()) / trial.shares
    assert np.all(kept) == (shares is EQUAL)
    again = tacit.make_policy("greedy-mle", features=SCHEMA)
    for line in range(300):
        decision = again.select_admitted(again.arm_form.rounds(trial.rows[line : line + 1]))
        assert decision.arm == played.chosen[line]
        if decision.arm == trial.given[line] and kept[line]:
            again.update(decision, trial.rewards[line])
        else:
            again.abandon(decision)
    assert np.array_equal(played.learned, (played.chosen == trial.given) & kept)
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
    assert mean_of(np.array([1.0, 3.0]), rewards) == (2.0, 1.0)
    assert mean_of(np.array([1.0]), np.array([1.0])).error == np.inf
    assert np.isnan(mean_of(np.empty(0), np.empty(0)).value)
    assert np.isnan(self_normalised(np.zeros(3), rewards).value)
    summary = summary_of([ValueEstimate(1.0, 0.3), ValueEstimate(2.0, 0.4)])
    assert summary == pytest.approx((1.5, np.sqrt(0.5), np.sqrt(0.125)))


def test_random_arms_are_weighted_by_hand() -> None:
    log = {"drug": ["A", "A", "A", "B"], "cured": [1, 1, 1, 0]}
    trial = make_trial(Schema(arm=[Category("drug", ["A", "B"])]), log, reward="cured", shares={"A": 0.75, "B": 0.25})
    found = fixed_values(trial)
    assert found["random arms"].value == pytest.approx(0.5)
    assert found["as they were given"].value == 0.75


def test_rewards_that_are_all_equal_tell_no_error() -> None:
    """Nobody was cured: the deviations from that are 0, which does not mean that nobody ever will be."""
    for reward in (0.0, 0.1):
        log = log_of(60, EQUAL) | {"cured": np.full(60, reward)}
        trial = make_trial(SCHEMA, log, reward="cured", shares=EQUAL)
        played = Pass(np.arange(60), np.zeros(60, dtype=np.int64), trial.given == 0)
        assert {found.error for found in estimates_of(trial, played).values()} == {np.inf}
        assert {found.error for found in fixed_values(trial).values()} == {np.inf}
        (found,) = replay(trial, [Contender("random")], orders=2)
        assert {summary.error for summary in found.estimates.values()} == {np.inf}


def test_doubly_robust_by_hand_in_the_units_of_rewards() -> None:
    log = log_of(300, UNEQUAL)
    trial = make_trial(SCHEMA, log | {"cured": 4.0 * log["cured"]}, reward="cured", shares=UNEQUAL, reward_bound=4.0)
    chosen = np.random.default_rng(0).integers(3, size=300)
    matches = chosen == trial.given
    of_given, of_chosen = reward_model(trial.rows, trial.given, log["cured"], chosen)
    terms = of_chosen + np.where(matches, (log["cured"] - of_given) / trial.shares, 0.0)
    found = estimates_of(trial, Pass(np.arange(300), chosen, matches))["doubly robust"]
    assert found.value == pytest.approx(4.0 * terms.mean())
    assert found.error == pytest.approx(4.0 * terms.std(ddof=1) / np.sqrt(300))


@pytest.mark.parametrize("first", [30, 300])
def test_a_reward_model_sees_earlier_lines_only(first: int) -> None:
    trial, chosen = trial_of(500, EQUAL), np.zeros(500, dtype=np.int64)
    before = reward_model(trial.rows, trial.given, trial.rewards, chosen)
    changed = trial.rewards.copy()
    changed[first:] = 1.0 - changed[first:]
    after = reward_model(trial.rows, trial.given, changed, chosen)
    for ours, theirs in zip(before, after, strict=True):
        assert np.array_equal(ours[: first + 1], theirs[: first + 1])
        assert ours[first + 1] != theirs[first + 1] or first > 50  # before the first fit every line tells
        assert not np.array_equal(ours[first + 1 :], theirs[first + 1 :])
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


def test_a_fit_that_does_not_converge_predicts_the_mean_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(200, EQUAL)
    failed = Fit(np.full(SCHEMA.dim, np.nan), FitStatus.ILL_CONDITIONED, 1, np.nan)
    monkeypatch.setattr("tacit.evaluation.estimators.fit", lambda *_, **__: failed)
    of_given, of_chosen = reward_model(trial.rows, trial.given, trial.rewards, 2 - trial.given)
    assert of_given[1:] == pytest.approx(np.cumsum(trial.rewards)[:-1] / np.arange(1, 200))
    assert np.array_equal(of_given, of_chosen)


def coins_of(lines: int) -> Trial:
    """Rewards are coins, whatever the arm and the features, and features are many: there is much to learn by heart."""
    rng, names = np.random.default_rng(0), [f"x{number}" for number in range(23)]
    log: dict[str, Any] = {name: rng.random(lines) for name in names}
    log |= {"drug": rng.choice(np.array(["A", "B"], dtype=object), lines), "cured": rng.random(lines) < 0.5}
    schema = Schema(user=[Number(name, 0, 1) for name in names], arm=[Category("drug", ["A", "B"])], per_arm="drug")
    assert schema.dim == 48
    return make_trial(schema, log, reward="cured", shares="equal")


def test_nobody_is_met_twice() -> None:
    """Of coins every policy earns one half; one that meets lines again seems to earn more, and precisely so."""
    trial = coins_of(300)
    for lines in (None, 150):
        (found,) = replay(trial, [Contender("greedy-mle")], orders=2, lines=lines)
        assert found.lines == (lines or 300)
        for method, summary in found.estimates.items():
            assert abs(summary.mean - 0.5) < 4 * summary.error, method
    with pytest.raises(InvalidInput, match="at most 300, the size of the log, got 301"):
        replay(trial, [Contender("greedy-mle")], lines=301)
    again = np.random.default_rng(1).integers(300, size=1_500)
    policy = tacit.make_policy("greedy-mle", features=trial.schema)
    seeming = estimates_of(trial, replay_pass(trial, policy, again, np.zeros(1_500)))["doubly robust"]
    assert seeming.value - 0.5 > 4 * seeming.error


def test_every_pass_has_an_order_of_its_own_and_no_line_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, module = [], import_module("tacit.evaluation.replay")
    play = module.replay_pass

    def watched(trial: Trial, policy: Any, lines: Any, coins: Any) -> Pass:
        seen.append((tuple(lines.tolist()), tuple(coins.tolist())))
        found: Pass = play(trial, policy, lines, coins)
        return found

    monkeypatch.setattr(module, "replay_pass", watched)
    replay(trial_of(60, EQUAL), [Contender("random"), Contender("greedy-mle")], orders=2, lines=40)
    assert len(set(seen)) == 2  # the same for all contenders
    for lines, coins in set(seen):
        assert len(set(lines)) == len(coins) == 40
        assert list(lines) != sorted(lines)
        assert max(lines) > 40


def test_features_are_encoded_before_tasks_are_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Looking:
        def finished(self, function: Any, tasks: Any) -> Any:
            assert all("rows" in vars(task[0]) for task in tasks)
            return (function(*task) for task in tasks)

    module = import_module("tacit.evaluation.replay")
    monkeypatch.setattr(module, "make_engine", lambda *_: Looking())
    assert len(replay(trial_of(30, EQUAL), [Contender("random")], orders=1)) == 1


def test_bad_numbers_are_refused() -> None:
    trial = trial_of(50, EQUAL)
    for wrong in ({"orders": 0}, {"lines": 0}, {"lines": 51}):
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
