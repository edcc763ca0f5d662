"""`tacit audit`: attacks on Tacit's own policies and mechanisms, claim against evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.shared import (
    Delta,
    Jobs,
    Json,
    Module,
    Options,
    Refused,
    Seed,
    check_writable,
    messages,
    names,
    numbers,
    options_of,
    show,
)

if TYPE_CHECKING:
    from tacit.audit.evidence import Evidence
    from tacit.audit.tasks import AuditTask
    from tacit.experiments.tables import Table

ALL = "all"
_SERVICES = {
    "service": "tacit.testing.services:InProcessService",
    "service, two processes": "tacit.testing.services:SharedInProcessService",
}
"""What opens the services to be audited, by what they are called in the findings."""
_OWN_FLAGS = {name: f"--{name}" for name in ("horizon", "epsilon", "delta", "seed")}


def audit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A private policy, a mechanism, service, or all.")],
    *,
    epsilon: Annotated[str, typer.Option(metavar="E[,E...]", help="Claims to attack.")] = "1,4",
    delta: Delta = 1e-5,
    runs: Annotated[
        int | None, typer.Option(min=20, help="Runs per world.", show_default="5000 mechanisms, 1000 policies")
    ] = None,
    pairs: Annotated[int | None, typer.Option(min=1, help="Neighbours replayed.", show_default="1000")] = None,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999, help="Confidence of the lower bounds.")] = 0.95,
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes' worth, for every change of the code.")] = False,
    seed: Seed = 0,
    jobs: Jobs,
    option: Options = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Horizon of the policies, T.", show_default="several, and none")
    ] = None,
    module: Module = None,
    json_file: Json = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw what the attacker saw.")] = None,
) -> None:
    """Attack the privacy claims; exit code 1 when one is refuted or not exercised.

    \b
    Examples:
      tacit audit stream-glm --plot stream.png
      tacit audit all --quick
      tacit audit joint-linucb --option reward_age=500 --horizon 20000
      tacit audit my-policy --module my_policy.py --option period=1000
      tacit audit service
    """
    from tacit.audit import tasks as known
    from tacit.audit.tasks import FULL, QUICK, Effort
    from tacit.extensions import load_modules

    check_writable(json_file, figure=plot)
    size = QUICK if quick else FULL
    effort = Effort(
        mechanism=runs or size.mechanism,
        policy=runs or size.policy,
        pairs=pairs or size.pairs,
        driven=min(pairs or size.driven, size.driven),
        service=pairs or size.service,
    )
    modules = load_modules(module or ())
    wanted = _wanted(name)
    tasks = known.tasks_for(
        wanted,
        epsilons=numbers(epsilon, "--epsilon"),
        delta=delta,
        confidence=confidence,
        effort=effort,
        seed=seed,
        modules=modules,
        options=_options(wanted, option, horizon),
    )
    if name in (ALL, known.SERVICE) and _has_service(asked=name != ALL):
        for place, service in _SERVICES.items():
            tasks += known.service_tasks(place, service, effort, seed)
    if name == ALL:
        tasks += known.paper_tasks(delta, seed)
    found = _perform(tasks, jobs)
    show(_table(name, delta, confidence, found), json_file, [evidence.row() for evidence in found])
    if plot is not None:
        from tacit.audit.evidence import distributions

        distributions(found, plot)
        messages().print(f"Figure: {plot}")
    _finish(found)


def _wanted(name: str) -> list[str]:
    from tacit.audit.tasks import SERVICE, auditable

    if name == SERVICE:
        return []
    return auditable() if name == ALL else names(name, "NAME", [*auditable(), SERVICE, ALL])


def _has_service(*, asked: bool) -> bool:
    """Return whether the service is installed; raise `MissingExtra` where it was ``asked`` for and is not."""
    from pkgutil import resolve_name

    from tacit.audit.tasks import SERVICE
    from tacit.errors import MissingExtra
    from tacit.extras import named_extras

    try:
        with named_extras():
            resolve_name(_SERVICES[SERVICE])
    except MissingExtra as error:
        if asked:
            raise
        messages().print(f"The service is not audited: {error}")
        return False
    return True


def _options(wanted: list[str], options: list[str] | None, horizon: int | None) -> dict[str, dict[str, Any]]:
    """Options of each policy, by its name; policies without any are left out."""
    from tacit.audit.rehearsal import audited_policies

    policies = [name for name in wanted if name in audited_policies()]
    if not policies and (options or horizon is not None):
        raise Refused("--option and --horizon are for policies: name one")
    every = {} if horizon is None else {"horizon": horizon}
    told = {name: every | own for name, own in options_of(policies, options, _OWN_FLAGS).items()}
    return {name: own for name, own in told.items() if own}


def _perform(tasks: list[AuditTask], jobs: int) -> list[Evidence]:
    from tacit.audit.evidence import perform_all
    from tacit.cli.progress import bar

    found: list[Evidence] = []
    with bar("audit", len(tasks)) as (progress, shown):
        progress.update(shown, description=tasks[0].name)
        for position, evidence in enumerate(perform_all(tasks, min(jobs, len(tasks))), start=1):
            found += evidence
            following = tasks[min(position, len(tasks) - 1)]
            progress.update(shown, completed=position, description=f"{following.name} ({following.kind})"[:22])
    return found


def _table(name: str, delta: float, confidence: float, found: list[Evidence]) -> Table:
    from tacit.experiments.tables import Table

    cells = tuple(
        (
            evidence.name,
            evidence.method,
            _number(evidence.claim),
            _number(evidence.lower_bound),
            f"{evidence.runs:>7,}",
            evidence.verdict,
            evidence.detail,
        )
        for evidence in found
    )
    columns = ("name", "method", "claim", "found", "runs", "verdict", "detail")
    title = f"Audit of {name}: claimed epsilon at delta {delta:g}, and what was found with {confidence:.0%} confidence"
    return Table(title, columns, cells, labels=len(columns))


def _number(value: float | None) -> str:
    return "    -" if value is None else f"{value:>5.3g}"


def _finish(found: list[Evidence]) -> None:
    from tacit.audit.evidence import NOT_EXERCISED

    failed = [evidence for evidence in found if evidence.failed]
    console = messages()
    if not failed:
        console.print(f"Nothing refuted: {len(found)} findings, all as claimed.", style="bold")
        return
    for evidence in failed:
        console.print(f"{evidence.verdict}: {evidence.name} by {evidence.method}: {evidence.detail}", style="bold")
    unseen = [evidence for evidence in failed if evidence.verdict == NOT_EXERCISED]
    if unseen:
        console.print(
            f"{len(unseen)} of {len(found)} claims were not exercised: nothing is known of them.", style="bold"
        )
    raise typer.Exit(1)
