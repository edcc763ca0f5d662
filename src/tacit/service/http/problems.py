"""Errors as callers see them: problem documents of RFC 9457.

A text speaks to the caller about the caller's own request, never about what others sent.  It may repeat values of that
request, which is why texts are answered and never logged.

400: the body is not JSON.  422: it is JSON, and asks for something that can never be done.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from tacit.errors import InvalidInput, JournalExists, StoreBusy, UnknownJournal
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
        """Return the problem document."""
        title = HTTPStatus(self.status).phrase
        return ProblemDocument(kind=_TYPES + self.code, title=title, status=self.status, detail=self.detail)

    def body(self) -> bytes:
        """Return the problem document as JSON."""
        return msgspec.json.encode(self.document())

    def answer(self) -> Response:
        """Return a whole HTTP answer."""
        return Response(self.body(), self.status, COMMON | self.headers, MEDIA_TYPE)


_REFUSALS: Final = {
    Refusal.OTHER_CONTENT: (409, "other-content", "use another one for another request"),
    Refusal.OTHER_REWARD: (409, "other-reward", "a reward counts once and does not change"),
    Refusal.OTHER_ARM: (409, "other-arm", "nothing was learned from this reward"),
    Refusal.UNKNOWN_EVENT: (404, "unknown-event", "or it was forgotten after event_memory"),
    Refusal.EXPIRED: (410, "expired", "nothing was learned from this reward"),
    Refusal.SWITCHED_OFF: (409, "switched-off", "it still takes rewards; show your default arm meanwhile"),
    Refusal.DELETED: (410, "deleted", "its name is not used again"),
    Refusal.TOO_MANY_WAIT: (503, "too-many-wait", "a policy with a larger reward_window, or less to wait, takes more"),
}


def refused(refusal: Refusal, default_reward: float | None = None) -> Problem:
    """Return the problem for a host's refusal; ``default_reward`` is the policy's, for rewards that come too late."""
    status, code, more = _REFUSALS[refusal]
    if refusal is Refusal.EXPIRED and default_reward is not None:
        more += f"; decisions without one teach default_reward, {default_reward:g}"
    return Problem(status, code, f"{refusal.value}: {more}", {"Retry-After": "1"} if status == 503 else None)


def problem_of(error: Exception) -> Problem | None:
    """Return the problem document of an error; None for an internal error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, StoreBusy):
        return Problem(503, "busy", str(error), {"Retry-After": "5"})
    if isinstance(error, UnknownJournal):
        return Problem(404, "unknown-policy", "there is no policy of this name, or none that this key reaches")
    if isinstance(error, JournalExists):
        return Problem(409, "other-configuration", str(error))
    if isinstance(error, InvalidInput):
        return Problem(422, "invalid", str(error))
    return None


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


def too_large(bound: int) -> Problem:
    """A body that is longer than allowed."""
    return Problem(413, "too-large", f"a body has at most {bound} bytes", {"Connection": "close"})


def wrong_media_type() -> Problem:
    """A body that is not marked as JSON, or is encoded."""
    return Problem(415, "media-type", "send JSON: Content-Type: application/json, without Content-Encoding")


def no_key() -> Problem:
    """A request without a key, or with an unknown one."""
    detail = "send a key that this service knows, as in Authorization: Bearer KEY"
    return Problem(401, "key", detail, {"WWW-Authenticate": 'Bearer realm="tacit"'})


def not_found() -> Problem:
    """A path without a route."""
    return Problem(404, "unknown-path", "there is nothing under this path; /openapi.json lists what there is")


def wrong_method(allowed: str) -> Problem:
    """A path that has other methods."""
    return Problem(405, "method", f"this path takes {allowed}", {"Allow": allowed})


def internal() -> Problem:
    """A fault of the service: what it was is in its log, not in the answer."""
    return Problem(500, "internal", "the service failed to answer, and changed nothing that it has not answered")
