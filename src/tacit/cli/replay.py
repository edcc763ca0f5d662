"""`tacit replay`: what policies would have earned, by the log of a randomised experiment."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.shared import (
    INTERRUPTED,
    BaseRate,
    Delta,
    Jobs,
    Json,
    Module,
    Options,
    Refused,
    Seed,
    check_writable,
    chosen_policies,
    field_names,
    messages,
    numbers,
    options_of,
    show,
)

if TYPE_CHECKING:
    from tacit.evaluation import Contender, Replayed, Summary, Trial, ValueEstimate
    from tacit.experiments.tables import Table

_DEFAULT_POLICIES = ("stream-glm", "greedy-mle")
_SHARE = re.compile(r"(.+?)=([^,=]+)(?:,|$)")
"""An arm and its share; the names of arms of several fields have commas."""
_OWN_FLAGS = {"theta_bound": "--theta-bound", "base_rate": "--base-rate", "reward_bound": "--reward-bound"} | {
    name: f"--{name}" for name in ("epsilon", "delta", "seed", "dim")
}


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The log: CSV or Parquet, one line for each user.")],
    *,
    schema: Annotated[str, typer.Option(metavar="FILE", help="Its fields are columns of the log; see: tacit schema.")],
    reward: Annotated[str, typer.Option(metavar="COLUMN", help="What came of it.")],
    shares: Annotated[str | None, typer.Option(metavar="equal|ARM=P,...", help="How likely arms were.")] = None,
    propensity: Annotated[str | None, typer.Option(metavar="COLUMN", help="How likely the given arm was.")] = None,
    stratum: Annotated[str | None, typer.Option(metavar="COLUMN", help="Count shares within its values.")] = None,
    arms: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A list of arms as JSON.", show_default="the values of the schema's arm"),
    ] = None,
    reward_bound: Annotated[float, typer.Option(help="The largest reward that there can be.")] = 1.0,
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME...]", help="Policies; see: tacit policies.", show_default="stream-glm, ..."),
    ] = None,
    epsilon: Annotated[str, typer.Option(metavar="E[,E...]", help="Privacy of private policies.")] = "1,8",
    delta: Delta = 1e-5,
    theta_bound: Annotated[float | None, typer.Option(help="Bound on the parameter that policies are told.")] = None,
    base_rate: BaseRate = None,
    orders: Annotated[int, typer.Option(min=1, help="Passes over the log, each in an order of its own.")] = 20,
    lines: Annotated[int | None, typer.Option(min=1, help="Lines of a pass, if not all.")] = None,
    seed: Seed = 0,
    jobs: Jobs,
    option: Options = None,
    module: Module = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the values.")] = None,
    json_file: Json = None,
) -> None:
    """Tell what policies would have earned in a randomised experiment, by its log.

    The result is a function of raw rows: it is for those who may see the log, and no private release.

    \b
    Examples:
      tacit replay trial.csv --schema trial.json --reward cured --shares equal
      tacit replay log.parquet --schema s.json --reward click --propensity p --epsilon 1,4 --plot values.png
      tacit replay star.csv --schema s.json --reward score --stratum school --policy stream-glm,random --orders 50
    """
    from tacit.evaluation import fixed_values, make_trial, read_log
    from tacit.experiments.schemas import load_schema
    from tacit.extensions import load_modules

    check_writable(json_file, figure=plot)
    modules = load_modules(module or ())
    chosen = chosen_policies(policy, "--policy", _DEFAULT_POLICIES)
    told = {"theta_bound": theta_bound, "base_rate": base_rate, "reward_bound": reward_bound, "delta": delta}
    contenders = _contenders(chosen, numbers(epsilon, "--epsilon"), told, option, modules)
    trial = make_trial(
        load_schema(schema),
        read_log(file),
        reward=reward,
        arms=None if arms is None else _arms(arms),
        shares=_shares(shares),
        propensity=propensity,
        stratum=stratum,
        reward_bound=reward_bound,
    )
    found = _played(trial, contenders, orders, lines, seed, jobs)
    fixed = fixed_values(trial)
    show(table(trial, found, fixed), json_file, _rows(found, fixed))
    if plot is not None:
        from tacit.evaluation.pictures import values

        values(found, fixed, plot)
        messages().print(f"Figure: {plot}")


def _contenders(
    policies: list[str], epsilons: list[float], told: dict[str, Any], option: list[str] | None, modules: Any
) -> list[Contender]:
    """Every policy with what it is told, private ones once for each epsilon."""
    from tacit.evaluation import Contender
    from tacit.policies.registry import policy_class

    found = []
    for name, own in options_of(policies, option, _OWN_FLAGS).items():
        known = set(field_names(name))
        common = {key: value for key, value in told.items() if value is not None and key in known} | own
        budgets = [{"epsilon": value} for value in epsilons] if policy_class(name).private else [{}]
        found += [Contender(name, common | budget, modules) for budget in budgets]
    return found


def _arms(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise Refused(f"--arms {path}: not JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(arm, dict) for arm in found):
        raise Refused(f"--arms {path}: it must hold a list of records, one for each arm")
    return found


def _shares(text: str | None) -> str | dict[str, float] | None:
    """Read ``equal``, or ``ARM=P`` for every arm."""
    if text is None or "=" not in text:
        return text
    parts = _SHARE.findall(text)
    try:
        found = {name.strip(): float(value) for name, value in parts}
    except ValueError:
        found = {}
    if not found or len(found) < len(parts) or _SHARE.sub("", text):
        raise Refused(f"--shares takes equal, or one probability for each arm, A=0.5,B=0.5, not {text!r}")
    return found


def _played(
    trial: Trial, contenders: list[Contender], orders: int, lines: int | None, seed: int, jobs: int
) -> list[Replayed]:
    """Replay under a progress bar."""
    from tacit.cli import progress
    from tacit.evaluation import replay as play

    with progress.bar("passes", orders * len(contenders)) as (bar, task):

        def count(contender: Contender) -> None:
            bar.update(task, advance=1, description=contender.label)

        try:
            return play(trial, contenders, orders=orders, lines=lines, seed=seed, jobs=jobs, on_pass=count)
        except KeyboardInterrupt:
            messages().print("Interrupted: there is no result without all passes.", style="bold")
            raise typer.Exit(INTERRUPTED) from None


def table(trial: Trial, found: Sequence[Replayed], fixed: dict[str, ValueEstimate]) -> Table:
    """Tabulate the estimates of every policy, and what is earned without learning."""
    from tacit.evaluation.replay import BEST_METHOD, METHODS
    from tacit.experiments.tables import Table

    lines: list[tuple[str, ...]] = [
        (
            one.contender.label,
            *(_cell(one.estimates[method].mean) for method in METHODS),
            _cell(one.estimates[BEST_METHOD].spread),
            _cell(one.estimates[BEST_METHOD].error),
            f"{one.learned:,.0f}",
        )
        for one in found
    ]
    lines += [(name, "-", "-", _cell(one.value), "-", "-", _cell(one.error), "-") for name, one in fixed.items()]
    heads = ("replay", "inverse", "self-\nnormalised", "doubly\nrobust")
    columns = ("mean reward of", *heads, "spread\nof orders", "sampling\nerror", "learned\nfrom")
    size = found[0].lines if found else trial.size
    passes = f"{found[0].orders} passes of {size:,} lines" if found else "no policy"
    users = f"{trial.size:,} users, {len(trial.arms)} arms, d = {trial.schema.dim}"
    title = f"What would have been earned: {users}; {passes}"
    return Table(title, columns, tuple(lines), rules=frozenset({len(found) - 1}), notes=_notes(trial))


def _cell(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "-"


def _notes(trial: Trial) -> tuple[str, ...]:
    from tacit.evaluation import doubts

    counted = "" if trial.designed else " Shares of arms were counted in the log, within each stratum."
    return (
        "The value is that of the run: the mean reward of what the policy chooses while it learns, not of what it ends "
        "with. Means are over orders of the lines.",
        "spread of orders: standard deviation of estimates from order to order (doubly robust). sampling error: "
        "standard error of one pass, as other users could have been in the experiment; that of the mean is no larger.",
        f"learned from: lines whose arm the policy chose, on average.{counted}",
        "Estimates are functions of raw rows: for those who may see the log, and no private release.",
        *(f"Doubtful: {doubt}" for doubt in doubts(trial)),
    )


def _rows(found: Sequence[Replayed], fixed: dict[str, ValueEstimate]) -> list[dict[str, Any]]:
    """The table as JSON."""
    from tacit.experiments.results import jsonable

    rows: list[dict[str, Any]] = [
        {
            "policy": one.contender.policy,
            "options": {
                key: jsonable(value) if isinstance(value, float) else value
                for key, value in one.contender.options.items()
            },
            "orders": one.orders,
            "lines": one.lines,
            "learned": one.learned,
            "estimates": {method: _known(summary) for method, summary in one.estimates.items()},
        }
        for one in found
    ]
    return rows + [{"fixed": name, **_known(value)} for name, value in fixed.items()]


def _known(numbers: Summary | ValueEstimate) -> dict[str, float | None]:
    """Numbers by name; null where there is too little to tell."""
    return {name: value if math.isfinite(value) else None for name, value in numbers._asdict().items()}
