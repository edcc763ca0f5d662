"""Baselines learn, keep their rows, and refuse what they cannot do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.experiments.runner import run_once
from tacit.experiments.spec import Experiment
from tacit.glm.rows import FIRST_CAPACITY
from tacit.policies.decision import Decision
from tacit.policies.registry import POLICIES, make_policy
from tests.policies.baselines.helpers import unit_ball

# Largest share of random's regret after 2,000 rounds; GLM-UCB and B-GLinCB explore most of that time, by design.
SHARES = {
    "greedy-mle": 0.15, "rs-glinucb": 0.4, "b-glincb": 0.7, "glm-ucb": 0.9, "gloc": 0.4, "ecolog": 0.4, "ofulog+": 0.4,
    "joint-linucb": 0.3, "shuffle-linucb": 0.4, "local-glm": 0.6,
    "adaprivate-ts": 0.3, "ldp-linucb": 0.6,
}  # fmt: skip
PRIVATE = ("joint-linucb", "shuffle-linucb", "local-glm", "adaprivate-ts", "ldp-linucb")


def _regret(name: str, horizon: int = 2000) -> float:
    epsilon, delta = (8.0, 0.02) if name in PRIVATE else (None, None)
    experiment = Experiment(
        policy=name, link="logistic", dim=3, arms=20, horizon=horizon, theta_norm=2.0, epsilon=epsilon, delta=delta
    )
    return float(np.mean([run_once(experiment, 1000, run).regret_curve[-1] for run in range(3)]))


@pytest.mark.parametrize("name", SHARES)
def test_regret_is_well_below_random(name: str) -> None:
    assert _regret(name) < SHARES[name] * _regret("random")


@pytest.mark.parametrize("name", ["ecolog", "ofulog+"])
def test_unsupported_link_lists_what_is_possible(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"supports the links logistic, not 'probit'"):
        make_policy(name, dim=3, link="probit")


@pytest.mark.parametrize("name", PRIVATE)
def test_private_baselines_need_a_budget(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} needs epsilon"):
        make_policy(name, dim=3, horizon=100)


def test_batched_policy_needs_a_horizon() -> None:
    with pytest.raises(InvalidInput, match="b-glincb needs horizon"):
        make_policy("b-glincb", dim=3)


def test_shuffle_refuses_returning_users() -> None:
    with pytest.raises(InvalidInput, match="rounds_per_user must be 1"):
        make_policy("shuffle-linucb", dim=3, horizon=500, epsilon=1.0, delta=1e-3, rounds_per_user=2)


@pytest.mark.parametrize("name", [name for name in SHARES if name in POLICIES])
@pytest.mark.parametrize("option", ["scale", "growth", "ridge", "failure_probability"])
def test_options_are_checked(name: str, option: str) -> None:
    private: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-3} if name in PRIVATE else {}
    with pytest.raises(InvalidInput, match=option):
        make_policy(name, dim=2, horizon=100, **(private | {option: -1.0}))


@pytest.mark.parametrize("factor", [1.0, float("inf"), float("nan")])
def test_switch_factor_must_let_the_matrix_grow(factor: float) -> None:
    with pytest.raises(InvalidInput, match="switch_factor must be above 1"):
        make_policy("rs-glinucb", dim=2, switch_factor=factor)


def test_buffer_grows_for_late_rewards() -> None:
    """Rewards of more decisions than fit may arrive without a tick between them."""
    rng = np.random.default_rng(1000)
    policy = make_policy("greedy-mle", dim=2, seed=0)
    count = 2 * FIRST_CAPACITY + 3
    decisions = policy.select_batch(np.stack([unit_ball(rng, 2, 2) for _ in range(count)]))
    for index, decision in enumerate(decisions):
        assert isinstance(decision, Decision)
        policy.update(decision, float(index % 2))
    rows = policy.state.rows
    assert int(rows.held) == count
    np.testing.assert_array_equal(rows.rewards[:count], np.arange(count) % 2)
    assert rows.rewards.size == 4 * FIRST_CAPACITY


def test_play_grows_the_buffer() -> None:
    rng = np.random.default_rng(1000)
    policy = make_policy("rs-glinucb", dim=2, horizon=3000, seed=0)
    contexts = np.stack([unit_ball(rng, 3, 2) for _ in range(3000)])
    policy.play(contexts, rng.integers(0, 2, size=(3000, 3)).astype(float))
    assert int(policy.state.rows.held) == 3000


@pytest.mark.parametrize("horizon", [None, 300, 1000])
@pytest.mark.parametrize("name", ["rs-glinucb", "greedy-mle"])
def test_rounds_that_are_chosen_ahead_are_those_of_single_calls(name: str, horizon: int | None) -> None:
    """Fits, switches and rows of T_o come in between, and the horizon ends before the rounds do."""
    rng = np.random.default_rng(7)
    contexts = np.stack([unit_ball(rng, 6, 3) for _ in range(600)])
    rewards = (rng.random((600, 6)) < 1.0 / (1.0 + np.exp(-3.0 * contexts[:, :, 0]))).astype(np.float64)
    ahead, single = (make_policy(name, dim=3, horizon=horizon, theta_bound=3.0, seed=0) for _ in range(2))
    arms = ahead.play(contexts, rewards)
    for t, arm in enumerate(arms):
        decision = single.select(contexts[t])
        assert decision.arm == arm, t
        single.update(decision, rewards[t, arm])
    np.testing.assert_allclose(ahead.state.theta, single.state.theta, rtol=1e-9)
