"""`tacit policies`: all policies, and the options of each."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from tacit.cli.shared import Json, Module, known_policies, load, names, option_names, show


def policies(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Explain the configuration of this one.")] = None,
    module: Module = None,
    json_file: Json = None,
) -> None:
    """List all policies: privacy model, links, what they do, options; with a name, explain every field of one.

    \b
    Examples:
      tacit policies
      tacit policies stream-glm
      tacit policies --json -
    """
    load(module)
    if name is not None:
        for wanted in names(name, "NAME", known_policies()):
            _explain(wanted, json_file)
        return
    from tacit.experiments.tables import Table

    rows = [_row(known) for known in known_policies()]
    cells = [
        (row["policy"], row["privacy"], ", ".join(row["links"]), ", ".join(row["options"]) or "-", row["summary"])
        for row in rows
    ]
    show(
        Table("Policies", ("policy", "privacy", "links", "options", "summary"), tuple(cells), labels=5), json_file, rows
    )


def _row(name: str) -> dict[str, Any]:
    from tacit.policies.registry import policy_class

    found = policy_class(name)
    summary = (inspect.getdoc(found) or "").partition("\n")[0]
    options = option_names(name)
    return {
        "policy": name,
        "privacy": found.guarantee,
        "links": list(found.links),
        "options": options,
        "summary": summary,
    }


def _explain(name: str, json_file: Json) -> None:
    from tacit.experiments.tables import Table
    from tacit.policies.config import describe
    from tacit.policies.registry import policy_class

    found = policy_class(name)
    fields = describe(found.config_type)
    cells = tuple((field.name, field.kind, field.default, field.about) for field in fields)
    title = f"{name}: {(inspect.getdoc(found) or '').partition(chr(10))[0]}"
    described = [field._asdict() for field in fields]
    show(Table(title, ("field", "type", "default", "meaning"), cells, labels=4), json_file, described)
