"""`tacit calibrate`: how much noise a guarantee takes, before anything is run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.shared import (
    BaseRate,
    Delta,
    Json,
    Link,
    check_writable,
    chosen_links,
    known_policies,
    names,
    one,
    option_names,
    show,
)
from tacit.errors import InvalidInput

if TYPE_CHECKING:
    from tacit.experiments.tables import Table

app = typer.Typer(help="Noise scales for a budget.", no_args_is_help=True, rich_markup_mode=None)

Epsilon = Annotated[float, typer.Option(help="Privacy epsilon.")]
Dim = Annotated[int, typer.Option(min=1, help="Features of an arm, d.")]


@app.command("joint")
def joint(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    horizon: Annotated[int, typer.Option(min=1, help="Rounds, T.")] = 15_000,
    dim: Dim = 5,
    link: Link = "logistic",
    theta_norm: Annotated[float, typer.Option(help="Bound on the parameter's length, S.")] = 3.5,
    base_rate: BaseRate = None,
    policy: Annotated[str, typer.Option(help="A joint-private policy that releases a stream.")] = "joint-glm",
    json_file: Json = None,
) -> None:
    """Noise of every release of joint-glm, with the paper's tree and with our near-optimal factorization.

    \b
    Examples:
      tacit calibrate joint --epsilon 4 --delta 0.02 --horizon 15000 --dim 5
      tacit calibrate joint --policy stream-glm --base-rate 0.08 --theta-norm 1.5
    """
    check_writable(json_file)
    names(policy, "--policy", _streamed_policies())
    one(chosen_links(link, "--link"), "--link")
    setting: dict[str, Any] = {"dim": dim, "link": link, "theta_bound": theta_norm, "base_rate": base_rate}
    reports = joint_reports(policy, epsilon=epsilon, delta=delta, horizon=horizon, **setting)
    title = f"{policy}: epsilon {epsilon:g}, delta {delta:g}, {link}, T = {horizon:,}, d = {dim}, S = {theta_norm:g}"
    title += "" if base_rate is None else f", base rate {base_rate:g}"
    show(joint_table(title, reports), json_file, reports)


def _streamed_policies() -> list[str]:
    from tacit.policies.registry import policy_class

    joint = [name for name in known_policies() if policy_class(name).guarantee == "joint"]
    return [name for name in joint if "factorization" in option_names(name)]


_SHUFFLE_LINES = {
    "bits_per_coordinate": "bits per coordinate",
    "bytes_per_user": "bytes per user",
    "noise_sd": "noise sd / Delta",
    "central_gaussian_sd": "central Gaussian sd / Delta",
    "g": "grid g",
    "b": "noise bits b",
    "p": "noise probability p",
    "min_users": "smallest batch",
    "epsilon_at_80_percent_honest": "epsilon, 80% honest",
}


@app.command("shuffle")
def shuffle(
    users: Annotated[int, typer.Option(min=1, help="Smallest batch of users.")] = 10_000,
    dim: Dim = 5,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    json_file: Json = None,
) -> None:
    """Message size and noise of one matrix release through the shuffler, beside the paper's constants.

    \b
    Example:
      tacit calibrate shuffle --users 10000 --dim 5 --epsilon 1 --delta 1e-6
    """
    from tacit.experiments.tables import Table
    from tacit.shuffle.calibration import matrix_report

    check_writable(json_file)
    report: dict[str, Any] = matrix_report(users, dim, epsilon, delta)
    paper: dict[str, Any] = report["paper"]
    cells = [(label, _number(report.get(key)), _number(paper.get(key))) for key, label in _SHUFFLE_LINES.items()]
    title = f"One {dim} x {dim} matrix from {users:,} users at epsilon = {epsilon:g}, delta = {delta:g}"
    show(Table(title, ("", "calibrated", "the paper's constants"), tuple(cells)), json_file, report)


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


Report = dict[str, Any]
_SHOWN_CALLS = 3
_FIGURES = ("sensitivity", "column_norm", "mu", "noise_sd", "worst_prefix_sd_per_unit", "worst_prefix_sd")


def joint_reports(policy: str, *, epsilon: float, delta: float, horizon: int, **setting: Any) -> list[Report]:
    """Describe the releases of ``policy`` for each factorization: its streams, then the optimizer's calls.

    ``setting`` is what else `make_policy` is told: ``dim``, ``link``, ``theta_bound``, ``base_rate``.
    """
    from tacit.policies.continual_policy import ContinualPolicy
    from tacit.policies.registry import make_policy
    from tacit.privacy.factorization import FACTORIZATIONS, make_factorization, worst_prefix_sd

    if not math.isfinite(epsilon):
        raise InvalidInput("epsilon must be finite: with epsilon = inf there is no noise to calibrate")
    reports: list[Report] = []
    for name in FACTORIZATIONS:
        made = make_policy(policy, horizon=horizon, epsilon=epsilon, delta=delta, seed=0, factorization=name, **setting)
        if not isinstance(made, ContinualPolicy):
            raise InvalidInput(f"{policy} does not learn through a continual release: there is nothing to calibrate")
        factorization = make_factorization(name, horizon)
        per_unit, column_norm = worst_prefix_sd(factorization), factorization.column_norm
        for entry in made.ledger.entries:
            report = _report(name, entry.event, entry.event.sensitivity / column_norm, column_norm)
            worst = {
                "worst_prefix_sd_per_unit": per_unit,
                "worst_prefix_sd": report["noise_sd"] * per_unit / column_norm,
            }
            reports.append(report | worst)
        # Optimizer calls get what the stream leaves, each its own share.
        reports += [_report(name, event, event.sensitivity, None) for event in made._planned_calls()]
    return reports


def _report(factorization: str, event: Any, sensitivity: float, column_norm: float | None) -> Report:
    scales = {"column_norm": column_norm, "mu": event.mu, "noise_sd": event.noise_sd}
    worst = {"worst_prefix_sd_per_unit": None, "worst_prefix_sd": None}
    return {"factorization": factorization, "release": event.name, "sensitivity": sensitivity} | scales | worst


def joint_table(title: str, reports: Sequence[Report]) -> Table:
    """Tabulate streams and the first and last optimizer calls; JSON has all of them."""
    from tacit.experiments.tables import Table

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
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"
