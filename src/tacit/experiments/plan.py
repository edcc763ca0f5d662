"""How many decisions until it pays: `stream-glm` against random arms, on simulated users of a schema.

What is known before the first user comes is the schema, how often a random arm earns its reward, and a guess of how
much better the best arm is.  From these follow simulated worlds.  Each run has its own true parameter, which all
budgets and random arms share, so that runs are compared one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tacit._validate import integer_at_least
from tacit.environments import offered_arms
from tacit.environments.records import sampled_contexts
from tacit.errors import InvalidInput
from tacit.experiments.engines import make_engine
from tacit.experiments.results import jsonable
from tacit.experiments.runner import play_once
from tacit.experiments.schemas import world_of
from tacit.experiments.spec import Experiment
from tacit.features import Schema
from tacit.glm.links import get_link
from tacit.glm.shifted import with_base_rate
from tacit.typing import FloatArray, IntArray

LINK: Final = "logistic"
MILESTONES: Final = (1_000, 10_000, 100_000)
"""Decisions at which the gain is told."""
ERRORS: Final = 2.0
"""Standard errors by which the rewards must exceed those of random arms."""
MOST_RUNS: Final = 0.9
"""Share of runs that must be ahead."""
_MARKS_PER_DECADE, _FIRST_MARK = 20, 10
_DIRECTIONS, _ROUNDS = 80, 50
_LENGTHS = np.concatenate([[0.0], np.geomspace(0.05, 20.0, 60)])
"""Lengths of the true parameter among which the one of an effect is looked for."""


@dataclass(frozen=True)
class Assumptions:
    """What is asked, and what is assumed of users."""

    epsilons: tuple[float, ...] = (1.0, 4.0)
    delta: float = 1e-6
    rounds_per_user: int = 1
    """Visits of one person that epsilon covers together."""
    base_rate: float = 0.1
    """How often an arm that is neither good nor bad earns its reward."""
    effect: float = 1.5
    """How many times as often as a random arm the best arm for each user earns it."""
    theta_norm: float | None = None
    """Length of the true parameter, in place of ``effect``."""
    decisions: int = 100_000
    arms: int | None = None
    """Arms of a round; by default those of the schema's ``per_arm``, or 20."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilons", tuple(self.epsilons))
        integer_at_least("decisions", self.decisions, 10 * _FIRST_MARK)
        integer_at_least("rounds_per_user", self.rounds_per_user, 1)
        if self.arms is not None:
            integer_at_least("arms", self.arms, 2)
        if not self.epsilons or not all(0.0 < epsilon < math.inf for epsilon in self.epsilons):
            raise InvalidInput(f"epsilons must be finite and above 0, got {self.epsilons}; noise off is played anyway")


@dataclass(frozen=True)
class Outlook:
    """What is to be expected of one budget; epsilon is infinite where noise is off."""

    epsilon: float
    pays_from: int | None
    """Decisions from which on mean rewards exceed those of random arms for good; None: not within the run."""
    mostly_from: int | None
    """Decisions from which on nine of ten runs earn more than random arms: what a single site can rely on."""
    gains: Mapping[int, float]
    """By the number of decisions: the share of what the best arms would have earned over random ones until then."""
    rate: float
    """Mean reward of all decisions."""
    late_rate: float
    """Mean reward of the last tenth of decisions."""
    curve: tuple[float, ...]
    """The gain at every mark."""
    curve_se: tuple[float, ...]


@dataclass(frozen=True)
class Plan:
    """What is to be expected, for each epsilon and with the noise off."""

    assumptions: Assumptions
    dim: int
    arms: int
    theta_norm: float
    random_rate: float
    best_rate: float
    marks: tuple[int, ...]
    outlooks: tuple[Outlook, ...]
    runs: int
    seed: int

    @property
    def milestones(self) -> tuple[int, ...]:
        """The decisions at which gains are told: round numbers, and the last one."""
        return milestones(self.assumptions.decisions)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an infinite epsilon is the word ``inf``."""
        outlooks = [asdict(outlook) | {"epsilon": jsonable(outlook.epsilon)} for outlook in self.outlooks]
        return asdict(self) | {"outlooks": outlooks}


def plan(
    schema: Schema,
    assumptions: Assumptions | None = None,
    *,
    runs: int = 10,
    seed: int = 0,
    jobs: int = 1,
    on_run: Callable[[Experiment], None] = lambda _: None,
) -> Plan:
    """Play the budgets of ``assumptions`` on simulated users, and tell from when on each of them pays.

    Parameters
    ----------
    schema : Schema
        The features of users and arms.
    assumptions : Assumptions, optional
        What is asked, and what is assumed of users.
    runs : int, default 10
        Runs of each budget; at least 2.
    seed : int, default 0
        Seed of all runs.
    jobs : int, default 1
        Processes at work.
    on_run : callable, optional
        Called with the experiment of each run that has ended.

    Returns
    -------
    Plan
        What is to be expected of each budget, and with noise off.

    Examples
    --------
    >>> from tacit.experiments.plan import Assumptions, plan
    >>> from tacit.features import Category, Flag, Schema
    >>> schema = Schema(user=[Flag("young")], arm=[Category("topic", ["news", "arts"])], per_arm="topic")
    >>> expected = plan(schema, Assumptions(epsilons=(4.0,), decisions=500), runs=2)
    >>> [outlook.epsilon for outlook in expected.outlooks]
    [4.0, inf]
    """
    integer_at_least("runs", runs, 2)
    asked = Assumptions() if assumptions is None else assumptions
    experiments = experiments_of(schema, asked)
    marks = _marks(asked.decisions)
    tasks = [
        (experiment, position, seed, run, marks)
        for run in range(runs)
        for position, experiment in enumerate(experiments)
    ]
    regrets, rewards = np.empty((len(experiments), runs, marks.size)), np.empty((len(experiments), runs))
    for position, run, curve, reward in make_engine("joblib", jobs).finished(_play, tasks):
        regrets[position, run], rewards[position, run] = curve, reward
        on_run(experiments[position])
    best_rate = float(np.mean(rewards[0] + regrets[0, :, -1] / asked.decisions))
    return Plan(
        assumptions=asked,
        dim=schema.dim,
        arms=experiments[0].arms,
        theta_norm=experiments[0].theta_norm,
        random_rate=best_rate - float(np.mean(regrets[0, :, -1])) / asked.decisions,
        best_rate=best_rate,
        marks=tuple(marks.tolist()),
        outlooks=tuple(
            _outlook(experiment, marks, curves, regrets[0], best_rate)
            for experiment, curves in zip(experiments[1:], regrets[1:], strict=True)
        ),
        runs=runs,
        seed=seed,
    )


def experiments_of(schema: Schema, asked: Assumptions) -> list[Experiment]:
    """Random arms, then `stream-glm` at every epsilon, and with the noise off as the ceiling."""
    world = world_of(schema, asked.arms) | {
        "link": LINK,
        "horizon": asked.decisions,
        "base_rate": asked.base_rate,
        "theta_norm": theta_norm_of(schema, asked) if asked.theta_norm is None else asked.theta_norm,
    }
    several = {} if asked.rounds_per_user == 1 else {"rounds_per_user": asked.rounds_per_user}
    private = [
        Experiment("stream-glm", epsilon=epsilon, delta=asked.delta, options=dict(several), **world)
        for epsilon in (*sorted(set(asked.epsilons)), math.inf)
    ]
    return [Experiment("random", **world), *private]


def theta_norm_of(schema: Schema, asked: Assumptions) -> float:
    """The length of the true parameter with which the best arms earn ``effect`` times what random ones do.

    Scores grow in proportion to the length, so that one sample of users, arms and directions serves all lengths.
    """
    link, scores = with_base_rate(get_link(LINK), asked.base_rate), _unit_scores(schema, asked.arms)

    def effect(length: float) -> float:
        means = link.mean(length * scores)
        return float(np.mean(np.max(means, axis=1)) / np.mean(means))

    effects = np.array([effect(length) for length in _LENGTHS])
    above = np.flatnonzero(effects >= asked.effect)
    if not asked.effect > 1.0 or above.size == 0:
        raise InvalidInput(
            f"effect must be above 1 and at most {math.floor(100.0 * np.max(effects)) / 100.0:g}, got "
            f"{asked.effect:g}: with {scores.shape[1]} arms of this schema and base_rate={asked.base_rate:g} the best "
            "arm of a user cannot be better than that"
        )
    first = int(above[0])
    around = slice(first - 1, first + 1)
    return float(np.interp(asked.effect, effects[around], _LENGTHS[around]))


def _unit_scores(schema: Schema, asked_arms: int | None) -> FloatArray:
    """Scores of simulated arms for parameters of length 1 in random directions, a line for each user."""
    rng, arms = np.random.default_rng(0), offered_arms(schema, asked_arms)
    directions = rng.standard_normal((_DIRECTIONS, schema.dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    parts = [sampled_contexts(rng, schema, _ROUNDS, arms) @ direction for direction in directions]
    return np.concatenate(parts)


def milestones(decisions: int) -> tuple[int, ...]:
    """Return round numbers of decisions below ``decisions``, and ``decisions``."""
    return (*(mark for mark in MILESTONES if mark < decisions), decisions)


def _marks(decisions: int) -> IntArray:
    """The decisions after which rewards are counted: evenly spread on a logarithmic scale, milestones included."""
    count = max(2, round(_MARKS_PER_DECADE * math.log10(decisions / _FIRST_MARK)) + 1)
    spread = np.geomspace(_FIRST_MARK, decisions, count).round().astype(np.int64)
    return np.union1d(spread, np.array([*milestones(decisions), _late(decisions)]))


def _late(decisions: int) -> int:
    """Return the decision with which the last tenth begins."""
    return decisions - decisions // 10


def _play(
    experiment: Experiment, position: int, seed: int, run: int, marks: IntArray
) -> tuple[int, int, FloatArray, float]:
    played = play_once(experiment, seed, run)
    return position, run, np.cumsum(played.regrets)[marks - 1], float(np.mean(played.rewards))


def _outlook(
    experiment: Experiment, marks: IntArray, regrets: FloatArray, random: FloatArray, best_rate: float
) -> Outlook:
    """Summarise one budget from the cumulative regrets of each run at the marks, its own and those of random arms."""
    ahead, scale = random - regrets, np.mean(random, axis=0)
    gains = np.mean(ahead, axis=0) / scale
    errors = np.std(ahead - gains * random, axis=0, ddof=1) / math.sqrt(ahead.shape[0])  # of a ratio of two means
    decisions = int(marks[-1])
    late = int(np.searchsorted(marks, _late(decisions)))
    total = np.mean(regrets, axis=0)
    assert experiment.epsilon is not None
    return Outlook(
        epsilon=experiment.epsilon,
        pays_from=pays_from(marks, ahead),
        mostly_from=mostly_from(marks, ahead),
        gains={mark: float(gains[np.searchsorted(marks, mark)]) for mark in milestones(decisions)},
        rate=best_rate - float(total[-1]) / decisions,
        late_rate=best_rate - float(total[-1] - total[late]) / float(decisions - marks[late]),
        curve=tuple(gains.tolist()),
        curve_se=tuple((errors / scale).tolist()),
    )


def pays_from(marks: Sequence[int] | IntArray, ahead: FloatArray) -> int | None:
    """The first mark from which on the mean of ``ahead`` (runs, marks) exceeds two standard errors at every mark."""
    errors = np.std(ahead, axis=0, ddof=1) / math.sqrt(ahead.shape[0])
    return _for_good(marks, np.mean(ahead, axis=0) > ERRORS * errors)


def mostly_from(marks: Sequence[int] | IntArray, ahead: FloatArray) -> int | None:
    """The first mark from which on nine of ten lines of ``ahead`` (runs, marks) are above 0 at every mark."""
    return _for_good(marks, np.mean(ahead > 0.0, axis=0) >= MOST_RUNS)


def _for_good(marks: Sequence[int] | IntArray, holds: npt.NDArray[np.bool_]) -> int | None:
    not_yet = np.flatnonzero(~holds)
    first = int(not_yet[-1]) + 1 if not_yet.size else 0
    return int(marks[first]) if first < len(marks) else None
