"""Answers in JSON, with headers that keep them out of caches and frames."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from tacit.service.http.bodies import encode
from tacit.service.http.problems import MEDIA_TYPE, Problem

JSON: Final = "application/json"
COMMON: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of all answers."""


def answer(document: Any, status: int = 200) -> Response:
    """A document as JSON."""
    return Response(encode(document), status, COMMON, JSON)


def problem_answer(problem: Problem) -> Response:
    """A problem document."""
    return Response(problem.body(), problem.status, COMMON | problem.headers, MEDIA_TYPE)
