"""A plan in sentences and a table."""

from __future__ import annotations

import math

from tacit.experiments.plan import Outlook, Plan
from tacit.experiments.tables import Table
from tacit.privacy.report import protection_text

_DIGITS = 2


def rounded(decisions: int) -> str:
    """A number of decisions to two digits: simulations do not know more."""
    unit = 10 ** max(0, len(str(decisions)) - _DIGITS)
    return f"{round(decisions / unit) * unit:,}"


def sentences(expected: Plan) -> list[str]:
    """The answer for each epsilon."""
    per = "visit" if expected.assumptions.rounds_per_user == 1 else "person"
    return [_sentence(expected, outlook, per) for outlook in expected.outlooks]


def _sentence(expected: Plan, outlook: Outlook, per: str) -> str:
    name = "With the noise off" if math.isinf(outlook.epsilon) else f"At epsilon {outlook.epsilon:g} per {per}"
    reached = outlook.gains[expected.assumptions.decisions]
    if outlook.pays_from is None:
        return f"{name} it does not pay within {expected.assumptions.decisions:,} decisions."
    mostly = "" if outlook.mostly_from is None else f" (nine runs of ten: {rounded(outlook.mostly_from)})"
    return (
        f"{name} it pays from about {rounded(outlook.pays_from)} decisions on{mostly}, and gains {reached:.0%} of what "
        f"is possible in {expected.assumptions.decisions:,}."
    )


def table(expected: Plan) -> Table:
    """A line for random arms, for each epsilon, for the noise off, and for the best arms."""
    marks = expected.milestones
    gains = tuple(f"{'gain by' if number == 0 else ''}\n{mark:,}" for number, mark in enumerate(marks))
    columns = ("", "pays\nfrom", "9 runs\nof 10", *gains, "mean\nreward", "of the\nlast tenth")
    random, best = _percent(expected.random_rate), _percent(expected.best_rate)
    rows = [
        ("random arms", "-", "-", *("0.00" for _ in marks), random, random),
        *(_line(expected, outlook) for outlook in expected.outlooks),
        ("best arms", "-", "-", *("1.00" for _ in marks), best, best),
    ]
    return Table(_title(expected), columns, tuple(rows), notes=_notes(expected))


def _line(expected: Plan, outlook: Outlook) -> tuple[str, ...]:
    name = "noise off" if math.isinf(outlook.epsilon) else f"epsilon {outlook.epsilon:g}"
    pays = ("not yet" if found is None else rounded(found) for found in (outlook.pays_from, outlook.mostly_from))
    gains = (f"{outlook.gains[mark]:.2f}" for mark in expected.milestones)
    return name, *pays, *gains, _percent(outlook.rate), _percent(outlook.late_rate)


def _percent(rate: float) -> str:
    return f"{100.0 * rate:.2f}%"


def _title(expected: Plan) -> str:
    asked = expected.assumptions
    return (
        f"What to expect: stream-glm, d = {expected.dim}, K = {expected.arms}, {asked.decisions:,} decisions, "
        f"delta = {asked.delta:g}, base rate {asked.base_rate:g}"
    )


def _notes(expected: Plan) -> tuple[str, ...]:
    asked = expected.assumptions
    ratio = expected.best_rate / expected.random_rate
    return (
        f"Protected is {protection_text(asked.rounds_per_user)}.",
        f"Assumed: a random arm earns {_percent(expected.random_rate)}, the best arm for each user "
        f"{_percent(expected.best_rate)}, {ratio:.2f} times as much.",
        "pays from: decisions after which all rewards so far, averaged over runs, exceed those of random arms for good "
        "by more than two standard errors; 9 runs of 10: after which they exceed them in nine of ten runs.",
        "gain by: share of what the best arms would have earned over random ones until then.",
        f"Means of {expected.runs} runs, each with a true parameter of its own. stream-glm was told "
        f"base_rate={asked.base_rate:g} and theta_bound={expected.theta_norm:.2f}, its length.",
    )
