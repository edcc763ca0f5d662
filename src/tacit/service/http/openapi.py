"""The OpenAPI document, from the table of operations and the types of bodies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from tacit._version import __version__
from tacit.service.http.bodies import DOCUMENTS, Identity, Name
from tacit.service.http.operations import Operation
from tacit.service.http.problems import MEDIA_TYPE, ProblemDocument

_PLACES: Final = "#/components/schemas/{name}"
_PARAMETERS: Final[dict[str, tuple[Any, str]]] = {
    "name": (Name, "The policy's name."),
    "event_id": (Identity, "The caller's id of the decision."),
    "key_name": (Name, "The key's name."),
}


def openapi(operations: Sequence[Operation]) -> dict[str, Any]:
    """The document, as OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    _, schemas = msgspec.json.schema_components(DOCUMENTS, ref_template=_PLACES)
    schemas["PolicyBody"]["additionalProperties"] = True
    schemas["BatchBody"]["properties"]["requests"]["items"] = {"$ref": _PLACES.format(name="DecisionBody")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tacit", "version": __version__, "description": "Decisions that learn under privacy."},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "summary": operation.about,
        "operationId": re.sub(r"\W+", "_", f"{operation.method.lower()} {operation.path}").strip("_"),
        "responses": _responses(operation),
    }
    names = re.findall(r"{(\w+)}", operation.path)
    if names:
        whole["parameters"] = [_parameter(name) for name in names]
    if operation.takes is not None:
        schema = {"$ref": _PLACES.format(name=operation.takes.__name__)}
        whole["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if operation.scope is not None:
        whole["security"] = [{"key": []}]
        unbound = " that is not bound to policies" if operation.whole else ""
        whole["description"] = f"Needs a key with scope `{operation.scope}`{unbound}."
    return whole


def _parameter(name: str) -> dict[str, Any]:
    kind, about = _PARAMETERS[name]
    return {"name": name, "in": "path", "required": True, "description": about, "schema": msgspec.json.schema(kind)}


def _responses(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, kind in operation.answers.items():
        found[str(status)] = {"description": HTTPStatus(status).phrase}
        if kind is not None:
            schema = {"$ref": _PLACES.format(name=kind.__name__)} if kind is not object else {}
            found[str(status)]["content"] = {operation.media_type: {"schema": schema}}
    usual = (401, 403, 429, 503) if operation.scope is not None else ()
    problem = {MEDIA_TYPE: {"schema": {"$ref": _PLACES.format(name=ProblemDocument.__name__)}}}
    for status in sorted({*usual, *operation.problems}):
        found[str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    return found
