"""A public base rate: a link whose score 0 means a given mean reward.

mu_b(z) = mu(z + o) with mu(o) = b.  Where rewards are rare, most of theta's length would otherwise be spent on saying
so, in a feature that is the same for every arm.  Everything that is known of a link is known of the shifted one:
derivatives, bounds and inflections are those of mu over [o - S, o + S], which is not symmetric (docs/theory.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.glm.link import MAX_SCORE, Link
from tacit.typing import FloatArray

_LEAST_SLOPE = 1e-6
"""mu'(o) / mu(o): closer to the largest mean, differences of means, which secants are made of, would be rounding."""


@dataclass(frozen=True, slots=True)
class ShiftedLink(Link):
    """mu(z + ``offset``) for the mean mu of ``base``; two of the same base and offset are equal."""

    base: Link
    offset: float

    @property
    def name(self) -> str:
        """Name of the base link with the base rate; no table of bounds has it."""
        return f"{self.base.name} at base rate {float(self.mean(0.0)):.6g}"

    @property
    def default_reward_bound(self) -> float:  # type: ignore[override]
        """Default reward bound of the base link."""
        return self.base.default_reward_bound

    @property
    def clips_rewards(self) -> bool:  # type: ignore[override]
        """Whether the base link clips rewards."""
        return self.base.clips_rewards

    @property
    def max_score(self) -> float:
        """Largest score of the base link, less the offset."""
        return self.base.max_score - abs(self.offset)

    @property
    def has_negative_means(self) -> bool:
        """Whether the base link has negative means."""
        return self.base.has_negative_means

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        """mu(z + o), elementwise."""
        return self.base.mean(self._moved(scores))

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        """mu'(z + o), elementwise."""
        return self.base.derivative(self._moved(scores))

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        """Antiderivative of mu at z + o, elementwise."""
        return self.base.antiderivative(self._moved(scores))

    def mean_at(self, z: float) -> float:
        """mu(z + o)."""
        return self.base.mean_at(z + self.offset)

    def derivative_at(self, z: float) -> float:
        """mu'(z + o)."""
        return self.base.derivative_at(z + self.offset)

    def antiderivative_at(self, z: float) -> float:
        """Antiderivative of mu at z + o."""
        return self.base.antiderivative_at(z + self.offset)

    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        """Bound on the variance of a reward with the mean mu(z + o)."""
        return self.base.variance_bound(self._moved(scores), reward_bound)

    def draw_rewards(self, means: npt.ArrayLike, reward_bound: float, uniforms: npt.ArrayLike) -> FloatArray:
        """Rewards of the base with these means."""
        return self.base.draw_rewards(means, reward_bound, uniforms)

    @property
    def inflections(self) -> tuple[float, ...]:
        """Inflections of the base link, moved by the offset: scores around 0 may all lie on one side of them."""
        return tuple(z - self.offset for z in self.base.inflections)

    def curvature_between(self, low: float, high: float) -> float:
        """Curvature bound of the base link over [low + o, high + o]."""
        return self.base.curvature_between(low + self.offset, high + self.offset)

    def curvature_bound(self, theta_bound: float) -> float:
        """Curvature bound of the base link over [o - S, o + S]."""
        bound = self._checked_bound(theta_bound)
        return self.curvature_between(-bound, bound)

    def simulated_reward_bound(self, theta_norm: float) -> float:
        """Reward bound of the base link for scores up to S + o, or up to 0 where those are negative."""
        return self.base.simulated_reward_bound(max(theta_norm + self.offset, 0.0))

    def _moved(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(np.asarray(scores, dtype=np.float64) + self.offset)


def with_base_rate(link: Link, base_rate: float | None, reward_bound: float = math.inf) -> Link:
    """The link whose mean at score 0 is ``base_rate``; ``link`` itself where it is so already, and without a base rate.

    ``reward_bound`` is R: a base rate is the mean of some reward in [0, R].
    """
    if base_rate is None:
        return link
    low, high = max(0.0, float(link.mean(-MAX_SCORE))), min(reward_bound, float(link.mean(MAX_SCORE)))
    if not low < base_rate < high:
        raise InvalidInput(
            f"base_rate must lie strictly between {round(low, 12):g} and {high:g} with the link {link.name}, "
            f"got {base_rate}"
        )
    offset = link.score_of(base_rate)
    if not float(link.derivative(offset)) >= _LEAST_SLOPE * base_rate:
        raise InvalidInput(f"base_rate = {base_rate} is too close to the largest mean of the link {link.name}")
    return link if offset == 0.0 else ShiftedLink(link, offset)
