"""The leaderboard: every policy on every kind of contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tacit.environments import arms_of
from tacit.experiments.results import Row
from tacit.experiments.spec import Experiment, combinations, for_each_epsilon
from tacit.experiments.tables import Table, base_text, epsilon_text, mean_and_error, median, norm_text, rewards_text
from tacit.policies.registry import policy_class


def grid(fixed: Mapping[str, Any], varied: Mapping[str, Sequence[Any]], epsilons: Sequence[float]) -> list[Experiment]:
    """All combinations whose link the policy supports, private policies once for each epsilon."""
    return [
        experiment
        for chosen in combinations(fixed, varied)
        if chosen.link in policy_class(chosen.policy).links
        for experiment in for_each_epsilon(
            replace(chosen, arms=arms_of(chosen.contexts, chosen.dim, chosen.arms)), epsilons
        )
    ]


def table(rows: Sequence[Row], contexts: Sequence[str], notes: Sequence[str] = ()) -> Table:
    """One line for each link, dimension, policy and epsilon; the best of a group first."""
    cells: list[tuple[str, ...]] = []
    rules = set()
    for link, dim in dict.fromkeys((row["link"], row["dim"]) for row in rows):
        group = [row for row in rows if (row["link"], row["dim"]) == (link, dim)]
        cells += [(link, str(dim), *line) for line in _ranked(group, contexts)]
        rules.add(len(cells) - 1)
    figures = [heading for kind in contexts for heading in (kind, "median")]
    columns = ("link", "d", "policy", "ε", *figures, "vs\nbest")
    last = len(columns) - 1
    narrow = ((2, 0), (1, 3), *((position, position + 1) for position in range(4, last, 2)), (last,))
    notes = (_HOW, *notes)
    return Table(_title(rows), columns, tuple(cells), labels=3, rules=frozenset(rules), notes=notes, narrow=narrow)


_HOW = (
    "Mean, standard error and median of the cumulative regret. vs best: ratio of means to the best policy of the same "
    "link and d, averaged over contexts."
)


def _title(rows: Sequence[Row]) -> str:
    if not rows:
        return "Leaderboard: no run was finished"
    row = rows[0]
    told = f"{norm_text(row)}{base_text(row)}{rewards_text(row)}"
    return f"Leaderboard: T = {row['horizon']:,}, {told}, {row['runs']} runs"


def _kinds(group: Sequence[Row]) -> set[str]:
    return {row["contexts"] for row in group}


def _ranked(group: Sequence[Row], contexts: Sequence[str]) -> list[tuple[str, ...]]:
    best = {kind: min(row["regret_mean"] for row in group if row["contexts"] == kind) for kind in _kinds(group)}
    lines = []
    for policy, epsilon in dict.fromkeys((row["policy"], row["epsilon"]) for row in group):
        own = {row["contexts"]: row for row in group if (row["policy"], row["epsilon"]) == (policy, epsilon)}
        ratio = sum(row["regret_mean"] / max(best[kind], 1e-9) for kind, row in own.items()) / len(own)
        texts = [text for kind in contexts for text in _figures(own.get(kind))]
        lines.append((ratio, (policy, epsilon_text(epsilon), *texts, f"{ratio:.1f}")))
    return [cells for _, cells in sorted(lines, key=lambda line: line[0])]


def _figures(row: Row | None) -> tuple[str, str]:
    return ("", "") if row is None else (mean_and_error(row), median(row))
