"""Many pairs of neighbours of one case, replayed one after the other, and the worst of what they showed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tacit.audit.cases import BASE, Case
from tacit.audit.drives import driven_world
from tacit.audit.joint_draws import DrawRecord
from tacit.audit.rehearsal import SHORT_EPOCH, Life, audited_policy, fewer, life_of
from tacit.audit.replay import PairOutcome, own_registry, replay
from tacit.audit.worlds import Adversary, World, make_world
from tacit.policies.private_policy import PrivatePolicy

_FEWEST_PAIRS: Final = 12
_BOUNDARIES: Final = (SHORT_EPOCH - 1, SHORT_EPOCH, 3 * SHORT_EPOCH - 1)
"""Users whose rows wait at the end of an epoch, or open the next."""


@dataclass
class Replays:
    """Many pairs: the worst ratio, how it came about, and everything that went wrong."""

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
        """One more pair."""
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
    life = _life(case, {**_terms(epsilon, delta), **case.setting(0), **options})
    if life is not None:
        result.users = life.users(case.users)
        pairs = fewer(pairs, result.users, case.users, _FEWEST_PAIRS) if life.exercised else 0
    with own_registry():
        for index in range(pairs):
            adversary = case.turn(index)
            outcome = replay_one(case, index, adversary, epsilon, delta, seed, **options)
            result.add(outcome, adversary.__name__)
    return result


def _terms(epsilon: float, delta: float) -> dict[str, Any]:
    return {**BASE, "epsilon": epsilon, "delta": delta, "seed": 0}


def _life(case: Case, arguments: Mapping[str, Any]) -> Life | None:
    """How long the policy must live, where that is left to a rehearsal."""
    return life_of(case.policy, arguments, fixed=case.own_horizon) if case.rehearsed else None


def replay_one(
    case: Case, index: int, adversary: Adversary, epsilon: float, delta: float, seed: int, **options: Any
) -> PairOutcome:
    """Pair number ``index`` of a case; some are saved and loaded, decide in groups or are paid late."""
    rng = np.random.default_rng([seed, index])
    arguments = {**_terms(epsilon, delta), **case.setting(index), **options}
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
