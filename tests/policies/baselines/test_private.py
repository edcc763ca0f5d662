"""The private baselines: measured shifts within what is charged, ledgers within budget, noise of the stated size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidInput
from tacit.policies.baselines._private_linear import row_bound
from tacit.policies.baselines.local_glm import device_gradient
from tacit.policies.log import Publisher
from tacit.policies.registry import make_policy
from tacit.privacy.continual import released_variance
from tests.policies.baselines.helpers import Array, play_recorded, standard_normal_scale, unit_ball

THETA = np.array([0.9, -0.5, 0.3])


def _make(name: str, **arguments: Any) -> Any:
    given_arguments = {"dim": 3, "horizon": 600, "epsilon": 2.0, "delta": 1e-3, "theta_bound": 2.0, "seed": 7}
    return make_policy(name, **{**given_arguments, **arguments})


def _contribution(policy: Any, x: Array, reward: float) -> Array:
    policy.state.stream.leaf[:] = 0.0
    policy._steps.learn(policy.state, x[np.newaxis], np.array([reward]))
    return np.asarray(policy.state.stream.leaf.copy())


@pytest.mark.parametrize(("weight", "reward_bound"), [(0.3, 1.0), (1.0, 1.0), (2.0, 1.0), (0.2, 5.0)])
def test_linear_row_bound_holds_and_is_attained(weight: float, reward_bound: float) -> None:
    policy = _make("joint-linucb", reward_bound=reward_bound, reward_weight=weight)
    bound, plan, rng = row_bound(weight, reward_bound), policy._plan(10), np.random.default_rng(3)
    for _ in range(500):
        x, y = unit_ball(rng, 2, 3)
        first, second = (_contribution(policy, v, float(rng.choice([0.0, 0.4, 1.0])) * reward_bound) for v in (x, y))
        assert np.linalg.norm(first - second) <= bound + plan.rounding_slack
        assert np.linalg.norm(first) <= plan.row_norm + 0.5 * plan.rounding_slack
    cosine = -min(1.0, 0.5 * (weight * reward_bound) ** 2)
    x, y = np.array([1.0, 0.0, 0.0]), np.array([cosine, np.sqrt(1.0 - cosine**2), 0.0])
    worst = _contribution(policy, x, reward_bound) - _contribution(policy, y, reward_bound)
    assert np.linalg.norm(worst) == pytest.approx(bound, abs=plan.rounding_slack)
    assert plan.rounding_slack <= 1e-3 * bound
    entry = policy.ledger.entries[0].event
    assert entry.sensitivity == pytest.approx(bound + plan.rounding_slack, rel=1e-12)
    assert policy._noise_scale == pytest.approx(entry.noise_sd)


vectors = st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3).map(np.array)


@settings(max_examples=100, deadline=None)
@given(theta=vectors, x=vectors, y=vectors, rewards=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)))
def test_local_report_shift_is_within_what_is_charged(
    theta: Array, x: Array, y: Array, rewards: tuple[float, float]
) -> None:
    policy = _local()
    reports = [
        device_gradient(
            policy.state.constants, 2.0 * theta, features / max(1.0, float(np.linalg.norm(features))), reward
        )
        for features, reward in zip((x, y), rewards, strict=True)
    ]
    shift = np.linalg.norm(reports[0] - reports[1])
    assert shift <= policy.ledger.entries[0].event.sensitivity * (1.0 + 1e-12)


_LOCAL: list[Any] = []


def _local() -> Any:
    if not _LOCAL:
        _LOCAL.append(_make("local-glm"))
    return _LOCAL[0]


@pytest.mark.parametrize("name", ["joint-linucb", "local-glm", "shuffle-linucb", "adaprivate-ts", "ldp-linucb"])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_ledger_stays_within_the_budget(name: str, epsilon: float) -> None:
    policy = _make(name, epsilon=epsilon)
    play_recorded(policy, 200, THETA, seed=1001)
    assert 0.95 * epsilon < policy.ledger.epsilon_spent <= epsilon * (1.0 + 1e-9)
    assert policy.privacy.model == policy.guarantee


def test_shuffle_charges_each_batch_to_its_own_cohort() -> None:
    policy = _make("shuffle-linucb", batch_size=60)
    play_recorded(policy, 181, THETA, seed=1001)
    cohorts = [entry.cohort for entry in policy.ledger.entries]
    assert cohorts == ["batch 1"] * 2 + ["batch 2"] * 2 + ["batch 3"] * 2
    assert policy.ledger.epsilon_spent <= 2.0 * (1.0 + 1e-9)
    assert policy.state.rows.held[()] == 1


def test_missing_rewards_neither_delay_nor_shrink_a_shuffle_batch() -> None:
    """Whether somebody's reward came must not show in when a batch opens or in how many reports it holds."""
    policy = _make("shuffle-linucb", batch_size=60)
    rng = np.random.default_rng(1)
    for index in range(125):
        decision = policy.select(unit_ball(rng, 4, 3))
        if index % 2:
            policy.update(decision, 1.0)
    assert [entry.cohort for entry in policy.ledger.entries] == ["batch 1"] * 2 + ["batch 2"] * 2
    assert policy.state.users[()] == 120


def _rejects_other_scales(samples: Array, sd: float) -> None:
    assert standard_normal_scale(samples, sd)
    assert not standard_normal_scale(samples * (2.0 / 3.0), sd)
    assert not standard_normal_scale(samples * 1.5, sd)


@pytest.mark.parametrize("name", ["local-glm", "ldp-linucb"])
def test_local_noise_has_the_charged_size_and_is_each_users_own(name: str) -> None:
    policy = _make(name, horizon=3000)
    contexts = np.random.default_rng(2).random((1500, 2, 3)) / 2.0
    decisions = policy.select_batch(contexts)
    noise = np.array([policy._pending.memo(decision.id)[3:] for decision in decisions])
    _rejects_other_scales(noise, policy.ledger.entries[0].event.noise_sd)
    correlation = np.mean(noise[1:] * noise[:-1]) / np.mean(noise**2)
    assert abs(correlation) < 5.0 / np.sqrt(noise[1:].size)


def test_a_batch_of_devices_decides_as_one_after_the_other() -> None:
    """Arms, propensities and noise, from the warm-up to greedy choices."""
    contexts = np.random.default_rng(2).uniform(-0.5, 0.5, (12, 4, 3))
    together, alone = (_make("local-glm", warm_up=5) for _ in range(2))
    for policy in (together, alone):
        policy.update(policy.select(contexts[0]), 1.0)
    batch, single = together.select_batch(contexts), [alone.select(arms) for arms in contexts]
    assert [(d.arm, d.propensity) for d in batch] == [(d.arm, d.propensity) for d in single]
    assert [d.propensity for d in batch] == [0.25] * 4 + [1.0] * 8
    for one, other in zip(batch, single, strict=True):
        np.testing.assert_array_equal(together._pending.memo(one.id), alone._pending.memo(other.id))


class _Counting(Publisher):
    """Counts the reports that pass, and what their noise was."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float]] = []

    def vector(self, kind: str, exact: Array, noise: Array, sd: float) -> Array:
        self.seen.append((kind, sd))
        return super().vector(kind, exact, noise, sd)


def test_every_report_passes_the_publisher() -> None:
    contexts = np.random.default_rng(2).uniform(-0.5, 0.5, (20, 4, 3))
    watched, alone = (_make("local-glm") for _ in range(2))
    watched.publisher = _Counting()
    for policy in (watched, alone):
        policy.update(policy.select(contexts[0]), 1.0)
        policy.play(contexts, np.ones((20, 4)))
    assert watched.publisher.seen == [("report", watched.ledger.entries[0].event.noise_sd)] * 21
    np.testing.assert_array_equal(watched.state.theta, alone.state.theta)


@pytest.mark.parametrize("factorization", ["toeplitz", "tree"])
def test_joint_noise_has_the_charged_size(factorization: str) -> None:
    contexts, samples = np.zeros((2, 3)), []
    for seed in range(120):
        policy = _make("joint-linucb", seed=seed, factorization=factorization)
        for _ in range(3):
            policy.select(contexts)
        samples.append(policy.state.stream.released.copy())
    expected = float(np.sqrt(released_variance(policy.state.stream)))
    assert expected >= policy.ledger.entries[0].event.noise_sd * 0.5
    _rejects_other_scales(np.concatenate(samples), expected)


def test_shuffle_noise_has_the_calibrated_size() -> None:
    errors = []
    for seed in range(60):
        policy = _make("shuffle-linucb", batch_size=60, seed=seed)
        features, rewards = play_recorded(policy, 61, THETA, seed=1001)
        errors.append(policy.state.moment - features[:60].T @ rewards[:60])
    protocol = policy.plan["moment"].protocol
    p = protocol.noise_probability
    binomial = protocol.step * np.sqrt(protocol.noise_trials(60) * p * (1.0 - p))
    spread = float(np.sqrt(np.mean(np.square(errors))))
    slack = 5.0 * np.sqrt(0.5 / np.size(errors))  # rounding adds between nothing and what noise_sd counts
    assert binomial * (1.0 - slack) <= spread <= protocol.noise_sd(60) * (1.0 + slack)
    assert 2.0 / 3.0 * protocol.noise_sd(60) < binomial * (1.0 - slack)


def test_shuffled_sums_refuse_noise_they_do_not_use_and_say_who_sees_what() -> None:
    with pytest.raises(InvalidInput, match="binomial"):
        _make("shuffle-linucb", noise="exact")
    assert "whoever runs it sees the rows" in str(_make("shuffle-linucb").privacy)
