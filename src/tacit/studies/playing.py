"""Policies on a study: over the people of the trial with an outcome model, and over the log as it was.

*gain* is (value - random) / (best - random), where ``value`` is the mean reward of all decisions of a policy while it
learns, ``random`` that of arms chosen uniformly, and ``best`` that of the best arm for each person, all three by the
means of the outcome model, so that the luck of drawn rewards does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tacit._validate import integer_at_least
from tacit.evaluation import Contender, Replayed, ValueEstimate, fixed_values, replay
from tacit.evaluation.replay import AT_RANDOM, BEST_METHOD
from tacit.experiments.results import Row
from tacit.experiments.runner import run_all
from tacit.experiments.spec import Experiment, for_each_epsilon
from tacit.features import Schema
from tacit.studies.trials import TrialStudy

WORLDS: Final = "tacit.studies.worlds"
"""The module that registers the environments of studies."""
ALONE: Final = "arm alone"
BEST: Final = "best arm for each person"
_UNKNOWN: Final = ValueEstimate(math.nan, math.nan)


@dataclass(frozen=True)
class StudyQuestion:
    """What is asked of a study.

    Parameters
    ----------
    policies : tuple of str
        Policies to play, each with the study's schema and with the arm alone.
    epsilons : tuple of float
        Privacy of private policies; infinity for the noise off.
    delta : float
        Privacy delta of private policies.
    runs : int
        Runs of each policy on the semi-synthetic replay.
    orders : int
        Passes of each policy over the log; 0 leaves the log out.
    decisions : int, optional
        Decisions of a run; by default one for each person of the trial.
    seed : int
        Seed of runs and orders.

    Examples
    --------
    >>> from tacit.studies import StudyQuestion
    >>> StudyQuestion(epsilons=(1.0,)).policies
    ('stream-glm', 'greedy-mle')
    """

    policies: tuple[str, ...] = ("stream-glm", "greedy-mle")
    epsilons: tuple[float, ...] = (1.0, 4.0, 8.0, math.inf)
    delta: float = 1e-5
    runs: int = 40
    orders: int = 5
    decisions: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        integer_at_least("runs", self.runs, 1)
        integer_at_least("orders", self.orders, 0)
        if self.decisions is not None:
            integer_at_least("decisions", self.decisions, 1)


class StudyLine(NamedTuple):
    """What one choice of arms earns; NaN where that is not known.

    Parameters
    ----------
    name : str
        A policy with its epsilon, an arm for everybody, random arms, or the best arm for each person.
    sees : str
        What a policy sees: features, or the arm alone.
    value, spread, error : float
        Mean reward on the semi-synthetic replay, its standard deviation from run to run, and its standard error.
    gain, gain_error : float
        Share of the gap between random arms and the best ones, and its standard error.
    log_value, log_spread, log_error : float
        Mean reward by the log: doubly robust, and self-normalised for what does not learn; its standard deviation from
        order to order, and its sampling error.
    learned : float
        Lines of the log that a policy learned from.

    Examples
    --------
    >>> from math import nan
    >>> from tacit.studies import StudyLine
    >>> StudyLine("random arms", "", 0.55, 0.0, 0.0, 0.0, 0.0, 0.549, 0.0, 0.011, nan).gain
    0.0
    """

    name: str
    sees: str
    value: float
    spread: float
    error: float
    gain: float
    gain_error: float
    log_value: float
    log_spread: float
    log_error: float
    learned: float


@dataclass(frozen=True)
class StudyAnswer:
    """What was earned in a study.

    Parameters
    ----------
    study : TrialStudy
        The study.
    question : StudyQuestion
        What was asked.
    fixed, learned : tuple of StudyLine
        Choices that do not learn, the best arm for each person last; policies.

    Examples
    --------
    >>> from tacit.studies import STUDIES_OF_TRIALS, StudyAnswer, StudyQuestion
    >>> StudyAnswer(STUDIES_OF_TRIALS["star"], StudyQuestion(), (), ()).study.name
    'star'
    """

    study: TrialStudy
    question: StudyQuestion
    fixed: tuple[StudyLine, ...]
    learned: tuple[StudyLine, ...]


class Seen(NamedTuple):
    """A schema that policies are given, with the bound that they are told."""

    words: str
    schema: Schema
    theta_bound: float


def views(study: TrialStudy) -> tuple[Seen, Seen]:
    """The study's schema, and the arm alone."""
    return (
        Seen(f"{study.schema.dim} features", study.schema, study.theta_bound),
        Seen(ALONE, study.alone, study.alone_bound),
    )


def experiments_of(study: TrialStudy, asked: StudyQuestion, seen: Seen) -> list[Experiment]:
    """Every policy on the people of the trial, private ones once for each epsilon."""
    found = []
    for policy in asked.policies:
        experiment = Experiment(
            policy,
            "logistic",
            seen.schema.dim,
            len(study.arms),
            asked.decisions or len(study.people.means),
            seen.theta_bound,
            study.name,
            delta=asked.delta,
            base_rate=study.base_rate,
            modules=(WORLDS,),
            schema=seen.schema.to_json(),
        )
        found += for_each_epsilon(experiment, asked.epsilons)
    return found


def contender_of(experiment: Experiment, lines: int) -> Contender:
    """The policy of an experiment, with what it is told there, for a log of so many lines."""
    told: dict[str, Any] = {
        "theta_bound": experiment.told_bound,
        "base_rate": experiment.base_rate,
        "horizon": lines,
        "epsilon": experiment.epsilon,
        "delta": experiment.delta,
    }
    return Contender(experiment.policy, {name: value for name, value in told.items() if value is not None})


def tasks_of(study: TrialStudy, asked: StudyQuestion) -> int:
    """Runs and passes in all."""
    return sum(len(experiments_of(study, asked, seen)) for seen in views(study)) * (asked.runs + asked.orders)


def play_study(
    study: TrialStudy,
    asked: StudyQuestion | None = None,
    *,
    jobs: int = 1,
    on_task: Callable[[str], None] = lambda _: None,
) -> StudyAnswer:
    """Play policies on the people of a trial and on its log.

    Parameters
    ----------
    study : TrialStudy
        The study.
    asked : StudyQuestion, optional
        What is asked of it.
    jobs : int
        Processes at work.
    on_task : callable
        Called with a policy's label whenever a run or a pass has ended.

    Returns
    -------
    StudyAnswer
        What was earned.

    Examples
    --------
    >>> from tacit.studies import STUDIES_OF_TRIALS, StudyQuestion, play_study
    >>> asked = StudyQuestion(policies=("random",), runs=2, orders=0)
    >>> answer = play_study(STUDIES_OF_TRIALS["actg175"], asked)
    >>> [line.name for line in answer.fixed][-2:], abs(answer.learned[0].gain) < 0.1
    (['random arms', 'best arm for each person'], True)
    """
    asked = asked or StudyQuestion()
    learned: list[StudyLine] = []
    for seen in views(study):
        experiments = experiments_of(study, asked, seen)
        rows = run_all(
            experiments, runs=asked.runs, seed=asked.seed, jobs=jobs, on_run=lambda each: on_task(each.label)
        )
        if len(rows) < len(experiments) or any(row["runs"] < asked.runs for row in rows):
            raise KeyboardInterrupt  # a study is told as a whole or not at all
        found = _replayed(study, asked, seen, experiments, jobs, on_task)
        learned += [
            _learned(study, seen, each.label, row, log) for each, row, log in zip(experiments, rows, found, strict=True)
        ]
    return StudyAnswer(study, asked, _fixed(study, asked), tuple(learned))


def _replayed(
    study: TrialStudy,
    asked: StudyQuestion,
    seen: Seen,
    experiments: Sequence[Experiment],
    jobs: int,
    on_task: Callable[[str], None],
) -> Sequence[Replayed | None]:
    """Each policy over the log, or None where that was not asked for."""
    if asked.orders == 0:
        return [None] * len(experiments)
    trial = study.log(seen.schema)
    contenders = [contender_of(each, trial.size) for each in experiments]
    return replay(
        trial,
        contenders,
        orders=asked.orders,
        seed=asked.seed,
        jobs=jobs,
        on_pass=lambda each: on_task(f"{each.label}, log"),
    )


def _gain(study: TrialStudy, value: float) -> float:
    people = study.people
    return (value - people.random_value) / (people.best_value - people.random_value)


def _learned(study: TrialStudy, seen: Seen, label: str, row: Row, log: Replayed | None) -> StudyLine:
    people, decisions = study.people, row["horizon"]
    value = people.best_value - row["regret_mean"] / decisions
    spread, error = row["regret_std"] / decisions, row["regret_se"] / decisions
    gain_error = error / (people.best_value - people.random_value)
    known = (math.nan, math.nan, math.nan) if log is None else log.estimates[BEST_METHOD]
    learned = math.nan if log is None else log.learned
    return StudyLine(label, seen.words, value, spread, error, _gain(study, value), gain_error, *known, learned)


def _fixed(study: TrialStudy, asked: StudyQuestion) -> tuple[StudyLine, ...]:
    """Arms for everybody, random arms, and the best arm for each person; their means are known without a run."""
    people = study.people
    by_log: Mapping[str, ValueEstimate] = fixed_values(study.log(study.alone)) if asked.orders else {}
    known = dict(zip(study.arms, people.arm_values.tolist(), strict=True))
    known |= {AT_RANDOM: people.random_value, BEST: people.best_value}
    return tuple(
        StudyLine(name, "", value, 0.0, 0.0, _gain(study, value), 0.0, log.value, 0.0, log.error, math.nan)
        for name, value in known.items()
        for log in [by_log.get(name, _UNKNOWN)]
    )
