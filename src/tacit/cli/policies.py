"""`tacit policies`: what there is to choose from."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

from tacit.cli.shared import Json, show, write_json


def policies(json_file: Json = None) -> None:
    """List all policies: privacy model, links, what they do, options.

    \b
    Example:
      tacit policies --json -
    """
    from tacit.experiments.tables import Table

    rows = _rows()
    cells = [
        (row["policy"], row["privacy"], ", ".join(row["links"]), ", ".join(row["options"]) or "-", row["summary"])
        for row in rows
    ]
    show(Table("Policies", ("policy", "privacy", "links", "options", "summary"), tuple(cells), labels=5), json_file)
    write_json(rows, json_file)


def _rows() -> list[dict[str, Any]]:
    from tacit.policies.registry import POLICIES, policy_class

    rows = []
    for name in POLICIES:
        found = policy_class(name)
        summary = (inspect.getdoc(found) or "").partition("\n")[0]
        options = [field.name for field in fields(found.options_type)]
        row = {"policy": name, "privacy": found.guarantee, "links": list(found.links), "options": options}
        rows.append(row | {"summary": summary})
    return rows
