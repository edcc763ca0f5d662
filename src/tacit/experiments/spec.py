"""What an experiment is: one policy on one environment, as plain data with a stable digest."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from tacit.environments import NOW, ArrivalKind, Environment, arrival_kind, make_environment
from tacit.extensions import load_modules
from tacit.features import Schema
from tacit.policies.registry import make_policy, policy_class

if TYPE_CHECKING:
    from tacit.policies.policy import Policy


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
    theta_bound: float | None = None
    """What the policy is told of the length of theta*; its true length unless given."""
    base_rate: float | None = None
    """Mean reward of arms whose score is 0, which the policy is told; the link's own unless given."""
    modules: tuple[str, ...] = ()
    """Modules that register the policy, the link or the environment; every process that takes part imports them."""
    rewards: str = NOW
    """How rewards come (`tacit.environments.arrivals`)."""
    schema: dict[str, Any] | None = None
    """What `tacit.features.Schema.to_json` gives, for ``contexts="schema"``; the policy has it too."""

    @property
    def label(self) -> str:
        """Short name for tables and legends."""
        extras = "".join(f" {key}={value}" for key, value in self.options.items())
        if self.epsilon is None:
            return f"{self.policy}{extras}"
        epsilon = "inf" if math.isinf(self.epsilon) else f"{self.epsilon:g}"
        return f"{self.policy} eps={epsilon}{extras}"

    @property
    def told_bound(self) -> float:
        """The bound on the length of theta* that the policy is told."""
        return self.theta_norm if self.theta_bound is None else self.theta_bound

    def digest(self) -> str:
        """Identify the experiment in files of finished runs; modules count with the contents of their files."""
        modules = [(module.name, module.digest) for module in load_modules(self.modules)]
        # Fields that came later count only where they are used, so that other experiments keep their digests.
        later: dict[str, Any] = {"theta_bound": None, "base_rate": None, "modules": [], "schema": None, "rewards": NOW}
        told = asdict(self) | {"modules": modules}
        return _digest({key: value for key, value in told.items() if key not in later or value != later[key]})

    @property
    def schema_digest(self) -> str:
        """Digest of the schema, its hash keys included, for rows."""
        return _digest(self.schema)

    def features(self) -> Schema | None:
        """Return the schema of users and arms, or None."""
        return None if self.schema is None else Schema.from_json(self.schema)

    def environment(self) -> Environment:
        """Make the environment, the one place where theta* is known."""
        load_modules(self.modules)
        return make_environment(
            link=self.link,
            dim=self.dim,
            arms=self.arms,
            horizon=self.horizon,
            theta_norm=self.theta_norm,
            contexts=self.contexts,
            base_rate=self.base_rate,
            schema=self.features(),
        )

    def arrivals(self) -> ArrivalKind:
        """Return the kind of arrivals of rewards."""
        load_modules(self.modules)
        return arrival_kind(self.rewards)

    def make_policy(self, seed: int) -> Policy:
        """Make a new policy from public constants only."""
        setting = self.environment().setting
        told: dict[str, Any] = {
            "dim": self.dim,
            "features": setting.schema,
            "horizon": self.horizon,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "link": self.link,
            "base_rate": self.base_rate,
            "theta_bound": self.told_bound,
            "reward_bound": setting.largest_reward,
            "seed": seed,
        }
        given = {name: value for name, value in told.items() if value is not None}
        return make_policy(self.policy, **given, **self.options)


def _digest(told: Any) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def combinations(fixed: Mapping[str, Any], varied: Mapping[str, Sequence[Any]]) -> Iterator[Experiment]:
    """Yield an experiment for each combination of the varied fields; the last of them varies fastest."""
    for values in product(*varied.values()):
        yield Experiment(**fixed, **dict(zip(varied, values, strict=True)))


def for_each_epsilon(experiment: Experiment, epsilons: Sequence[float]) -> list[Experiment]:
    """Return the experiment for each epsilon when its policy is private, else once without epsilon and delta."""
    load_modules(experiment.modules)
    if policy_class(experiment.policy).guarantee == "none":
        return [replace(experiment, epsilon=None, delta=None)]
    return [replace(experiment, epsilon=epsilon) for epsilon in epsilons]
