"""How the contract suite makes each policy, and short runs of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import POLICIES, make_policy, policy_class
from tacit.typing import FloatArray

DIM, ARMS, HORIZON = 3, 6, 400
PRIVATE = [name for name in POLICIES if policy_class(name).guarantee != "none"]
JOINT = [name for name in PRIVATE if policy_class(name).guarantee == "joint"]


def make(name: str, seed: int | None = 3, **changes: Any) -> Policy:
    """A small policy; private ones at epsilon 4."""
    arguments: dict[str, Any] = {"dim": DIM, "horizon": HORIZON, "link": "logistic", "theta_bound": 2.0, "seed": seed}
    if policy_class(name).guarantee != "none":
        arguments |= {"epsilon": 4.0, "delta": 0.01}
    return make_policy(name, **(arguments | changes))


def make_private(name: str, seed: int | None = 3, **changes: Any) -> PrivatePolicy:
    """The same for a policy that has a ledger."""
    policy = make(name, seed, **changes)
    assert isinstance(policy, PrivatePolicy)
    return policy


def rounds(count: int, seed: int = 11) -> tuple[FloatArray, FloatArray]:
    """Contexts and every arm's reward."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((count, ARMS, DIM))
    contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
    theta = np.array([1.5, -1.0, 0.5])
    rewards = (rng.random((count, 1)) < 1.0 / (1.0 + np.exp(-contexts @ theta))).astype(np.float64)
    return contexts, rewards


def walk(policy: Policy, contexts: FloatArray, rewards: FloatArray) -> list[int]:
    """Select and update in turn."""
    arms = []
    for arms_of_user, outcome in zip(contexts, rewards, strict=True):
        decision = policy.select(arms_of_user)
        policy.update(decision, float(outcome[decision.arm]))
        arms.append(decision.arm)
    return arms
