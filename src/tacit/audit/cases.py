"""Which policies are audited, in which settings, with which neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tacit.audit.replay import Outcome, own_registry, replay
from tacit.audit.worlds import ABSENT, ADVERSARIES, Adversary, make_world
from tacit.policies import streamed
from tacit.policies.registry import make_policy

SHORT_EPOCH: Final = 8
"""Leaves of the first epoch in a replay: a short run then passes through three."""


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
    note: str = ""


_BASE: Final = {"dim": 3, "link": "logistic", "theta_bound": 2.0}
_STREAMS: Final = (
    {"horizon": 40},
    {"horizon": None},
    {"horizon": 64, "factorization": "tree"},
    {"horizon": 40, "link": "probit"},
    {"horizon": None, "factorization": "tree"},
    {"horizon": 32, "factorization": "tree", "dim": 2},
)

CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        case.policy: case
        for case in (
            Case(
                "stream-glm", _STREAMS, note="the bound is attained at |theta| = S and for a row in the first leaf only"
            ),
            Case(
                "joint-glm",
                (*_STREAMS, {"horizon": 30, "profile": "theory"}),
                note="no row is worst for matrices and gradients at once; call k of both optimizers is one charge",
            ),
            Case("joint-linucb", _STREAMS, note="attained by two unit vectors at the worst angle in the first leaf"),
            Case(
                "shuffle-glm",
                ({"horizon": 150, "dim": 2}, {"horizon": 120, "dim": 2, "link": "probit"}),
                users=110,
                groups=False,
                note="matrix and score have no common worst row; the binomial bound has its offset",
            ),
            Case(
                "shuffle-linucb",
                ({"horizon": 60, "batch_size": 20}, {"horizon": None, "batch_size": 16, "dim": 2}),
                users=50,
                groups=False,
                note="charged by its Renyi curve, which is looser than the Gaussian one",
            ),
            Case(
                "local-glm",
                ({"horizon": 40}, {"horizon": 40, "link": "probit"}),
                groups=False,
                absent=False,
                note="charged 2 L; two gradients of full length at one theta are never opposite",
            ),
        )
    }
)


@contextmanager
def short_epochs() -> Iterator[None]:
    """Epochs that a replay can pass through."""
    before = streamed.FIRST_EPOCH
    streamed.FIRST_EPOCH = SHORT_EPOCH
    try:
        yield
    finally:
        streamed.FIRST_EPOCH = before


@dataclass
class Replays:
    """Many pairs: the worst ratio, how it came about, and everything that went wrong."""

    policy: str
    epsilon: float
    delta: float
    pairs: int = 0
    worst: float = 0.0
    mu: float = 0.0
    mu_charged: float = 0.0
    adversary: str = ""
    divergences: list[str] = field(default_factory=list)
    draws: list[Any] = field(default_factory=list)

    def add(self, outcome: Outcome, name: str) -> None:
        """One more pair."""
        self.pairs += 1
        self.draws.append(outcome.draws)
        self.divergences += [f"{name}: {text}" for text in outcome.divergences]
        if outcome.ratio > self.worst:
            self.worst, self.mu, self.mu_charged, self.adversary = outcome.ratio, outcome.mu, outcome.mu_charged, name


def replay_many(case: Case, pairs: int, epsilon: float, delta: float, seed: int = 0, **options: Any) -> Replays:
    """Replay ``pairs`` neighbours, through all settings and adversaries in turn."""
    adversaries = (*ADVERSARIES, *(ABSENT if case.absent else ()))
    result = Replays(case.policy, epsilon, delta)
    with own_registry(), short_epochs():
        for index in range(pairs):
            adversary = adversaries[index // len(case.settings) % len(adversaries)]
            outcome = replay_one(case, index, adversary, epsilon, delta, seed, **options)
            result.add(outcome, adversary.__name__)
    return result


def replay_one(
    case: Case, index: int, adversary: Adversary, epsilon: float, delta: float, seed: int, **options: Any
) -> Outcome:
    """Pair number ``index`` of a case; every eighth is saved and loaded, some decide in groups or are paid late."""
    rng = np.random.default_rng([seed, index])
    arguments = {**_BASE, **case.settings[index % len(case.settings)], **options}
    first, second = (
        make_policy(case.policy, epsilon=epsilon, delta=delta, seed=int(index), **arguments) for _ in range(2)
    )
    late = case.absent and index % 3 == 1
    world = make_world(
        rng,
        first,
        adversary,
        users=case.users,
        late=late,
        save_at=int(rng.integers(1, case.users)) if index % 8 == 3 else None,
        group=3 if case.groups and index % 5 == 4 else 1,
    )
    return replay(first, second, world, rng)
