"""Synthetic instances: the paper's, a fixed arm set, contexts that open up late, the lower bound's, and a news site."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from tacit.environments.registry import EnvironmentSetting, Rounds, register_environment
from tacit.errors import InvalidInput
from tacit.glm.shifted import ShiftedLink
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
    """Arms uniform in the unit ball, whose last coordinate is tiny in the first half of the horizon."""
    theta, narrow = setting.draw_theta(rng), setting.horizon // 2
    for rounds in setting.block_sizes():
        contexts = uniform_ball(rng, rounds, setting.arms, setting.dim)
        contexts[: max(0, narrow), :, -1] *= SHIFT_SCALE
        narrow -= rounds
        yield setting.rounds(contexts, theta)


@register_environment("assouad", arms=lambda dim: 2 * dim)
def assouad(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Rounds]:
    """The arms +-e_j of the lower bound, with its small theta*; there are always 2 d."""
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
    """Arms with separate parameters: each has a block of the features of one user, (1, Gaussian), of norm 1."""
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


# A news site

CATEGORIES: Final = 5
TRAITS: Final = 5
"""Features of a reader, the constant included: 1, young, old, on a phone, in the evening."""
BASE_RATE: Final = 0.08
"""Clicks of an article that is neither better nor worse than others."""
_YOUNG, _OLD, _PHONE, _EVENING = 0.3, 0.3, 0.6, 0.4
"""Shares of readers."""
_LONGEST: Final = 2.0
"""Norm of the longest reader, (1, 1, 0, 1, 1): no reader is both young and old."""
_SPREAD: Final = math.sqrt((1.0 + _YOUNG + _OLD + _PHONE + _EVENING) / (_LONGEST**2 * CATEGORIES))
"""Length of the deviations of d = 5 in units of theta_norm: log-odds are then as different as with d = 25."""


def _check(setting: EnvironmentSetting) -> None:
    if setting.dim not in (CATEGORIES, CATEGORIES * TRAITS):
        raise InvalidInput(
            f"the environment 'news' has dim 5 (one feature for each category) or 25 (each category crossed with 1, "
            f"young, old, phone, evening), not {setting.dim}"
        )
    link = setting.link.base if isinstance(setting.link, ShiftedLink) else setting.link
    if link.name != "logistic":
        raise InvalidInput(f"the environment 'news' has clicks of the logistic link, not of {link.name!r}")


@register_environment("news", arms=lambda dim: CATEGORIES, check=_check)
def news(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Rounds]:
    """Five categories of articles, readers with age, device and hour, about 8% clicks; d is 5 or 25, the link logistic.

    With d = 25 the features of an article are its category crossed with the reader: five blocks, of which the block of
    the category holds (1, young, old, phone, evening) / 2, and all others 0.  With d = 5 they are the category alone,
    and readers do not differ.  Each round has one article of every category, in random order.

    The log-odds of a click are logit(0.08) + <x, theta>, with deviations theta in a direction that is drawn anew for
    each run, of length ``theta_norm`` for d = 25 and 0.36 ``theta_norm`` for d = 5.  With ``theta_norm`` 3 the best
    article for each reader is clicked in 13 to 14% of all rounds, a random one in about 8.5%.

    A policy that is told the base rate, which may be another than 0.08, has to learn theta alone.  To any other the
    world is linear too, since every block has a constant, but the parameter is longer: its constants hold logit(0.08)
    = -2.44, which makes a length of about sqrt(119 + theta_norm^2), 11.3 for ``theta_norm`` 3, with d = 25, and of 5.6
    with d = 5.
    """
    # A link that is shifted to a base rate, this site's or another one, has it at score 0.
    base = 0.0 if isinstance(setting.link, ShiftedLink) else math.log(BASE_RATE / (1.0 - BASE_RATE))
    wide = setting.dim > CATEGORIES
    theta = (1.0 if wide else _SPREAD) * setting.draw_theta(rng)
    for rounds in setting.block_sizes(CATEGORIES):
        traits = readers(rng, rounds) / _LONGEST if wide else np.ones((rounds, 1))
        order = np.argsort(rng.random((rounds, CATEGORIES)), axis=1)
        contexts = np.einsum("rcb,rt->rcbt", np.eye(CATEGORIES)[order], traits)
        contexts = contexts.reshape(rounds, CATEGORIES, setting.dim)
        yield Rounds(contexts, setting.link.mean(base + contexts @ theta))


def readers(rng: np.random.Generator, count: int) -> FloatArray:
    """Readers as (1, young, old, phone, evening), shape (count, 5)."""
    age, phone, evening = rng.random((3, count))
    traits = [np.ones(count), age < _YOUNG, age >= 1.0 - _OLD, phone < _PHONE, evening < _EVENING]
    return np.stack(traits, axis=1).astype(np.float64)
