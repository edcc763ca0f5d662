"""Policies under audit, and how long one must be played before an audit has seen anything of it.

A policy that releases nothing while it is watched passes every test of its releases.  A rehearsal plays it with rows of
no consequence, counts its releases, and says how many decisions a world must have for several of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from tacit.audit.worlds import allowed, unit
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.policies.continual_policy import ContinualPolicy
from tacit.policies.log import Publisher
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import policy_class, policy_names
from tacit.privacy.continual import Stream, leaf_is_due
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

LONGEST: Final = 20_000
"""Decisions after which a rehearsal gives up."""
SEVERAL: Final = 4
"""Releases that a life should have."""
NOTHING: Final = f"a rehearsal of {LONGEST:,} decisions, or of the horizon asked for, released nothing"
_ARMS: Final = 4
_MARGIN: Final = 2
"""Decisions after the last release that was waited for: others get arms that it has an influence on."""

SHORT_EPOCH: Final = 8
"""Leaves of the first epoch in a replay: a short run then passes through three."""

Make = Callable[..., PrivatePolicy]
"""Makes a policy from its options, the same one each time."""


def private_class(name: str) -> type[PrivatePolicy]:
    """The class behind the name of a private policy."""
    found = policy_class(name)
    if not issubclass(found, PrivatePolicy):
        raise InvalidInput(f"{name} learns from raw data: there is no claim to audit")
    return found


def usual_link(name: str) -> str:
    """The link of settings that state none: logistic if the policy supports it, else its first one."""
    links = private_class(name).links
    return "logistic" if "logistic" in links else next(iter(links))


def audited_policies() -> list[str]:
    """Names of all private policies, those registered from outside included."""
    return [name for name in policy_names() if issubclass(policy_class(name), PrivatePolicy)]


def audited_policy(name: str, **arguments: Any) -> PrivatePolicy:
    """Make a policy whose first epoch is short, so that a replay passes through several epochs."""
    return _audited(private_class(name), **arguments)


def _audited(kind: type[PrivatePolicy], **arguments: Any) -> PrivatePolicy:
    if issubclass(kind, ContinualPolicy):
        arguments = {"first_epoch": SHORT_EPOCH} | arguments
    return kind(**arguments)


@dataclass(frozen=True)
class Life:
    """How a policy is made and how long it is played, so that it releases several times."""

    options: Mapping[str, Any]
    """Options of the policy, with the horizon that was needed."""
    releases: tuple[int, ...]
    """Decisions before each of the first releases that can hold a row."""
    waiting: int = 0
    """How many decisions old a row must be to be in a release (``reward_age``)."""

    @property
    def exercised(self) -> bool:
        """Whether anything is released that can hold a row."""
        return bool(self.releases)

    def users(self, least: int) -> int:
        """Decisions to be played, at least ``least``."""
        return max(least, self.releases[-1] + _MARGIN) if self.releases else least

    def replaced(self, rng: np.random.Generator) -> int:
        """A user to be replaced: in the first or the second release, every other time shortly before one of them."""
        first, second = (max(1, release - self.waiting) for release in (*self.releases, *self.releases)[:2])
        if rng.random() < 0.5:
            return int(rng.integers(0, second))
        return max(0, int(rng.choice([first, second])) - 1 - int(rng.integers(0, 6)))


class ReleaseCounter(Publisher):
    """A publisher that releases everything as planned, and counts releases."""

    def __init__(self) -> None:
        self.releases = 0

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        due = leaf_is_due(stream)
        fresh = super().leaf(stream, noise, users)
        self.releases += due and fresh
        return fresh

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        self.releases += 1
        return super().vector(kind, exact, noise, sd)

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        self.releases += 1
        return super().shuffled(protocol, rows, release)


def release_times(policy: PrivatePolicy, decisions: int, wanted: int = SEVERAL) -> tuple[int, ...]:
    """Decisions before each of the first ``wanted`` releases, within the first ``decisions`` decisions.

    Releases before the first row do not count, and several after the same decision count as one.
    """
    rng, counter, found = np.random.default_rng(0), ReleaseCounter(), list[int]()
    policy.publisher = counter
    for rows in range(decisions):
        arms = allowed(policy, unit(rng, _ARMS, policy.setting.dim))
        reward = policy.setting.reward_bound * float(rng.random() < 0.5)
        before = counter.releases
        try:
            decision = policy.select(arms)
            if counter.releases > before and rows > 0:
                found.append(rows)
            before = counter.releases
            policy.update(decision, reward)
        except BudgetExceeded:
            break
        if counter.releases > before:
            found.append(rows + 1)
        if len(found) >= wanted:
            break
    return tuple(dict.fromkeys(found))


def rehearse(make: Make, options: Mapping[str, Any], *, longest: int = LONGEST, fixed: bool = False) -> Life:
    """The life of a policy with these options that has several releases, or as many as there are.

    A horizon is doubled until there are enough, unless it is ``fixed``; more of it that brings no more releases is
    not asked for.
    """
    horizon, waiting = options.get("horizon"), options.get("reward_age") or 0
    if horizon is None or fixed:
        return Life(options, release_times(make(**options), min(longest, horizon or longest)), waiting)
    best = Life(options, ())
    while True:
        longer = {**options, "horizon": horizon}
        life = Life(longer, release_times(make(**longer), horizon), waiting)
        if len(life.releases) >= SEVERAL:
            return life
        if len(best.releases) > 1 and len(life.releases) <= len(best.releases):
            return best
        if horizon >= longest:
            return max(best, life, key=lambda one: len(one.releases))
        best, horizon = life, min(longest, 2 * horizon)


def fewer(wanted: int, users: int, usual: int, least: int) -> int:
    """Number of runs where lives are longer than usual: at most 4 times the decisions of ``wanted`` usual lives.

    Never less than ``least``, unless fewer are wanted.
    """
    return min(wanted, max(least, 4 * wanted * usual // users))


def life_of(name: str, options: Mapping[str, Any], *, fixed: bool = False) -> Life:
    """The life in which a policy with these options releases several times; cached, since finding it takes a while."""
    return _life_of(private_class(name), json.dumps(dict(options), sort_keys=True), fixed)


@lru_cache(maxsize=256)
def _life_of(kind: type[PrivatePolicy], options: str, fixed: bool) -> Life:
    return rehearse(partial(_audited, kind), json.loads(options), fixed=fixed)
