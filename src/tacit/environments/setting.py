"""What an environment is asked for, and what it answers with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tacit._compile import entry
from tacit._validate import integer_at_least, positive
from tacit.features import Schema
from tacit.glm.links import Link, LinkForm, mean
from tacit.linalg.solve import dot, four_dots
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
class Setting:
    """What an environment is asked for."""

    link: Link
    """Of the rewards: ``link.mean(scores)`` are means, ``link.sample_rewards`` draws."""
    dim: int
    """Features of an arm, d."""
    arms: int
    """Arms in each round, K."""
    horizon: int
    """Rounds, T."""
    theta_norm: float
    """Length of theta*, S."""
    reward_bound: float | None = field(default=None, kw_only=True)
    """R, where it is not to be the link's own; see ``largest_reward``."""
    schema: Schema | None = field(default=None, kw_only=True)
    """What is known of users and arms, where they are those of a schema."""

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
        if self.link.has_negative_means:
            orient(contexts, theta)
        means = np.empty(contexts.shape[:2])
        fill_means(self.link.form, theta, contexts, means)
        return Rounds(contexts, means)


@entry
def orient(contexts: FloatArray, theta: FloatArray) -> None:
    """Change the sign of arms whose score is negative."""
    for t in range(contexts.shape[0]):
        for k in range(contexts.shape[1]):
            if dot(contexts[t, k], theta) < 0.0:
                for i in range(contexts.shape[2]):
                    contexts[t, k, i] = -contexts[t, k, i]


@entry
def fill_means(link: LinkForm, theta: FloatArray, contexts: FloatArray, means: FloatArray) -> None:
    """Mean reward of every arm in every round."""
    for t in range(contexts.shape[0]):
        for start in range(0, contexts.shape[1], 4):
            k = start
            for score in four_dots(contexts[t], start, theta):
                if k < contexts.shape[1]:
                    means[t, k] = mean(link, score)
                k += 1
