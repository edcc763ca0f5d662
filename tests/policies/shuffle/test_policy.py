"""`shuffle-glm`: batches, what they release, and what that costs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.experiments.runner import run_once
from tacit.experiments.spec import Experiment
from tacit.policies.shuffle import ShuffleGLM
from tacit.policies.shuffle import policy as policy_module
from tacit.policies.shuffle.releases import release_sum
from tacit.privacy.events import GaussianRelease
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

DIM, ARMS = 3, 6
Calls = list[tuple[SumProtocol, FloatArray, Aggregate]]


def make(**changes: Any) -> ShuffleGLM:
    arguments: dict[str, Any] = {
        "dim": DIM, "horizon": 400, "epsilon": 2.0, "delta": 0.01, "theta_bound": 2.0, "seed": 3,
    }  # fmt: skip
    return ShuffleGLM(**(arguments | changes))


def rounds(count: int, seed: int = 5) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((count, ARMS, DIM))
    contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
    scores = contexts @ np.array([1.5, -1.0, 0.5])
    return contexts, (rng.random((count, 1)) < 1.0 / (1.0 + np.exp(-scores))).astype(np.float64)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every sum that policies release: protocol, contributions, result."""
    calls: Calls = []

    def recording(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator, path: Any) -> Aggregate:
        result = release_sum(protocol, rows, rng, path)
        calls.append((protocol, rows.copy(), result))
        return result

    monkeypatch.setattr(policy_module, "release_sum", recording)
    return calls


def test_a_batchs_policy_is_fixed_before_its_first_user() -> None:
    contexts, rewards = rounds(400)
    first, second = make(), make()
    size = first.batch_users
    arms = first.play(contexts[:size], rewards[:size])
    assert np.array_equal(arms, second.play(contexts[:size], 1.0 - rewards[:size]))
    after = first.play(contexts[size:], rewards[size:])
    assert not np.array_equal(after, second.play(contexts[size:], rewards[size:]))  # the next batch has learned


def test_rewards_within_a_batch_change_nothing_but_the_buffer() -> None:
    contexts, rewards = rounds(60)
    policy = make()
    policy.play(contexts[:10], rewards[:10])
    before = {
        name: np.copy(value)
        for name, value in policy.state._asdict().items()
        if name not in ("rows", "batch", "constants")
    }
    policy.update(policy.select(contexts[10]), 1.0)
    for name, value in before.items():
        assert np.array_equal(getattr(policy.state, name), value)


def test_every_user_of_a_batch_reports_once_to_each_sum(released: Calls) -> None:
    contexts, rewards = rounds(120)
    policy = make()
    size = policy.batch_users
    decisions = [policy.select(user) for user in contexts[:size]]
    for position in range(0, size, 3):  # two of three rewards never come
        policy.update(decisions[position], float(rewards[position, decisions[position].arm]))
    policy.select(contexts[size])
    assert [protocol.label for protocol, _, _ in released] == ["batch 1/curvature/0", "batch 1/score/0"]
    for protocol, rows, result in released:
        assert rows.shape[0] == result.reports == protocol.min_users == size
    assert np.count_nonzero(np.any(released[0][1] != 0.0, axis=1)) == math.ceil(size / 3)


def test_a_late_reward_is_discarded_and_rows_do_not_outlive_their_batch(released: Calls) -> None:
    contexts, _ = rounds(120)
    policy = make()
    size = policy.batch_users
    late = policy.select(contexts[0])
    for user in contexts[1:size]:
        policy.update(policy.select(user), 1.0)
    policy.select(contexts[size])
    assert policy.state.rows.held[()] == 0
    assert not np.any(policy.state.rows.lines)
    before = policy.fingerprint()
    policy.update(late, 1.0)
    assert policy.state.rows.held[()] == 0
    assert policy.fingerprint() != before  # the decision waits no longer


def test_the_ledger_holds_what_is_drawn(released: Calls) -> None:
    contexts, rewards = rounds(400)
    policy = make()
    policy.play(contexts, rewards)
    entries = policy.ledger.entries
    assert [entry.cohort for entry in entries[:4]] == ["batch 1", "batch 1", "batch 2", "batch 2"]
    charged = {entry.event.name: entry.event for entry in entries}
    for protocol, _, _ in released:
        event = charged[protocol.label.rpartition("/")[0]]
        assert isinstance(event, GaussianRelease)
        binomial = protocol.noise_trials(protocol.min_users) * protocol.noise_probability
        sd = protocol.step * math.sqrt(binomial * (1.0 - protocol.noise_probability))
        assert event.sensitivity == protocol.domain.sensitivity
        # The dominating Gaussian is a little narrower than the noise that is drawn; 2/3 of it would not be.
        assert 1.0 <= sd / event.noise_sd < 1.2
    assert policy.privacy.spent_epsilon <= 2.0
    assert policy.privacy.delta == 0.01


def closings(policy: ShuffleGLM, count: int) -> FloatArray:
    """Estimates from closing one and the same first batch again and again, each time with fresh noise."""
    contexts, rewards = rounds(200)
    size = policy.batch_users
    policy.play(contexts[:size], rewards[:size])
    state, end, found = policy.state, policy.state.batch.end[()], []
    for _ in range(count):
        policy.state = state
        policy._close_batch()
        state.batch.end[()] = end  # open again, as only a test may
        found.append(policy.state.theta[-1])
    return np.array(found)


@pytest.mark.parametrize("path", ["sums", "bits"])
def test_noise_has_the_stated_scale(path: str, released: Calls) -> None:
    closings(make(path=path), 400)
    for label in ("curvature", "score"):
        calls = [call for call in released if label in call[0].label]
        errors = np.array([result.values - protocol.domain.embed(rows).sum(axis=0) for protocol, rows, result in calls])
        protocol = calls[0][0]
        p = protocol.noise_probability
        stated = protocol.step * math.sqrt(protocol.noise_trials(protocol.min_users) * p * (1.0 - p))
        assert abs(errors.mean()) < 5.0 * stated / math.sqrt(errors.size)
        # Rounding adds a little; 2/3 and 3/2 of the scale are far outside.
        assert 0.95 * stated < float(np.sqrt(np.mean(errors**2))) < 1.15 * stated


def test_bits_and_sums_give_estimates_of_the_same_distribution() -> None:
    by_bits, by_sums = closings(make(path="bits"), 600), closings(make(path="sums"), 600)
    spread = by_sums.std(axis=0)
    assert np.all(np.abs(by_bits.mean(axis=0) - by_sums.mean(axis=0)) < 4.5 * spread * math.sqrt(2.0 / 600))
    assert np.all(np.abs(np.log(by_bits.std(axis=0) / spread)) < 4.5 / math.sqrt(600))


def test_without_a_seed_noise_is_fresh_each_time() -> None:
    assert np.unique(closings(make(seed=None), 5), axis=0).shape[0] == 5


def test_a_replaced_row_moves_its_own_batchs_sums_by_at_most_the_sensitivity(released: Calls) -> None:
    contexts, rewards = rounds(400)
    others, flipped = contexts.copy(), rewards.copy()
    others[7], flipped[7] = -contexts[7][::-1], 1.0 - rewards[7]
    policy = make()
    size = policy.batch_users
    arms = policy.play(contexts[: size + 1], rewards[: size + 1])
    mine = released.copy()
    released.clear()
    neighbour = make()
    arms_of_neighbour = neighbour.play(others[: size + 1], flipped[: size + 1])
    assert np.array_equal(np.delete(arms[:size], 7), np.delete(arms_of_neighbour[:size], 7))
    for (protocol, rows, _), (_, changed, _) in zip(mine, released, strict=True):
        assert list(np.flatnonzero(np.any(rows != changed, axis=1))) == [7]
        shift = protocol.domain.embed(rows).sum(axis=0) - protocol.domain.embed(changed).sum(axis=0)
        assert 0.0 < np.linalg.norm(shift) <= protocol.domain.sensitivity * (1.0 + 1e-12)


def test_contributions_lie_in_their_domains_unclipped(released: Calls) -> None:
    contexts, rewards = rounds(400)
    make().play(contexts, rewards)
    for protocol, rows, _ in released:
        if "score" in protocol.label:
            assert np.max(np.linalg.norm(rows, axis=1)) <= protocol.domain.bound


def test_batches_cover_the_horizon_and_the_last_is_cut() -> None:
    contexts, rewards = rounds(430)
    policy = make()
    policy.play(contexts, rewards)
    assert policy.state.batch.served[()] <= 400
    assert policy.batch_users == 0  # nothing is opened after the horizon
    assert policy.plan is None
    assert policy.decisions == 430


def test_without_a_horizon_batches_go_on_growing() -> None:
    contexts, rewards = rounds(2000)
    policy = make(horizon=None)
    policy.play(contexts, rewards)
    assert policy.state.batch.number[()] > 4
    assert policy.batch_users > 400


def test_several_rows_of_a_user_cost_more_noise_and_stay_within_the_budget() -> None:
    contexts, rewards = rounds(400)
    once, thrice = make(), make(rounds_per_user=3)
    assert once.plan is not None
    assert thrice.plan is not None
    assert thrice.plan.guarantee.mu * 3.0 == pytest.approx(once.plan.guarantee.mu, rel=0.02)
    thrice.play(contexts, rewards)
    assert thrice.privacy.spent_epsilon <= 2.0
    assert thrice.bytes_per_user >= 3 * 2 * 28


def test_bytes_per_user_count_all_reports() -> None:
    policy = make()
    assert policy.plan is not None
    assert policy.bytes_per_user == policy.plan.bytes_per_user
    assert policy.reports_per_user == 2


def test_noise_that_is_not_the_mechanisms_is_refused() -> None:
    for name in ("none", "exact"):
        with pytest.raises(InvalidInput, match="binomial"):
            make(noise=name)
    for bad in ({"path": "letters"}, {"profile": "paper"}, {"constant": 0.0}, {"batches": 1}, {"max_rounds": 0}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            make(**bad)


def test_a_small_budget_opens_batches_that_are_large_enough() -> None:
    policy = make(epsilon=1e-3, delta=1e-6, horizon=None)
    assert policy.plan is not None
    assert policy.plan.guarantee.epsilon(1e-6) <= 1e-3
    assert make(epsilon=1e-3, delta=1e-6, horizon=50).plan is None


def test_a_saved_policy_releases_the_same_sums(tmp_path: Path) -> None:
    contexts, rewards = rounds(200)
    whole, split = make(path="bits"), make(path="bits")
    expected = whole.play(contexts, rewards)
    arms = list(split.play(contexts[:50], rewards[:50]))
    split.save(tmp_path / "state")
    loaded = tacit.load(tmp_path / "state")
    assert [*arms, *loaded.play(contexts[50:], rewards[50:])] == list(expected)


def test_regret_of_a_short_run() -> None:
    regrets = {}
    for name, epsilon in (("random", None), ("shuffle-glm", 4.0), ("shuffle-glm", math.inf)):
        experiment = Experiment(
            policy=name, link="logistic", dim=3, arms=10, horizon=2000, theta_norm=3.0, epsilon=epsilon,
            delta=None if epsilon is None else 0.02,
        )  # fmt: skip
        regrets[epsilon] = np.mean([run_once(experiment, 1000, run).regret_curve[-1] for run in range(3)])
    assert regrets[4.0] < 0.2 * regrets[None]
    assert regrets[math.inf] < regrets[4.0]
