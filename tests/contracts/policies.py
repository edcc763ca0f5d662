"""How tests make each policy, and short runs of them."""

from __future__ import annotations

from typing import Any

from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import POLICIES, policy_class
from tacit.testing.policies import ARMS, DIM, HORIZON, Candidate, rounds, walk

__all__ = ["ARMS", "DIM", "HORIZON", "JOINT", "LOCAL", "PRIVATE", "make", "make_private", "rounds", "walk"]

PRIVATE = [name for name in POLICIES if policy_class(name).guarantee != "none"]
LOCAL = [name for name in PRIVATE if policy_class(name).guarantee == "local"]
JOINT = [name for name in PRIVATE if policy_class(name).guarantee == "joint"]


def make(name: str, seed: int | None = 3, **changes: Any) -> Policy:
    """A small policy; private ones at epsilon 4."""
    return Candidate(name).make(seed, **changes)


def make_private(name: str, seed: int | None = 3, **changes: Any) -> PrivatePolicy:
    """A small policy that has a ledger."""
    policy = make(name, seed, **changes)
    assert isinstance(policy, PrivatePolicy)
    return policy
