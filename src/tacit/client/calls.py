"""Requests to a service and what comes of them, without a network."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote

from tacit.errors import InvalidInput, ServiceRefused, ServiceUnavailable

_UNTOUCHED: Final = frozenset(("overloaded", "too-many-wait", "too-many-connections", "stopping", "too-often"))
"""Problems by which a service says that it could not answer, and has done nothing."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Call:
    """One request, which may be sent again."""

    method: str
    path: str
    body: bytes | None = None
    patience: float = 0.0
    """Seconds that its answer may take, if that is more than the timeout."""


@dataclass(frozen=True)
class Reply:
    """What came of sending a call."""

    status: int
    """Status of the HTTP answer; 0 where none came."""
    content: bytes = b""
    error: str = ""
    sent: bool = True
    """False where no connection could be made."""


Failure = ServiceRefused | ServiceUnavailable | InvalidInput
Outcome = dict[str, Any] | Failure
"""What the service answers, or why it does not."""
Conversation = Generator[Call | float, Any, Result]
"""A conversation: yields calls, each of which is sent its reply, and pauses in seconds; returns a result."""


def path(policy: str) -> str:
    """Where a policy is found."""
    return f"/v1/policies/{quote(policy, safe='')}"


def about(policy: str, event_id: str, body: Mapping[str, Any]) -> Call:
    """A call about a decision."""
    return Call("PUT", f"{path(policy)}/decisions/{quote(event_id, safe='')}/reward", encoded(body))


def _plain(value: Any) -> Any:
    """Arrays and numbers of NumPy, and schemas, as JSON has them."""
    for method in ("tolist", "to_json"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


_encoder: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_plain)


def encoded(body: Mapping[str, Any]) -> bytes:
    """A body as JSON."""
    try:
        return _encoder.encode(body).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"what is sent must be JSON: {error}") from error


def outcome_of(reply: Reply) -> Outcome:
    """What a reply says."""
    if not reply.status:
        return ServiceUnavailable(f"the service could not answer: {reply.error}", lost=reply.sent)
    good = 200 <= reply.status < 300
    try:
        document = json.loads(reply.content)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document if good else _failure(reply.status, document)
    if good:
        return ServiceUnavailable("the service could not answer: somebody else did, and not with a JSON object")
    return _failure(reply.status, {"title": "no reason was given"})


def entry_of(document: dict[str, Any]) -> Outcome:
    """What an entry of a batch says."""
    return document if "arm" in document else _failure(document["status"], document)


def _failure(status: int, problem: Mapping[str, Any]) -> Failure:
    """The error that a problem document stands for."""
    detail = str(problem.get("detail") or problem.get("title"))
    code = str(problem.get("type", "")).rpartition(":")[2]
    if status == 429 or status >= 500:
        text = f"the service could not answer: it answered {status}, {detail}"
        return ServiceUnavailable(text, lost=code not in _UNTOUCHED)
    return ServiceRefused(status, detail, code)
