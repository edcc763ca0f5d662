"""What an experiment is: one policy on one environment, as plain data with a stable digest."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from tacit.environments.synthetic import Environment, make_environment
from tacit.policies.base import Policy
from tacit.policies.registry import make_policy, policy_class


@dataclass(frozen=True)
class Experiment:
    """One policy on one environment; ``options`` go to the policy."""

    policy: str
    link: str
    dim: int
    arms: int
    horizon: int
    theta_norm: float
    contexts: str = "ball"
    epsilon: float | None = None
    delta: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Short name for tables and legends."""
        extras = "".join(f" {key}={value}" for key, value in self.options.items())
        if self.epsilon is None:
            return f"{self.policy}{extras}"
        epsilon = "inf" if math.isinf(self.epsilon) else f"{self.epsilon:g}"
        return f"{self.policy} eps={epsilon}{extras}"

    def digest(self) -> str:
        """Identifies the experiment in files of finished runs."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def environment(self) -> Environment:
        """The environment; the one place where theta* is known."""
        return make_environment(
            link=self.link,
            dim=self.dim,
            arms=self.arms,
            horizon=self.horizon,
            theta_norm=self.theta_norm,
            contexts=self.contexts,
        )

    def make_policy(self, seed: int) -> Policy:
        """A fresh policy, told public constants only."""
        return make_policy(
            self.policy,
            dim=self.dim,
            horizon=self.horizon,
            epsilon=self.epsilon,
            delta=self.delta,
            link=self.link,
            theta_bound=self.theta_norm,
            reward_bound=self.environment().largest_reward,
            seed=seed,
            **self.options,
        )


def experiments_for(
    policy: str, epsilons: list[float], delta: float, setting: dict[str, Any], options: dict[str, Any] | None = None
) -> list[Experiment]:
    """One experiment for each epsilon when the policy is private, else one without."""
    extras = options or {}
    if policy_class(policy).guarantee == "none":
        return [Experiment(policy=policy, options=extras, **setting)]
    return [Experiment(policy=policy, epsilon=epsilon, delta=delta, options=extras, **setting) for epsilon in epsilons]
