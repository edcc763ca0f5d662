"""Rare calls that change something: policies and keys.  They run in a thread of their own, so that decisions go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tacit.errors import InvalidInput, JournalExists, StoreError, TacitError, UnknownJournal
from tacit.features import Schema
from tacit.service.deployment import Served
from tacit.service.http.answers import COMMON, answer
from tacit.service.http.bodies import KEY, MODE, POLICY, KeyDocument, KeyList, NewKey, decoded
from tacit.service.http.problems import Problem, overloaded
from tacit.service.http.reads import document
from tacit.service.http.receiving import json_body
from tacit.service.http.state import Service
from tacit.service.http.threads import aside
from tacit.service.http.writer import end_process
from tacit.service.modes import ModeChange

_SMALLEST: Final = 1e-100
_LARGEST: Final = 1e9
"""Sizes of numbers that a policy may be told: beyond them searches for a scale or a plan would not end."""
_PATIENCE: Final = 10.0
"""Seconds for which a policy waits that another one is made."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


async def _changed(
    service: Service, change: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """Make a change in a thread; a store that fails ends the process, as it does in the writer."""
    try:
        return await aside(partial(change, *arguments, **named))
    except (InvalidInput, JournalExists, UnknownJournal):
        raise
    except StoreError as error:
        end_process(service.log, error)
        raise
    except TacitError as error:  # no message of the allowed size, say: an answer to what was asked
        raise Problem(422, "invalid", str(error)) from error


async def put_policy(service: Service, request: Request) -> Response:
    """Make a policy, or change the mode of one."""
    body = decoded(POLICY, await json_body(request.scope["headers"], request.receive, service.options))
    name = request.path_params["name"]
    await aside(partial(_check_size, service, name, body))
    async with _alone(service):
        before = _last_change(service.deployment.policies.get(name))
        served, new = await _changed(service, _put, service, name, body)
        _log_mode(service, served, before)
    return answer(document(served), 201 if new else 200)


async def put_mode(service: Service, request: Request) -> Response:
    """Change the mode of a policy."""
    asked = decoded(MODE, await json_body(request.scope["headers"], request.receive, service.options))
    name = request.path_params["name"]
    async with _alone(service):
        before = _last_change(service.deployment.policies.get(name))
        try:
            served = await _changed(service, service.deployment.set_mode, name, asked.mode)
        except UnknownJournal:
            service.served(name)  # where another process has it by now, the caller is told to come again
            raise
        _log_mode(service, served, before)
    return answer(document(served))


def _log_mode(service: Service, served: Served, before: ModeChange | None) -> None:
    """Log the newest change of a policy's mode, unless it is the one from before."""
    last = _last_change(served)
    if last is not None and last != before:
        service.log.say("mode", policy=served.name, number=last.number, mode=last.mode, decisions=last.decisions)


def _last_change(served: Served | None) -> ModeChange | None:
    """The newest change of a policy's mode, which only its host's owner makes, one at a time."""
    modes = () if served is None else served.host.published.modes
    return modes[-1] if modes else None


def _put(service: Service, name: str, body: dict[str, Any]) -> tuple[Served, bool]:
    with service.neighbours.making(name):
        return service.deployment.put(name, body)


@asynccontextmanager
async def _alone(service: Service) -> AsyncIterator[None]:
    """One policy is made at a time; whoever has waited long enough is told to come again."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await service.putting.acquire()
    except TimeoutError:
        raise overloaded() from None
    try:
        yield
    finally:
        service.putting.release()


def _check_size(service: Service, name: str, body: dict[str, Any]) -> None:
    """Refuse what this process could not hold; a policy's state has the square of its features."""
    for field, value in body.items():
        if isinstance(value, int | float) and value and not _SMALLEST <= abs(value) <= _LARGEST:
            raise InvalidInput(f"{field} must be 0 or between {_SMALLEST:g} and {_LARGEST:g} in size, not {value!r}")
    dim, most = _dim(body), service.options.most_dim
    if dim > most:
        raise InvalidInput(f"dim must be at most {most} here, not {dim}; the option most_dim says so")
    if name not in service.names and len(service.names) >= service.options.most_policies:
        raise Problem(409, "too-many-policies", f"there are {service.options.most_policies} policies, the most allowed")


def _dim(body: dict[str, Any]) -> int:
    """How many features are asked for; 0 where that is another's to refuse."""
    if isinstance(body.get("features"), dict):
        return Schema.from_json(body["features"]).dim
    dim = body.get("dim")
    return dim if isinstance(dim, int) else 0


async def keys(service: Service, request: Request) -> Response:
    """All keys, without their secret parts."""
    await service.neighbours.fresh()
    return answer(KeyList([KeyDocument(**asdict(key)) for key in service.keyring.all()]))


async def add_key(service: Service, request: Request) -> Response:
    """Make a key; this answer is the only place where it is ever shown."""
    asked = decoded(KEY, await json_body(request.scope["headers"], request.receive, service.options))
    await service.neighbours.fresh()
    if any(key.name == asked.name for key in service.keyring.all()):
        raise Problem(409, "key-exists", "there is a key of this name: revoke it first, or choose another name")
    text, key = await _changed(service, service.keyring.add, **msgspec.structs.asdict(asked))
    service.neighbours.tell()
    return answer(NewKey(**asdict(key), key=text), 201)


async def revoke_key(service: Service, request: Request) -> Response:
    """Forget a key: whoever holds it is refused from now on."""
    if not await _changed(service, service.keyring.revoke, request.path_params["key_name"]):
        raise Problem(404, "unknown-key", "there is no key of this name")
    service.neighbours.tell()
    return Response(status_code=204, headers=COMMON)
