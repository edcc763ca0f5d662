"""All routes in one table: who may call them, what they take and what they answer with.

Keys are checked, requests are routed and the OpenAPI document is made from this table, so that none of the three can
forget a route.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tacit.service.http import bodies, changes, hot, metrics, page, reads
from tacit.service.http.keys import Scope
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
    """Statuses of problems beside those that all routes have."""
    whole: bool = False
    """Whether it is about all policies or keys together: a key that is bound to policies is refused."""


_BODY: Final = (400, 408, 413, 415, 422)
_DECIDED: Final = {200: bodies.DecisionAnswer, 201: bodies.DecisionAnswer}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/v1/policies",
        "All policies.",
        "read",
        reads.policies,
        answers={200: bodies.PolicyList},
        problems=(503,),
    ),
    Operation(
        "GET",
        "/v1/policies/{name}",
        "Configuration, decisions so far, released estimate, health.",
        "read",
        reads.policy,
        answers={200: bodies.PolicyDocument},
        problems=(404, 503),
    ),
    Operation(
        "PUT",
        "/v1/policies/{name}",
        "Make a policy, or change the mode of one; everything else never changes.",
        "admin",
        changes.put_policy,
        bodies.PolicyBody,
        {200: bodies.PolicyDocument, 201: bodies.PolicyDocument},
        problems=(*_BODY, 404, 409, 503),
    ),
    Operation(
        "PUT",
        "/v1/policies/{name}/mode",
        "Change the mode of a policy.",
        "admin",
        changes.put_mode,
        bodies.ModeBody,
        {200: bodies.PolicyDocument},
        problems=(*_BODY, 404, 503),
    ),
    Operation(
        "POST",
        hot.DECISIONS,
        "Choose an arm. The same event_id and content again: the stored answer, 200.",
        "decide",
        None,
        bodies.DecisionBody,
        _DECIDED,
        problems=(*_BODY, 404, 409, 503),
    ),
    Operation(
        "POST",
        hot.BATCHES,
        "Choose for many users; a bad request gets its own error in its place.",
        "decide",
        None,
        bodies.BatchBody,
        {200: bodies.BatchAnswer},
        problems=(*_BODY, 404, 503),
    ),
    Operation(
        "PUT",
        hot.REWARDS,
        "Report a reward, or that the arm was never shown. The same again: 200.",
        "reward",
        None,
        bodies.RewardBody,
        _DECIDED,
        problems=(*_BODY, 404, 409, 410, 503),
    ),
    Operation(
        "GET",
        "/v1/policies/{name}/privacy",
        "The privacy report.",
        "read",
        reads.privacy,
        answers={200: _FREE},
        problems=(404, 503),
    ),
    Operation(
        "GET",
        "/v1/policies/{name}/history",
        "The newest releases and changes of mode.",
        "read",
        reads.history,
        answers={200: bodies.History},
        problems=(404, 503),
    ),
    Operation(
        "GET",
        "/v1/policies/{name}/explanation",
        "Every feature with its released weight.",
        "read",
        reads.explanation,
        answers={200: _FREE},
        problems=(404, 503),
    ),
    Operation(
        "GET",
        "/v1/privacy",
        "All policies composed, since users may be in several.",
        "read",
        reads.total_privacy,
        answers={200: bodies.TotalPrivacy},
        problems=(503,),
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
        problems=(503,),
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
        problems=(*_BODY, 409),
        whole=True,
    ),
    Operation(
        "DELETE",
        "/v1/keys/{key_name}",
        "Revoke a key.",
        "admin",
        changes.revoke_key,
        answers={204: None},
        problems=(404,),
        whole=True,
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
