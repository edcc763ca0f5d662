"""What may be seen of a served policy: made of releases, the ledger and the clock of decisions, and never changed."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.privacy.person import Loss, loss_of, mu_across
from tacit.service.lives import report_across
from tacit.service.modes import ModeChange
from tacit.service.terms import Mode

_POINT: Final = struct.Struct("<qdd")


class Point(NamedTuple):
    """A release, as the page draws it: everybody may see that and when it was, and what follows from it."""

    decisions: int
    time: float
    """Seconds since 1970."""
    best_reward: float
    """Estimated mean reward of the best arm that there can be, mu(|theta|); NaN for a policy that estimates none."""

    def pack(self) -> bytes:
        """As the value of a row."""
        return _POINT.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Point:
        """The point that gave these bytes."""
        return cls(*_POINT.unpack(data))


def newest_point(policy: Policy, now: float) -> Point:
    """What there is to be drawn of the newest release."""
    belief = policy.belief if isinstance(policy, PrivatePolicy) else None
    best = math.nan if belief is None else float(policy.setting.link.mean(float(np.linalg.norm(belief.theta))))
    return Point(policy.decisions, now, best)


@dataclass(frozen=True)
class Published:
    """A policy as others see it."""

    mode: Mode
    decisions: int
    releases: int
    """How often anything was released."""
    estimate: tuple[float, ...] | None
    """The newest estimate of theta; None for a policy without privacy, whose estimate is raw data."""
    privacy: Mapping[str, Any]
    """The privacy report as JSON, with what all lives together have spent."""
    spent_mu: float
    """Spent on one person in all lives, as the parameter of Gaussian differential privacy; infinite without privacy.

    Of a shuffled policy it is the parameter of the Gaussian that stands for it; ``loss`` says what holds.
    """
    loss: Loss
    """Spent on one person in all lives, so that it can be put together with what other policies spend."""
    history: tuple[Point, ...]
    """The newest releases, oldest first."""
    modes: tuple[ModeChange, ...]
    """The newest changes of mode, oldest first."""
    explanation: Mapping[str, Any] | None
    """Every feature with its released weight; None for a policy that estimates none, or without privacy."""


def composed(mus: Iterable[float]) -> float:
    """Gaussian-DP parameter of everything that was spent on somebody who is in all policies: sqrt of sum mu^2."""
    return math.sqrt(sum(mu * mu for mu in mus))


def is_current(seen: Published, policy: Policy, releases: int, modes: tuple[ModeChange, ...]) -> bool:
    """Whether all but the number of decisions would be the same in a copy that is made now.

    A function of what is public, and never of the time since the last copy: that would tell of requests in between.
    """
    if seen.releases != releases or seen.modes is not modes:
        return False
    if not isinstance(policy, PrivatePolicy):
        return True
    horizon = policy.setting.horizon  # a report says by how many decisions a policy has outlived it
    return len(policy.ledger.entries) == len(seen.privacy["entries"]) and (
        horizon is None or policy.decisions <= horizon
    )


def publish(
    policy: Policy,
    mode: Mode,
    releases: int,
    history: tuple[Point, ...],
    modes: tuple[ModeChange, ...] = (),
    earlier: Published | None = None,
    *,
    lives: int = 1,
) -> Published:
    """The copy that others see from now on; everything in the policy must be committed.

    What follows from releases alone is taken from an ``earlier`` copy when nothing was released since.  ``lives`` says
    in how many of them a person's decisions may count (`tacit.service.lives`).
    """
    report = policy.privacy
    loss = loss_of(report, lives)
    same = earlier is not None and earlier.releases == releases
    return Published(
        mode=mode,
        decisions=policy.decisions,
        releases=releases,
        estimate=tuple(policy.estimate.tolist()) if isinstance(policy, PrivatePolicy) else None,
        privacy=report_across(report, loss, lives),
        spent_mu=mu_across(report, lives),
        loss=loss,
        history=history,
        modes=modes,
        explanation=earlier.explanation if same and earlier is not None else _explained(policy),
    )


def _explained(policy: Policy) -> Mapping[str, Any] | None:
    """The features that a private policy believes to matter: a function of its releases."""
    if not isinstance(policy, PrivatePolicy) or policy.belief is None:
        return None
    return policy.explain().to_json()
