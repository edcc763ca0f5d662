"""`tacit simulate`: any policies on any environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.shared import (
    Delta,
    Engine,
    Jobs,
    Journal,
    Json,
    Link,
    Module,
    Refused,
    Rewards,
    Runs,
    Seed,
    ThetaBound,
    check_writable,
    chosen_contexts,
    chosen_links,
    chosen_policies,
    chosen_rewards,
    field_names,
    load,
    messages,
    numbers,
    one,
    show,
    write_json,
)

if TYPE_CHECKING:
    from tacit.experiments.spec import Experiment

_DEFAULT_POLICIES = ("stream-glm", "joint-glm", "rs-glinucb", "random")
_OWN_FLAGS = {"theta_bound": "--theta-bound", "base_rate": "--base-rate"} | {
    name: f"--{name}" for name in ("dim", "horizon", "link", "epsilon", "delta", "seed")
}


def simulate(
    *,
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME...]", help="Policies; see: tacit policies.", show_default="ours, baselines"),
    ] = None,
    link: Link = "logistic",
    dim: Annotated[int, typer.Option(min=1, help="Features of an arm, d.")] = 5,
    arms: Annotated[int, typer.Option(min=1, help="Arms in each round, K (assouad has 2 d, news 5).")] = 20,
    horizon: Annotated[int, typer.Option(min=1, help="Rounds, T.")] = 5_000,
    theta_norm: Annotated[float, typer.Option(help="Length of the true parameter, S.")] = 3.0,
    theta_bound: ThetaBound = None,
    base_rate: Annotated[
        float | None,
        typer.Option(metavar="P", help="Mean reward at score 0, which policies are told.", show_default="the link's"),
    ] = None,
    epsilon: Annotated[str, typer.Option(metavar="E[,E...]", help="Privacy of private policies; inf: no noise.")] = "4",
    delta: Delta = 1e-5,
    contexts: Annotated[
        str, typer.Option(metavar="KIND", help="ball, fixed, shift, assouad, news, or one of your own.")
    ] = "ball",
    rewards: Rewards = "now",
    runs: Runs = 10,
    seed: Seed = 0,
    jobs: Jobs,
    engine: Engine = "joblib",
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="For the policies that know KEY; may be repeated.")
    ] = None,
    journal: Journal = None,
    module: Module = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the regret curves.")] = None,
    json_file: Json = None,
) -> None:
    """Play policies on simulated users and compare their regret.

    Private policies run once for each epsilon; all policies meet the same instances.

    \b
    Examples:
      tacit simulate --policy joint-glm,random --epsilon 1,4,inf
      tacit simulate --policy joint-glm --option factorization=tree --json rows.json
      tacit simulate --base-rate 0.08 --theta-norm 1.5
      tacit simulate --contexts shift --link probit --horizon 20000 --plot regret.png
      tacit simulate --contexts news --dim 25 --theta-bound 12 --rewards late --policy stream-glm,random
      tacit simulate --module my_module --contexts mine
    """
    from tacit.cli import progress
    from tacit.environments import arms_of
    from tacit.experiments import tables
    from tacit.experiments.spec import Experiment

    check_writable(plot, json_file, journal)
    modules = load(module)
    chosen = chosen_policies(policy, "--policy", _DEFAULT_POLICIES)
    kind = one(chosen_contexts(contexts, "--contexts"), "--contexts")
    base = Experiment(
        policy=chosen[0],
        link=one(chosen_links(link, "--link"), "--link"),
        dim=dim,
        arms=arms_of(kind, dim, arms),
        horizon=horizon,
        theta_norm=theta_norm,
        theta_bound=theta_bound,
        base_rate=base_rate,
        contexts=kind,
        delta=delta,
        modules=modules,
        rewards=chosen_rewards(rewards, "--rewards"),
    )
    experiments = _experiments(base, chosen, numbers(epsilon, "--epsilon"), _parse(option or []))
    outcome = progress.run(experiments, runs=runs, seed=seed, jobs=jobs, engine=engine, journal=journal)
    show(tables.simulation(outcome.rows), json_file)
    write_json(outcome.rows, json_file)
    if plot is not None and outcome.rows:
        from tacit.experiments import plots

        title = f"{link}, d = {dim}, S = {theta_norm:g}, {contexts}{tables.rewards_text(outcome.rows[0])}"
        plots.curves([(title, outcome.rows)], plot)
        messages().print(f"Figure: {plot}")
    outcome.finish()


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
    base: Experiment, policies: list[str], epsilons: list[float], options: dict[str, Any]
) -> list[Experiment]:
    """Each option goes to the policies that know it; one that nobody knows is an error."""
    from dataclasses import replace

    from tacit.experiments.spec import for_each_epsilon

    known = {name: set(field_names(name)) - set(_OWN_FLAGS) for name in policies}
    for key in options:
        if not any(key in keys for keys in known.values()):
            offer = "; ".join(f"{name}: {', '.join(sorted(keys)) or 'none'}" for name, keys in known.items())
            raise Refused(f"--option {key}: no chosen policy knows it. Their options are {offer}")
    found: list[Experiment] = []
    for name in policies:
        own = {key: value for key, value in options.items() if key in known[name]}
        found += for_each_epsilon(replace(base, policy=name, options=own), epsilons)
    return found
