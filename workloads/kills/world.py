"""What is played while processes are killed: two policies, arms that no other decision has, rewards that have names."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tacit.typing import FloatArray

DIM: Final = 3
BODIES: Final[dict[str, dict[str, Any]]] = {
    "linear": {"policy": "joint-linucb", "factorization": "tree", "default_reward": 0.0, "hold": True},
    "stream": {"policy": "stream-glm", "hold": False},
}
"""One releases something with every decision and holds rewards back; the other does neither."""
_SHARED: Final[dict[str, Any]] = {"dim": DIM, "epsilon": 4.0, "delta": 0.01, "theta_bound": 2.0}
_UNIT: Final = float(1 << 30)


def body_of(name: str, reward_wait: float, event_memory: float) -> dict[str, Any]:
    """Of the request that makes the policy of this name."""
    return _SHARED | BODIES[name] | {"reward_wait": reward_wait, "event_memory": event_memory}


def arms_of(number: int) -> FloatArray:
    """The arms of a decision, which no other decision has."""
    rows = np.random.default_rng(number).standard_normal((4, DIM))
    return np.asarray(0.9 * rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float64)


def reward_of(number: int) -> float:
    """The reward of a decision; never 0, and it says whose it is."""
    return number / _UNIT


def number_of(reward: float) -> int:
    """Whose reward this is; 0 for a default reward."""
    return round(reward * _UNIT)
