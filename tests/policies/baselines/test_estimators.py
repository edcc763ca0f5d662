"""Each baseline's estimator against an independent computation on the same rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import optimize, special

from tacit.errors import InvalidInput
from tacit.policies.clock import release
from tacit.policies.registry import make_policy
from tests.policies.baselines.helpers import Array, maximum_likelihood, mean, play_recorded, unit_ball

THETA = np.array([0.9, -0.5, 0.3])


def _played(
    name: str, link: str, rounds: int = 200, theta_bound: float = 3.0, **options: Any
) -> tuple[Any, Array, Array]:
    policy = make_policy(name, dim=3, horizon=1000, link=link, theta_bound=theta_bound, seed=5, **options)
    features, rewards = play_recorded(policy, rounds, THETA, seed=1001)
    policy._steps.advance(policy.state, True, 1)  # the clock's next tick fits the last row
    return policy.state, features, rewards


@pytest.mark.parametrize("link", ["logistic", "probit"])
@pytest.mark.parametrize(
    ("name", "ridge", "options"),
    [
        ("greedy-mle", 1.0, {"growth": 1e-9}),
        ("glm-ucb", 3.0, {"growth": 1e-9}),
        ("rs-glinucb", 0.5, {"switch_factor": 1.0 + 1e-9}),
    ],
)
def test_maximum_likelihood_is_scipys(name: str, link: str, ridge: float, options: dict[str, Any]) -> None:
    state, features, rewards = _played(name, link, **options)
    expected = maximum_likelihood(link, features, rewards, ridge)
    assert np.linalg.norm(expected) < 3.0
    np.testing.assert_allclose(state.theta, expected, atol=1e-6)
    np.testing.assert_array_equal(state.rows.features[: state.rows.held[()]], features)


def test_explored_estimate_uses_explored_rows_only() -> None:
    state, features, rewards = _played("rs-glinucb", "logistic")
    explored = state.rows.mask[: rewards.size] == 1
    assert 0 < explored.sum() < rewards.size
    expected = maximum_likelihood("logistic", features[explored], rewards[explored], 0.5)
    np.testing.assert_allclose(state.theta_explored, expected, atol=1e-6)


def test_ofulog_constrains_the_estimate_to_the_ball() -> None:
    state, features, rewards = _played("ofulog+", "logistic", theta_bound=0.6, growth=1e-9)

    def loss(theta: Array) -> float:
        z = features @ theta
        return float(np.sum(np.logaddexp(0.0, z) - rewards * z)) + 0.5e-6 * float(theta @ theta)

    def score(theta: Array) -> Array:
        return np.asarray(features.T @ (special.expit(features @ theta) - rewards) + 1e-6 * theta)

    ball = optimize.NonlinearConstraint(lambda theta: theta @ theta, 0.0, 0.36, jac=lambda theta: 2.0 * theta)
    expected = optimize.minimize(
        loss, np.zeros(3), jac=score, constraints=[ball], method="SLSQP", options={"ftol": 1e-15, "maxiter": 500}
    )
    assert np.linalg.norm(expected.x) == pytest.approx(0.6, abs=1e-6)
    np.testing.assert_allclose(state.theta, expected.x, atol=1e-5)
    weights = special.expit(features @ state.theta) * special.expit(-features @ state.theta)
    hessian = (weights[:, None] * features).T @ features + np.eye(3) / (8 * 0.36 * 1.6)
    np.testing.assert_allclose(state.inverse @ hessian, np.eye(3), atol=1e-9)


def test_rare_switching_keeps_a_copy_of_the_matrix() -> None:
    """The slip of the reference code: a reference to the growing matrix makes criterion II fire once."""
    state, _, _ = _played("rs-glinucb", "logistic", rounds=400)
    assert 0.0 < float(state.growth[()]) <= np.log(2.0)
    ratio = np.linalg.slogdet(state.switched_inverse)[1] - np.linalg.slogdet(state.current_inverse)[1]
    assert ratio == pytest.approx(float(state.growth[()]), abs=1e-9)


def test_batched_estimates_come_from_their_own_batch() -> None:
    policy = make_policy("b-glincb", dim=3, horizon=600, link="logistic", theta_bound=3.0, seed=5)
    features, rewards = play_recorded(policy, 600, THETA, seed=1001)
    state = policy.state
    finished = int(state.finished[()])
    assert finished == state.ends.size >= 2
    starts = [0, *state.ends]
    for batch in range(finished):
        own = slice(starts[batch], starts[batch + 1])
        expected = maximum_likelihood("logistic", features[own], rewards[own], 0.5)
        np.testing.assert_allclose(state.thetas[batch], expected, atol=1e-6)


def test_batched_decisions_agree_however_they_are_asked_for() -> None:
    """Rounds of a batch are played together, users of one call count as many decisions, rewards wait in a queue."""
    rng = np.random.default_rng(1001)
    contexts = np.stack([unit_ball(rng, 6, 3) for _ in range(300)])
    rewards = rng.integers(0, 2, size=(300, 6)).astype(float)
    played, single, batched = (make_policy("b-glincb", dim=3, horizon=300, theta_bound=3.0, seed=5) for _ in range(3))
    arms = played.play(contexts, rewards).tolist()
    for t in range(300):
        decision = single.select(contexts[t])
        assert decision.arm == arms[t]
        single.update(decision, rewards[t, decision.arm])
    starts = [0, *played.state.ends.tolist(), 300]
    for start, stop in pairwise(starts):
        for t, given in enumerate(batched.select_batch(contexts[start:stop]), start=start):
            assert not isinstance(given, InvalidInput)
            assert given.arm == arms[t]
            batched.update(given, rewards[t, given.arm])
    for other in (single, batched):
        assert int(other.state.decisions[()]) == 300
        np.testing.assert_array_equal(other.state.thetas, played.state.thetas)


def test_design_over_arms_of_zeros_plays_one_that_is_left() -> None:
    """The only arm that is not ruled out is all zeros, and not the first one."""
    policy = make_policy("b-glincb", dim=2, horizon=300, theta_bound=3.0, seed=5)
    state = policy.state
    state.thetas[0], state.inverses[0], state.finished[()] = [1.0, 0.0], np.zeros((2, 2)), 1
    contexts, coins, memos = np.array([[[-0.5, 0.0], [0.0, 0.0], [-0.9, 0.0]]]), np.array([[0.7]]), np.empty((1, 3))
    assert policy._steps.choose(state, contexts, coins, memos).tolist() == [1]
    assert coins.tolist() == [[1.0]]
    assert memos.tolist() == [[0.0, 0.0, 1.0]]


def test_batch_without_an_inverse_rules_nothing_out() -> None:
    """Two features repeat two others and the ridge is lost in rounding: no batch may pretend to know that direction."""
    rng = np.random.default_rng(1001)
    contexts = 0.5 * np.stack([unit_ball(rng, 8, 6) for _ in range(300)])
    contexts[:, :, 4:] = 0.3 * contexts[:, :, :2]
    policy = make_policy("b-glincb", dim=6, horizon=300, theta_bound=2.0, ridge=1e-20, seed=5)
    policy.play(contexts, rng.integers(0, 2, size=(300, 8)).astype(float))
    state = policy.state
    assert state.finished[()] == 3
    assert state.unfinished[()] == 2 * 3  # of each batch the fit, which does not converge, and the inverse
    np.testing.assert_array_equal(state.inverses, np.tile(np.eye(6) / 1e-20, (3, 1, 1)))


def test_linear_regression_without_noise_is_ridge() -> None:
    for name in ("joint-linucb", "shuffle-linucb"):
        # Geometric leaves round rows, and hold them up to the last leaf only.
        options: dict[str, Any] = {"batch_size": 50} if name == "shuffle-linucb" else {"factorization": "tree"}
        policy = make_policy(
            name, dim=3, horizon=1000, link="logistic", theta_bound=3.0, epsilon=float("inf"), seed=5, **options
        )
        features, rewards = play_recorded(policy, 200, THETA, seed=1001)
        release(policy, np.zeros(policy._noise_size), 1, 1)
        expected = np.linalg.solve(features.T @ features + np.eye(3), features.T @ rewards)
        np.testing.assert_allclose(policy.state.theta, expected, atol=1e-8)


def test_local_estimate_without_noise_is_projected_gradient_descent() -> None:
    policy = make_policy(
        "local-glm", dim=3, horizon=400, link="logistic", theta_bound=0.8, epsilon=float("inf"), seed=5, scale=0.3
    )
    features, rewards = play_recorded(policy, 200, THETA, seed=1001)
    constants = policy.state.constants
    theta = np.zeros(3)
    for t, (x, reward) in enumerate(zip(features, rewards, strict=True), start=1):
        theta = (
            theta
            - constants.rate / (constants.rate_offset + t) * (mean("logistic", np.asarray(x @ theta)) - reward) * x
        )
        theta *= min(1.0, 0.8 / float(np.linalg.norm(theta)))
    np.testing.assert_allclose(policy.state.theta, theta, atol=1e-10)
