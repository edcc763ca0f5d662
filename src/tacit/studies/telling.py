"""What a study says: sentences, a table and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tacit.evaluation.replay import AT_RANDOM
from tacit.experiments.tables import Table
from tacit.studies.playing import ALONE, BEST, StudyAnswer, StudyLine

_ERRORS: Final = 2.0
"""Standard errors by which the log must tell a policy from random arms."""


def sentences(answer: StudyAnswer) -> list[str]:
    """Say who was randomised, what a reward is, what one arm alone is worth, and where data are too few."""
    study, fixed = answer.study, {line.name: line for line in answer.fixed}
    random, best = fixed[AT_RANDOM], fixed[BEST]
    alone = max((fixed[name] for name in study.arms), key=lambda line: line.value)
    return [
        f"Randomised: {study.randomised}",
        f"Reward: {study.rewarded}",
        f"Random arms earn {random.value:.3f}, the best single arm ({alone.name}) {alone.value:.3f}, the best arm for "
        f"each person {best.value:.3f}: one arm for everybody is {alone.gain:.0%} of the gain.",
        *_too_few(answer, random),
        f"Limits: {study.limits}",
    ]


def _too_few(answer: StudyAnswer, random: StudyLine) -> list[str]:
    """Policies that the log cannot tell from random arms."""
    if not answer.question.orders:
        return []
    unclear = [line for line in answer.learned if not _beyond(line, random)]
    if not unclear:
        return ["The log tells every policy from random arms."]
    named = "; ".join(
        f"{_name(line)} ({line.log_value:.3f} ± {line.log_error:.3f}, from {line.learned:,.0f} lines)"
        for line in unclear
    )
    return [
        f"Too few data, or nothing to learn: one pass over the log cannot tell these from random arms "
        f"({random.log_value:.3f} ± {random.log_error:.3f}): {named}."
    ]


def _beyond(line: StudyLine, random: StudyLine) -> bool:
    return line.log_value - random.log_value > _ERRORS * math.hypot(line.log_error, random.log_error)


def _name(line: StudyLine) -> str:
    return f"{line.name}, {ALONE}" if line.sees == ALONE else line.name


def table(answer: StudyAnswer) -> Table:
    """Tabulate what was earned with the outcome model, and by the log."""
    lines = [*answer.fixed, *answer.learned]
    by_log = ("by the\nlog", "spread\nof orders", "sampling\nerror", "learned\nfrom")
    columns = ("mean reward of", "sees", "semi-\nsynthetic", "\ngain", "\n±", *by_log)
    ends = [place for place in range(len(lines) - 1) if lines[place].sees != lines[place + 1].sees]
    return Table(_title(answer), columns, tuple(map(_cells, lines)), 2, frozenset(ends), _notes(answer))


def _title(answer: StudyAnswer) -> str:
    study, asked = answer.study, answer.question
    crowd = len(study.people.means)
    log = f"{asked.orders} passes over the log" if asked.orders else "the log left out"
    return (
        f"{study.title}. {crowd:,} people, {len(study.arms)} arms; {asked.runs} runs of "
        f"{asked.decisions or crowd:,} decisions, {log}, delta = {asked.delta:g}"
    )


def _cells(line: StudyLine) -> tuple[str, ...]:
    gain = _number(line.gain_error, 3) if line.sees else "-"
    log = (line.log_value, line.log_spread if line.sees else math.nan, line.log_error)
    learned = f"{line.learned:,.0f}" if math.isfinite(line.learned) else "-"
    return line.name, line.sees, _number(line.value), _number(line.gain, 3), gain, *map(_number, log), learned


def _number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def _notes(answer: StudyAnswer) -> tuple[str, ...]:
    study = answer.study
    model = "The reward of every arm is known."
    if study.table.truth is None:
        model = (
            f"Outcome model: logistic in the arm, {study.table.traits.shape[1]} traits of people, and their products "
            f"with the arm at scale {study.outcomes.scale:g}, the largest that held-out people do not speak against."
        )
    return (
        f"semi-synthetic: the trial's people in random order, rewards drawn by an outcome model. {model} Policies see "
        "neither the model nor its means.",
        "gain: (mean reward - that of random arms) / (that of the best arm for each person - that of random arms), by "
        "the means of the outcome model, over all decisions while a policy learns; ±: standard error over runs.",
        "by the log: doubly robust for policies, self-normalised for the others; the value of runs that learn from "
        "the lines where they chose the arm that was given. sampling error: of one pass; more orders do not lower it.",
        f"Policies are told theta_bound {study.theta_bound:g}, with the {ALONE} {study.alone_bound:g}.",
    )


def rows(answer: StudyAnswer) -> dict[str, Any]:
    """Plain data for JSON; null for what is not known."""
    asked = answer.question
    return {
        "study": answer.study.name,
        "people": len(answer.study.people.means),
        "decisions": asked.decisions or len(answer.study.people.means),
        "dim": answer.study.schema.dim,
        "theta_bound": answer.study.theta_bound,
        "alone_bound": answer.study.alone_bound,
        "scale": answer.study.outcomes.scale,
        "delta": asked.delta,
        "runs": asked.runs,
        "orders": asked.orders,
        "seed": asked.seed,
        "lines": [_plain(line) for line in (*answer.fixed, *answer.learned)],
    }


def _plain(line: StudyLine) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in line._asdict().items()
    }


def picture(answer: StudyAnswer, path: Path) -> None:
    """Draw mean rewards with the outcome model and, beside them, by the log, with 95% intervals."""
    from tacit.experiments.plots import Bars, bars_beside

    synthetic = Bars(
        "semi-synthetic: mean over runs (thick: spread of runs)",
        [(_name(line), line.value, line.spread, line.error) for line in answer.learned],
        [(line.name, line.value, 0.0, 0.0) for line in answer.fixed],
    )
    panels = [synthetic]
    if answer.question.orders:
        panels.append(
            Bars(
                "by the log: with its 95% sampling interval (thin)",
                _by_log(answer.learned),
                _by_log(answer.fixed),
            )
        )
    bars_beside(panels, path, answer.study.title)


def _by_log(lines: Sequence[StudyLine]) -> list[tuple[str, float, float, float]]:
    return [(_name(line), line.log_value, line.log_spread, line.log_error) for line in lines]
