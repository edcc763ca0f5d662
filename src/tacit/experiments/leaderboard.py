"""The leaderboard: every policy on every kind of contexts."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.experiments.runner import Row
from tacit.experiments.spec import Experiment, experiments_for
from tacit.experiments.tables import Table, epsilon_text, mean_and_error
from tacit.policies.registry import policy_class


def grid(
    *,
    policies: Sequence[str],
    contexts: Sequence[str],
    links: Sequence[str],
    dims: Sequence[int],
    epsilons: Sequence[float],
    delta: float,
    arms: int,
    horizon: int,
    theta_norm: float,
) -> list[Experiment]:
    """All combinations whose link the policy supports; `assouad` has 2 d arms."""
    return [
        experiment
        for link in links
        for dim in dims
        for kind in contexts
        for policy in policies
        if link in policy_class(policy).links
        for experiment in experiments_for(
            policy,
            list(epsilons),
            delta,
            {
                "link": link,
                "dim": dim,
                "arms": 2 * dim if kind == "assouad" else arms,
                "horizon": horizon,
                "theta_norm": theta_norm,
                "contexts": kind,
            },
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
    columns = ("link", "d", "policy", "epsilon", *contexts, "vs best")
    return Table(_title(rows), columns, tuple(cells), labels=3, rules=frozenset(rules), notes=(_HOW, *notes))


_HOW = (
    "Mean and standard error of the cumulative regret. vs best: ratio to the best policy of the same link and d, "
    "averaged over contexts."
)


def _title(rows: Sequence[Row]) -> str:
    if not rows:
        return "Leaderboard: no run was finished"
    row = rows[0]
    return f"Leaderboard: T = {row['horizon']:,}, S = {row['theta_norm']:g}, {row['runs']} runs"


def _kinds(group: Sequence[Row]) -> set[str]:
    return {row["contexts"] for row in group}


def _ranked(group: Sequence[Row], contexts: Sequence[str]) -> list[tuple[str, ...]]:
    best = {kind: min(row["regret_mean"] for row in group if row["contexts"] == kind) for kind in _kinds(group)}
    lines = []
    for policy, epsilon in dict.fromkeys((row["policy"], row["epsilon"]) for row in group):
        own = {row["contexts"]: row for row in group if (row["policy"], row["epsilon"]) == (policy, epsilon)}
        ratio = sum(row["regret_mean"] / max(best[kind], 1e-9) for kind, row in own.items()) / len(own)
        texts = [mean_and_error(own[kind]) if kind in own else "" for kind in contexts]
        lines.append((ratio, (policy, epsilon_text(epsilon), *texts, f"{ratio:.1f}")))
    return [cells for _, cells in sorted(lines, key=lambda line: line[0])]
