"""Policies that learn, played over the log of a randomised experiment: what would they have earned?

A line of the log counts as a visit.  Where the policy chooses the arm that the user was given, it learns from the
reward; elsewhere nobody knows what its choice would have earned, and the decision is abandoned.  `estimators` says what
is made of that.

What comes out is a function of raw rows: it is for those who may see the log, and no private release.  For a value that
may be published see `tacit.evaluation.private_value`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from tacit._validate import integer_at_least
from tacit.errors import InvalidInput
from tacit.evaluation.estimators import ValueEstimate, kept_lines, mean_of, predicted, self_normalised
from tacit.evaluation.trials import Trial
from tacit.experiments.engines import make_engine
from tacit.extensions import Extension, load_again
from tacit.policies.policy import Policy
from tacit.policies.registry import make_policy
from tacit.typing import BoolArray, FloatArray, IntArray

METHODS: Final = ("replay", "inverse", "self-normalised", "doubly robust")
BEST_METHOD: Final = "doubly robust"
GIVEN, AT_RANDOM = "as they were given", "random arms"


@dataclass(frozen=True)
class Contender:
    """A policy to be played over a log; ``options`` are its arguments beside the schema and the seed.

    Parameters
    ----------
    policy : str
        Name of the policy.
    options : mapping
        Arguments of `tacit.make_policy`.
    modules : tuple of Extension
        Modules that register it.

    Examples
    --------
    >>> from tacit.evaluation import Contender
    >>> Contender("stream-glm", {"epsilon": 1.0, "delta": 1e-5}).label
    'stream-glm eps=1'
    """

    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[Extension, ...] = ()

    @property
    def label(self) -> str:
        """Short name for tables and pictures."""
        epsilon = self.options.get("epsilon")
        return self.policy if epsilon is None else f"{self.policy} eps={epsilon:g}"


class Pass(NamedTuple):
    """One pass over a log: its lines in order, the arm that the policy chose at each, and whether it learned from it.

    Parameters
    ----------
    lines, chosen : array of int, shape (T,)
        Positions of lines in the log, and the arms chosen.
    learned : array of bool, shape (T,)
        Whether the policy was told the reward.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluation import Pass
    >>> Pass(np.array([1, 0]), np.array([0, 0]), np.array([True, False])).learned.sum()
    np.int64(1)
    """

    lines: IntArray
    chosen: IntArray
    learned: BoolArray


class Summary(NamedTuple):
    """Estimates of several passes: their mean, their spread, and the sampling error of one of them.

    Parameters
    ----------
    mean : float
        Mean over orders.
    spread : float
        Standard deviation of estimates over orders of the lines (and seeds of the policy).
    error : float
        Standard error that the sample of users gives a single pass; that of the mean is at most as large.

    Examples
    --------
    >>> from tacit.evaluation import Summary
    >>> Summary(0.31, 0.01, 0.02).mean
    0.31
    """

    mean: float
    spread: float
    error: float


@dataclass(frozen=True)
class Replayed:
    """What a contender earned over a log.

    Parameters
    ----------
    contender : Contender
        The policy.
    orders, lines : int
        Passes, and lines of each.
    learned : float
        Mean number of lines that the policy learned from.
    estimates : mapping
        For each of the methods `METHODS` a `Summary`.

    Examples
    --------
    >>> from tacit.evaluation import Contender, Replayed, Summary
    >>> Replayed(Contender("random"), 1, 100, 50.0, {"replay": Summary(0.5, 0.0, 0.05)}).estimates["replay"].mean
    0.5
    """

    contender: Contender
    orders: int
    lines: int
    learned: float
    estimates: Mapping[str, Summary]


def replay_pass(trial: Trial, policy: Policy, lines: IntArray, coins: FloatArray) -> Pass:
    """Play a policy over lines of a log.

    Parameters
    ----------
    trial : Trial
        The log.
    policy : Policy
        A new policy, which knows the trial's schema.
    lines : array of int, shape (T,)
        The lines, in order.
    coins : array, shape (T,)
        Uniform random numbers that say which matching lines are kept, where arms were given with different
        probabilities.

    Returns
    -------
    Pass
        What was chosen.

    Examples
    --------
    >>> import numpy as np, tacit
    >>> from tacit.evaluation import make_trial, replay_pass
    >>> from tacit.features import Category, Schema
    >>> schema = Schema(arm=[Category("drug", ["A", "B"])], per_arm="drug")
    >>> trial = make_trial(schema, {"drug": ["A", "B"] * 50, "cured": [1.0, 0.0] * 50}, reward="cured", shares="equal")
    >>> policy = tacit.make_policy("greedy-mle", features=schema)
    >>> replay_pass(trial, policy, np.arange(100), np.zeros(100)).chosen.sum() < 20
    np.True_
    """
    rows = policy.arm_form.rounds(trial.rows)
    chosen, kept = np.empty(lines.size, dtype=np.int64), kept_lines(trial.shares[lines], coins)
    given, rewards = trial.given[lines], trial.rewards[lines]
    for t, line in enumerate(lines.tolist()):
        decision = policy.select_admitted(rows[line : line + 1])
        chosen[t] = decision.arm
        if decision.arm == given[t] and kept[t]:
            policy.update(decision, rewards.item(t))
        else:
            policy.abandon(decision)
    return Pass(lines, chosen, (chosen == given) & kept)


def estimates_of(trial: Trial, played: Pass) -> dict[str, ValueEstimate]:
    """Estimate by every method what a pass would have earned.

    Parameters
    ----------
    trial : Trial
        The log.
    played : Pass
        What was chosen.

    Returns
    -------
    dict
        A `ValueEstimate` for each of `METHODS`.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluation import Pass, estimates_of, make_trial
    >>> from tacit.features import Category, Schema
    >>> schema = Schema(arm=[Category("drug", ["A", "B"])])
    >>> trial = make_trial(schema, {"drug": ["A", "B"] * 2, "cured": [1, 0, 1, 1]}, reward="cured", shares="equal")
    >>> always_b = Pass(np.arange(4), np.ones(4, dtype=int), np.array([False, True, False, True]))
    >>> {name: round(found.value, 2) for name, found in estimates_of(trial, always_b).items()}
    {'replay': 0.5, 'inverse': 0.5, 'self-normalised': 0.5, 'doubly robust': 0.21}
    """
    lines, bound = played.lines, trial.reward_bound
    given, rewards = trial.given[lines], trial.rewards[lines]
    weights = np.where(played.chosen == given, 1.0 / trial.shares[lines], 0.0)
    told, accepted = rewards[weights > 0.0], rewards[played.learned]
    model = bound * predicted(trial.rows[lines, given], rewards / bound, trial.rows[lines, played.chosen])
    inverse, robust = mean_of(weights * rewards, told), mean_of(model + weights * (rewards - model), told)
    found = mean_of(accepted, accepted), inverse, self_normalised(weights, rewards), robust
    return dict(zip(METHODS, found, strict=True))


def replay(
    trial: Trial,
    contenders: Sequence[Contender],
    *,
    orders: int = 20,
    lines: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    on_pass: Callable[[Contender], None] = lambda _: None,
) -> list[Replayed]:
    """Play contenders over a log, in several orders, and summarise what they would have earned.

    Parameters
    ----------
    trial : Trial
        The log.
    contenders : sequence of Contender
        Policies; each begins every pass anew.
    orders : int, default 20
        Passes of each contender.  All contenders meet the same orders.
    lines : int, optional
        Lines of a pass, at most those of the log: a part of it, drawn without replacement; by default all of them.
    seed : int, default 0
        Seed of orders and policies.
    jobs : int, default 1
        Processes at work.
    on_pass : callable, optional
        Called with the contender of each pass that has ended.

    Returns
    -------
    list of Replayed
        One for each contender, in their order.

    Examples
    --------
    >>> from tacit.evaluation import Contender, make_trial, replay
    >>> from tacit.features import Category, Schema
    >>> schema = Schema(arm=[Category("drug", ["A", "B"])], per_arm="drug")
    >>> trial = make_trial(schema, {"drug": ["A", "B"] * 99, "cured": [1.0, 0.0] * 99}, reward="cured", shares="equal")
    >>> (found,) = replay(trial, [Contender("greedy-mle")], orders=2)
    >>> found.estimates["replay"].mean > 0.9
    True
    """
    integer_at_least("orders", orders, 1)
    if lines is not None and integer_at_least("lines", lines, 1) > trial.size:
        raise InvalidInput(f"lines must be at most {trial.size}, the size of the log, got {lines}: no user comes twice")
    _ = trial.rows  # encoded once, and not by every process
    tasks = [
        (trial, contender, number, order, lines, seed)
        for order in range(orders)
        for number, contender in enumerate(contenders)
    ]
    found: list[dict[int, tuple[int, dict[str, ValueEstimate]]]] = [{} for _ in contenders]
    for number, order, learned, estimates in make_engine("joblib", jobs).finished(_play, tasks):
        found[number][order] = learned, estimates
        on_pass(contenders[number])
    return [_summary(trial, contender, passes, lines) for contender, passes in zip(contenders, found, strict=True)]


def _play(
    trial: Trial, contender: Contender, number: int, order: int, lines: int | None, seed: int
) -> tuple[int, int, int, dict[str, ValueEstimate]]:
    """One pass; its order and coins follow from the seed and its number alone."""
    load_again(contender.modules)
    rng = np.random.default_rng([seed, order])
    drawn = rng.permutation(trial.size)[:lines]
    coins = rng.random(drawn.size)
    own_seed = int(rng.integers(2**31))
    policy = make_policy(contender.policy, features=trial.schema, seed=own_seed, **contender.options)
    played = replay_pass(trial, policy, drawn, coins)
    return number, order, int(played.learned.sum()), estimates_of(trial, played)


def _summary(
    trial: Trial, contender: Contender, passes: Mapping[int, tuple[int, dict[str, ValueEstimate]]], lines: int | None
) -> Replayed:
    in_order = [passes[order] for order in sorted(passes)]
    return Replayed(
        contender,
        len(in_order),
        trial.size if lines is None else lines,
        float(np.mean([learned for learned, _ in in_order])),
        {method: summary_of([estimates[method] for _, estimates in in_order]) for method in METHODS},
    )


def summary_of(estimates: Sequence[ValueEstimate]) -> Summary:
    """Mean and spread over passes, and the root mean square of their standard errors."""
    values, errors = np.array(estimates).T
    spread = float(values.std(ddof=1)) if values.size > 1 else math.nan
    return Summary(float(values.mean()), spread, float(np.sqrt(np.mean(errors**2))))


def fixed_values(trial: Trial) -> dict[str, ValueEstimate]:
    """Estimate what would be earned without learning: by each arm alone, by random arms, and by the log itself.

    Parameters
    ----------
    trial : Trial
        The log.

    Returns
    -------
    dict
        A self-normalised `ValueEstimate` for each arm by its name, and for random arms; the mean of the log.

    Examples
    --------
    >>> from tacit.evaluation import fixed_values, make_trial
    >>> from tacit.features import Category, Schema
    >>> schema = Schema(arm=[Category("drug", ["A", "B"])])
    >>> trial = make_trial(schema, {"drug": ["A", "B"] * 2, "cured": [1, 0, 1, 1]}, reward="cured", shares="equal")
    >>> {name: found.value for name, found in fixed_values(trial).items()}
    {'A': 1.0, 'B': 0.5, 'random arms': 0.75, 'as they were given': 0.75}
    """
    inverse = 1.0 / trial.shares
    alone = {
        name: self_normalised(np.where(trial.given == arm, inverse, 0.0), trial.rewards)
        for arm, name in enumerate(trial.names)
    }
    return alone | {AT_RANDOM: self_normalised(inverse, trial.rewards), GIVEN: mean_of(trial.rewards, trial.rewards)}
