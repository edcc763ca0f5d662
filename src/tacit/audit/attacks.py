"""Attacks on whole policies: by everything that they release, and by nothing but the arms that others get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tacit.audit.cases import Case, audited_policy, private_class
from tacit.audit.replay import own_registry, replay
from tacit.audit.statistics import Samples
from tacit.audit.worlds import (
    Adversary,
    Row,
    World,
    largest_contribution,
    largest_gradient,
    make_world,
    orthogonal_rows,
)
from tacit.policies.private_policy import PrivatePolicy

_SETTING: Final = {"dim": 2, "link": "logistic", "theta_bound": 2.0}
_PROBES: Final = 12


@dataclass(frozen=True)
class Target:
    """How a policy is attacked: its options, how many users there are, who is replaced, by which rows."""

    options: Mapping[str, Any]
    users: int
    user: int
    adversary: Adversary


TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        "stream-glm": Target({"horizon": 12}, 12, 1, largest_contribution),
        "joint-glm": Target({"horizon": 16}, 16, 1, orthogonal_rows),
        "joint-linucb": Target({"horizon": 12}, 12, 0, largest_contribution),
        "shuffle-glm": Target({"horizon": 150}, 60, 0, largest_gradient),
        "shuffle-linucb": Target({"horizon": None, "batch_size": 16}, 17, 0, orthogonal_rows),
        "local-glm": Target({"horizon": 12, "warm_up": 0}, 10, 8, largest_gradient),
    }
)


def target_for(name: str) -> Target:
    """How a policy is attacked; one without a target of its own by its second user's row."""
    if name in TARGETS:
        return TARGETS[name]
    worst = largest_gradient if private_class(name).guarantee == "local" else largest_contribution
    return Target({"horizon": 12}, 12, 1, worst)


def _policy(name: str, epsilon: float, delta: float, seed: int, options: Mapping[str, Any]) -> PrivatePolicy:
    return audited_policy(name, epsilon=epsilon, delta=delta, seed=seed, **{**_SETTING, **options})


def _swapped(adversary: Adversary) -> Adversary:
    def rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[Row, Row]:
        first, second = adversary(policy, rng, arms)
        return second, first

    return rows


def attack_policy(case: Case, epsilon: float, delta: float, runs: int, seed: int) -> Samples:
    """Log-likelihood ratios of all releases, in runs of either world.

    The attacker knows all rows but one and the code.  Each run is replayed in the other world, whose noise must
    explain the same releases: the ratio of the two densities is the best statistic there is.
    """
    target = target_for(case.policy)
    found: list[list[float]] = [[], []]
    with own_registry():
        for run in range(2 * runs):
            side, rng = run % 2, np.random.default_rng([seed, run])
            first, second = (_policy(case.policy, epsilon, delta, seed + run, target.options) for _ in range(2))
            adversary = _swapped(target.adversary) if side else target.adversary
            world = make_world(rng, first, adversary, users=target.users, arms=2)
            world = World(world.arms, world.rewards, world.delays, target.user, adversary, repeat=False)
            llr = replay(first, second, world, rng).llr
            found[side].append(-llr if side else llr)
    return Samples(np.array(found[0]), np.array(found[1]))


def has_probes(name: str) -> bool:
    """Whether others' arms are what the guarantee is about."""
    return private_class(name).guarantee == "joint"


def attack_by_probes(case: Case, epsilon: float, delta: float, runs: int, seed: int) -> Samples:
    """How many of the users after the replaced one get the first of two arms, which this one praised or not.

    A black box: the attacker sees arms only.  Far from the best attack, since arms show little of the releases.
    """
    found: list[list[float]] = [[], []]
    arms = np.tile(np.eye(2), (_PROBES + 1, 1, 1))
    for run in range(2 * runs):
        side = run % 2
        policy = _policy(case.policy, epsilon, delta, seed + run, {"horizon": _PROBES + 1})
        arms[0] = np.eye(2)[side]
        rewards = np.full((_PROBES + 1, 2), 0.5)
        rewards[0] = float(side)
        found[side].append(float(np.count_nonzero(policy.play(arms, rewards)[1:] == 0)))
    return Samples(np.array(found[0]), np.array(found[1])).oriented()
