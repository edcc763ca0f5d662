"""Noise scales of every release of a joint-private policy, read from the policy's own ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tacit.errors import InvalidInput
from tacit.experiments.tables import Table, number
from tacit.policies.continual_policy import ContinualPolicy
from tacit.policies.registry import make_policy
from tacit.privacy.events import RenyiRelease
from tacit.privacy.factorization import FACTORIZATIONS, make_factorization, worst_prefix_sd

Report = dict[str, Any]


def joint_report(policy: str, *, epsilon: float, delta: float, horizon: int, **setting: Any) -> list[Report]:
    """The releases of ``policy``, once for each factorization: the streams, then the optimizer's calls.

    ``setting`` is what else `make_policy` is told: ``dim``, ``link``, ``theta_bound``, ``base_rate``.
    """
    if not math.isfinite(epsilon):
        raise InvalidInput("epsilon must be finite: with epsilon = inf there is no noise to calibrate")
    reports: list[Report] = []
    for name in FACTORIZATIONS:
        made = make_policy(policy, horizon=horizon, epsilon=epsilon, delta=delta, seed=0, factorization=name, **setting)
        if not isinstance(made, ContinualPolicy):
            raise InvalidInput(f"{policy} does not learn through a continual release: there is nothing to calibrate")
        reports += [*_streams(made, name, horizon), *_calls(made, name)]
    return reports


def _streams(policy: ContinualPolicy, name: str, horizon: int) -> list[Report]:
    factorization = make_factorization(name, horizon)
    per_unit, column_norm = worst_prefix_sd(factorization), factorization.column_norm
    reports = []
    for entry in policy.ledger.entries:
        event = entry.event
        assert not isinstance(event, RenyiRelease)
        reports.append(
            _report(
                name,
                event.name,
                sensitivity=event.sensitivity / column_norm,
                column_norm=column_norm,
                mu=event.mu,
                noise_sd=event.noise_sd,
                worst_prefix_sd_per_unit=per_unit,
                worst_prefix_sd=event.noise_sd * per_unit / column_norm,
            )
        )
    return reports


def _calls(policy: ContinualPolicy, name: str) -> list[Report]:
    """Optimizer calls get what the stream leaves, each its own share."""
    reports = []
    for event in policy.planned_calls():
        assert not isinstance(event, RenyiRelease)
        reports.append(
            _report(
                name,
                event.name,
                sensitivity=event.sensitivity,
                column_norm=None,
                mu=event.mu,
                noise_sd=event.noise_sd,
                worst_prefix_sd_per_unit=None,
                worst_prefix_sd=None,
            )
        )
    return reports


def _report(factorization: str, release: str, **figures: float | None) -> Report:
    return {"factorization": factorization, "release": release, **figures}


_SHOWN_CALLS = 3
_FIGURES = ("sensitivity", "column_norm", "mu", "noise_sd", "worst_prefix_sd_per_unit", "worst_prefix_sd")


def joint_table(title: str, reports: Sequence[Report]) -> Table:
    """Streams and the first and last optimizer calls; JSON has all of them."""
    cells: list[tuple[str, ...]] = []
    rules = set()
    for name in dict.fromkeys(report["factorization"] for report in reports):
        group = [report for report in reports if report["factorization"] == name]
        calls = [report for report in group if report["column_norm"] is None]
        shown = [report for report in group if report["column_norm"] is not None] + calls[:_SHOWN_CALLS]
        shown += calls[_SHOWN_CALLS:][-1:]
        cells += [(name, report["release"], *(_figure(report[key]) for key in _FIGURES)) for report in shown]
        rules.add(len(cells) - 1)
    columns = ("factorization", "release", "sensitivity", "column norm", "mu", "noise sd", "worst/unit", "worst sd")
    notes = (
        "Sensitivity: l2 change of one replaced row, before the column norm. noise sd: of each number drawn.",
        "worst/unit: sd of the noisiest prefix sum per unit of (sensitivity / mu); worst sd: the same, absolute.",
    )
    return Table(title, columns, tuple(cells), labels=2, rules=frozenset(rules), notes=notes)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if value < 1000 else number(value)
