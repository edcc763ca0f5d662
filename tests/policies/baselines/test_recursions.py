"""GLOC and ECOLog against slow references written from the papers' equations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from tacit.policies.baselines import ecolog, gloc
from tacit.policies.registry import make_policy
from tests.policies.baselines.helpers import Array, mean, play_recorded

THETA = np.array([0.9, -0.5, 0.3])


def _project(point: Array, matrix: Array, radius: float) -> Array:
    """argmin ||theta - point||_matrix over the ball, by bisection on the multiplier."""
    if np.linalg.norm(point) <= radius:
        return point
    identity = np.eye(point.size)

    def at(multiplier: float) -> Array:
        return np.asarray(np.linalg.solve(matrix + multiplier * identity, matrix @ point), dtype=np.float64)

    root = optimize.brentq(lambda m: float(np.linalg.norm(at(m))) - radius, 0.0, 1e9, xtol=1e-13, rtol=1e-14)
    return at(float(root))


@pytest.mark.parametrize("link", ["logistic", "probit"])
@pytest.mark.parametrize("theta_bound", [0.5, 2.0])
def test_gloc_recursion(link: str, theta_bound: float) -> None:
    policy = make_policy("gloc", dim=3, link=link, theta_bound=theta_bound, seed=5, failure_probability=0.05)
    features, rewards = play_recorded(policy, 120, THETA, seed=1001)
    kappa, ridge, delta, deviation = 1.0 / policy.setting.kappa, 3.0, 0.05, 0.5
    matrix, theta, predictions = ridge * np.eye(3), np.zeros(3), []
    bound = 2.0 * kappa * theta_bound**2 * ridge  # Theorem 3
    for x, reward in zip(features, rewards, strict=True):
        predictions.append(x @ theta)
        slope = float(mean(link, np.asarray(x @ theta))) - reward
        matrix = matrix + np.outer(x, x)
        bound += slope**2 / (2.0 * kappa) * float(x @ np.linalg.solve(matrix, x))
        theta = _project(theta - slope / kappa * np.linalg.solve(matrix, x), matrix, theta_bound)
    z = np.array(predictions)
    center = np.linalg.solve(matrix, features.T @ z)
    inside = 1.0 + 2.0 / kappa * bound + 4.0 * deviation**4 / (kappa**4 * delta**2)
    alpha = 1.0 + 4.0 / kappa * bound + 8.0 * deviation**2 / kappa**2 * np.log(2.0 / delta * np.sqrt(inside))
    radius = alpha + ridge * theta_bound**2 - (z @ z - center @ features.T @ z)
    state = policy.state
    np.testing.assert_allclose(state.theta, theta, atol=1e-8)
    np.testing.assert_allclose(state.center, center, atol=1e-8)
    assert gloc.squared_radius(state) == pytest.approx(radius, rel=1e-9)


def _online_minimum(matrix: Array, theta: Array, x: Array, trials: float, hits: float, bound: float) -> Array:
    """argmin over the ball of ||. - theta||^2_matrix / (2 + 2 S) + trials log(1 + e^z) - hits z, by its multiplier."""
    pull = 1.0 / (1.0 + bound)

    def at(multiplier: float) -> Array:
        def score(point: Array) -> Array:
            residual = trials * special.expit(x @ point) - hits
            return np.asarray(pull * matrix @ (point - theta) + residual * x + multiplier * point)

        def jacobian(point: Array) -> Array:
            weight = trials * special.expit(x @ point) * special.expit(-x @ point)
            return np.asarray(pull * matrix + weight * np.outer(x, x) + multiplier * np.eye(x.size))

        return np.asarray(optimize.root(score, theta, jac=jacobian, tol=1e-13).x)

    free = at(0.0)
    if np.linalg.norm(free) <= bound:
        return free
    root = optimize.brentq(lambda m: float(np.linalg.norm(at(m))) - bound, 0.0, 1e6, xtol=1e-13, rtol=1e-14)
    return at(float(root))


@pytest.mark.parametrize("theta_bound", [0.3, 2.0])
def test_ecolog_recursion(theta_bound: float) -> None:
    policy = make_policy("ecolog", dim=3, link="logistic", theta_bound=theta_bound, seed=5, ridge=1.0)
    features, rewards = play_recorded(policy, 60, THETA, seed=1001)
    matrix, theta, summed, at_boundary = np.eye(3), np.zeros(3), 0.0, 0
    for x, reward in zip(features, rewards, strict=True):
        middle = _online_minimum(matrix, theta, x, 2.0, 1.0, theta_bound)
        moved = _online_minimum(matrix, theta, x, 1.0, reward, theta_bound)
        losses = [float(np.logaddexp(0.0, x @ point) - reward * (x @ point)) for point in (middle, moved)]
        summed += 2.0 * (1.0 + theta_bound) * (losses[0] - losses[1])
        summed -= float((moved - theta) @ matrix @ (moved - theta))
        theta = moved
        matrix = matrix + special.expit(x @ theta) * special.expit(-x @ theta) * np.outer(x, x)
        at_boundary += bool(np.linalg.norm(theta) > theta_bound - 1e-9)
    assert at_boundary >= (10 if theta_bound == 0.3 else 0)
    state = policy.state
    assert int(state.rewards[()]) == 60
    assert int(state.unproven[()]) == 0
    np.testing.assert_allclose(state.theta, theta, atol=1e-7)
    np.testing.assert_allclose(state.matrix, matrix, atol=1e-7)
    np.testing.assert_allclose(state.inverse @ matrix, np.eye(3), atol=1e-7)
    assert float(state.radius_from_data[()]) == pytest.approx(summed, abs=1e-6)
    m = 2.0 * np.log(2.0 / 0.02)
    gamma = 0.5 * np.sqrt(m) + 2.0 / np.sqrt(m) * np.log(2.0 * np.sqrt(1.0 + 60 / (4.0 * m)) / 0.02)
    radius = theta_bound**2 + ((1.0 + theta_bound) * gamma) ** 2 + 4.0 * theta_bound**2 * m + summed
    assert ecolog.squared_radius(state) == pytest.approx(radius, rel=1e-7)


def test_ecolog_counts_rewards_that_its_proof_does_not_cover() -> None:
    """Scores of up to 5 with a small ridge change the curvature by more than a factor of 2 now and then."""
    policy = make_policy("ecolog", dim=3, theta_bound=5.0, ridge=1.0, seed=5)
    play_recorded(policy, 300, 3.0 * THETA, seed=1001)
    assert 0 < int(policy.state.unproven[()]) < 300


def test_ecolog_step_stays_in_the_ball_where_it_cannot_settle() -> None:
    """A matrix that is not positive definite has no Newton step: the point is in the ball, and the answer is no."""
    policy = make_policy("ecolog", dim=2, theta_bound=0.5)
    start = policy.state._replace(matrix=np.diag([1.0, -1.0]), inverse=np.eye(2), theta=np.array([0.3, 0.4]))
    line = ecolog.line_of(start, np.array([0.6, 0.8]))
    for matrix, settles in ((start.matrix, False), (np.eye(2), True)):
        found = ecolog.online_step(start._replace(matrix=matrix), line, 1.0, 1.0)
        assert found.settled == settles
        assert np.linalg.norm(found.theta) == pytest.approx(0.5)


def test_confidence_sets_hold_the_truth() -> None:
    """After each of 15 runs of 100 rounds theta* lies in both ellipsoids: the bounds are loose at 2%."""
    for name, module in (("gloc", gloc), ("ecolog", ecolog)):
        for run in range(15):
            policy = make_policy(name, dim=3, link="logistic", theta_bound=1.1, seed=run)
            play_recorded(policy, 100, THETA, seed=2000 + run)
            center = policy.state.center if name == "gloc" else policy.state.theta
            distance = (center - THETA) @ policy.state.matrix @ (center - THETA)
            assert distance <= module.squared_radius(policy.state)
