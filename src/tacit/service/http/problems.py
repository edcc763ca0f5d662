"""Errors as callers see them: problem documents of RFC 9457.

A text speaks to the caller about the caller's own request, never about what others sent.  It may repeat values of that
request, which is why texts are answered and never logged.

400: what came is no JSON.  422: it is JSON, and says something that cannot be done, whoever asks and whenever.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from tacit.errors import InvalidInput, JournalExists, UnknownJournal
from tacit.service.host import Refusal

MEDIA_TYPE: Final = "application/problem+json"
JSON: Final = "application/json"
COMMON: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of all answers: they stay out of caches."""
_TYPES: Final = "urn:tacit:problem:"


class ProblemDocument(msgspec.Struct, kw_only=True, rename={"kind": "type"}):
    """What went wrong, for programs (`type`, `status`) and people (`title`, `detail`)."""

    kind: str
    title: str
    status: int
    detail: str


class Problem(Exception):  # noqa: N818 - it is an answer
    """A request that is answered with a problem document."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.headers = status, code, detail, dict(headers or {})

    def document(self) -> ProblemDocument:
        """As it is answered."""
        title = HTTPStatus(self.status).phrase
        return ProblemDocument(kind=_TYPES + self.code, title=title, status=self.status, detail=self.detail)

    def body(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self.document())

    def answer(self) -> Response:
        """As a whole answer."""
        return Response(self.body(), self.status, COMMON | self.headers, MEDIA_TYPE)


_REFUSALS: Final = {
    Refusal.OTHER_CONTENT: (409, "other-content", "use another one for another request"),
    Refusal.OTHER_REWARD: (409, "other-reward", "a reward counts once and does not change"),
    Refusal.OTHER_ARM: (409, "other-arm", "nothing was learned from this reward"),
    Refusal.UNKNOWN_EVENT: (404, "unknown-event", "or it was forgotten after event_memory"),
    Refusal.EXPIRED: (410, "expired", "nothing was learned from this reward"),
    Refusal.SWITCHED_OFF: (409, "switched-off", "it still takes rewards; show your default arm meanwhile"),
    Refusal.TOO_MANY_WAIT: (503, "too-many-wait", "a policy with a larger reward_window, or less to wait, takes more"),
}


def refused(refusal: Refusal) -> Problem:
    """What a host has refused."""
    status, code, more = _REFUSALS[refusal]
    return Problem(status, code, f"{refusal.value}: {more}", {"Retry-After": "1"} if status == 503 else None)


def problem_of(error: Exception) -> Problem | None:
    """The problem that an error stands for; None for one that is nobody's fault who asked."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, UnknownJournal):
        return Problem(404, "unknown-policy", "there is no policy of this name, or none that this key reaches")
    if isinstance(error, JournalExists):
        return Problem(409, "other-configuration", str(error))
    if isinstance(error, InvalidInput):
        return Problem(422, "invalid", str(error))
    return None


def not_json(error: Exception) -> Problem:
    """A body that is no JSON, or has another form than it should."""
    if isinstance(error, msgspec.ValidationError):
        return Problem(422, "invalid", str(error))
    if isinstance(error, RecursionError):
        return Problem(400, "not-json", "the body is nested too deeply")
    return Problem(400, "not-json", f"the body is not JSON: {error}")


def overloaded() -> Problem:
    """More requests wait than can be answered soon."""
    return Problem(503, "overloaded", "too many requests wait: try again with the same event_id", {"Retry-After": "1"})


def too_many_connections() -> Problem:
    """No place is left for a connection."""
    detail = "too many connections are open: use those that you have, or try again"
    return Problem(503, "too-many-connections", detail, {"Retry-After": "1", "Connection": "close"})


def too_often(seconds: int) -> Problem:
    """A key that has used up its rate; it has enough for another request after so many seconds."""
    detail = f"this key has asked more often than its rate allows: try again in {seconds} seconds"
    return Problem(429, "too-often", detail, {"Retry-After": str(seconds)})


def stopping() -> Problem:
    """The service takes no more requests."""
    return Problem(503, "stopping", "the service is stopping: try again with the same event_id", {"Retry-After": "2"})


def too_large(bound: int) -> Problem:
    """A body that is longer than anything that is taken."""
    return Problem(413, "too-large", f"a body has at most {bound} bytes", {"Connection": "close"})


def too_slow(seconds: float) -> Problem:
    """A body that did not come in time."""
    return Problem(408, "too-slow", f"a body must arrive within {seconds:g} seconds", {"Connection": "close"})


def wrong_media_type() -> Problem:
    """A body in a form that nobody here reads."""
    return Problem(415, "media-type", "send JSON: Content-Type: application/json, without Content-Encoding")


def no_key() -> Problem:
    """No key, or one that there is not."""
    detail = "send a key that this service knows, as in Authorization: Bearer KEY"
    return Problem(401, "key", detail, {"WWW-Authenticate": 'Bearer realm="tacit"'})


def no_scope(scope: str) -> Problem:
    """A key that does not reach this far."""
    return Problem(403, "scope", f"this key lacks the scope {scope}")


def bound() -> Problem:
    """A key that is bound to policies, where all of them are concerned."""
    return Problem(403, "bound", "this key is bound to policies, and this is for keys that reach all of them")


def not_found() -> Problem:
    """A path that leads nowhere."""
    return Problem(404, "unknown-path", "there is nothing under this path; /openapi.json lists what there is")


def wrong_method(allowed: str) -> Problem:
    """A path that is used otherwise."""
    return Problem(405, "method", f"this path takes {allowed}", {"Allow": allowed})


def internal() -> Problem:
    """A fault of the service: what it was is in its log, not in the answer."""
    return Problem(500, "internal", "the service failed to answer, and changed nothing that it has not answered")
