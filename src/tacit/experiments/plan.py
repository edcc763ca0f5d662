"""What to expect of `stream-glm`, from a schema and rates that somebody states, before the first user comes.

What is known is the schema, what random arms earn, what the best arm for each user is believed to earn and, if it is
known, what one arm for everybody earns.  What is not known is how rewards depend on features.  So the policy plays in
many worlds in which the rates hold (`tacit.environments.stated`), several times in each, and is told only what a real
site could tell it: the rate of random arms and a bound that follows from rates and schema.  How gains differ between
worlds is what is not known of a site; how they differ between lives in one world is luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from scipy.stats import t as student

from tacit._validate import integer_at_least
from tacit.environments.stated import StatedRates, Truth, crowd, draw_truth, stated_arms
from tacit.errors import InvalidInput
from tacit.experiments.engines import make_engine
from tacit.experiments.results import jsonable
from tacit.features import Schema
from tacit.policies.registry import make_policy
from tacit.typing import FloatArray, IntArray

LIVES: Final = 3
"""Lives in each world, by which luck is told from what differs between worlds."""
COVERED: Final = 0.9
"""Share of worlds, or of lives, that an interval is for."""
_HOPELESS: Final = 10
"""Crowds of users in a row with whom rates do not hold, before they are refused."""
_MARKS_PER_DECADE, _FIRST_MARK, _STRETCH = 20, 100, 2_000


@dataclass(frozen=True)
class Assumptions:
    """What is asked, and what is stated of rewards."""

    random_rate: float
    """What random arms earn, such as 0.09."""
    best_rate: float
    """What the best arm for each user is believed to earn."""
    one_arm_rate: float | None = None
    """What the best arm earns if everybody gets it; None: not known, which makes intervals wider."""
    epsilons: tuple[float, ...] = (1.0, 4.0)
    """Budgets to compare; infinity is no privacy."""
    delta: float = 1e-6
    rounds_per_user: int = 1
    """Visits of one person that epsilon covers together."""
    decisions: int = 20_000
    arms: int | None = None
    """Arms that a user is offered; by default all that the schema lists."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilons", tuple(sorted(set(self.epsilons))))
        integer_at_least("decisions", self.decisions, 10 * _FIRST_MARK)
        integer_at_least("rounds_per_user", self.rounds_per_user, 1)
        if self.arms is not None:
            integer_at_least("arms", self.arms, 2)
        if not self.epsilons or not all(epsilon > 0.0 for epsilon in self.epsilons):
            raise InvalidInput(f"epsilons must be above 0, got {self.epsilons}")
        _ = self.rates

    @property
    def rates(self) -> StatedRates:
        """The rates, which are checked."""
        return StatedRates(self.random_rate, self.best_rate, self.one_arm_rate)


@dataclass(frozen=True)
class Outlook:
    """What is to be expected of one schema at one budget.

    A gain is the share of what the best arms would have earned over random ones until then.
    """

    schema: str
    dim: int
    arms: int
    best_rate: float
    """What the best choice by this schema is believed to earn."""
    theta_bound: float
    """What the policy was told, and is recommended: the median length of the true parameter in the worlds."""
    epsilon: float
    gain: float
    low: float
    high: float
    """Between ``low`` and ``high`` is the mean gain of nine worlds of ten."""
    life_low: float
    life_high: float
    """Between these is the gain of nine single lives of ten."""
    half_from: int | None
    """Decisions from which on the gain is at least half; None: not within the run."""
    most_from: int | None
    """Decisions from which on the gain is at least 80%."""
    curve: tuple[float, ...]
    """The gain until each mark."""
    curve_low: tuple[float, ...]
    curve_high: tuple[float, ...]


@dataclass(frozen=True)
class Plan:
    """What is to be expected, one outlook for each schema and epsilon."""

    assumptions: Assumptions
    marks: tuple[int, ...]
    outlooks: tuple[Outlook, ...]
    worlds: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an infinite epsilon is the word ``inf``."""
        told = asdict(self)
        told["assumptions"]["epsilons"] = [jsonable(epsilon) for epsilon in self.assumptions.epsilons]
        outlooks = [asdict(outlook) | {"epsilon": jsonable(outlook.epsilon)} for outlook in self.outlooks]
        return told | {"outlooks": outlooks}


def plan(
    schemas: Mapping[str, Schema],
    asked: Assumptions,
    *,
    best_rates: Mapping[str, float] | None = None,
    worlds: int = 20,
    seed: int = 0,
    jobs: int = 1,
    on_world: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Play the budgets of ``asked`` in worlds with the stated rates, and tell what each schema may be expected to gain.

    Parameters
    ----------
    schemas : mapping
        Schemas to compare, by name.
    asked : Assumptions
        What is asked, and what is stated of rewards.
    best_rates : mapping, optional
        For schemas by name: what the best choice by them earns, in place of the rate of ``asked``.
    worlds : int, default 20
        Worlds for each schema; at least 4.
    seed : int, default 0
        Seed of all worlds and lives.
    jobs : int, default 1
        Processes at work.
    on_world : callable, optional
        Called with the name of a schema when a world of it has been played.

    Returns
    -------
    Plan
        What is to be expected of each schema at each epsilon.

    Examples
    --------
    >>> from tacit.experiments.plan import Assumptions, plan
    >>> from tacit.features import Category, Flag, Schema
    >>> schema = Schema(user=[Flag("young")], arm=[Category("topic", ["news", "arts"])], per_arm="topic")
    >>> expected = plan({"small": schema}, Assumptions(0.2, 0.3, decisions=1_000, epsilons=(4.0,)), worlds=4)
    >>> [(outlook.schema, outlook.epsilon, outlook.low <= outlook.gain) for outlook in expected.outlooks]
    [('small', 4.0, True)]
    """
    integer_at_least("worlds", worlds, 4)
    if not schemas:
        raise InvalidInput("schemas must have at least one schema")
    marks, tasks, known = _marks(asked.decisions), [], {}
    for name, schema in schemas.items():
        stated = replace(asked, best_rate=(best_rates or {}).get(name, asked.best_rate))
        truths = truths_of(schema, stated, worlds, seed)
        bound = recommended_bound(list(truths.values()))
        known[name] = name, schema.dim, stated_arms(schema, asked.arms), stated.best_rate, bound
        tasks += [
            (name, position, schema, stated, truth, bound, (seed, world))
            for position, (world, truth) in enumerate(truths.items())
        ]
    gains = {name: np.empty((len(asked.epsilons), worlds, LIVES, marks.size)) for name in schemas}
    for name, world, found in make_engine("joblib", jobs).finished(_play, tasks):
        gains[name][:, world] = found
        on_world(name)
    outlooks = [
        _outlook((*known[name], epsilon), marks, *found)
        for name in schemas
        for epsilon, *found in zip(asked.epsilons, gains[name], *intervals(gains[name]), strict=True)
    ]
    return Plan(asked, tuple(marks.tolist()), tuple(outlooks), worlds, seed)


def truths_of(schema: Schema, asked: Assumptions, worlds: int, seed: int) -> dict[int, Truth]:
    """Draw worlds in which the rates hold, by the numbers of their users; users with whom they cannot are left out."""
    arms, found, number = stated_arms(schema, asked.arms), dict[int, Truth](), 0
    while len(found) < worlds:
        try:
            people = crowd(schema, arms, (seed, number))
            found[number] = draw_truth(np.random.default_rng([seed, number]), people.acting, asked.rates)
        except InvalidInput:
            if number >= _HOPELESS * (len(found) + 1):
                raise
        number += 1
    return found


def recommended_bound(truths: Sequence[Truth]) -> float:
    """Return the median length of the true parameter, in halves: gains hardly depend on it near there."""
    return max(0.5, round(2.0 * float(np.median([np.linalg.norm(truth.theta) for truth in truths]))) / 2.0)


def _play(
    name: str, position: int, schema: Schema, asked: Assumptions, truth: Truth, bound: float, seeds: tuple[int, int]
) -> tuple[str, int, FloatArray]:
    """Play all lives in one world: gains until each mark, shape (epsilons, lives, marks)."""
    gains = [
        [_life(schema, asked, truth, bound, epsilon, (*seeds, life)) for life in range(LIVES)]
        for epsilon in asked.epsilons
    ]
    return name, position, np.array(gains)


def _life(
    schema: Schema, asked: Assumptions, truth: Truth, bound: float, epsilon: float, seeds: tuple[int, int, int]
) -> FloatArray:
    """Play one life; every epsilon of it meets the same users."""
    policy_seed, users = np.random.SeedSequence(seeds).spawn(2)
    policy = make_policy(
        "stream-glm",
        features=schema,
        epsilon=epsilon,
        delta=asked.delta,
        rounds_per_user=asked.rounds_per_user,
        base_rate=asked.random_rate,
        theta_bound=bound,
        seed=int(policy_seed.generate_state(1, np.uint64)[0]),
    )
    rng, people = np.random.default_rng(users), crowd(schema, stated_arms(schema, asked.arms), seeds[:2])
    rounds = people.seen.reshape(-1, *people.seen.shape[2:])
    rewards, earned = truth.means(people.acting.reshape(rounds.shape)), []
    for start in range(0, asked.decisions, _STRETCH):
        drawn = rng.integers(len(rounds), size=min(_STRETCH, asked.decisions - start))
        means = rewards[drawn]
        arms = policy.play(rounds[drawn], (rng.random((drawn.size, 1)) < means).astype(np.float64))
        earned.append(np.stack([means[np.arange(drawn.size), arms], means.mean(axis=1), means.max(axis=1)]))
    mine, random, best = np.cumsum(np.concatenate(earned, axis=1), axis=1)[:, _marks(asked.decisions) - 1]
    return np.asarray((mine - random) / (best - random))


def _marks(decisions: int) -> IntArray:
    """The decisions after which rewards are counted, evenly spread on a logarithmic scale."""
    count = max(2, round(_MARKS_PER_DECADE * math.log10(decisions / _FIRST_MARK)) + 1)
    return np.unique(np.geomspace(_FIRST_MARK, decisions, count).round().astype(np.int64))


def _outlook(
    known: tuple[str, int, int, float, float, float],
    marks: IntArray,
    gains: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> Outlook:
    """Summarise one schema at one epsilon from its gains, shape (worlds, lives, marks), and their interval."""
    middle = gains.mean(axis=(0, 1))
    lives = np.quantile(gains[:, :, -1], [0.5 - COVERED / 2.0, 0.5 + COVERED / 2.0])
    return Outlook(
        *known,
        gain=float(middle[-1]),
        low=float(low[-1]),
        high=float(high[-1]),
        life_low=float(lives[0]),
        life_high=float(lives[1]),
        half_from=reached(marks, middle, 0.5),
        most_from=reached(marks, middle, 0.8),
        curve=tuple(middle.tolist()),
        curve_low=tuple(low.tolist()),
        curve_high=tuple(high.tolist()),
    )


def intervals(gains: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return between what the mean gain of one more world is, from gains of shape (epsilons, worlds, lives, marks).

    One-way analysis of variance: the variance of the means of worlds is that between worlds and a share of that between
    lives.  The latter is luck, which averages out in a site's mean gain, and is taken off.  What is left is much the
    same at all epsilons, and known badly at each: they share it.  A new world differs from the mean of all worlds by
    it, and the mean of those that were played by its own error.
    """
    _, worlds, lives, _ = gains.shape
    means, luck = gains.mean(axis=2), gains.var(axis=2, ddof=1).mean(axis=1) / lives
    observed, middle = means.var(axis=1, ddof=1), means.mean(axis=1)
    between = np.maximum(np.mean(observed - luck, axis=0), 0.0)
    half = student.ppf(0.5 + COVERED / 2.0, worlds - 1) * np.sqrt(between + observed / worlds)
    return middle - half, np.minimum(middle + half, 1.0)


def reached(marks: IntArray, curve: FloatArray, level: float) -> int | None:
    """Return the first mark from which on a curve stays at or above a level."""
    below = np.flatnonzero(curve < level)
    first = int(below[-1]) + 1 if below.size else 0
    return int(marks[first]) if first < len(marks) else None
