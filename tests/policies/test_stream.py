"""`stream-glm`: the row that is charged, the estimate that follows from releases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit.estimation.linearised import SHORTEST, blended_weights
from tacit.experiments.runner import run_once
from tacit.experiments.spec import Experiment
from tacit.linalg.packing import packed
from tacit.policies.state import size_in_bytes
from tacit.policies.stream import StreamGLM
from tacit.policies.stream.steps import learn, solve


def make(**changes: Any) -> StreamGLM:
    arguments: dict[str, Any] = {
        "dim": 3,
        "horizon": 500,
        "epsilon": 2.0,
        "delta": 0.02,
        "link": "logistic",
        "theta_bound": 3.0,
        "seed": 5,
    }
    return StreamGLM(**(arguments | changes))


def test_replaced_rows_move_the_leaf_by_at_most_the_charged_bound() -> None:
    policy = make()
    rng = np.random.default_rng(7)
    worst = 0.0
    for _ in range(3000):
        theta = rng.standard_normal(3)
        policy.state.theta[:] = 3.0 * theta / np.linalg.norm(theta)
        leaves = []
        for _ in range(2):
            arms = rng.standard_normal((1, 3))
            arms /= np.linalg.norm(arms) * (1.0 if rng.random() < 0.7 else rng.uniform(1.0, 3.0))
            memo = np.empty(policy._memo_size)
            memo[:3], memo[3] = arms[0], float(arms[0] @ policy.state.theta)
            policy.state.stream.leaf[:] = 0.0
            learn(policy.state, memo[np.newaxis], rng.integers(2, size=1).astype(np.float64))
            leaves.append(policy.state.stream.leaf.copy())
        worst = max(worst, float(np.linalg.norm(leaves[0] - leaves[1])))
        assert max(np.linalg.norm(leaf) for leaf in leaves) <= policy._row.row_norm
    assert 0.9 * policy._row.row_bound < worst <= policy._row.row_bound


def test_late_rewards_are_linearised_at_the_theta_of_the_decision() -> None:
    policy = make()
    arms = np.array([[0.8, 0.3, 0.1]])
    decision = policy.select(arms)
    point = policy._pending.memo(decision.id)[3]
    policy.state.theta[:] = (2.0, -1.0, 0.5)
    policy.update(decision, 1.0)
    link, x = policy.setting.link, arms[0]
    mean, weight = (float(part) for part in blended_weights(link, policy._row.blend, point))
    response = 1.0 - mean + weight * point
    half, length = 0.5 * policy.state.stream.constants.grid, float(np.linalg.norm(x))
    assert length > SHORTEST
    matrix, score = packed(weight * np.outer(x, x)) / length, policy._row.scale * response * x / length
    np.testing.assert_allclose(policy.state.stream.leaf[:6], matrix, rtol=0.0, atol=half * (1.0 + 1e-9))
    np.testing.assert_allclose(policy.state.stream.leaf[6:], score, rtol=0.0, atol=half * (1.0 + 1e-9))
    _, moved = blended_weights(link, policy._row.blend, x @ policy.state.theta)
    assert abs(moved - weight) > 1e-3  # the theta of the arrival would have given another row


def test_the_estimate_is_a_function_of_the_releases() -> None:
    """Solving again from the public part of the state gives the same estimate; raw leaves play no part."""
    policy = make()
    rng = np.random.default_rng(1)
    contexts = rng.standard_normal((200, 4, 3)) / 4.0
    policy.play(np.clip(contexts, -0.5, 0.5), np.ones((200, 4)))
    policy.state.stream.leaf[:] = 1e6
    theta = policy.state.theta.copy()
    policy.state.theta[:] = theta
    solve(policy.state)
    first = policy.state.theta.copy()
    policy.state.stream.leaf[:] = -1e6
    policy.state.theta[:] = theta
    solve(policy.state)
    np.testing.assert_array_equal(policy.state.theta, first)


def test_the_whole_budget_is_in_one_entry_at_the_noise_drawn() -> None:
    total, size = 0.0, 0
    for seed in range(200):
        policy = make(seed=seed)
        for _ in range(2):  # the first leaf holds the first decision
            policy.select(np.zeros((2, 3)))
        leaves: Any = policy.state.stream.mechanism
        total += float(np.sum((leaves.observed * policy.state.stream.constants.grid) ** 2))
        size += policy._noise_size
    assert len(policy.ledger.entries) == 1
    event = policy.ledger.entries[0].event
    # Its weight is a and the next one's a + 1: noise of sigma / b, b^2 the difference of their inverse squares.
    ahead = leaves.constants.head_start
    assert ahead > 0
    share = float(ahead) ** -2 - (1.0 + ahead) ** -2
    ratio = share * total / size / float(event.noise_sd or 0.0) ** 2
    tolerance = 4.0 * math.sqrt(2.0 / size)
    assert abs(ratio - 1.0) < tolerance
    assert abs((2.0 / 3.0) ** 2 - 1.0) > tolerance
    assert policy.privacy.spent_epsilon == pytest.approx(2.0, rel=1e-6)


def test_memory_does_not_depend_on_the_horizon() -> None:
    sizes = [size_in_bytes(make(horizon=horizon, dim=10).state) for horizon in (10**3, 10**6)]
    assert sizes[0] == sizes[1] < 2**20


@pytest.mark.parametrize(
    "options",
    [
        {"factorization": "tree"},
        {"factorization": "toeplitz"},
        {"shrinkage": "none"},
        {"shrinkage": "identity"},
        {"noise": "exact"},
        {"blend": 1.0},
    ],
)
def test_variants_learn(options: dict[str, Any]) -> None:
    horizon = 300 if options.get("noise") == "exact" else 3000
    experiment = Experiment("stream-glm", "logistic", 3, 10, horizon, 3.0, epsilon=8.0, delta=0.02, options=options)
    random = Experiment("random", "logistic", 3, 10, horizon, 3.0)
    assert run_once(experiment, 77, 0).regret_curve[-1] < 0.7 * run_once(random, 77, 0).regret_curve[-1]


@pytest.mark.parametrize("link", ["logistic", "probit", "identity", "log"])
def test_every_link_learns(link: str) -> None:
    experiment = Experiment("stream-glm", link, 3, 10, 4000, 2.0, epsilon=8.0, delta=0.02)
    random = Experiment("random", link, 3, 10, 4000, 2.0)
    assert run_once(experiment, 77, 0).regret_curve[-1] < 0.3 * run_once(random, 77, 0).regret_curve[-1]


@pytest.mark.parametrize("contexts", ["ball", "fixed", "shift", "assouad"])
def test_every_kind_of_context_is_learned(contexts: str) -> None:
    experiment = Experiment("stream-glm", "logistic", 3, 10, 4000, 3.0, contexts=contexts, epsilon=4.0, delta=0.02)
    random = Experiment("random", "logistic", 3, 10, 4000, 3.0, contexts=contexts)
    runs = 16 if contexts == "assouad" else 4  # its regrets scatter by two thirds of their mean
    ours = np.mean([run_once(experiment, 78, run).regret_curve[-1] for run in range(runs)])
    theirs = np.mean([run_once(random, 78, run).regret_curve[-1] for run in range(runs)])
    assert ours < (0.8 if contexts == "assouad" else 0.25) * theirs


def test_an_unknown_horizon_is_no_other_policy() -> None:
    """Not one bit of its life depends on a horizon."""
    contexts = np.clip(np.random.default_rng(3).standard_normal((700, 4, 3)) / 4.0, -0.5, 0.5)
    known, unknown, short = (make(horizon=horizon) for horizon in (700, None, 100))
    arms = [policy.play(contexts, np.ones((700, 4))) for policy in (known, unknown, short)]
    np.testing.assert_array_equal(arms[0], arms[1])
    np.testing.assert_array_equal(arms[0], arms[2])
    assert known.public_fingerprint() == unknown.public_fingerprint()
    assert len(unknown.ledger.entries) == 1


@pytest.mark.parametrize("factorization", ["tree", "toeplitz"])
def test_an_unknown_horizon_runs_in_epochs(factorization: str) -> None:
    policy = make(horizon=None, factorization=factorization)
    rng = np.random.default_rng(2)
    contexts = rng.standard_normal((3500, 4, 3))
    contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
    means = 1.0 / (1.0 + np.exp(-contexts @ np.array([2.0, -1.0, 1.0])))
    arms = policy.play(contexts, (rng.random((3500, 1)) < means).astype(np.float64))
    gaps = means.max(axis=1) - means[np.arange(3500), arms]
    assert np.mean(gaps[-500:]) < 0.3 * np.mean(gaps[:100])
    assert policy.privacy.spent_epsilon <= 2.0 * (1.0 + 1e-9)
