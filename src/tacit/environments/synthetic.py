"""Synthetic instances: the paper's, a fixed arm set, contexts that open up late, and the lower bound's."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tacit.environments.registry import register_environment
from tacit.environments.setting import EnvironmentSetting, Rounds
from tacit.errors import InvalidInput
from tacit.typing import FloatArray

SHIFT_SCALE = 0.02
"""What `shift` multiplies the last coordinate by in the first half of the horizon."""


@register_environment("ball")
def ball(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Rounds]:
    """Arms uniform in the unit ball, fresh every round."""
    theta = setting.draw_theta(rng)
    for rounds in setting.block_sizes():
        yield setting.rounds(uniform_ball(rng, rounds, setting.arms, setting.dim), theta)


@register_environment("fixed")
def fixed(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Rounds]:
    """One draw of arms from the unit ball for the whole run."""
    theta = setting.draw_theta(rng)
    arms = uniform_ball(rng, 1, setting.arms, setting.dim)
    for rounds in setting.block_sizes():
        yield setting.rounds(np.tile(arms, (rounds, 1, 1)), theta)


@register_environment("shift")
def shift(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Rounds]:
    """As ball, with a last coordinate that is tiny in the first half."""
    theta, narrow = setting.draw_theta(rng), setting.horizon // 2
    for rounds in setting.block_sizes():
        contexts = uniform_ball(rng, rounds, setting.arms, setting.dim)
        contexts[: max(0, narrow), :, -1] *= SHIFT_SCALE
        narrow -= rounds
        yield setting.rounds(contexts, theta)


@register_environment("assouad", arms=lambda dim: 2 * dim)
def assouad(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Rounds]:
    """The arms +-e_j of the lower bound, with its own small theta*; there are 2 d, whatever was asked for."""
    theta, axes = assouad_theta(rng, setting), np.eye(setting.dim)
    arms = np.concatenate([axes, -axes])
    for rounds in setting.block_sizes(arms.shape[0]):
        yield setting.rounds(np.tile(arms, (rounds, 1, 1)), theta)


def _check_blocks(setting: EnvironmentSetting) -> None:
    if setting.dim % setting.arms != 0:
        raise InvalidInput(
            f"the environment 'blocks' has parameters of their own for each arm: dim must be a multiple of "
            f"arms={setting.arms}, not {setting.dim}"
        )


@register_environment("blocks", check=_check_blocks)
def blocks(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Rounds]:
    """Arms with parameters of their own: each has a block of the features of one user, (1, Gaussian), of norm 1."""
    theta, arms = setting.draw_theta(rng), setting.arms
    size = setting.dim // arms
    for rounds in setting.block_sizes():
        users = rng.standard_normal((rounds, size))
        users[:, 0] = 1.0
        users /= np.linalg.norm(users, axis=1, keepdims=True)
        contexts = np.zeros((rounds, arms, arms, size))
        for arm in range(arms):
            contexts[:, arm, arm] = users
        yield setting.rounds(contexts.reshape(rounds, arms, setting.dim), theta)


def assouad_theta(rng: np.random.Generator, setting: EnvironmentSetting) -> FloatArray:
    """Perturbations of d / sqrt(T) along each axis: too small to tell apart early, too large to ignore."""
    size = min(setting.dim / math.sqrt(setting.horizon), setting.theta_norm / math.sqrt(setting.dim))
    return size * rng.choice([-1.0, 1.0], size=setting.dim)


def uniform_ball(rng: np.random.Generator, rounds: int, arms: int, dim: int) -> FloatArray:
    """Arms drawn uniformly from the unit ball, shape (rounds, arms, dim)."""
    points = rng.standard_normal((rounds, arms, dim))
    squares = np.zeros((rounds, arms))
    for feature in range(dim):  # in this order: the same bits on every machine
        squares += points[:, :, feature] * points[:, :, feature]
    radius = np.float_power(rng.random((rounds, arms)), 1.0 / dim)  # the C library's: `**` differs between processors
    points *= (radius / np.sqrt(squares))[:, :, np.newaxis]
    return points
