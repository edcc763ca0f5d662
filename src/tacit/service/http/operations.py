"""All routes in one table: the scope that they need, what they take and what they answer with.

Keys are checked, requests are routed and the OpenAPI document is made from this table, so that none of the three can
forget a route.  The first line of an endpoint's docstring is its summary in the document.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tacit._version import __version__
from tacit.service.http import bodies, changes, hot, metrics, page, reads
from tacit.service.http.keys import Scope
from tacit.service.http.problems import JSON, MEDIA_TYPE, ProblemDocument
from tacit.service.http.state import Service

_POLICY: Final = "/v1/policies/{name}"
_NEW_OR_KNOWN: Final = (200, 201)
_CLASHES: Final = (409, 410)


@dataclass(frozen=True)
class Operation:
    """One method of one path.  Without a scope it needs no key."""

    method: str
    path: str
    scope: Scope | None
    endpoint: Callable[..., Awaitable[Any]]
    """Called with the service and the request; see `hot` for those that return a status and JSON."""
    answer: Any = Any
    """The form of the answer; ``Any`` for a report or a page, None for an answer without a body."""
    takes: type[msgspec.Struct] | None = None
    statuses: tuple[int, ...] = (200,)
    problems: tuple[int, ...] = ()
    """Statuses of problems beside those that follow from the rest."""
    media_type: str = JSON
    query: tuple[str, ...] = ()
    """Names of optional parameters."""
    whole: bool = False
    """Whether it is about all policies or keys together: a key that is bound to policies is refused."""


async def document(service: Service, request: Request) -> Response:
    """Return the OpenAPI document."""
    return bodies.answer(openapi())


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation("GET", "/v1/policies", "read", reads.policies, bodies.PolicyList),
    Operation("GET", _POLICY, "read", reads.policy, bodies.PolicyDocument),
    Operation(
        "PUT", _POLICY, "admin", changes.put_policy, bodies.PolicyDocument, bodies.PolicyBody, _NEW_OR_KNOWN, (409,)
    ),
    Operation("DELETE", _POLICY, "admin", changes.delete_policy, bodies.PolicyDocument),
    Operation(
        "PUT", _POLICY + "/mode", "admin", changes.put_mode, bodies.PolicyDocument, bodies.ModeBody, problems=(409,)
    ),
    Operation(
        "POST", hot.DECISIONS, "decide", hot.decide, bodies.DecisionAnswer, bodies.DecisionBody, _NEW_OR_KNOWN, _CLASHES
    ),
    Operation("POST", hot.BATCHES, "decide", hot.decide_batch, bodies.BatchAnswer, bodies.BatchBody),
    Operation(
        "PUT", hot.REWARDS, "reward", hot.reward, bodies.RewardAnswer, bodies.RewardBody, _NEW_OR_KNOWN, _CLASHES
    ),
    Operation("GET", _POLICY + "/privacy", "read", reads.privacy),
    Operation("GET", _POLICY + "/history", "read", reads.history, bodies.History),
    Operation("GET", _POLICY + "/explanation", "read", reads.explanation),
    Operation("GET", "/v1/privacy", "read", reads.total_privacy, bodies.TotalPrivacy, whole=True),
    Operation("GET", "/v1/live", "read", reads.live, media_type="text/event-stream"),
    Operation("GET", "/v1/backup", "admin", changes.backup, media_type=changes.BINARY, query=("keys",), whole=True),
    Operation("GET", "/v1/keys", "admin", changes.keys, bodies.KeyList, whole=True),
    Operation("POST", "/v1/keys", "admin", changes.add_key, bodies.NewKey, bodies.KeyBody, (201,), (409,), whole=True),
    Operation("DELETE", "/v1/keys/{key_name}", "admin", changes.revoke_key, None, statuses=(204,), whole=True),
    Operation("GET", "/metrics", "read", metrics.metrics, media_type="text/plain"),
    Operation("GET", "/healthz", None, reads.healthz, bodies.Health),
    Operation("GET", "/readyz", None, reads.readyz, bodies.Health, statuses=(200, 503)),
    Operation("GET", "/", None, page.file, media_type="text/html"),
)
UNLISTED: Final = (
    Operation("GET", "/openapi.json", None, document),
    Operation("GET", page.STATIC + "{path:path}", None, page.file),
)
"""Routes that are not in the document."""

_KEY: Final = (401, 403, 429, 503)
_BODY: Final = (400, 408, 413, 415, 422)
"""Statuses of problems with a key, and with a body."""
_SCHEMAS: Final = "#/components/schemas/{name}"
_PARAMETERS: Final[dict[str, tuple[str, Any, str]]] = {
    "name": ("path", bodies.Name, "The policy's name."),
    "event_id": ("path", bodies.Identity, "The caller's id of the decision."),
    "key_name": ("path", bodies.Name, "The key's name."),
    "keys": ("query", bool, "Whether the backup has the keys of callers."),
}


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of all operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    kinds = dict.fromkeys(kind for each in OPERATIONS for kind in (each.takes, each.answer) if kind is not None)
    _, schemas = msgspec.json.schema_components((*kinds, ProblemDocument), ref_template=_SCHEMAS)
    schemas["PolicyBody"]["additionalProperties"] = True
    schemas["BatchBody"]["properties"]["requests"]["items"] = _schema(bodies.DecisionBody)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tacit", "version": __version__, "description": "Decisions that learn under privacy."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _schema(kind: Any) -> dict[str, Any]:
    """Refer to the schema of a type; any JSON fits the empty one."""
    return msgspec.json.schema_components((kind,), ref_template=_SCHEMAS)[0][0]


def _described(operation: Operation) -> dict[str, Any]:
    """Return what the document says of one operation."""
    found: dict[str, Any] = {
        "summary": (operation.endpoint.__doc__ or "").partition("\n")[0],
        "operationId": re.sub(r"\W+", "_", f"{operation.method.lower()} {operation.path}").strip("_"),
        "responses": _responses(operation),
    }
    if names := [*re.findall(r"{(\w+)}", operation.path), *operation.query]:
        found["parameters"] = [_parameter(name) for name in names]
    if operation.takes is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": _schema(operation.takes)}}}
    if operation.scope is not None:
        found["security"] = [{"key": []}]
        unbound = " that is not bound to policies" if operation.whole else ""
        found["description"] = f"Needs a key with scope `{operation.scope}`{unbound}."
    return found


def _parameter(name: str) -> dict[str, Any]:
    place, kind, about = _PARAMETERS[name]
    schema = msgspec.json.schema(kind)
    return {"name": name, "in": place, "required": place == "path", "description": about, "schema": schema}


def _responses(operation: Operation) -> dict[str, Any]:
    problems = {*operation.problems, *(_KEY if operation.scope is not None else ())}
    problems |= {*(_BODY if operation.takes is not None else ()), *((404,) if "{" in operation.path else ())}
    problems |= {422} if operation.query else set()
    problem = {MEDIA_TYPE: {"schema": _schema(ProblemDocument)}}
    content = None if operation.answer is None else {operation.media_type: {"schema": _schema(operation.answer)}}
    found = dict.fromkeys(operation.statuses, content) | dict.fromkeys(sorted(problems), problem)
    return {
        str(status): {"description": HTTPStatus(status).phrase} | ({"content": content} if content else {})
        for status, content in found.items()
    }
