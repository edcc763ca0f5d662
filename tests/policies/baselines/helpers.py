"""What several tests of the baselines need: losses written independently of the package, and recorded rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from tacit.policies.policy import Policy

Array = npt.NDArray[np.float64]


def mean(link: str, z: Array) -> Array:
    values = special.expit(z) if link == "logistic" else stats.norm.cdf(z)
    return np.asarray(values, dtype=np.float64)


def slope(link: str, z: Array) -> Array:
    values = special.expit(z) * special.expit(-z) if link == "logistic" else stats.norm.pdf(z)
    return np.asarray(values, dtype=np.float64)


def maximum_likelihood(link: str, features: Array, rewards: Array, ridge: float) -> Array:
    """The root of the score by scipy's hybrid Powell method."""

    def score(theta: Array) -> Array:
        return features.T @ (mean(link, features @ theta) - rewards) + ridge * theta

    def hessian(theta: Array) -> Array:
        weighted = slope(link, features @ theta)[:, None] * features
        return np.asarray(features.T @ weighted + ridge * np.eye(features.shape[1]))

    solution = optimize.root(score, np.zeros(features.shape[1]), jac=hessian, tol=1e-13)
    assert solution.success
    return np.asarray(solution.x)


def unit_ball(rng: np.random.Generator, count: int, dim: int) -> Array:
    points = rng.standard_normal((count, dim))
    radii = rng.random(count) ** (1.0 / dim)
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True) * radii[:, None])


def play_recorded(policy: Policy, rounds: int, theta: Array, seed: int, arms: int = 8) -> tuple[Array, Array]:
    """Play through the public API and return the rows that the policy saw."""
    rng = np.random.default_rng(seed)
    link, features, rewards = policy.setting.link.name, [], []
    for _ in range(rounds):
        contexts = unit_ball(rng, arms, policy.setting.dim)
        decision = policy.select(contexts)
        x = contexts[decision.arm]
        reward = float(rng.random() < mean(link, np.asarray(x @ theta)))
        policy.update(decision, reward)
        features.append(x)
        rewards.append(reward)
    return np.array(features), np.array(rewards)


def standard_normal_scale(samples: npt.NDArray[Any], sd: float) -> bool:
    """Whether the samples' variance agrees with ``sd`` within 5 standard errors."""
    ratio = float(np.mean(np.square(samples))) / sd**2
    return bool(abs(ratio - 1.0) <= 5.0 * np.sqrt(2.0 / samples.size))
