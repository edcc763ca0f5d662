"""The whole service as one ASGI application: keys first, then the hot routes, then Starlette's."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.errors import UnknownJournal
from tacit.service.http import page
from tacit.service.http.bodies import answer
from tacit.service.http.connections import ASGIScope, Disconnected, Receive, Send, answer_at_once
from tacit.service.http.hot import REWARDS, HotRoute, Parts, hot_route
from tacit.service.http.keys import Key, Scope
from tacit.service.http.operations import OPERATIONS, Operation, openapi
from tacit.service.http.problems import (
    COMMON,
    JSON,
    Problem,
    bound,
    internal,
    no_scope,
    not_found,
    problem_of,
    stopping,
    wrong_method,
)
from tacit.service.http.state import Service

_PUBLIC: Final = frozenset([operation.path for operation in OPERATIONS if operation.scope is None] + ["/openapi.json"])
_STATIC: Final = "/static/"
_KNOWN_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"))
_JSON_LINES: Final = "".join(
    f"{name}: {value}\r\n" for name, value in ({"content-type": JSON} | COMMON).items()
).encode()
_UNROUTED: Final = "-"


class App:
    """The ASGI application."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._document = openapi()
        self._starlette = Starlette(routes=self._routes(), exception_handlers={HTTPException: _as_problem})
        self._starlette.router.redirect_slashes = False

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is served")
        start = time.perf_counter()
        told = _Told(send)
        try:
            await self._answer(scope, receive, told)
        except (Disconnected, ClientDisconnect):
            return
        except Exception as error:
            problem = _explained(self.service, error)
            if told.status:  # an answer has begun: it cannot be taken back, only cut off
                raise RuntimeError("an answer was cut off") from None
            await problem.answer()(scope, receive, told)
        self._note(scope, told.status, time.perf_counter() - start)

    async def _answer(self, scope: ASGIScope, receive: Receive, told: _Told) -> None:
        path: str = scope["path"]
        if path in _PUBLIC or path.startswith(_STATIC):
            await self._starlette(scope, receive, told)
            return
        found = hot_route(scope["raw_path"])
        if found is not None:
            scope["tacit.route"] = found[0].template  # known before anything is refused: rewards are never logged
        key = await self.service.caller(scope)
        self.service.rates.take(key, reward=found is not None and found[0].template == REWARDS)
        if found is None:
            scope["tacit.key"] = key
            await self._starlette(scope, receive, told)
        else:
            await self._answer_hot(found, key, scope, receive, told)

    async def _answer_hot(
        self, found: tuple[HotRoute, Parts], key: Key, scope: ASGIScope, receive: Receive, told: _Told
    ) -> None:
        route, parts = found
        if scope["method"] != route.method:
            raise wrong_method(route.method)
        _check(key, route.scope, parts[0])
        if self.service.stopping.is_set():
            raise stopping()
        status, body = await route.handler(self.service, key, parts, scope, receive)
        if answer_at_once(told.send, status, _JSON_LINES, body):
            told.status = status
            return
        await Response(body, status, COMMON, JSON)(scope, receive, told)

    def _note(self, scope: ASGIScope, status: int, seconds: float) -> None:
        """Count and log the request; rewards are counted for operators alone and never logged."""
        route = scope.get("tacit.route", _UNROUTED)
        self.service.answered[route, status] += 1
        if status < 400:
            self.service.latencies[route].note(seconds)
        if self.service.log.requests and route != REWARDS:
            method = scope["method"] if scope["method"] in _KNOWN_METHODS else "OTHER"
            self.service.log.request(method, route, status, seconds)

    # Routes that Starlette looks up

    def _routes(self) -> list[Route]:
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in OPERATIONS:
            if operation.endpoint is not None:
                by_path.setdefault(operation.path, {})[operation.method] = operation
        routes = [_route(path, list(found), _Endpoint(self.service, found)) for path, found in by_path.items()]
        routes.append(Route("/openapi.json", self._openapi, methods=["GET"]))
        routes.append(Route(_STATIC + "{path:path}", self._static, methods=["GET"]))
        return routes

    async def _openapi(self, request: Request) -> Response:
        request.scope["tacit.route"] = "/openapi.json"
        return answer(self._document)

    async def _static(self, request: Request) -> Response:
        request.scope["tacit.route"] = _STATIC
        return await _shown(self.service, page.static(self.service, request))


def _route(path: str, methods: Sequence[str], endpoint: _Endpoint) -> Route:
    async def call(request: Request) -> Response:
        return await endpoint(request)

    return Route(path, call, methods=list(methods))


class _Endpoint:
    """The operations of one path, each behind its scope."""

    def __init__(self, service: Service, operations: dict[str, Operation]) -> None:
        self._service, self._operations = service, operations

    async def __call__(self, request: Request) -> Response:
        operation = self._operations["GET" if request.method == "HEAD" else request.method]
        request.scope["tacit.route"] = operation.path
        return await _shown(self._service, self._answer(operation, request))

    async def _answer(self, operation: Operation, request: Request) -> Response:
        if operation.scope is not None:
            _check(request.scope["tacit.key"], operation.scope, request.path_params.get("name"), whole=operation.whole)
        if operation.endpoint is None:
            raise not_found()
        return await operation.endpoint(self._service, request)


def _check(key: Key, scope: Scope, policy: str | None, *, whole: bool = False) -> None:
    """Refuse what a key may not do: all routes pass here.

    A policy that the key is not bound to is answered as one that there is not: whether there is one is not looked at.
    """
    if not key.may(scope):
        raise no_scope(scope)
    if whole and key.policies is not None:
        raise bound()
    if policy is not None and not key.reaches(policy):
        raise UnknownJournal(f"no policy named {policy!r} is known to this key")


async def _shown(service: Service, answering: Awaitable[Response]) -> Response:
    """An endpoint's answer, or the problem that it has raised."""
    try:
        return await answering
    except (Disconnected, ClientDisconnect):
        raise
    except Exception as error:
        return _explained(service, error).answer()


def _explained(service: Service, error: Exception) -> Problem:
    """What a caller is told of an error; one that is no fault of the caller's is logged."""
    problem = problem_of(error)
    if problem is None:
        service.log.failure("a request failed", error)
    return problem or internal()


async def _as_problem(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: unknown paths and methods."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        return wrong_method((error.headers or {}).get("Allow", "another method")).answer()
    return not_found().answer()


class _Told:
    """Remembers with which status a request was answered."""

    __slots__ = ("send", "status")

    def __init__(self, send: Send) -> None:
        self.send, self.status = send, 0

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.send(message)
