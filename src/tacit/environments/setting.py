"""The setting of an environment, and the rounds that it yields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tacit._validate import integer_at_least, positive
from tacit.features import Schema
from tacit.glm.links import Link
from tacit.typing import FloatArray

_BLOCK_NUMBERS = 1 << 17
"""Numbers in a block of contexts: the cache holds them."""


class Rounds(NamedTuple):
    """Consecutive rounds by their means: contexts (n, K, d) and the mean reward (n, K) of every arm."""

    contexts: FloatArray
    means: FloatArray


class Block(NamedTuple):
    """Consecutive rounds: contexts (n, K, d); rewards and regrets (n, K) of every arm, chosen or not."""

    contexts: FloatArray
    rewards: FloatArray
    regrets: FloatArray


@dataclass(frozen=True)
class EnvironmentSetting:
    """Public parameters of a simulated instance: link, dimension, arms, horizon, norm of theta*, reward bound."""

    link: Link
    """Link of the rewards: ``link.mean(scores)`` are means, ``link.draw_rewards`` draws."""
    dim: int
    """Features of an arm, d."""
    arms: int
    """Arms in each round, K."""
    horizon: int
    """Rounds, T."""
    theta_norm: float
    """Length of theta*, S."""
    reward_bound: float | None = field(default=None, kw_only=True)
    """R; None for the link's default (``largest_reward``)."""
    schema: Schema | None = field(default=None, kw_only=True)
    """Schema of users and arms, for environments that simulate one."""

    def __post_init__(self) -> None:
        integer_at_least("dim", self.dim, 1)
        integer_at_least("arms", self.arms, 1)
        integer_at_least("horizon", self.horizon, 1)
        positive("theta_norm", self.theta_norm)
        positive("reward_bound", self.largest_reward)

    @property
    def largest_reward(self) -> float:
        """R: the public bound on rewards, by default what the link suggests for parameters of this norm."""
        return self.link.simulated_reward_bound(self.theta_norm) if self.reward_bound is None else self.reward_bound

    def draw_theta(self, rng: np.random.Generator) -> FloatArray:
        """theta*, uniform on the sphere of radius ``theta_norm``."""
        direction = rng.standard_normal(self.dim)
        return self.theta_norm * direction / float(np.linalg.norm(direction))

    def block_sizes(self, arms: int | None = None) -> Iterator[int]:
        """Rounds of each block: as many as fit the cache, and ``horizon`` in all."""
        size = max(16, _BLOCK_NUMBERS // ((arms or self.arms) * self.dim))
        for start in range(0, self.horizon, size):
            yield min(size, self.horizon - start)

    def rounds(self, contexts: FloatArray, theta: FloatArray) -> Rounds:
        """Rounds whose mean rewards are those of the link at the scores <x, theta>.

        Where the link's mean would be negative, as the identity's, arms of negative score change their sign, in place:
        rewards lie in [0, R].
        """
        means = scores(contexts, theta)
        if self.link.has_negative_means:
            np.negative(contexts, out=contexts, where=(means < 0.0)[:, :, np.newaxis])
            means = np.abs(means)
        return Rounds(contexts, self.link.mean(means))


def scores(contexts: FloatArray, theta: FloatArray) -> FloatArray:
    """<x, theta> for every arm of every round, shape (n, K).

    Summed feature by feature: rows and regrets of a seed are the same with every BLAS and however many threads it has.
    """
    total = np.zeros(contexts.shape[:2])
    for feature, weight in enumerate(theta.tolist()):
        total += contexts[:, :, feature] * weight
    return total
