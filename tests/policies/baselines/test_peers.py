"""`adaprivate-ts` and `ldp-linucb`: shifts within what is charged, noise of the stated size, estimates, clocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tacit.errors import InvalidInput
from tacit.policies.baselines.ldp_linucb import device_report
from tacit.policies.log import Publisher
from tacit.policies.registry import make_policy
from tests.policies.baselines.helpers import Array, play_recorded, standard_normal_scale, unit_ball

THETA = np.array([0.9, -0.5, 0.3])
WORST = np.array([1.0, 0.0, 0.0]), np.array([-0.5, math.sqrt(0.75), 0.0])
"""Unit vectors at the angle at which two fully rewarded rows lie furthest apart."""


def _make(name: str, **arguments: Any) -> Any:
    given = {"dim": 3, "horizon": 600, "epsilon": 2.0, "delta": 1e-3, "theta_bound": 2.0, "seed": 7}
    return make_policy(name, **{**given, **arguments})


def _contribution(policy: Any, x: Array, reward: float) -> Array:
    """What a row adds, before noise."""
    if policy.name == "ldp-linucb":
        return device_report(policy.state.constants, x, reward)
    policy.state.batch[:] = 0.0
    policy._steps.learn(policy.state, x[np.newaxis], np.array([reward]))
    return np.asarray(policy.state.batch.copy())


def _charged(policy: Any) -> Any:
    """The ledger entry of one release."""
    if policy.name == "adaprivate-ts":
        policy._plan.charge(policy.ledger, "a batch")
    return policy.ledger.entries[0].event


@pytest.mark.parametrize("name", ["adaprivate-ts", "ldp-linucb"])
@pytest.mark.parametrize("noise", ["fast", "exact"])
@pytest.mark.parametrize(("reward_bound", "base_rate"), [(1.0, None), (5.0, None), (1.0, 0.1)])
def test_rows_move_releases_by_what_is_charged_at_most(
    name: str, noise: str, reward_bound: float, base_rate: float | None
) -> None:
    policy = _make(name, noise=noise, reward_bound=reward_bound, base_rate=base_rate)
    event, rng = _charged(policy), np.random.default_rng(3)
    for _ in range(300):
        rows = unit_ball(rng, 2, 3)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True) ** rng.integers(0, 2)
        first, second = (_contribution(policy, x, float(rng.choice([0.0, 0.4, 1.0])) * reward_bound) for x in rows)
        assert np.linalg.norm(first - second) <= event.sensitivity * (1.0 + 1e-12)
        assert np.linalg.norm(first) <= event.moving * (1.0 + 1e-12)
    worst = np.subtract(*(_contribution(policy, x, reward_bound) for x in WORST))
    assert np.linalg.norm(worst) == pytest.approx(event.sensitivity, rel=1e-5)
    assert event.sensitivity == pytest.approx(3.0 / math.sqrt(2.0), rel=1e-5)


class _Watching(Publisher):
    """Keeps what was released, and the noise of it."""

    def __init__(self) -> None:
        self.noise: list[Array] = []
        self.sds: set[float] = set()

    def vector(self, kind: str, exact: Array, noise: Array, sd: float) -> Array:
        self.noise.append(noise)
        self.sds.add(sd)
        return super().vector(kind, exact, noise, sd)


@pytest.mark.parametrize("name", ["adaprivate-ts", "ldp-linucb"])
def test_noise_has_the_charged_size(name: str) -> None:
    noise, charged = [], set()
    for seed in range(40):
        policy = _make(name, seed=seed)
        policy.publisher = watching = _Watching()
        play_recorded(policy, 200, THETA, seed=1001)
        noise += watching.noise
        charged |= {entry.event.noise_sd for entry in policy.ledger.entries} | watching.sds
    (sd,) = charged
    samples = np.concatenate(noise)
    assert standard_normal_scale(samples, sd)
    assert not standard_normal_scale(samples * (2.0 / 3.0), sd)
    assert not standard_normal_scale(samples * 1.5, sd)


@pytest.mark.parametrize("name", ["adaprivate-ts", "ldp-linucb"])
def test_what_is_released_is_the_sum_and_its_noise(name: str) -> None:
    policy = _make(name)
    policy.publisher = watching = _Watching()
    features, rewards = play_recorded(policy, 193, THETA, seed=1001)
    state = policy.state
    exact = np.sum([_contribution(_make(name), x, r) for x, r in zip(features, rewards, strict=True)], axis=0)
    found = state.released + state.batch if name == "adaprivate-ts" else state.sums
    np.testing.assert_allclose(found, exact + np.sum(watching.noise, axis=0), atol=1e-9)
    assert len(watching.noise) == (4 if name == "adaprivate-ts" else 193)


def test_each_batch_is_charged_to_its_own_cohort_when_it_is_released() -> None:
    policy = _make("adaprivate-ts", first_batch=20)
    found = []
    for _ in range(81):
        policy.update(policy.select(np.eye(3)), 1.0)
        found.append(len(policy.ledger.entries))
    assert [found.index(count) for count in (1, 2, 3)] == [20, 40, 80]
    assert [entry.cohort for entry in policy.ledger.entries] == ["batch 1", "batch 2", "batch 3"]
    alone = _make("adaprivate-ts", first_batch=20)
    alone._plan.charge(alone.ledger, "batch 1")
    # One row is in one batch: three cost no more than one, or two half as large where a row may move between them.
    assert policy.ledger.epsilon_spent == pytest.approx(alone.ledger.epsilon_spent, rel=1e-9)


@pytest.mark.parametrize(
    ("growth", "ends"), [(0.0, [20, 40, 60, 80]), (0.5, [20, 40, 60, 90]), (1.0, [20, 40, 80, 160])]
)
def test_batches_grow_as_asked(growth: float, ends: list[int]) -> None:
    policy = _make("adaprivate-ts", first_batch=20, growth=growth)
    found = list[int]()
    for decisions in range(161):
        policy.select(np.eye(3))  # without rewards: the clock is that of decisions
        if len(policy.ledger.entries) > len(found):
            found.append(decisions)
    assert found[:4] == ends


def test_longest_batches_end() -> None:
    """Sums of exact noise are whole numbers of steps that floats hold."""
    policy = _make("adaprivate-ts", first_batch=1 << 60, growth=1e300, noise="exact", seed=None)
    assert policy.state.boundary[()] == 1 << 29


def test_a_release_that_fails_loses_the_batch_and_charges_the_next_one_anew() -> None:
    class Failing(Publisher):
        def vector(self, kind: str, exact: Array, noise: Array, sd: float) -> Array:
            raise OSError("no disk")

    policy = _make("adaprivate-ts", first_batch=20)
    contexts = np.eye(3)
    for _ in range(20):
        policy.update(policy.select(contexts), 1.0)
    policy.publisher = Failing()
    with pytest.raises(OSError, match="no disk"):
        policy.select(contexts)
    assert not np.any(policy.state.batch)
    assert not np.any(policy.state.released)
    policy.publisher = watching = _Watching()
    for _ in range(20):
        policy.update(policy.select(contexts), 1.0)
    assert [entry.cohort for entry in policy.ledger.entries] == ["batch 1", "batch 2"]
    np.testing.assert_allclose(policy.state.released, watching.noise[0], atol=30.0)


def test_estimates_without_noise_are_ridge() -> None:
    for name, options in (("adaprivate-ts", {"first_batch": 50}), ("ldp-linucb", {})):
        policy = _make(name, horizon=1000, epsilon=math.inf, delta=None, ridge=2.0, **options)
        features, rewards = play_recorded(policy, 201, THETA, seed=1001)
        seen = 200 if name == "adaprivate-ts" else 201
        gram = features[:seen].T @ features[:seen] + 2.0 * np.eye(3)
        np.testing.assert_allclose(
            policy.state.theta, np.linalg.solve(gram, features[:seen].T @ rewards[:seen]), atol=1e-6
        )


def test_draws_have_the_covariance_of_posterior_and_noise() -> None:
    """v^2 A^-1 + A^-1 M A^-1 with the noise of b, and that of A times theta."""
    policy = _make("adaprivate-ts", first_batch=40, reward_bound=2.0, scale=0.4, shift=0.7, ridge=1.5)
    play_recorded(policy, 90, THETA, seed=1001)
    state, sd, dim = policy.state, math.sqrt(2.0) * policy._plan.noise_sd, 3
    square = np.zeros((3, 3))
    square[np.triu_indices(3)] = state.released[:6]
    gram = np.triu(square) + np.triu(square, 1).T
    gram = gram / (np.eye(3) + math.sqrt(2.0) * (1.0 - np.eye(3)))
    matrix = gram + (1.5 + 0.7 * sd * math.sqrt(2.0 * dim)) * np.eye(3)
    assert np.linalg.eigvalsh(matrix)[0] > 0.0
    inverse, theta = np.linalg.inv(matrix), state.theta
    noise = sd**2 * (4.0 * np.eye(3) + 0.5 * (theta @ theta * np.eye(3) + np.outer(theta, theta)))
    expected = 0.8**2 * inverse + inverse @ noise @ inverse
    np.testing.assert_allclose(state.factor @ state.factor.T, expected, rtol=1e-9, atol=1e-12)


def test_users_draw_by_that_covariance() -> None:
    policy = _make("adaprivate-ts")
    play_recorded(policy, 200, THETA, seed=1001)
    arms, draws = np.array([[0.6, -0.8, 0.0], [0.0, 0.0, 0.0]]), 4000
    chosen = policy._steps.choose(
        policy.state,
        np.tile(arms, (draws, 1, 1)),
        np.random.default_rng(2).random((draws, 3)),
        np.empty((draws, 3)),
    )
    mean = arms[0] @ policy.state.theta
    sd = float(np.linalg.norm(arms[0] @ policy.state.factor))
    chance = float(stats.norm.cdf(mean / sd))
    assert 0.05 < chance < 0.95
    assert abs(np.mean(chosen == 0) - chance) < 4.0 * math.sqrt(chance * (1.0 - chance) / draws)


@pytest.mark.parametrize("reward_bound", [1.0, 5.0])
def test_local_width_is_that_of_the_authors_code(reward_bound: float) -> None:
    """Written anew from their formulas: shift 2 Upsilon, and the radius with the deviation of noise."""
    policy = _make("ldp-linucb", scale=1.0, shift=1.0, ridge=1e-9, reward_bound=reward_bound)
    play_recorded(policy, 150, THETA, seed=1001)
    state, sd, t, horizon, dim = policy.state, policy._noise_scale, 150, 600, 3
    upsilon = sd * math.sqrt(t) * (4.0 * math.sqrt(dim) + 2.0 * math.log(2.0 * horizon / 0.1))
    width = 2.0 * sd * reward_bound * math.sqrt(dim * math.log(horizon)) + (
        2.0 * math.sqrt(3.0 * upsilon) + reward_bound * sd * math.sqrt(dim * t / upsilon)
    ) * dim * math.log(horizon)
    assert width <= state.radius[()] <= 1.01 * width  # ours adds the deviation of the reward itself
    shift = np.linalg.inv(state.inverse)
    shift[np.diag_indices(3)] -= state.sums[[0, 3, 5]]
    np.testing.assert_allclose(np.diag(shift), 2.0 * upsilon, rtol=1e-6)


@pytest.mark.parametrize("option", ["first_batch", "growth", "scale", "shift", "ridge"])
def test_options_of_batches_are_checked(option: str) -> None:
    with pytest.raises(InvalidInput, match=option):
        _make("adaprivate-ts", **{option: -1})
