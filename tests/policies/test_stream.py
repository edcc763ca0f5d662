"""`stream-glm`: the filter's stated errors, the row that is charged, the estimate that follows from releases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit.estimation.linearised import blended_weight
from tacit.experiments.runner import run_once
from tacit.experiments.spec import Experiment
from tacit.glm.links import mean
from tacit.linalg.packing import packed
from tacit.policies.state import size_in_bytes
from tacit.policies.steps import learn
from tacit.policies.stream import StreamGLM
from tacit.policies.stream.filter import filter_step, make_filter, restart_noise
from tacit.policies.stream.steps import solve
from tacit.privacy.continual import close_leaf, contribute_vector, plan_release, released_variance
from tacit.privacy.noise import make_noise
from tacit.privacy.streaming import coefficients
from tacit.typing import FloatArray


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


def filtered_run(rows: FloatArray, seed: int, fluctuation: float, noise_on: bool = True) -> tuple[Any, Any, Any]:
    horizon, size = rows.shape
    plan = plan_release(
        "test",
        size,
        row_bound=1.0,
        row_norm=1.0,
        mu=1.0,
        factorization="toeplitz",
        horizon=horizon,
        source=make_noise("fast", seed),
    )
    stream = plan.open()
    decay, weight = coefficients(stream.mechanism)
    state = make_filter(size, decay.size, 1.0, fluctuation)
    for row in rows:
        contribute_vector(stream, 0, 1.0, row)
        noise = plan.source.gaussian(plan.noise_sd, size) if noise_on else np.zeros(size)
        close_leaf(stream, noise)
        filter_step(state, stream.released, decay, weight, plan.noise_sd)
    return state, stream, plan


def test_filter_has_the_error_that_it_states_and_less_than_the_plain_prefix() -> None:
    size, horizon, spread = 4000, 400, 0.02
    rows = 0.3 + math.sqrt(spread) * np.random.default_rng(0).standard_normal((horizon, size))
    state, stream, _ = filtered_run(rows, 1, spread)
    error = state.mean - 0.3
    stated = math.sqrt(state.total[0, 0])
    measured = math.sqrt(float(np.mean(error**2)))
    tolerance = 4.0 / math.sqrt(2.0 * size)
    assert abs(measured / stated - 1.0) < tolerance
    assert abs(measured / (2.0 / 3.0 * stated) - 1.0) > tolerance  # it would notice noise of another size
    assert horizon * math.sqrt(state.privacy[0, 0]) < 0.85 * math.sqrt(released_variance(stream))


def test_filter_states_its_privacy_error_apart() -> None:
    size, horizon = 4000, 300
    state, _, _ = filtered_run(np.zeros((horizon, size)), 2, 0.02)
    measured = math.sqrt(float(np.mean(state.mean**2)))
    assert abs(measured / math.sqrt(state.privacy[0, 0]) - 1.0) < 4.0 / math.sqrt(2.0 * size)


def test_filter_weighs_all_coordinates_of_a_leaf_alike() -> None:
    """Rows that are not alike at all: if b_i = H_i theta in every leaf, then also in the filtered sums."""
    rng = np.random.default_rng(3)
    theta = np.array([0.7, -1.2])
    rows = np.empty((120, 6))
    for t in range(120):
        matrix = rng.standard_normal((2, 2)) * (1.0 if t < 60 else 5.0)
        rows[t] = np.concatenate([matrix.ravel(), matrix @ theta])
    state, _, _ = filtered_run(rows, 4, 0.05, noise_on=False)
    np.testing.assert_allclose(state.mean[:4].reshape(2, 2) @ theta, state.mean[4:], rtol=1e-9)


def test_a_new_epoch_forgets_noise_and_keeps_the_mean() -> None:
    state, _, _ = filtered_run(np.full((50, 3), 0.2), 1, 0.02)
    mean, known = state.mean.copy(), state.total[0, 0]
    restart_noise(state)
    np.testing.assert_array_equal(state.mean, mean)
    assert state.total[0, 0] == known
    assert np.all(state.total[1:] == 0.0)
    assert np.all(state.buffers == 0.0)


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
            arms /= np.linalg.norm(arms)
            memo = np.empty(policy.memo_size)
            memo[:3], memo[3] = arms[0], float(arms[0] @ policy.state.theta)
            policy.state.stream.leaf[:] = 0.0
            learn(policy.state, memo, float(rng.integers(2)))
            leaves.append(policy.state.stream.leaf.copy())
        worst = max(worst, float(np.linalg.norm(leaves[0] - leaves[1])))
        assert max(np.linalg.norm(leaf) for leaf in leaves) <= policy._row.row_norm
    assert 0.9 * policy._row.row_bound < worst <= policy._row.row_bound


def test_late_rewards_are_linearised_at_the_theta_of_the_decision() -> None:
    policy = make()
    arms = np.array([[0.6, 0.3, 0.1]])
    decision = policy.select(arms)
    point = policy._pending.memo(decision.id)[3]
    policy.state.theta[:] = (2.0, -1.0, 0.5)
    policy.update(decision, 1.0)
    link, x = policy.setting.link.code, arms[0]
    weight = blended_weight(link, policy._row.blend, point)
    response = 1.0 - mean(link, point) + weight * point
    np.testing.assert_allclose(policy.state.stream.leaf[:6], packed(weight * np.outer(x, x)))
    np.testing.assert_allclose(policy.state.stream.leaf[6:], policy._row.scale * response * x)
    moved = blended_weight(link, policy._row.blend, float(x @ policy.state.theta))
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
        policy.select(np.zeros((2, 3)))
        total += float(np.sum(policy.state.stream.released**2))
        size += policy.noise_size
    assert len(policy.ledger.entries) == 1
    event = policy.ledger.entries[0].event
    ratio = total / size / float(event.noise_sd or 0.0) ** 2
    tolerance = 4.0 * math.sqrt(2.0 / size)
    assert abs(ratio - 1.0) < tolerance
    assert abs((2.0 / 3.0) ** 2 - 1.0) > tolerance
    assert policy.privacy.spent_epsilon == pytest.approx(2.0, rel=1e-6)


def test_memory_does_not_depend_on_the_horizon() -> None:
    sizes = [size_in_bytes(make(horizon=horizon, dim=10).state) for horizon in (10**3, 10**6)]
    assert sizes[0] == sizes[1] < 2**20


@pytest.mark.parametrize(
    "options", [{"factorization": "tree"}, {"filtered": False}, {"noise": "exact"}, {"blend": 1.0}]
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
    ours = np.mean([run_once(experiment, 78, run).regret_curve[-1] for run in range(4)])
    theirs = np.mean([run_once(random, 78, run).regret_curve[-1] for run in range(4)])
    assert ours < (0.8 if contexts == "assouad" else 0.25) * theirs


def test_unknown_horizon_runs_in_epochs() -> None:
    policy = make(horizon=None)
    rng = np.random.default_rng(2)
    contexts = rng.standard_normal((3500, 4, 3))
    contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
    means = 1.0 / (1.0 + np.exp(-contexts @ np.array([2.0, -1.0, 1.0])))
    arms = policy.play(contexts, (rng.random((3500, 1)) < means).astype(np.float64))
    gaps = means.max(axis=1) - means[np.arange(3500), arms]
    assert np.mean(gaps[-500:]) < 0.3 * np.mean(gaps[:100])
    assert policy.privacy.spent_epsilon <= 2.0 * (1.0 + 1e-9)
