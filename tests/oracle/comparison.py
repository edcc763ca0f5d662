"""How what a case comes to now differs from its recorded row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.oracle.cases import Case, Outcome, digest
from tests.oracle.explained import WITHIN, reason_for
from tests.oracle.rows import SEEDS, Mean, Rows, mean_of, unpack

ROUNDING: Final = 1e-9
"""By how much sums of floating-point numbers may differ, relative to their size, and count as equal."""

DRIFT: Final = 1e-6
"""By how much an estimate may differ, relative to its size, and count as equal: fits stop at a tolerance."""


@dataclass(frozen=True)
class Comparison:
    """A case beside its row."""

    case: str
    seeds: int
    """Runs that have a row."""
    same_arms: int
    same_sums: int | None
    """Runs with equal integer sums; None where there are none."""
    differing: frozenset[str]
    """What differs in some run: ``contexts``, ``rewards``, ``arms``, ``regret``, ``sums``, ``charged``,
    ``estimate``."""
    rounded: bool
    """Whether contexts differ in their last bits alone."""
    first_round: int | None
    """First round of a kept run in which another arm was chosen."""
    sums_apart: float
    """Largest difference of an integer sum in the kept runs, relative to the largest of them."""
    drift: float
    """Largest difference of an estimate, relative to its size, among the runs with equal arms."""
    before: Mean
    """Mean regret of the recorded runs."""
    now: Mean

    @property
    def same(self) -> bool:
        """Whether nothing differs, contexts in their last bits aside."""
        return not self.differing

    @property
    def within_noise(self) -> bool:
        """Whether the mean regrets are as close as those of two independent sets of runs."""
        return abs(self.before.value - self.now.value) <= WITHIN * math.hypot(self.before.error, self.now.error)

    @property
    def reason(self) -> str | None:
        """Why the difference is meant; None when it is not, or when the regret is another one."""
        return reason_for(self.case, self.differing) if self.within_noise else None

    def __str__(self) -> str:
        """One line: what is equal in how many runs, where a difference begins, regrets and verdict."""
        sums = "" if self.same_sums is None else f", sums {self.same_sums}"
        text = f"{self.case:<38} arms {self.same_arms}{sums} of {self.seeds}; regret {self.before} -> {self.now}"
        if self.rounded:
            text += "; contexts differ in their last bits"
        if self.first_round is not None:
            text += f"; first other arm in round {self.first_round}"
        if self.sums_apart > 0.0:
            text += f"; sums apart by {self.sums_apart:.1e} of the largest"
        if self.drift > 0.0:
            text += f"; estimates apart by {self.drift:.1e}"
        if self.same:
            return f"{text}; same"
        if self.reason is not None:
            return f"{text}; explained: {self.reason}"
        far = "" if self.within_noise else f", mean regret by more than {WITHIN:g} standard errors"
        return f"{text}; DIFFERS: {', '.join(sorted(self.differing))}{far}"


def compare(case: Case, outcomes: Sequence[Outcome], rows: Rows) -> Comparison:
    """Compare runs of a case, from seed 0 on, with its row."""
    row = rows.cases[case.name]
    first = outcomes[: len(row.regret)]
    seeds = range(len(first))
    instances = rows.worlds[row.world]
    same_arms = [digest(outcome.arms) == row.arms_digest(seed) for seed, outcome in enumerate(first)]
    same_sums = [_digest_of_sums(outcome) == row.sums_digest(seed) for seed, outcome in enumerate(first)]
    equal = {
        "contexts": all(_close(first[seed].instance.checksum, instances[seed].checksum) for seed in seeds),
        "rewards": all(first[seed].instance.rewards == instances[seed].rewards for seed in seeds),
        "arms": all(same_arms),
        "regret": all(_close(first[seed].regret, row.regret[seed]) for seed in seeds if same_arms[seed]),
        "sums": all(same_sums),
        "charged": [outcome.charged for outcome in first if outcome.charged] == row.charged[: len(first)],
    }
    drift = _drift(first, row.estimate, same_arms)
    equal["estimate"] = drift <= DRIFT
    has_sums = row.sums != "" or any(outcome.sums is not None for outcome in first)
    # With as many runs as were recorded the means of all of them are compared, with fewer those of the same seeds.
    before = mean_of(row.regret[: len(first)]) if len(outcomes) <= SEEDS else row.recorded_mean
    return Comparison(
        case=case.name,
        seeds=len(first),
        same_arms=sum(same_arms),
        same_sums=sum(same_sums) if has_sums else None,
        differing=frozenset(name for name, holds in equal.items() if not holds),
        rounded=equal["contexts"] and any(first[s].instance.contexts != instances[s].contexts for s in seeds),
        first_round=_first_round(first, [unpack(text) for text in row.kept_arms]),
        sums_apart=_sums_apart(first, [unpack(text) for text in row.kept_sums]),
        drift=drift,
        before=before,
        now=mean_of([outcome.regret for outcome in outcomes]),
    )


def _digest_of_sums(outcome: Outcome) -> str | None:
    return None if outcome.sums is None else digest(outcome.sums)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING)


def _drift(outcomes: Sequence[Outcome], kept: Sequence[float], same_arms: Sequence[bool]) -> float:
    """How far estimates are from the kept ones, rounding of the file aside."""
    if not kept:
        return math.inf if any(outcome.estimate is not None for outcome in outcomes) else 0.0
    largest = 0.0
    for outcome, estimate, same in zip(outcomes, kept, same_arms, strict=False):
        if outcome.estimate is None:
            return math.inf
        apart = abs(outcome.estimate - estimate) / max(1.0, abs(estimate)) if same else 0.0
        largest = max(largest, apart if apart > ROUNDING else 0.0)
    return largest


def _first_round(outcomes: Sequence[Outcome], kept: Sequence[np.ndarray]) -> int | None:
    """The earliest round, from 1, in which a kept run chose another arm."""
    found = []
    for outcome, arms in zip(outcomes, kept, strict=False):
        if outcome.arms.shape != arms.shape:
            return 0
        found += (np.flatnonzero(outcome.arms != arms)[:1] + 1).tolist()
    return min(found, default=None)


def _sums_apart(outcomes: Sequence[Outcome], kept: Sequence[np.ndarray]) -> float:
    largest = 0.0
    for outcome, sums in zip(outcomes, kept, strict=False):
        if outcome.sums is None or outcome.sums.shape != sums.shape:
            return math.inf
        largest = max(largest, float(np.max(np.abs(outcome.sums - sums))) / max(1.0, float(np.max(np.abs(sums)))))
    return largest
