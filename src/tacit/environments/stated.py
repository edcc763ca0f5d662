"""Worlds in which stated rates hold: what random arms earn, the best arm for everybody, and the best for each user.

A world is a direction of effects, drawn from a prior, and three numbers that the three rates decide: the level of all
rewards, and the sizes of two parts of the direction.  One part says how arms differ for users on average, the other how
users differ from these.  The second one costs most data, so that the rate of one arm for everybody, between the two
others, says more about what privacy will cost than anything else.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares
from scipy.special import expit, logit

from tacit._validate import probability
from tacit.environments.records import contexts_of, offered_arms, sampled_arms
from tacit.errors import InvalidInput
from tacit.features import Category, Flag, Number, Schema
from tacit.features.field import Field
from tacit.typing import FloatArray

MOST_LISTED: Final = 50
"""Arms up to which every combination of what finite fields may say is offered at once."""
_FEWEST_ACTIVE: Final = 0.1
"""The share of coordinates that matter is uniform between this one and 1."""
_NUMBERS: Final = 1 << 22
"""Numbers that a crowd may have."""
_USERS, _FEWEST_USERS = 4_000, 500
_SETS, _FEWEST_SETS, _USERS_OF_A_SET = 100, 20, 120
_TRIES, _CLOSE, _NOTHING = 5, 0.01, 1e-9
_SMALLEST, _LARGEST = -8.0, 4.0
"""Between these are the logarithms of the spreads of log-odds that are tried, and the changes of their level."""


@dataclass(frozen=True)
class StatedRates:
    """Mean rewards as stated: of random arms, of the best arm for each user, and of one arm for everybody."""

    random: float
    best: float
    one_arm: float | None = None
    """Rate of the best choice that does not look at the user; None: not known, anything between the two others."""

    def __post_init__(self) -> None:
        probability("random_rate", self.random)
        probability("best_rate", self.best)
        if not self.best > self.random:
            raise InvalidInput(f"best_rate must be above random_rate={self.random:g}, got {self.best:g}")
        if self.one_arm is not None and not self.random <= self.one_arm <= self.best:
            raise InvalidInput(
                f"one_arm_rate must lie between random_rate={self.random:g} and best_rate={self.best:g}, got "
                f"{self.one_arm:g}"
            )

    def share(self, rng: np.random.Generator) -> float:
        """The share of the gap between random and best that one arm for everybody earns; drawn if it is not known."""
        drawn = rng.beta(2.0, 2.0)
        return drawn if self.one_arm is None else (self.one_arm - self.random) / (self.best - self.random)


class Crowd(NamedTuple):
    """Rows of simulated users, each before every set of arms: shape (sets, users, K, d)."""

    seen: FloatArray
    """What a policy sees."""
    acting: FloatArray
    """What rewards follow: some numbers matter by a threshold, of which a row that is linear in them knows little."""


class Truth(NamedTuple):
    """What an arm earns whose acting row is x: expit(level + <x, theta>)."""

    theta: FloatArray
    level: float

    def means(self, contexts: FloatArray) -> FloatArray:
        """Mean rewards of arms."""
        return np.asarray(expit(self.level + contexts @ self.theta))


def stated_arms(schema: Schema, asked: int | None = None) -> int:
    """Return how many arms a user is offered: as many as are asked for, or those that the schema lists.

    A schema lists its arms by ``per_arm``, or where all fields of arms are categories and flags.
    """
    if not schema.arm:
        raise InvalidInput("the schema has no field of arms: all arms are the same, and there is nothing to choose")
    if schema.per_arm is not None:
        return offered_arms(schema, asked)
    listed = len(_listed(schema)) if asked is None else asked
    if listed < 2:
        raise InvalidInput(
            f"arms must be given: the schema lists no arms, or more than {MOST_LISTED}, so that it does not say how "
            "many a user is offered"
        )
    return listed


def _listed(schema: Schema) -> list[dict[str, Any]]:
    """All combinations of what the fields of arms may say, if they are few."""
    values = [
        field.values if isinstance(field, Category) else (False, True) if isinstance(field, Flag) else ()
        for field in schema.arm
    ]
    names, most = [field.name for field in schema.arm], math.prod(map(len, values))
    return [dict(zip(names, arm, strict=True)) for arm in itertools.product(*values)] if most <= MOST_LISTED else []


@lru_cache(maxsize=2)
def crowd(schema: Schema, arms: int, seed: tuple[int, ...]) -> Crowd:
    """Simulate users, each before every set of arms; kept, since all lives in a world draw their rounds from it.

    A schema that lists its arms has one set of them.
    """
    rng, listed = np.random.default_rng(seed), _listed(schema)
    if len(listed) == arms:
        count = max(_FEWEST_USERS, min(_USERS, _NUMBERS // (arms * schema.dim)))
        people = sampled_users(rng, schema, count)
        acting = _stepped(rng, schema.user, people)
        return Crowd(*(schema.encode(users, listed)[np.newaxis] for users in (people, acting)))
    sets = max(_FEWEST_SETS, min(_SETS, _NUMBERS // (_USERS_OF_A_SET * arms * schema.dim)))
    users = sampled_users(rng, schema, _USERS_OF_A_SET)
    if isinstance(users, Mapping):
        users = {name: np.tile(column, sets) for name, column in users.items()}
    once = sampled_arms(rng, schema, sets, arms)
    offered = {name: np.repeat(column, _USERS_OF_A_SET, axis=0) for name, column in once.items()}
    shape = (sets, _USERS_OF_A_SET, arms, schema.dim)
    acting = _stepped(rng, schema.user, users), _stepped(rng, schema.arm, offered)
    return Crowd(*(contexts_of(schema, *columns).reshape(shape) for columns in ((users, offered), acting)))


def _stepped(rng: np.random.Generator, fields: Sequence[Field], columns: Any) -> Any:
    """Columns of which about half of the numbers are at one of their ends, by a threshold that some users exceed."""
    if not isinstance(columns, Mapping):
        return columns
    acting = dict(columns)
    for field in fields:
        threshold = rng.uniform(0.2, 0.8)
        if isinstance(field, Number) and rng.random() < 0.5:
            column = columns[field.name]
            acting[field.name] = np.where(column > np.quantile(column, threshold), field.high, field.low)
    return acting


def sampled_users(rng: np.random.Generator, schema: Schema, count: int) -> Any:
    """Simulated users who are not uniform: some values are rare and numbers lie around somewhere, field by field."""
    users = schema.sample_users(rng, count)
    return {name: _uneven(rng, column) for name, column in users.items()} if isinstance(users, Mapping) else users


def _uneven(rng: np.random.Generator, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Draw from a column again, its values with odds that are log-normal, or numbers around one of them."""
    if isinstance(column[0], list):  # of tokens
        return column
    values, places = np.unique(column, return_inverse=True)
    if values.size <= MOST_LISTED:
        odds = np.exp(rng.standard_normal(values.size))[places]
    else:
        odds = np.exp(-0.5 * np.square((places / values.size - rng.uniform(0.2, 0.8)) / rng.uniform(0.1, 0.5)))
    return column[rng.choice(column.size, column.size, p=odds / odds.sum())]


def draw_truth(rng: np.random.Generator, people: FloatArray, rates: StatedRates) -> Truth:
    """Draw a world in which the rates hold.

    The prior: a share of the coordinates that is itself uniform between a tenth and all of them has effects, which are
    Gaussian.  Their sizes follow from the rates.  A direction with which the rates cannot hold is drawn again.
    """
    arms = people.shape[2]
    if rates.best > arms * rates.random:
        raise InvalidInput(
            f"best_rate must be at most {arms * rates.random:g}, got {rates.best:g}: no arm earns more than all "
            f"{arms} together, and a random one earns random_rate={rates.random:g}"
        )
    nearest, least = np.zeros(3), math.inf
    for _ in range(_TRIES):
        parts, share = _parts(people, _direction(rng, people.shape[-1])), rates.share(rng)
        if not parts:
            continue
        wanted = np.array([rates.random, rates.best, rates.random + share * (rates.best - rates.random)])
        truth, rewards = _fitted(people, parts, wanted)
        judged = slice(None) if rates.one_arm is not None else slice(len(parts) + 1)
        missed = float(np.max(np.abs(rewards - wanted)[judged])) / (rates.best - rates.random)
        if missed < _CLOSE:
            return truth
        nearest, least = (rewards, missed) if missed < least else (nearest, least)
    stated = "" if rates.one_arm is None else f" and one_arm_rate={rates.one_arm:g}"
    raise InvalidInput(
        f"random_rate={rates.random:g} and best_rate={rates.best:g}{stated} did not hold in any simulated world with "
        f"{arms} arms of this schema; in the nearest one random arms earn {nearest[0]:.3g}, the best ones "
        f"{nearest[1]:.3g}, and one arm for everybody {nearest[2]:.3g}"
    )


def _direction(rng: np.random.Generator, dim: int) -> FloatArray:
    active = rng.random(dim) < rng.uniform(_FEWEST_ACTIVE, 1.0)
    return rng.standard_normal(dim) * active


def _parts(panel: FloatArray, direction: FloatArray) -> list[FloatArray]:
    """Split a direction into how arms differ for users on average, and what leaves that as it is.

    The first part is the projection on the contrasts of average rows between arms; to the second one all arms are
    alike on average.  Both are scaled to a spread of 1 among the arms of a user, and left out if they have none.
    """
    average = panel.mean(axis=1)
    contrasts = (average - average.mean(axis=1, keepdims=True)).reshape(-1, panel.shape[-1])
    _, sizes, basis = np.linalg.svd(contrasts, full_matrices=False)
    basis = basis[sizes > _NOTHING * max(1.0, float(sizes[0]))]
    common = basis.T @ (basis @ direction)
    spreads = [(part, float(np.mean(np.std(panel @ part, axis=2)))) for part in (common, direction - common)]
    return [part / spread for part, spread in spreads if spread > _NOTHING]


def _fitted(panel: FloatArray, parts: list[FloatArray], wanted: FloatArray) -> tuple[Truth, FloatArray]:
    """Find the level and the sizes of the parts with which rewards come nearest to what is wanted, and these rewards.

    Rewards are those of random arms, of the best ones, and of one arm for everybody; without a second part the last one
    is not looked at.
    """
    basis, start = np.array(parts), np.array([0.0, *(-1.0 for _ in parts)])
    scores = panel @ basis.T

    def rewards(numbers: FloatArray) -> FloatArray:
        means = expit(logit(wanted[0]) + numbers[0] + scores @ np.exp(numbers[1:]))
        return np.array([means.mean(), means.max(axis=2).mean(), means.mean(axis=1).max(axis=1).mean()])

    def missed(numbers: FloatArray) -> FloatArray:
        return np.asarray((rewards(numbers) - wanted)[: start.size] / (wanted[1] - wanted[0]))

    bounds = (np.full(start.size, _SMALLEST), np.full(start.size, _LARGEST))
    found = least_squares(missed, start, bounds=bounds).x
    return Truth(np.exp(found[1:]) @ basis, float(logit(wanted[0]) + found[0])), rewards(found)
