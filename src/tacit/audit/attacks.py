"""Attacks on whole policies: replays of many pairs of neighbours, tests on all releases, and on others' arms alone.

`replay_many` measures how far the releases of two neighbouring worlds lie apart, and compares that with the charge.
`attack_policy` tells the worlds apart by everything that is released, `attack_by_probes` by nothing but arms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tacit.audit.cases import BASE, Case
from tacit.audit.joint_draws import DrawRecord
from tacit.audit.rehearsal import SHORT_EPOCH, Life, audited_policy, fewer, life_of, private_class, usual_link
from tacit.audit.replay import PairOutcome, own_registry, play_both, replay
from tacit.audit.statistics import Samples
from tacit.audit.worlds import (
    Adversary,
    UserRow,
    World,
    driven_world,
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
_FEWEST_PAIRS: Final = 12
_BOUNDARIES: Final = (SHORT_EPOCH - 1, SHORT_EPOCH, 3 * SHORT_EPOCH - 1)
"""Users whose rows wait at the end of an epoch, or open the next."""


@dataclass(frozen=True)
class Target:
    """An attack on a policy: its options, the number of users, the replaced user, and who chooses the two rows."""

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
        "adaprivate-ts": Target({"horizon": 12, "first_batch": 4}, 12, 1, largest_contribution),
        "ldp-linucb": Target({"horizon": 12}, 10, 8, largest_gradient),
    }
)
_ANY: Final = Target({"horizon": 12}, 12, 1, largest_contribution)
NOTHING_SEEN: Final = Samples(np.empty(0), np.empty(0))
"""The samples of a policy that releases nothing."""


def target_for(name: str, epsilon: float, delta: float, options: Mapping[str, Any]) -> Target | None:
    """The attack on a policy with this budget and these options; None where the policy releases nothing.

    A policy that `TARGETS` does not list is attacked by its second user's row, in a life that a rehearsal found long
    enough.
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
    """Number of later users who get the first of two arms, which the replaced user praised in one of the worlds.

    The attacker sees arms only.  Far from the best attack, since arms show little of the releases.
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


@dataclass
class Replays:
    """Results of replaying many pairs of neighbours: the worst ratio, how it came about, and all divergences."""

    policy: str
    epsilon: float
    delta: float
    pairs: int = 0
    users: int = 0
    """Decisions of the longest life."""
    worst: float = 0.0
    mu: float = 0.0
    mu_charged: float = 0.0
    adversary: str = ""
    divergences: list[str] = field(default_factory=list)
    kinds: dict[str, float] = field(default_factory=dict)
    """Largest measured over charged, for each kind of charge."""
    draws: list[tuple[DrawRecord, ...]] = field(default_factory=list)
    """Noise of each pair, by kind, in units of its planned standard deviation."""
    steps: float = math.inf

    def add(self, outcome: PairOutcome, name: str) -> None:
        """Take in the outcome of one more pair, which the adversary ``name`` chose."""
        self.pairs += 1
        self.draws.append(outcome.draws)
        self.steps = min(self.steps, outcome.steps)
        self.divergences += [f"{name}: {text}" for text in outcome.divergences]
        for kind, ratio in outcome.kinds.items():
            self.kinds[kind] = max(ratio, self.kinds.get(kind, 0.0))
        if outcome.worst > self.worst:
            self.worst, self.mu, self.mu_charged, self.adversary = outcome.worst, outcome.mu, outcome.mu_charged, name


def replay_many(case: Case, pairs: int, epsilon: float, delta: float, seed: int = 0, **options: Any) -> Replays:
    """Replay ``pairs`` neighbours, through all settings and adversaries in turn; fewer where lives must be long.

    None at all where a rehearsal finds that nothing is ever released.
    """
    result = Replays(case.policy, epsilon, delta)
    life = _life(case, {**_replay_terms(epsilon, delta), **case.setting(0), **options})
    if life is not None:
        result.users = life.users(case.users)
        pairs = fewer(pairs, result.users, case.users, _FEWEST_PAIRS) if life.exercised else 0
    with own_registry():
        for index in range(pairs):
            adversary = case.turn(index)
            outcome = replay_one(case, index, adversary, epsilon, delta, seed, **options)
            result.add(outcome, adversary.__name__)
    return result


def _replay_terms(epsilon: float, delta: float) -> dict[str, Any]:
    return {**BASE, "epsilon": epsilon, "delta": delta, "seed": 0}


def _life(case: Case, arguments: Mapping[str, Any]) -> Life | None:
    """The life that a rehearsal finds for the policy; None where the case states it."""
    return life_of(case.policy, arguments, fixed=case.own_horizon) if case.rehearsed else None


def replay_one(
    case: Case, index: int, adversary: Adversary, epsilon: float, delta: float, seed: int, **options: Any
) -> PairOutcome:
    """Replay pair number ``index`` of a case; some pairs are saved and loaded, decide in groups or are paid late."""
    rng = np.random.default_rng([seed, index])
    arguments = {**_replay_terms(epsilon, delta), **case.setting(index), **options}
    life = _life(case, arguments)
    arguments = {**(life.options if life else arguments), "seed": int(index)}
    first, second = (audited_policy(case.policy, **arguments) for _ in range(2))
    return replay(first, second, _world(case, index, first, adversary, rng, life), rng)


def _world(
    case: Case,
    index: int,
    policy: PrivatePolicy,
    adversary: Adversary,
    rng: np.random.Generator,
    life: Life | None = None,
) -> World:
    users = case.users if life is None else life.users(case.users)
    save_at = int(rng.integers(1, users)) if rng.random() < 0.125 else None
    if case.driven:
        # The first leaf of a later epoch has the longest column, and theta is no longer 0.
        end = _BOUNDARIES[-1] if policy.setting.horizon is None else None
        return driven_world(rng, policy, adversary, users=users, user=end, save_at=save_at)
    late, group = case.absent and rng.random() < 0.35, 3 if case.groups and rng.random() < 0.25 else 1
    boundary = policy.setting.horizon is None and policy.guarantee == "joint" and index % 2 == 0
    user = int(rng.choice(_BOUNDARIES)) if boundary else None
    if life is not None and users > case.users:
        user = life.replaced(rng)
    user = user if case.user is None else case.user
    return make_world(rng, policy, adversary, users=users, late=late, user=user, save_at=save_at, group=group)
