"""Synthetic instances: the paper's, a fixed arm set, contexts that open up late, and the lower bound's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit._validate import integer_at_least, positive
from tacit.errors import InvalidInput
from tacit.glm.links import Link, get_link, mean, sample_reward
from tacit.linalg.solve import dot
from tacit.typing import FloatArray

SHIFT_SCALE = 0.02
"""What `shift` multiplies the last coordinate by in the first half of the horizon."""
_BLOCK_NUMBERS = 1 << 17


class Block(NamedTuple):
    """Consecutive rounds: contexts (n, K, d); rewards and regrets (n, K) of every arm, chosen or not."""

    contexts: FloatArray
    rewards: FloatArray
    regrets: FloatArray


@dataclass(frozen=True)
class Environment:
    """A distribution over instances; ``instance`` draws one and plays it round by round.

    Rewards are drawn with one uniform number for each round, shared by all arms, so that two policies that
    choose the same arm in the same round of the same run see the same reward.
    """

    link: Link
    dim: int
    arms: int
    horizon: int
    theta_norm: float
    contexts: str = "ball"
    reward_bound: float | None = None

    def __post_init__(self) -> None:
        integer_at_least("dim", self.dim, 1)
        integer_at_least("arms", self.arms, 1)
        integer_at_least("horizon", self.horizon, 1)
        positive("theta_norm", self.theta_norm)
        if self.contexts not in CONTEXT_KINDS:
            raise InvalidInput(f"contexts must be one of {', '.join(CONTEXT_KINDS)}, not {self.contexts!r}")
        positive("reward_bound", self.largest_reward)

    @property
    def largest_reward(self) -> float:
        """R: the public bound on rewards, by default what the link suggests for parameters of this norm."""
        return self.link.simulated_reward_bound(self.theta_norm) if self.reward_bound is None else self.reward_bound

    def blocks(self, rng: np.random.Generator) -> Iterator[Block]:
        """Draw an instance and yield its rounds in blocks that fit the cache."""
        theta = self._draw_theta(rng)
        kind = CONTEXT_KINDS[self.contexts]
        fixed = kind.fixed_arms(self, rng) if kind.fixed_arms else None
        count = self.arms if fixed is None else fixed.shape[0]
        size = max(16, _BLOCK_NUMBERS // (count * self.dim))
        for start in range(0, self.horizon, size):
            rounds = min(size, self.horizon - start)
            contexts = uniform_ball(rng, rounds, count, self.dim) if fixed is None else np.tile(fixed, (rounds, 1, 1))
            if kind.narrow_first_half:
                narrow = max(0, min(rounds, self.horizon // 2 - start))
                contexts[:narrow, :, -1] *= SHIFT_SCALE
            yield self._outcomes(rng, theta, contexts)

    def _draw_theta(self, rng: np.random.Generator) -> FloatArray:
        if self.contexts == "assouad":
            # Perturbations of d / sqrt(T) along each axis: too small to tell apart early, too large to ignore.
            size = min(self.dim / math.sqrt(self.horizon), self.theta_norm / math.sqrt(self.dim))
            return size * rng.choice([-1.0, 1.0], size=self.dim)
        direction = rng.standard_normal(self.dim)
        return self.theta_norm * direction / float(np.linalg.norm(direction))

    def _outcomes(self, rng: np.random.Generator, theta: FloatArray, contexts: FloatArray) -> Block:
        rounds, count = contexts.shape[:2]
        rewards, regrets = np.empty((rounds, count)), np.empty((rounds, count))
        uniforms = rng.random((rounds,))
        if self.link.has_negative_means:
            orient(contexts, theta)
        fill_outcomes(self.link.code, self.largest_reward, theta, contexts, uniforms, rewards, regrets)
        return Block(contexts, rewards, regrets)


def uniform_ball(rng: np.random.Generator, rounds: int, arms: int, dim: int) -> FloatArray:
    """Arms drawn uniformly from the unit ball, shape (rounds, arms, dim)."""
    points = rng.standard_normal((rounds, arms, dim))
    scale_to_ball(points, rng.random((rounds, arms)))
    return points


@kernel
def scale_to_ball(points: FloatArray, uniforms: FloatArray) -> None:
    """Turn Gaussian vectors into uniform points of the ball: radius U^(1/d)."""
    power = 1.0 / points.shape[2]
    for t in range(points.shape[0]):
        for k in range(points.shape[1]):
            radius = uniforms[t, k] ** power / math.sqrt(dot(points[t, k], points[t, k]))
            for i in range(points.shape[2]):
                points[t, k, i] *= radius


@kernel
def orient(contexts: FloatArray, theta: FloatArray) -> None:
    """Flip arms of negative score, for links whose mean is negative there: rewards must lie in [0, R]."""
    for t in range(contexts.shape[0]):
        for k in range(contexts.shape[1]):
            if dot(contexts[t, k], theta) < 0.0:
                for i in range(contexts.shape[2]):
                    contexts[t, k, i] = -contexts[t, k, i]


@kernel
def fill_outcomes(
    link: int,
    bound: float,
    theta: FloatArray,
    contexts: FloatArray,
    uniforms: FloatArray,
    rewards: FloatArray,
    regrets: FloatArray,
) -> None:
    """Reward and regret of every arm in every round."""
    for t in range(contexts.shape[0]):
        best = -np.inf
        for k in range(contexts.shape[1]):
            expected = mean(link, dot(contexts[t, k], theta))
            regrets[t, k] = expected
            best = max(best, expected)
            rewards[t, k] = sample_reward(link, expected, bound, uniforms[t])
        for k in range(contexts.shape[1]):
            regrets[t, k] = best - regrets[t, k]


def _ball_arms(environment: Environment, rng: np.random.Generator) -> FloatArray:
    return uniform_ball(rng, 1, environment.arms, environment.dim).reshape(environment.arms, environment.dim)


def _axis_arms(environment: Environment, rng: np.random.Generator) -> FloatArray:
    """The arms +-r e_j of the lower bound, with r = 1: ``arms`` is then 2 d, whatever was asked for."""
    axes = np.eye(environment.dim)
    return np.concatenate([axes, -axes])


class ContextKind(NamedTuple):
    """How the arms of a round come about."""

    summary: str
    fixed_arms: Callable[[Environment, np.random.Generator], FloatArray] | None = None
    narrow_first_half: bool = False


CONTEXT_KINDS: Mapping[str, ContextKind] = MappingProxyType(
    {
        "ball": ContextKind("arms uniform in the unit ball, fresh every round"),
        "fixed": ContextKind("one such draw for the whole run", fixed_arms=_ball_arms),
        "shift": ContextKind("as ball; the last coordinate is tiny in the first half", narrow_first_half=True),
        "assouad": ContextKind("the arms +-e_j of the lower bound", fixed_arms=_axis_arms),
    }
)


def make_environment(
    *, link: str, dim: int, arms: int, horizon: int, theta_norm: float, contexts: str = "ball"
) -> Environment:
    """An environment by the names that the command line uses."""
    return Environment(get_link(link), dim, arms, horizon, theta_norm, contexts)
