"""The cases: a policy, what it is told, and the simulated users it meets; and how one of them is played."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

import tacit
from tacit.environments import Block, Environment, make_environment
from tacit.errors import InvalidInput
from tacit.experiments.schemas import load_schema
from tacit.policies.explanation import Explanation
from tacit.policies.registry import POLICIES
from tacit.typing import IntArray
from tests.steady import entropy_of

LINKS: Final = ("logistic", "probit", "identity", "log")
DIMS: Final = (3, 8)
HORIZON: Final = 600
THETA_NORMS: Final[Mapping[str, float]] = MappingProxyType(
    {"logistic": 3.0, "probit": 2.0, "identity": 1.0, "log": 0.5}
)
EPSILONS: Final[Mapping[int, float]] = MappingProxyType({3: 4.0, 8: 8.0})
DELTA: Final = 1e-5
DIGEST_LENGTH: Final = 6


@dataclass(frozen=True)
class World:
    """An environment; the same one for all policies of a seed."""

    link: str
    dim: int
    contexts: str = "ball"
    arms: int = 4
    horizon: int = HORIZON
    theta_norm: float | None = None
    """Length of theta*; by default one for each link."""
    base_rate: float | None = None
    schema: str | None = None
    """Name of an example schema, for ``contexts="schema"``."""

    @property
    def name(self) -> str:
        """What the file of rows calls it."""
        size = f"{self.contexts}-{self.link}-d{self.dim}-k{self.arms}-t{self.horizon}"
        more = {"s": self.theta_norm, "base": self.base_rate, "": self.schema}
        return size + "".join(f"-{key}{value}" for key, value in more.items() if value is not None)

    def environment(self) -> Environment:
        """The environment, ready to draw instances."""
        return make_environment(
            link=self.link,
            dim=self.dim,
            arms=self.arms,
            horizon=self.horizon,
            theta_norm=self.theta_norm or THETA_NORMS[self.link],
            contexts=self.contexts,
            base_rate=self.base_rate,
            schema=None if self.schema is None else load_schema(self.schema),
        )

    def blocks(self, seed: int) -> Iterator[Block]:
        """The rounds of one instance, in blocks."""
        return self.environment().blocks(np.random.default_rng(seed))


@dataclass(frozen=True)
class Case:
    """A policy in a world."""

    policy: str
    world: World
    title: str = ""
    """What sets the case apart from the policy's usual one; empty for that."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the policy is told beside the public constants of its world; these it may override."""

    @property
    def name(self) -> str:
        """What the file of rows and the command line call it."""
        usual = f"{self.policy}/{self.world.link}/d{self.world.dim}"
        return f"{usual}/{self.title}" if self.title else usual

    @property
    def takes_entropy(self) -> bool:
        """Whether noise comes from the operating system's entropy, of which a test plays a tape."""
        return self.options.get("noise") == "exact"

    def make_policy(self, seed: int) -> tacit.Policy:
        """The policy, seeded, before its first round."""
        setting = self.world.environment().setting
        told: dict[str, Any] = {
            "dim": setting.dim,
            "horizon": setting.horizon,
            "link": self.world.link,
            "base_rate": self.world.base_rate,
            "theta_bound": setting.theta_norm,
            "reward_bound": setting.largest_reward,
            "features": setting.schema,
            "seed": seed,
        }
        if tacit.policy_class(self.policy).guarantee != "none":
            told |= {"epsilon": EPSILONS.get(setting.dim, 8.0), "delta": DELTA}
        return tacit.make_policy(self.policy, **{**told, **self.options})


class Instance(NamedTuple):
    """What identifies the users of one run."""

    contexts: str
    """Digest of all bits of the contexts."""
    checksum: float
    """A weighted sum of the contexts, which tells rounding in the last bits from other contexts."""
    rewards: str
    """Digest of the rewards of all arms."""


class Outcome(NamedTuple):
    """What one run of a case came to."""

    arms: IntArray
    regret: float
    sums: IntArray | None
    """Secret integer sums at the end, for policies that keep such."""
    charged: int
    """Entries of the ledger: optimizer calls, batches or epochs that were paid for."""
    estimate: float | None
    """A weighted sum of the last estimate and its standard deviations; None for a policy without an estimate."""
    instance: Instance


def play(case: Case, seed: int) -> Outcome:
    """Play all rounds of one run; everything that is random follows from case and seed."""
    blocks, arms = list(case.world.blocks(seed)), []
    instance = identify(blocks)  # before a policy has had its hands on the arrays
    with entropy_of(f"oracle {case.name} {seed}"):
        policy = case.make_policy(1_000 + seed)
        for block in blocks:
            arms.append(policy.play(block.contexts, block.rewards))
    regrets = [block.regrets[np.arange(chosen.size), chosen] for block, chosen in zip(blocks, arms, strict=True)]
    # fsum: the regret does not depend on the order in which it is summed.
    regret = math.fsum(np.concatenate(regrets).tolist())
    return Outcome(
        np.concatenate(arms), regret, integer_sums(policy), ledger_length(policy), estimate_of(policy), instance
    )


def play_seeds(case: Case, seeds: int) -> list[Outcome]:
    """Play the runs of the first ``seeds`` seeds."""
    return [play(case, seed) for seed in range(seeds)]


def identify(blocks: Sequence[Block]) -> Instance:
    """Digests of the contexts and rewards of one run."""
    contexts = np.concatenate([block.contexts for block in blocks])
    rewards = np.concatenate([block.rewards for block in blocks])
    checksum = float(contexts.ravel() @ np.linspace(1.0, 2.0, contexts.size))
    return Instance(digest(contexts), checksum, digest(rewards))


def digest(values: npt.NDArray[Any]) -> str:
    """Six characters that all bits of an array decide."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:DIGEST_LENGTH]


def integer_sums(policy: tacit.Policy) -> IntArray | None:
    """The weighted integer sums of a geometric stream; None for a policy that has none.

    This is the one place that reads a policy's state: adapt it when states are laid out differently.
    """
    stream = getattr(policy.state, "stream", None)
    sums = getattr(getattr(stream, "mechanism", None), "weighted", None)
    return None if sums is None else np.array(sums, dtype=np.int64)


def ledger_length(policy: tacit.Policy) -> int:
    """Entries of the policy's ledger; 0 without privacy."""
    return len(policy.ledger.entries) if isinstance(policy, tacit.PrivatePolicy) else 0


def estimate_of(policy: tacit.Policy) -> float | None:
    """One number that every entry of the estimate, and of its standard deviations, moves.

    Arms do not show an error that is small beside the gaps between them; this does.
    """
    try:
        learned = policy.explain()
    except InvalidInput:
        return None
    if not isinstance(learned, Explanation):
        raise TypeError(f"explain() gave a {type(learned).__name__}")
    features = sorted(learned.features, key=lambda feature: feature.name)
    factors = np.linspace(1.0, 2.0, len(features)).tolist()
    return math.fsum(factor * (f.weight + (f.sd or 0.0)) for factor, f in zip(factors, features, strict=True))


SMALL: Final = World("logistic", 3)
LARGE: Final = World("logistic", 8)
JOINT: Final = ("stream-glm", "joint-glm", "joint-linucb")
PEERS: Final = ("adaprivate-ts", "ldp-linucb")
SHUFFLED: Final = ("shuffle-glm", "shuffle-linucb")


def usual_cases() -> list[Case]:
    """Every policy of the package with every link of the package that it supports, in two dimensions."""
    return [
        Case(name, World(link, dim))
        for name in POLICIES
        for link in LINKS
        if link in tacit.policy_class(name).links
        for dim in DIMS
    ]


def _variants(policy: str, world: World, options: Mapping[str, Mapping[str, Any]]) -> list[Case]:
    """Cases of one policy in one world, by what sets them apart."""
    return [Case(policy, world, title, told) for title, told in options.items()]


def _elsewhere(world: World, title: str, policies: Sequence[str]) -> list[Case]:
    """Cases of several policies in a world that is not the usual one."""
    return [Case(policy, world, title) for policy in policies]


def option_cases() -> list[Case]:
    """Options that change which code runs: budgets, mechanisms, profiles, widths, structure, other environments."""
    return [*_budget_cases(), *_clock_cases(), *_stream_cases(), *_constant_cases(), *_world_cases()]


def _budget_cases() -> list[Case]:
    """Private policies without noise, where estimates show most; budgets of several rounds; other noise and delays."""
    free: dict[str, Any] = {"epsilon": math.inf, "delta": None}
    joint = (*JOINT, "local-glm")
    told: dict[str, dict[str, Any]] = {"users": {"rounds_per_user": 3}, "age": {"reward_age": 7}}
    exact: dict[str, Any] = {"noise": "exact", "seed": None}
    return [
        *(Case(policy, World(link, 3), "no-noise", free) for policy in (*joint, *SHUFFLED, *PEERS) for link in LINKS),
        *(case for policy in (*joint, *PEERS) for case in _variants(policy, SMALL, told)),
        *(Case(policy, SMALL, "exact", exact) for policy in ("stream-glm", "joint-glm", "local-glm", *PEERS)),
        Case("shuffle-glm", SMALL, "users", told["users"]),
        Case("greedy-mle", SMALL, "age", told["age"]),
        Case("stream-glm", LARGE, "strong", {"epsilon": 0.5}),
    ]


def _clock_cases() -> list[Case]:
    """All ways of releasing sums over time, with a horizon and without."""
    trees: dict[str, dict[str, Any]] = {"tree": {"factorization": "tree"}, "toeplitz": {"factorization": "toeplitz"}}
    epochs = {f"{name}-epochs": told | {"horizon": None, "first_epoch": 100} for name, told in trees.items()}
    unknown: dict[str, dict[str, Any]] = {"no-horizon": {"horizon": None}}
    return [
        *_variants("stream-glm", SMALL, trees | epochs | unknown),
        *_variants("stream-glm", LARGE, trees),
        *_variants("joint-glm", SMALL, trees | epochs | unknown),
        *_variants("joint-linucb", SMALL, trees | epochs | unknown),
        *_variants("shuffle-glm", SMALL, unknown),
        *_variants("local-glm", SMALL, unknown),
        *_variants("adaprivate-ts", SMALL, unknown | {"equal": {"growth": 0.0}}),
        *_variants("ldp-linucb", SMALL, unknown),
    ]


def _stream_cases() -> list[Case]:
    """Structure of `stream-glm`: blocks, schemas, shrinkage, many dimensions."""
    blocks = World("logistic", 8, "blocks")
    told: dict[str, dict[str, Any]] = {
        "blocks": {"blocks": 4},
        "blocks-tree": {"blocks": 4, "factorization": "tree"},
        "blocks-age": {"blocks": 4, "reward_age": 7},
    }
    return [
        *_variants("stream-glm", blocks, told),
        *_variants("stream-glm", LARGE, {name: {"shrinkage": name} for name in ("none", "identity")}),
        Case("stream-glm", World("probit", 28, "schema", schema="patients"), "schema"),
        Case("stream-glm", World("logistic", 33, "schema", schema="articles"), "schema"),
        Case("stream-glm", World("logistic", 20, arms=20, horizon=500), "large"),
    ]


def _constant_cases() -> list[Case]:
    """Profiles of the paper's algorithms, and confidence sets so narrow that estimates decide."""
    # The paper's constants explore for longer than any horizon here, unless the budget is as large.
    paper: dict[str, Any] = {"epsilon": 1e5, "constant": 0.1}
    # Its batches fit this horizon only where theta and the constant are small.
    calm = World("logistic", 2, horizon=3_000, theta_norm=0.5)
    batches: dict[str, Any] = {"profile": "theory", "constant": 1e-4, "batches": 3, "max_rounds": 3}
    narrow: dict[str, dict[str, Any]] = {
        "glm-ucb": {"scale": 0.02, "growth": 0.2},
        "rs-glinucb": {"scale": 0.002, "exploration_scale": 1e-4},
        "gloc": {"scale": 0.02},
        "b-glincb": {"scale": 1e-5},
    }
    return [
        Case("joint-glm", SMALL, "theory", paper | {"profile": "theory", "constant": 0.01}),
        Case("joint-glm", replace(SMALL, horizon=300), "paper", paper | {"profile": "paper"}),
        Case("joint-glm", LARGE, "growth", {"growth": 1.3}),
        Case("shuffle-glm", calm, "theory", batches),
        Case("shuffle-glm", SMALL, "bits", {"path": "bits"}),
        Case("shuffle-linucb", SMALL, "batches", {"batch_size": 50}),
        Case("local-glm", SMALL, "greedy", {"warm_up": 0}),
        Case("b-glincb", SMALL, "batches", {"batches": 3}),
        Case("b-glincb", World("log", 8), "narrow", narrow["b-glincb"]),
        *(Case(policy, World(link, 3), "narrow", told) for policy, told in narrow.items() for link in LINKS),
    ]


def _world_cases() -> list[Case]:
    """Other environments: rare rewards, arms that are tied, fixed arms, contexts that open up late."""
    rare = replace(SMALL, base_rate=0.1, theta_norm=1.0)
    ties = replace(SMALL, contexts="assouad", arms=6)  # arms +-e_j: scores are tied wherever a coordinate is 0
    fixed, shift = replace(SMALL, contexts="fixed"), replace(SMALL, contexts="shift")
    return [
        *_elsewhere(rare, "rare", (*JOINT, *SHUFFLED, *PEERS, "greedy-mle")),
        *_elsewhere(ties, "ties", ("stream-glm", "joint-glm", "shuffle-glm", "rs-glinucb")),
        *_elsewhere(fixed, "fixed", ("stream-glm", "shuffle-glm", "b-glincb", "ecolog")),
        *_elsewhere(shift, "shift", ("stream-glm", "joint-glm")),
    ]


def all_cases() -> list[Case]:
    """Every case, under a name of its own."""
    return [*usual_cases(), *option_cases()]


def chosen_cases(pattern: str) -> list[Case]:
    """Cases whose name fits a pattern of the shell, such as ``stream-glm/*`` or ``*/d3``."""
    return [case for case in all_cases() if fnmatch(case.name, pattern)]
