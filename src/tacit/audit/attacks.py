"""Attacks on whole policies: by everything that they release, and by nothing but the arms that others get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tacit.audit.cases import Case
from tacit.audit.rehearsal import audited_policy, fewer, life_of, private_class, usual_link
from tacit.audit.replay import own_registry, play_both
from tacit.audit.statistics import Samples
from tacit.audit.worlds import (
    Adversary,
    UserRow,
    World,
    largest_contribution,
    largest_gradient,
    make_world,
    orthogonal_rows,
)
from tacit.policies.private_policy import PrivatePolicy
from tacit.typing import FloatArray

_SETTING: Final = {"dim": 2, "theta_bound": 2.0}
_PROBES: Final = 12
_FEWEST_RUNS: Final = 10


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
_ANY: Final = Target({"horizon": 12}, 12, 1, largest_contribution)
NOTHING_SEEN: Final = Samples(np.empty(0), np.empty(0))
"""Of a policy that releases nothing."""


def target_for(name: str, epsilon: float, delta: float, options: Mapping[str, Any]) -> Target | None:
    """How a policy with this budget and these options is attacked; None where it releases nothing to attack.

    One without a target of its own is attacked by its second user's row, in a life that a rehearsal found long enough.
    """
    if name in TARGETS and not options:
        return TARGETS[name]
    known = TARGETS.get(name, _ANY)
    if known is _ANY and private_class(name).guarantee == "local":
        known = replace(_ANY, adversary=largest_gradient)
    wanted = {**_terms(name, epsilon, delta), **known.options, **options}
    life = life_of(name, wanted, fixed="horizon" in options)
    if not life.exercised:
        return None
    return replace(known, options=life.options, users=life.users(known.users))


def _policy(name: str, epsilon: float, delta: float, seed: int, options: Mapping[str, Any]) -> PrivatePolicy:
    return audited_policy(name, **{**_terms(name, epsilon, delta), **options, "seed": seed})


def _terms(name: str, epsilon: float, delta: float) -> dict[str, Any]:
    return {**_SETTING, "link": usual_link(name), "epsilon": epsilon, "delta": delta, "seed": 0}


def _swapped(adversary: Adversary) -> Adversary:
    def rows(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
        first, second = adversary(policy, rng, arms)
        return second, first

    return rows


def attack_policy(
    case: Case, epsilon: float, delta: float, runs: int, seed: int, options: Mapping[str, Any] = MappingProxyType({})
) -> Samples:
    """Log-likelihood ratios of all releases, in runs of either world; none where nothing is released.

    The attacker knows all rows but one and the code.  Each run is replayed in the other world, whose noise must
    explain the same releases: the ratio of the two densities is the best statistic there is.  Where lives must be
    longer than usual, there are fewer of them.
    """
    target = target_for(case.policy, epsilon, delta, options)
    if target is None:
        return NOTHING_SEEN
    found: list[list[float]] = [[], []]
    usual = TARGETS.get(case.policy, _ANY).users
    with own_registry():
        for run in range(2 * fewer(runs, target.users, usual, _FEWEST_RUNS)):
            side, rng = run % 2, np.random.default_rng([seed, run])
            first, second = (_policy(case.policy, epsilon, delta, seed + run, target.options) for _ in range(2))
            adversary = _swapped(target.adversary) if side else target.adversary
            world = make_world(rng, first, adversary, users=target.users, arms=2)
            world = World(world.arms, world.rewards, world.delays, target.user, adversary, repeat=False)
            llr = play_both(first, second, world, rng)[0].llr  # without the privacy loss, which takes longer
            found[side].append(-llr if side else llr)
    return Samples(np.array(found[0]), np.array(found[1]))


def has_probes(name: str) -> bool:
    """Whether others' arms are what the guarantee is about."""
    return private_class(name).guarantee == "joint"


def attack_by_probes(
    case: Case, epsilon: float, delta: float, runs: int, seed: int, options: Mapping[str, Any] = MappingProxyType({})
) -> Samples:
    """How many of the users after the replaced one get the first of two arms, which this one praised or not.

    A black box: the attacker sees arms only.  Far from the best attack, since arms show little of the releases.
    """
    chosen, users = {"horizon": _PROBES + 1, **options}, _PROBES + 1
    if case.rehearsed:
        life = life_of(case.policy, {**_terms(case.policy, epsilon, delta), **chosen}, fixed=case.own_horizon)
        if not life.exercised:
            return NOTHING_SEEN
        chosen, users = dict(life.options), life.releases[0] + _PROBES
    both = _two_arms(int(chosen.get("dim", 2)))
    arms = np.tile(both, (users, 1, 1))
    arms[1:-_PROBES] = 0.0  # those who must come before the first release have nothing to tell
    found: list[list[float]] = [[], []]
    for run in range(2 * runs):
        side = run % 2
        policy = _policy(case.policy, epsilon, delta, seed + run, chosen)
        arms[0] = both[side]
        rewards = np.full((users, 2), 0.5 * policy.setting.reward_bound)
        rewards[0] = side * policy.setting.reward_bound
        found[side].append(float(np.count_nonzero(policy.play(arms, rewards)[-_PROBES:] == 0)))
    return Samples(np.array(found[0]), np.array(found[1])).oriented()


def _two_arms(dim: int) -> FloatArray:
    """Two axes; an arm and its opposite where there is one axis only."""
    return np.eye(2, dim) if dim > 1 else np.array([[1.0], [-1.0]])
