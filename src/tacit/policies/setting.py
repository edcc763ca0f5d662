"""The public constants of a problem, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit._validate import integer_at_least, positive
from tacit.errors import InvalidInput
from tacit.glm.links import Link, get_link
from tacit.privacy.budget import Budget


@dataclass(frozen=True)
class Setting:
    """What everybody may know: dimension, horizon, link, bounds, privacy budget.

    ``kappa`` and ``kappa_star`` are 1 / min and 1 / max of the link's derivative over [-theta_bound, theta_bound],
    unless the caller knows tighter public values.
    """

    dim: int
    horizon: int | None
    link: Link
    theta_bound: float
    reward_bound: float
    kappa: float
    kappa_star: float
    budget: Budget | None

    @property
    def max_derivative(self) -> float:
        """Largest weight mu' that a row can have."""
        return 1.0 / self.kappa_star

    @property
    def private(self) -> bool:
        """Whether a privacy budget was given."""
        return self.budget is not None


def make_setting(
    *,
    dim: int,
    horizon: int | None,
    link: str | Link,
    theta_bound: float,
    reward_bound: float | None,
    kappa: float | None,
    kappa_star: float | None,
    budget: Budget | None,
) -> Setting:
    """Check the public constants and derive the rest."""
    integer_at_least("dim", dim, 1)
    if horizon is not None:
        integer_at_least("horizon", horizon, 1)
    positive("theta_bound", theta_bound)
    resolved = get_link(link) if isinstance(link, str) else link
    bound = resolved.default_reward_bound if reward_bound is None else reward_bound
    positive("reward_bound", bound)
    return Setting(
        dim=int(dim),
        horizon=None if horizon is None else int(horizon),
        link=resolved,
        theta_bound=float(theta_bound),
        reward_bound=float(bound),
        kappa=_tighter("kappa", kappa, resolved.kappa(theta_bound)),
        kappa_star=_tighter("kappa_star", kappa_star, resolved.kappa_star(theta_bound)),
        budget=budget,
    )


def _tighter(name: str, given: float | None, derived: float) -> float:
    if given is None:
        return derived
    positive(name, given)
    if not math.isfinite(given):
        raise InvalidInput(f"{name} must be finite, not {given}")
    return float(given)
