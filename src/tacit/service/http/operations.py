"""All routes in one table: who may call them, what they take and what they answer with.

Keys are checked, requests are routed and the OpenAPI document is made from this table, so that none of the three can
forget a route.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tacit._version import __version__
from tacit.service.http import bodies, changes, hot, metrics, page, reads
from tacit.service.http.keys import Scope
from tacit.service.http.problems import MEDIA_TYPE, ProblemDocument
from tacit.service.http.state import Service

Endpoint = Callable[[Service, Request], Awaitable[Response]]
_FREE: Final = object
"""Answers whose form is that of a report or a page."""


@dataclass(frozen=True)
class Operation:
    """A method of a path.  Without an endpoint it is a hot route; without a scope everybody may call it."""

    method: str
    path: str
    about: str
    scope: Scope | None
    endpoint: Endpoint | None = None
    takes: type[msgspec.Struct] | None = None
    answers: Mapping[int, type[Any] | None] = field(default_factory=dict)
    """The form of the answer by status; None for one without a body."""
    media_type: str = "application/json"
    problems: tuple[int, ...] = ()
    """Statuses of problems beside those that follow from the rest."""
    whole: bool = False
    """Whether it is about all policies or keys together: a key that is bound to policies is refused."""


_DECIDED: Final = {200: bodies.DecisionAnswer, 201: bodies.DecisionAnswer}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation("GET", "/v1/policies", "All policies.", "read", reads.policies, answers={200: bodies.PolicyList}),
    Operation(
        "GET",
        "/v1/policies/{name}",
        "Configuration, decisions so far, released estimate, health.",
        "read",
        reads.policy,
        answers={200: bodies.PolicyDocument},
    ),
    Operation(
        "PUT",
        "/v1/policies/{name}",
        "Make a policy, or change the mode of one; everything else never changes.",
        "admin",
        changes.put_policy,
        bodies.PolicyBody,
        {200: bodies.PolicyDocument, 201: bodies.PolicyDocument},
        problems=(409,),
    ),
    Operation(
        "PUT",
        "/v1/policies/{name}/mode",
        "Change the mode of a policy.",
        "admin",
        changes.put_mode,
        bodies.ModeBody,
        {200: bodies.PolicyDocument},
    ),
    Operation(
        "POST",
        hot.DECISIONS,
        "Choose an arm. The same event_id and content again: the stored answer, 200.",
        "decide",
        None,
        bodies.DecisionBody,
        _DECIDED,
        problems=(409,),
    ),
    Operation(
        "POST",
        hot.BATCHES,
        "Choose for many users; a bad request gets its own error in its place.",
        "decide",
        None,
        bodies.BatchBody,
        {200: bodies.BatchAnswer},
    ),
    Operation(
        "PUT",
        hot.REWARDS,
        "Report a reward, or that the arm was never shown. The same again: 200.",
        "reward",
        None,
        bodies.RewardBody,
        _DECIDED,
        problems=(409, 410),
    ),
    Operation("GET", "/v1/policies/{name}/privacy", "The privacy report.", "read", reads.privacy, answers={200: _FREE}),
    Operation(
        "GET",
        "/v1/policies/{name}/history",
        "The newest releases and changes of mode.",
        "read",
        reads.history,
        answers={200: bodies.History},
    ),
    Operation(
        "GET",
        "/v1/policies/{name}/explanation",
        "Every feature with its released weight.",
        "read",
        reads.explanation,
        answers={200: _FREE},
    ),
    Operation(
        "GET",
        "/v1/privacy",
        "All policies composed, since users may be in several.",
        "read",
        reads.total_privacy,
        answers={200: bodies.TotalPrivacy},
        whole=True,
    ),
    Operation(
        "GET",
        "/v1/live",
        "A stream of summaries, one whenever something was published.",
        "read",
        reads.live,
        answers={200: _FREE},
        media_type="text/event-stream",
    ),
    Operation(
        "GET",
        "/v1/keys",
        "All keys, without their secret parts.",
        "admin",
        changes.keys,
        answers={200: bodies.KeyList},
        whole=True,
    ),
    Operation(
        "POST",
        "/v1/keys",
        "Make a key, which is shown this once.",
        "admin",
        changes.add_key,
        bodies.KeyBody,
        {201: bodies.NewKey},
        problems=(409,),
        whole=True,
    ),
    Operation(
        "DELETE", "/v1/keys/{key_name}", "Revoke a key.", "admin", changes.revoke_key, answers={204: None}, whole=True
    ),
    Operation(
        "GET",
        "/metrics",
        "Numbers for Prometheus; with scope admin also raw ones.",
        "read",
        metrics.metrics,
        answers={200: _FREE},
        media_type="text/plain",
    ),
    Operation("GET", "/healthz", "That the process answers.", None, reads.healthz, answers={200: bodies.Health}),
    Operation(
        "GET",
        "/readyz",
        "Whether requests are taken.",
        None,
        reads.readyz,
        answers={200: bodies.Health, 503: bodies.Health},
    ),
    Operation("GET", "/", "The page.", None, page.index, answers={200: _FREE}, media_type="text/html"),
)

_KEY: Final = (401, 403, 429, 503)
_BODY: Final = (400, 408, 413, 415, 422)
"""Statuses of problems with a key, and with a body."""
_PLACES: Final = "#/components/schemas/{name}"
_PARAMETERS: Final[dict[str, tuple[Any, str]]] = {
    "name": (bodies.Name, "The policy's name."),
    "event_id": (bodies.Identity, "The caller's id of the decision."),
    "key_name": (bodies.Name, "The key's name."),
}


def openapi() -> dict[str, Any]:
    """The OpenAPI document of all operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    _, schemas = msgspec.json.schema_components(bodies.DOCUMENTS, ref_template=_PLACES)
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
    usual = (
        *(_KEY if operation.scope is not None else ()),
        *(_BODY if operation.takes is not None else ()),
        *((404,) if "{" in operation.path else ()),
    )
    problem = {MEDIA_TYPE: {"schema": {"$ref": _PLACES.format(name=ProblemDocument.__name__)}}}
    for status in sorted({*usual, *operation.problems}):
        found[str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    return found
