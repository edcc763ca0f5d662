"""Lives of a served policy: where users are counted, what a restored backup costs a person, and how that is told.

`tacit restore` puts back the counters of users as they were in the backup.  A person who decided after it was written
counts again, and may have k rows in the life that wrote the backup and k in the life that goes on from it.  A row is in
the releases of one life only, so that squares of mu add: lives that all spend mu cost sqrt(lives) times as much
(docs/theory.md#users-who-return).  Policies that do not count users are about single rows, and lose nothing.

The number of lives in which a person's rows may be is kept with the policy, and backups carry it on.  Two lives that
were begun from one backup cannot know of each other: each counts itself and the life that wrote the backup.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from tacit.privacy.person import Loss, most_lost, mu_across
from tacit.privacy.report import PrivacyReport

LIVES: Final = "lives"
"""Where the number is kept in the note of a journal; 1 where it is missing."""


def lives_of(note: Mapping[str, Any]) -> int:
    """In how many lives a person's decisions may have counted, by what is kept with a policy."""
    return int(note.get(LIVES, 1))


def report_across(report: PrivacyReport, loss: Loss, lives: int) -> dict[str, Any]:
    """The report as JSON, with what all lives together have spent on a person who came in each."""
    if lives == 1:
        epsilon, delta = report.spent_epsilon, report.delta
    else:
        epsilon, delta = loss.epsilon, loss.total_delta
    across = {"mu": mu_across(report, lives), "epsilon": epsilon, "delta": delta}
    numbers = {f"{name}_across_lives": value if math.isfinite(value) else None for name, value in across.items()}
    data = report.to_dict() | {LIVES: lives} | numbers
    if lives == 1:
        return data
    whole = f"epsilon = {epsilon:.6g}, delta = {delta:.6g}"
    warning = (
        "Counters of users were restored from a backup, so that decisions made after it was written count again: a "
        f"person may have rows in {lives} lives, and has then lost {whole}; epsilon = {report.target_epsilon:.6g} is "
        "that of one life. Other lives begun from the same backups are not known here, and each counts as one more."
    )
    return data | {
        "protects": f"{report.protects}. Over {lives} lives such a person loses {whole}",
        "guarantee": f"{report.guarantee} This is one life: a person who came in all {lives} of them loses {whole}.",
        "warnings": [warning, *report.warnings],
    }


def cost_of_lives(report: PrivacyReport, lives: int) -> str:
    """What a person may lose in so many lives, of which each may spend the whole budget."""
    most = most_lost(report, lives)
    where = "one life" if lives == 1 else f"{lives} lives"
    return f"epsilon = {most.epsilon:.3g} at delta = {most.total_delta:.6g} over {where}"
