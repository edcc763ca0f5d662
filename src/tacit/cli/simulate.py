"""`tacit simulate`: any policies on any environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.shared import (
    BaseRate,
    Delta,
    Engine,
    Jobs,
    Journal,
    Json,
    Link,
    Module,
    Options,
    Refused,
    Rewards,
    Runs,
    SchemaFile,
    Seed,
    ThetaBound,
    check_writable,
    chosen_contexts,
    chosen_links,
    chosen_policies,
    chosen_rewards,
    load,
    messages,
    numbers,
    one,
    options_of,
    show,
)

if TYPE_CHECKING:
    from tacit.experiments.spec import Experiment

_DEFAULT_POLICIES = ("stream-glm", "joint-glm", "rs-glinucb", "random")
_DIM, _ARMS = 5, 20
_OWN_FLAGS = {"theta_bound": "--theta-bound", "base_rate": "--base-rate", "features": "--schema"} | {
    name: f"--{name}" for name in ("dim", "horizon", "link", "epsilon", "delta", "seed")
}


def simulate(
    *,
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME...]", help="Policies; see: tacit policies.", show_default="ours, baselines"),
    ] = None,
    link: Link = "logistic",
    dim: Annotated[int | None, typer.Option(min=1, help="Features of an arm, d.", show_default=str(_DIM))] = None,
    arms: Annotated[
        int | None,
        typer.Option(min=1, help="Arms in each round, K (assouad has 2 d, news 5).", show_default=str(_ARMS)),
    ] = None,
    horizon: Annotated[int, typer.Option(min=1, help="Rounds, T.")] = 5_000,
    theta_norm: Annotated[float, typer.Option(help="Length of the true parameter, S.")] = 3.0,
    theta_bound: ThetaBound = None,
    base_rate: BaseRate = None,
    epsilon: Annotated[str, typer.Option(metavar="E[,E...]", help="Privacy of private policies; inf: no noise.")] = "4",
    delta: Delta = 1e-5,
    contexts: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="ball, fixed, shift, assouad, news, or one of your own.", show_default="ball"
        ),
    ] = None,
    schema: SchemaFile = None,
    rewards: Rewards = "now",
    runs: Runs = 10,
    seed: Seed = 0,
    jobs: Jobs,
    engine: Engine = "joblib",
    option: Options = None,
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
      tacit simulate --policy joint-glm,joint-linucb --option joint-glm:factorization=tree
      tacit simulate --module my_worlds.py --contexts mine
      tacit simulate --schema articles --base-rate 0.08 --policy stream-glm,random
      tacit simulate --schema my_schema.json --arms 10 --rewards late
    """
    from tacit.cli import progress
    from tacit.experiments import tables
    from tacit.experiments.spec import Experiment

    check_writable(json_file, journal, figure=plot)
    modules = load(module)
    chosen = chosen_policies(policy, "--policy", _DEFAULT_POLICIES)
    base = Experiment(
        policy=chosen[0],
        link=one(chosen_links(link, "--link"), "--link"),
        horizon=horizon,
        theta_norm=theta_norm,
        theta_bound=theta_bound,
        base_rate=base_rate,
        delta=delta,
        modules=modules,
        rewards=chosen_rewards(rewards, "--rewards"),
        **_world(dim, arms, contexts, schema),
    )
    experiments = _experiments(base, chosen, numbers(epsilon, "--epsilon"), option)
    outcome = progress.run(experiments, runs=runs, seed=seed, jobs=jobs, engine=engine, journal=journal)
    show(tables.simulation(outcome.rows), json_file, outcome.rows)
    if plot is not None and outcome.rows:
        from tacit.experiments import plots

        plots.curves([(_plot_title(base, schema), outcome.rows)], plot)
        messages().print(f"Figure: {plot}")
    outcome.finish()


def _world(dim: int | None, arms: int | None, contexts: str | None, schema: str | None) -> dict[str, Any]:
    """Return the fields of an experiment that describe its environment, from a schema where one is given."""
    from tacit.environments import SCHEMA, arms_of

    if schema is None:
        kind, features = one(chosen_contexts(contexts or "ball", "--contexts"), "--contexts"), dim or _DIM
        if kind == SCHEMA:
            raise Refused("--contexts schema: give the schema itself, --schema FILE")
        return {"contexts": kind, "dim": features, "arms": arms_of(kind, features, arms or _ARMS)}
    from tacit.experiments.schemas import load_schema, world_of

    if dim is not None:
        raise Refused("--dim: it follows from the schema; leave it out beside --schema")
    if contexts is not None:
        raise Refused("--contexts: they are simulated users of the schema; leave it out beside --schema")
    return world_of(load_schema(schema), arms)


def _plot_title(base: Experiment, schema: str | None) -> str:
    where = base.contexts if schema is None else f"users of {schema}"
    late = "" if base.rewards == "now" else f", rewards {base.rewards}"
    return f"{base.link}, d = {base.dim}, S = {base.theta_norm:g}, {where}{late}"


def _experiments(
    base: Experiment, policies: list[str], epsilons: list[float], options: list[str] | None
) -> list[Experiment]:
    """List every policy with its options, private ones once for each epsilon."""
    from dataclasses import replace

    from tacit.experiments.spec import for_each_epsilon

    found: list[Experiment] = []
    for name, own in options_of(policies, options, _OWN_FLAGS).items():
        found += for_each_epsilon(replace(base, policy=name, options=own), epsilons)
    return found
