"""`tacit simulate`: any policies on any environment."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.shared import (
    ContextName,
    Delta,
    Engine,
    Jobs,
    Json,
    LinkName,
    Refused,
    Runs,
    Seed,
    check_writable,
    messages,
    names,
    numbers,
    show,
    write_json,
)

if TYPE_CHECKING:
    from tacit.experiments.spec import Experiment

_DEFAULT_POLICIES = ("stream-glm", "joint-glm", "rs-glinucb", "random")
_COMMON_OPTIONS = ("noise", "rounds_per_user", "kappa", "kappa_star", "reward_window")
_OWN_FLAGS = {"theta_bound": "--theta-norm"} | {
    name: f"--{name}" for name in ("dim", "horizon", "link", "epsilon", "delta", "seed")
}


def simulate(
    *,
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME...]", help="Policies; see: tacit policies.", show_default="ours, baselines"),
    ] = None,
    link: Annotated[LinkName, typer.Option(help="Link of the rewards.")] = "logistic",
    dim: Annotated[int, typer.Option(min=1, help="Features of an arm, d.")] = 5,
    arms: Annotated[int, typer.Option(min=1, help="Arms in each round, K (assouad has 2 d).")] = 20,
    horizon: Annotated[int, typer.Option(min=1, help="Rounds, T.")] = 5_000,
    theta_norm: Annotated[float, typer.Option(help="Length of the true parameter, S.")] = 3.0,
    epsilon: Annotated[str, typer.Option(metavar="E[,E...]", help="Privacy of private policies; inf: no noise.")] = "4",
    delta: Delta = 1e-5,
    contexts: Annotated[ContextName, typer.Option(help="How arms come about.")] = "ball",
    runs: Runs = 10,
    seed: Seed = 0,
    jobs: Jobs,
    engine: Engine = "joblib",
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="For the policies that know KEY; may be repeated.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the regret curves.")] = None,
    json_file: Json = None,
) -> None:
    """Play policies on simulated users and compare their regret.

    Private policies run once for each epsilon; all policies meet the same instances.

    \b
    Examples:
      tacit simulate --policy joint-glm,random --epsilon 1,4,inf
      tacit simulate --policy joint-glm --option factorization=tree --json rows.json
      tacit simulate --contexts shift --link probit --horizon 20000 --plot regret.png
    """
    from tacit.cli import progress
    from tacit.experiments import tables

    check_writable(plot, json_file)
    setting = {
        "link": link,
        "dim": dim,
        "arms": _arms(contexts, dim, arms),
        "horizon": horizon,
        "theta_norm": theta_norm,
        "contexts": contexts,
    }
    experiments = _experiments(_policies(policy), numbers(epsilon, "--epsilon"), delta, setting, _parse(option or []))
    outcome = progress.run(experiments, runs=runs, seed=seed, jobs=jobs, engine=engine)
    show(tables.simulation(outcome.rows), json_file)
    write_json(outcome.rows, json_file)
    if plot is not None and outcome.rows:
        from tacit.experiments import plots

        plots.curves([(f"{link}, d = {dim}, S = {theta_norm:g}, {contexts}", outcome.rows)], plot)
        messages().print(f"Figure: {plot}")
    outcome.finish()


def _policies(text: str | None) -> list[str]:
    from tacit.policies.registry import POLICIES

    if text is None:
        return [name for name in _DEFAULT_POLICIES if name in POLICIES]
    return names(text, "--policy", list(POLICIES))


def _arms(contexts: str, dim: int, arms: int) -> int:
    return 2 * dim if contexts == "assouad" else arms


def _parse(texts: list[str]) -> dict[str, Any]:
    options = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise Refused(f"--option takes KEY=VALUE, such as factorization=tree, not {text!r}")
        if key in _OWN_FLAGS:
            raise Refused(f"--option {key}: use {_OWN_FLAGS[key]}")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return options


def _experiments(
    policies: list[str], epsilons: list[float], delta: float, setting: dict[str, Any], options: dict[str, Any]
) -> list[Experiment]:
    """Each option goes to the policies that know it; one that nobody knows is an error."""
    from tacit.experiments.spec import experiments_for
    from tacit.policies.registry import policy_class

    known = {name: {field.name for field in fields(policy_class(name).options_type)} for name in policies}
    everywhere = set(_COMMON_OPTIONS)
    for key in options:
        if key not in everywhere.union(*known.values()):
            offer = "; ".join(f"{name}: {', '.join(sorted(keys)) or 'none'}" for name, keys in known.items())
            raise Refused(f"--option {key}: no chosen policy knows it. Their options are {offer}")
    return [
        experiment
        for name in policies
        for experiment in experiments_for(
            name, epsilons, delta, setting, {key: options[key] for key in options if key in known[name] | everywhere}
        )
    ]
