"""Differences from the recorded rows that are meant, each with its reason.

A pattern names cases as ``python -m tests.oracle compare --case`` does.  An entry covers ``arms`` (and with them the
regret of those runs), ``sums``, ``charged`` or ``estimate``; contexts and rewards must be equal.  The mean regret of a
case must stay within `WITHIN` standard errors of the recorded one all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final

WITHIN: Final = 3.0


@dataclass(frozen=True)
class Explanation:
    """Why some cases differ from the recorded rows."""

    pattern: str
    covers: frozenset[str]
    reason: str


EXPLAINED: Final[Sequence[Explanation]] = (
    *(
        Explanation(
            pattern,
            frozenset({"arms"}),
            "exchanges of a G-optimal design leave arms with equal variances, and rounding decided which of them went "
            "on: some designs have other weights",
        )
        for pattern in ("b-glincb/*", "shuffle-glm/*")
    ),
    *(
        Explanation(
            pattern,
            frozenset({"arms", "sums", "charged", "estimate"}),
            "exact noise is drawn for all numbers of a release side by side: a tape gives other numbers",
        )
        for pattern in ("stream-glm/*/exact", "joint-glm/*/exact", "joint-linucb/*/exact", "local-glm/*/exact")
    ),
    Explanation(
        "stream-glm/*/blocks-tree", frozenset({"arms"}), "arms of equal upper bounds: the order of a sum decides"
    ),
    Explanation(
        "rs-glinucb/*/ties",
        frozenset({"arms"}),
        "arms of equal upper bounds: the order of a sum decides",
    ),
)


def reason_for(case: str, differing: frozenset[str], known: Sequence[Explanation] = EXPLAINED) -> str | None:
    """The reasons for which all of ``differing`` may differ in this case; None when some of it has no reason."""
    found = [entry for entry in known if fnmatch(case, entry.pattern) and entry.covers & differing]
    covered: frozenset[str] = frozenset().union(*(entry.covers for entry in found))
    return "; ".join(entry.reason for entry in found) if differing <= covered else None
