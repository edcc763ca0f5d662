"""A news site: five categories of articles, readers with age, device and hour, and few clicks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from tacit.environments.registry import register_environment
from tacit.environments.setting import EnvironmentSetting, Rounds
from tacit.errors import InvalidInput
from tacit.glm.shifted import ShiftedLink
from tacit.typing import FloatArray

CATEGORIES: Final = 5
TRAITS: Final = 5
"""Of a reader, the constant included: 1, young, old, on a phone, in the evening."""
BASE_RATE: Final = 0.08
"""Clicks of an article that is neither better nor worse than others."""
_YOUNG, _OLD, _PHONE, _EVENING = 0.3, 0.3, 0.6, 0.4
"""Shares of readers."""
_LONGEST: Final = 2.0
"""Norm of the longest reader, (1, 1, 0, 1, 1): nobody is both young and old."""
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
