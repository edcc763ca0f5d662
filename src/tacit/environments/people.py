"""The people of a trial, who come in random order: their records are real, what they would earn is a fitted model.

A trial tells what one arm earned of each person.  What the other arms would have earned comes from a model of the
outcome, and is known here alone: policies see the rows that a schema makes of the records, and rewards that are drawn
with the model's means.

The model is logistic, in (arm, traits, scale x arm x traits) with standardised traits and a ridge of 1, so that
``scale`` is the standard deviation that is expected of the differences between arms from person to person, in log-odds.
At 0 all people have the same best arm.  Among several scales it is the largest one whose loss on held-out people is
within a standard error of the smallest loss: as much to personalise as the trial does not speak against (the rule of
one standard error, Breiman et al. 1984, turned towards the richer model, so that it asks more of policies).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from tacit.environments.registry import EnvironmentSetting, Rounds, register_environment
from tacit.errors import InvalidInput
from tacit.glm.likelihood import fit
from tacit.glm.links import get_link
from tacit.typing import FloatArray, IntArray

SCALES: Final = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Scales of the differences between people that are tried."""
_FOLDS: Final = 10
_RIDGE: Final = 1.0
_BLOCK: Final = 1_024
"""People who are encoded at once, at most: sorting them into blocks of a few costs more than playing."""
_BLOCK_NUMBERS: Final = 1 << 20


class Outcomes(NamedTuple):
    """Mean reward of every arm for every person, and the scale that was chosen.

    Parameters
    ----------
    means : array, shape (N, K)
        Mean rewards.
    scale : float
        Standard deviation of the differences between arms from person to person, in log-odds.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments import Outcomes
    >>> Outcomes(np.full((3, 2), 0.5), 0.0).means.shape
    (3, 2)
    """

    means: FloatArray
    scale: float


class People(NamedTuple):
    """People with their true mean rewards.

    Parameters
    ----------
    users : mapping
        A column for each thing that is known of people, N lines.
    arms : tuple of mappings
        A record for each of the K arms.
    means : array, shape (N, K)
        Mean reward of each arm for each person.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments import People
    >>> arms = ({"drug": "A"}, {"drug": "B"})
    >>> people = People({"old": np.array([True, False])}, arms, np.array([[0.2, 0.6], [0.4, 0.3]]))
    >>> round(people.random_value, 3), round(people.best_value, 3), people.arm_values.round(3).tolist()
    (0.375, 0.5, [0.3, 0.45])
    """

    users: Mapping[str, Any]
    arms: tuple[Mapping[str, Any], ...]
    means: FloatArray

    @property
    def random_value(self) -> float:
        """Mean reward of arms that are chosen uniformly."""
        return float(self.means.mean())

    @property
    def best_value(self) -> float:
        """Mean reward of the best arm for each person."""
        return float(self.means.max(axis=1).mean())

    @property
    def arm_values(self) -> FloatArray:
        """Mean reward of each arm, given to everybody."""
        return np.asarray(self.means.mean(axis=0))


def fitted_outcomes(traits: FloatArray, given: IntArray, rewards: FloatArray, arms: int) -> Outcomes:
    """Return what every arm would earn of every person, by a model that is fitted to a trial.

    Parameters
    ----------
    traits : array, shape (N, p)
        Numbers that describe people.
    given : array of int, shape (N,)
        The arm of each, below ``arms``.
    rewards : array, shape (N,)
        What it earned, in [0, 1].
    arms : int
        Number of arms, K.

    Returns
    -------
    Outcomes
        Mean rewards, and the scale that was chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments import fitted_outcomes
    >>> rng = np.random.default_rng(0)
    >>> old, drug = rng.random((400, 1)) < 0.5, rng.integers(2, size=400)
    >>> cured = (old[:, 0] == drug).astype(float)  # each drug cures the others
    >>> found = fitted_outcomes(old.astype(float), drug, cured, 2)
    >>> bool(np.all((found.means[:, 1] > found.means[:, 0]) == old[:, 0]))
    True
    """
    spread = traits.std(axis=0)
    standard = ((traits - traits.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0))[:, spread > 0.0]
    losses = [_held_out(standard, _one_hot(given, arms), rewards, scale) for scale in SCALES]
    least = min(losses, key=lambda loss: float(loss.mean()))
    scale = max(scale for scale, loss in zip(SCALES, losses, strict=True) if _is_close(loss - least))
    theta = fit("logistic", _design(standard, _one_hot(given, arms), scale), rewards, ridge=_RIDGE).theta
    everybody = [_one_hot(np.full(given.size, arm), arms) for arm in range(arms)]
    means = [get_link("logistic").mean(_design(standard, arm, scale) @ theta) for arm in everybody]
    return Outcomes(np.stack(means, axis=1), scale)


def _is_close(excess: FloatArray) -> bool:
    """Whether the mean of held-out losses is above the least one by at most a standard error."""
    return float(excess.mean()) <= float(excess.std()) / math.sqrt(excess.size)


def _one_hot(given: IntArray, arms: int) -> FloatArray:
    return np.asarray(np.eye(arms)[given])


def _design(traits: FloatArray, arms: FloatArray, scale: float) -> FloatArray:
    crossed = (arms[:, :, np.newaxis] * traits[:, np.newaxis, :]).reshape(len(traits), -1)
    return np.hstack([arms, traits, scale * crossed])


def _held_out(traits: FloatArray, arms: FloatArray, rewards: FloatArray, scale: float) -> FloatArray:
    """Loss of each person's reward under the model that was fitted without that person's tenth."""
    rows, scores = _design(traits, arms, scale), np.empty(rewards.size)
    folds = np.random.default_rng(0).permutation(rewards.size) % _FOLDS
    for fold in range(_FOLDS):
        rest, out = folds != fold, folds == fold
        scores[out] = rows[out] @ fit("logistic", rows[rest], rewards[rest], ridge=_RIDGE).theta
    return np.asarray(np.logaddexp(0.0, scores) - rewards * scores)


def register_people(name: str, summary: str, find: Callable[[], People]) -> None:
    """Register people as an environment; they are found when its first round is drawn.

    Parameters
    ----------
    name : str
        What the environment is called.
    summary : str
        One sentence about it.
    find : callable
        Returns the people.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.environments import People, make_environment, register_people
    >>> from tacit.features import Category, Flag, Schema
    >>> schema = Schema(user=[Flag("old")], arm=[Category("drug", ["A", "B"])], per_arm="drug")
    >>> arms = ({"drug": "A"}, {"drug": "B"})
    >>> people = People({"old": np.array([True, False])}, arms, np.array([[0.2, 0.6], [0.4, 0.3]]))
    >>> register_people("two-people", "Two people.", lambda: people)
    >>> world = make_environment(
    ...     link="logistic", dim=4, arms=2, horizon=6, theta_norm=1.0, contexts="two-people", schema=schema
    ... )
    >>> [block.regrets.sum(axis=0).round(1).tolist() for block in world.blocks(np.random.default_rng(0))]
    [[0.4, 0.1], [0.4, 0.1], [0.4, 0.1]]
    """

    def generate(rng: np.random.Generator, setting: EnvironmentSetting) -> Iterator[Rounds]:
        return _rounds(rng, setting, find())

    generate.__doc__ = summary
    register_environment(name)(generate)


def _rounds(rng: np.random.Generator, setting: EnvironmentSetting, people: People) -> Iterator[Rounds]:
    """Everybody once in random order, then again in another one, and so on."""
    if setting.schema is None:
        raise InvalidInput("people have records, not rows: give a schema of them")
    size = min(_BLOCK, max(1, _BLOCK_NUMBERS // (setting.dim * setting.arms)))
    fields = [field.name for field in setting.schema.user]
    crowd, arms = len(people.means), list(people.arms)
    for _ in range(0, setting.horizon, crowd):
        order = rng.permutation(crowd)
        for start in range(0, crowd, size):
            lines = order[start : start + size]
            users = {name: people.users[name][lines] for name in fields} if fields else [{}] * lines.size
            yield Rounds(setting.schema.encode(users, arms), people.means[lines])
