"""Which policies are audited, in which settings, with which neighbours."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tacit.audit.drives import driven_world, exploring_rows, moving_rows
from tacit.audit.joint_draws import Record
from tacit.audit.rehearsal import Life, fewer, rehearse
from tacit.audit.replay import Outcome, own_registry, replay
from tacit.audit.worlds import (
    ABSENT,
    ADVERSARIES,
    Adversary,
    World,
    largest_contribution,
    largest_gradient,
    late_rows,
    make_world,
    opposite_rows,
    orthogonal_rows,
)
from tacit.errors import InvalidInput
from tacit.policies.continual_policy import ContinualPolicy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import policy_class, policy_names

SHORT_EPOCH: Final = 8
"""Leaves of the first epoch in a replay: a short run then passes through three."""
_BOUNDARIES: Final = (SHORT_EPOCH - 1, SHORT_EPOCH, 3 * SHORT_EPOCH - 1)
"""Users whose rows wait at the end of an epoch, or open the next."""


@dataclass(frozen=True)
class Case:
    """A policy, the settings in which it is replayed in turn, and why its measured shift stays below the charge."""

    policy: str
    settings: Sequence[Mapping[str, Any]]
    users: int = 40
    groups: bool = True
    """Whether several decisions may share a tick."""
    absent: bool = True
    """Whether the guarantee covers rewards that come late or never."""
    adversaries: Sequence[Adversary] = ()
    """Who chooses the two rows; all that there are by default."""
    driven: bool = False
    """Whether the other users push the policy to where its bounds are attained (`tacit.audit.drives`)."""
    user: int | None = None
    """Whose row is replaced; somebody's by chance unless given."""
    rehearsed: bool = False
    """Whether a rehearsal says how long lives are, and which horizon that takes (`tacit.audit.rehearsal`)."""
    own_horizon: bool = False
    """Whether whoever asked for the audit chose the horizon, which a rehearsal must then leave as it is."""
    note: str = ""

    def turn(self, index: int) -> Adversary:
        """The adversary of pair number ``index``: all of them within the first few pairs."""
        everybody = self.adversaries or (*ADVERSARIES, *(ABSENT if self.absent else ()))
        return everybody[index % len(everybody)]

    def setting(self, index: int) -> Mapping[str, Any]:
        """Its setting: they move on by one with each round of adversaries, so that every two meet."""
        everybody = len(self.adversaries or (*ADVERSARIES, *(ABSENT if self.absent else ())))
        return self.settings[(index + index // everybody) % len(self.settings)]


_BASE: Final = {"dim": 3, "link": "logistic", "theta_bound": 2.0}
_TERMS: Final = {**_BASE, "epsilon": 4.0, "delta": 1e-5, "seed": 0}
"""A budget, to see which settings are possible."""
_FEWEST_PAIRS: Final = 12
_STREAMS: Final = (
    {"horizon": 40},
    {"horizon": None},
    {"horizon": 64, "factorization": "tree"},
    {"horizon": 40, "link": "probit"},
    {"horizon": None, "factorization": "tree"},
    {"horizon": 32, "factorization": "tree", "dim": 2},
    {"horizon": 40, "link": "identity"},
    {"horizon": 40, "link": "log"},
    {"horizon": 40, "base_rate": 0.08},
    {"horizon": 40, "noise": "secure"},
    {"horizon": None, "noise": "exact", "factorization": "geometric"},
    {"horizon": 32, "noise": "exact", "factorization": "tree"},
    {"horizon": 40, "factorization": "toeplitz"},
    {"horizon": None, "factorization": "toeplitz"},
)
_STRUCTURED: Final = (
    {"horizon": 40, "dim": 6, "blocks": 3},
    {"horizon": None, "dim": 4, "blocks": 2, "noise": "exact"},
    {"horizon": 32, "dim": 4, "blocks": 2, "factorization": "tree"},
)
_PLAIN: Final = (
    {"horizon": 40},
    {"horizon": None},
    {"horizon": 40, "link": "probit"},
    {"horizon": 40, "link": "identity"},
    {"horizon": 40, "noise": "secure"},
)
_THEORY: Final = {"profile": "theory", "constant": 1.0, "growth": 1.5, "dim": 2, "theta_bound": 1.0}

CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        case.policy: case
        for case in (
            Case(
                "stream-glm",
                (*_STREAMS, *_STRUCTURED),
                note="the bound is attained at |theta| = S and for a row in the first leaf only",
            ),
            Case(
                "joint-glm",
                (*_STREAMS, {"horizon": 30, "profile": "theory"}),
                note="no row is worst for matrices and gradients at once; call k of both optimizers is one charge",
            ),
            Case("joint-linucb", _STREAMS, note="attained by two unit vectors at the worst angle in the first leaf"),
            Case(
                "shuffle-glm",
                (
                    {"horizon": 150, "dim": 2},
                    {"horizon": 120, "dim": 2, "link": "probit"},
                    {"horizon": 150, "dim": 2, "base_rate": 0.08},
                    {"horizon": 150, "dim": 2, "noise": "secure"},
                    {"horizon": 150, "dim": 2, "path": "bits"},
                ),
                users=110,
                groups=False,
                note="matrix and score have no common worst row; the binomial bound has its offset",
            ),
            Case(
                "shuffle-linucb",
                (
                    {"horizon": 60, "batch_size": 20},
                    {"horizon": None, "batch_size": 16, "dim": 2},
                    {"horizon": 60, "batch_size": 20, "base_rate": 0.08},
                ),
                users=50,
                groups=False,
                note="charged by its Renyi curve, which is looser than the Gaussian one",
            ),
            Case(
                "local-glm",
                (
                    {"horizon": 40},
                    {"horizon": 40, "link": "probit"},
                    {"horizon": 40, "link": "identity"},
                    {"horizon": 40, "base_rate": 0.08},
                    {"horizon": 40, "noise": "secure"},
                    {"horizon": 40, "noise": "exact"},
                ),
                groups=False,
                absent=False,
                note="charged 2 L; two gradients of full length at one theta are never opposite",
            ),
        )
    }
)

DRIVES: Final[Mapping[str, Sequence[Case]]] = MappingProxyType(
    {
        "stream-glm": (
            Case(
                "stream-glm",
                (
                    {"horizon": None, "factorization": "tree", "epsilon": 100.0, "theta_bound": 0.5, "dim": 2},
                    # With a head start, leaves of so short a run are a part of the first column only.
                    {"horizon": None, "epsilon": 100.0, "dim": 2, "head_start": 0.0},
                ),
                users=56,
                adversaries=(largest_contribution, late_rows),
                driven=True,
            ),
        ),
        "joint-glm": (
            Case(
                "joint-glm",
                (
                    {"horizon": 256, "factorization": "tree", "epsilon": 200.0, "theta_bound": 0.5},
                    {"horizon": 256, "factorization": "tree", "epsilon": 200.0, "theta_bound": 0.5, "link": "probit"},
                    {"horizon": 256, "factorization": "tree", "epsilon": 200.0, "theta_bound": 0.5, "link": "log"},
                ),
                users=256,
                adversaries=(exploring_rows, largest_gradient),
                driven=True,
            ),
            Case(
                "joint-glm",
                (
                    {
                        "horizon": 1024,
                        "factorization": "tree",
                        "epsilon": 30.0,
                        "theta_bound": 0.85,
                        "link": "identity",
                        "growth": 1.5,
                        "dim": 2,
                    },
                ),
                users=1024,
                adversaries=(moving_rows,),
                driven=True,
            ),
            Case(
                "joint-glm",
                ({**_THEORY, "horizon": 512, "epsilon": 2000.0},),
                users=512,
                adversaries=(exploring_rows, largest_gradient),
                driven=True,
                note="theory charges 2 L, a triangle inequality: two opposite gradients of full length do not exist",
            ),
        ),
        "joint-linucb": (
            Case(
                "joint-linucb",
                ({"horizon": 40}, {"horizon": None, "noise": "exact"}),
                groups=False,
                absent=False,  # a reward that comes late is in a later leaf, where less is attained
                adversaries=(largest_contribution,),
                user=0,  # the first leaf, whose column has the whole norm
            ),
        ),
        "shuffle-glm": (
            Case(
                "shuffle-glm",
                ({"horizon": 6_000, "dim": 2, "epsilon": 1.0},),
                users=900,
                groups=False,
                adversaries=(largest_gradient,),
                note="curvature: a row's weight is below its public maximum in the first batch; score: rounded radius",
            ),
            Case(
                "shuffle-glm",
                (
                    {
                        "horizon": 400,
                        "dim": 2,
                        "epsilon": 8.0,
                        "delta": 0.02,
                        "theta_bound": 0.5,
                        "profile": "theory",
                        "constant": 1e-4,
                        "batches": 3,
                        "max_rounds": 3,
                    },
                ),
                users=401,
                groups=False,
                adversaries=(orthogonal_rows,),
                note="later rows weigh less than the matrix's bound; gradients at one theta are not opposite",
            ),
        ),
        "shuffle-linucb": (
            Case(
                "shuffle-linucb",
                ({"horizon": None, "batch_size": 2_000, "dim": 2, "epsilon": 1.0},),
                users=2_001,
                groups=False,
                adversaries=(orthogonal_rows, opposite_rows),
                note="no row is worst for both sums at once: orthogonal ones for x x', opposite ones for r x",
            ),
        ),
    }
)
"""Where each kind of charge is attained, or as nearly as an attack can."""


def private_class(name: str) -> type[PrivatePolicy]:
    """The class behind the name of a private policy."""
    found = policy_class(name)
    if not issubclass(found, PrivatePolicy):
        raise InvalidInput(f"{name} learns from raw data: there is no claim to audit")
    return found


def usual_link(name: str) -> str:
    """The link of a policy's settings that state none: logistic where it takes that."""
    links = private_class(name).links
    return "logistic" if "logistic" in links else next(iter(links))


def audited_policies() -> list[str]:
    """All private policies, those that were registered from outside included."""
    return [name for name in policy_names() if issubclass(policy_class(name), PrivatePolicy)]


def case_for(name: str, options: Mapping[str, Any] = MappingProxyType({})) -> Case:
    """How a policy is replayed; one without a case of its own in the ordinary settings of its kind.

    ``options`` take the place of what the settings say; settings that do not go with them are left out.
    """
    case = CASES.get(name) or _ordinary_case(name)
    return _with_options(case, options) if options else case


def _ordinary_case(name: str) -> Case:
    kind = private_class(name)
    ordinary = _STREAMS if issubclass(kind, ContinualPolicy) else _PLAIN
    settings = [setting for setting in ordinary if setting.get("link", "logistic") in kind.links]
    if kind.guarantee == "shuffle":
        both: list[Mapping[str, Any]] = [{"horizon": 150, "dim": 2}, {"horizon": None, "dim": 2}]
        return Case(name, both, users=150, groups=False, rehearsed=True)
    return Case(name, settings, groups=kind.shares_ticks, absent=kind.guarantee != "local", rehearsed=True)


def _with_options(case: Case, options: Mapping[str, Any]) -> Case:
    """A case whose settings all have these options."""
    settings = list[dict[str, Any]]()
    for setting in ({**each, **options} for each in case.settings):
        if setting not in settings and _possible(case.policy, setting):
            settings.append(setting)
    if not settings:  # the error says what is wrong with the options
        audited_policy(case.policy, **{**_TERMS, **case.settings[0], **options})
    return replace(case, settings=settings, rehearsed=True, own_horizon="horizon" in options)


def _possible(name: str, setting: Mapping[str, Any]) -> bool:
    try:
        audited_policy(name, **{**_TERMS, **setting})
    except InvalidInput:
        return False
    return True


def life_of(name: str, options: Mapping[str, Any], *, fixed: bool = False) -> Life:
    """How long a policy with these options must live for several releases; remembered, since it may take a while."""
    return _life_of(private_class(name), json.dumps(dict(options), sort_keys=True), fixed)


@lru_cache(maxsize=256)
def _life_of(kind: type[PrivatePolicy], options: str, fixed: bool) -> Life:
    return rehearse(partial(_audited, kind), json.loads(options), fixed=fixed)


def audited_policy(name: str, **arguments: Any) -> PrivatePolicy:
    """A policy whose epochs, if it has such, are so short that a replay passes through several."""
    return _audited(private_class(name), **arguments)


def _audited(kind: type[PrivatePolicy], **arguments: Any) -> PrivatePolicy:
    if issubclass(kind, ContinualPolicy):
        arguments = {"first_epoch": SHORT_EPOCH} | arguments
    return kind(**arguments)


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
    draws: list[tuple[Record, ...]] = field(default_factory=list)
    """Noise of each pair, by kind, in units of its planned standard deviation."""
    steps: float = math.inf

    def add(self, outcome: Outcome, name: str) -> None:
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
    return {**_BASE, "epsilon": epsilon, "delta": delta, "seed": 0}


def _life(case: Case, arguments: Mapping[str, Any]) -> Life | None:
    """How long the policy must live, where that is left to a rehearsal."""
    return life_of(case.policy, arguments, fixed=case.own_horizon) if case.rehearsed else None


def replay_one(
    case: Case, index: int, adversary: Adversary, epsilon: float, delta: float, seed: int, **options: Any
) -> Outcome:
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
