"""The whole service as one ASGI application: keys first, then the hot routes, then those that Starlette looks up."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router

from tacit.errors import UnknownJournal
from tacit.service.http.connections import ASGIScope, Disconnected, Receive, Send, answer_at_once
from tacit.service.http.hot import HOT_ROUTES, REWARDS, hot_route
from tacit.service.http.keys import Key
from tacit.service.http.operations import OPERATIONS, UNLISTED, Operation
from tacit.service.http.page import STATIC
from tacit.service.http.problems import COMMON, JSON, Problem, internal, not_found, problem_of, wrong_method
from tacit.service.http.state import Service

_HOT: Final = {operation.path: operation for operation in OPERATIONS if operation.path in HOT_ROUTES.values()}
_PUBLIC: Final = frozenset(operation.path for operation in (*OPERATIONS, *UNLISTED) if operation.scope is None)
_KNOWN_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"))
_JSON_LINES: Final = "".join(
    f"{name}: {value}\r\n" for name, value in ({"content-type": JSON} | COMMON).items()
).encode()


class App:
    """The ASGI application."""

    def __init__(self, service: Service) -> None:
        self.service = service
        by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
        for operation in (*OPERATIONS, *UNLISTED):
            if operation.path not in _HOT:
                by_path[operation.path][operation.method] = operation
        routes = [Route(path, _Path(service, operations)) for path, operations in by_path.items()]
        self._router = Router(routes, redirect_slashes=False, default=_unknown_path)

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
            problem = problem_of(error)
            if problem is None:
                self.service.log.failure("a request failed", error)
            if told.status:  # an answer has begun: it cannot be taken back, only cut off
                raise RuntimeError("an answer was cut off") from None
            await (problem or internal()).answer()(scope, receive, told)
        self._note(scope, told.status, time.perf_counter() - start)

    async def _answer(self, scope: ASGIScope, receive: Receive, told: _Told) -> None:
        path: str = scope["path"]
        if path in _PUBLIC or path.startswith(STATIC):
            await self._router(scope, receive, told)
            return
        route, parts = hot_route(scope["raw_path"])
        if route is not None:
            scope["tacit.route"] = route  # known before anything is refused: rewards are never logged
        key = await self.service.caller(scope)
        self.service.rates.take(key, reward=route == REWARDS)
        if route is None:
            scope["tacit.key"] = key
            await self._router(scope, receive, told)
            return
        operation = _HOT[route]
        if scope["method"] != operation.method:
            raise wrong_method(operation.method)
        _check(key, operation, parts[0])
        if self.service.stopping.is_set():
            words = "the service is stopping: try again with the same event_id"
            raise Problem(503, "stopping", words, {"Retry-After": "2"})
        status, body = await operation.endpoint(self.service, key, parts, scope, receive)
        if answer_at_once(told.send, status, _JSON_LINES, body):
            told.status = status
        else:
            await Response(body, status, COMMON, JSON)(scope, receive, told)

    def _note(self, scope: ASGIScope, status: int, seconds: float) -> None:
        """Count and log the request; rewards are counted for operators alone and never logged."""
        route = scope.get("tacit.route", "-")
        self.service.answered[route, status] += 1
        if status < 400:
            self.service.latencies[route].note(seconds)
        if self.service.log.requests and route != REWARDS:
            method = scope["method"] if scope["method"] in _KNOWN_METHODS else "OTHER"
            self.service.log.request(method, route, status, seconds)


class _Path:
    """The operations of one path that Starlette looks up, by method; an ASGI application."""

    def __init__(self, service: Service, operations: dict[str, Operation]) -> None:
        self._service, self._operations = service, operations

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        operation = self._operations.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if operation is None:
            also = ["HEAD"] if "GET" in self._operations else []
            raise wrong_method(", ".join([*self._operations, *also]))
        scope["tacit.route"] = STATIC if operation.path.startswith(STATIC) else operation.path
        if operation.scope is not None:
            _check(scope["tacit.key"], operation, scope["path_params"].get("name"))
        answer = await operation.endpoint(self._service, Request(scope, receive))
        await answer(scope, receive, send)


async def _unknown_path(scope: ASGIScope, receive: Receive, send: Send) -> None:
    raise not_found()


def _check(key: Key, operation: Operation, policy: str | None) -> None:
    """Refuse what a key may not do: all routes with a scope pass here.

    A policy that the key is not bound to is answered as one that does not exist, without looking whether it does.
    """
    if operation.scope is not None and not key.may(operation.scope):
        raise Problem(403, "scope", f"this key lacks the scope {operation.scope}")
    if operation.whole and key.policies is not None:
        raise Problem(403, "bound", "this key is bound to policies, and this is for keys that reach all of them")
    if policy is not None and not key.reaches(policy):
        raise UnknownJournal(f"no policy named {policy!r} is known to this key")


class _Told:
    """Sends, and remembers with which status a request was answered."""

    __slots__ = ("send", "status")

    def __init__(self, send: Send) -> None:
        self.send, self.status = send, 0

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.send(message)
