"""Pictures of what policies would have earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tacit.evaluation.estimators import ValueEstimate
from tacit.evaluation.replay import AT_RANDOM, BEST_METHOD, GIVEN, Replayed
from tacit.experiments.plots import bars_of_values


def values(found: Sequence[Replayed], fixed: Mapping[str, ValueEstimate], path: Path) -> None:
    """Draw the doubly robust value of every policy, and below it those of arms alone, with 95% intervals."""
    learned = [(one.contender.label, *one.estimates[BEST_METHOD]) for one in found]
    alone = [
        (name if name in (AT_RANDOM, GIVEN) else f"{name} for all", estimate.value, 0.0, estimate.error)
        for name, estimate in fixed.items()
    ]
    bars_of_values(learned, alone, path)
