"""Rare calls that change something: policies and keys.  They run in a thread of their own, so that decisions go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tacit.errors import InvalidInput, StoreError, TacitError
from tacit.features import Schema
from tacit.service.deployment import Served
from tacit.service.http.bodies import KEY, MODE, POLICY, KeyDocument, KeyList, NewKey, answer, decoded
from tacit.service.http.connections import json_body
from tacit.service.http.keys import KeyTaken
from tacit.service.http.problems import COMMON, Problem, overloaded
from tacit.service.http.reads import document
from tacit.service.http.state import Service
from tacit.service.modes import ModeChange

_SMALLEST: Final = 1e-100
_LARGEST: Final = 1e9
"""Sizes of numbers that a policy may be told: beyond them searches for a scale or a plan would not end."""
_PATIENCE: Final = 10.0
"""Seconds for which a policy waits that another one is made."""


async def put_policy(service: Service, request: Request) -> Response:
    """Make a policy, or change the mode of one."""
    body = decoded(POLICY, await json_body(request.scope["headers"], request.receive, service.options))
    name = request.path_params["name"]
    await service.aside(_check_size, service, body)
    async with _alone(service):
        await service.see()
        _check_count(service, name)
        before = _last_change(service.deployment.policies.get(name))
        try:
            served, new = await service.aside(service.deployment.put, name, body)
        except (InvalidInput, StoreError):
            raise
        except TacitError as error:  # no message of the allowed size, say: an answer to what was asked
            raise Problem(422, "invalid", str(error)) from error
        _log_mode(service, served, before)
    return answer(document(served), 201 if new else 200)


async def put_mode(service: Service, request: Request) -> Response:
    """Change the mode of a policy."""
    asked = decoded(MODE, await json_body(request.scope["headers"], request.receive, service.options))
    name = request.path_params["name"]
    async with _alone(service):
        before = _last_change(await service.newest(name))
        served = await service.aside(service.deployment.set_mode, name, asked.mode)
        _log_mode(service, served, before)
    return answer(document(served))


def _log_mode(service: Service, served: Served, before: ModeChange | None) -> None:
    """Log the newest change of a policy's mode, unless it is the one from before."""
    last = _last_change(served)
    if last is not None and last != before:
        service.log.say("mode", policy=served.name, number=last.number, mode=last.mode, decisions=last.decisions)


def _last_change(served: Served | None) -> ModeChange | None:
    """The newest change of a policy's mode."""
    modes = () if served is None else served.host.published.modes
    return modes[-1] if modes else None


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


def _check_count(service: Service, name: str) -> None:
    """Refuse another policy where there are as many as may be."""
    known, most = service.deployment.policies, service.options.most_policies
    if name not in known and len(known) >= most:
        raise Problem(409, "too-many-policies", f"there are {most} policies, the most allowed")


def _check_size(service: Service, body: dict[str, Any]) -> None:
    """Refuse what this process could not hold; a policy's state has the square of its features."""
    for field, value in body.items():
        if isinstance(value, int | float) and value and not _SMALLEST <= abs(value) <= _LARGEST:
            raise InvalidInput(f"{field} must be 0 or between {_SMALLEST:g} and {_LARGEST:g} in size, not {value!r}")
    dim, most = _dim(body), service.options.most_dim
    if dim > most:
        raise InvalidInput(f"dim must be at most {most} here, not {dim}; the option most_dim says so")


def _dim(body: dict[str, Any]) -> int:
    """How many features are asked for; 0 where that is another's to refuse."""
    if isinstance(body.get("features"), dict):
        return Schema.from_json(body["features"]).dim
    dim = body.get("dim")
    return dim if isinstance(dim, int) else 0


async def keys(service: Service, request: Request) -> Response:
    """All keys, without their secret parts."""
    await service.see_keys()
    return answer(KeyList([KeyDocument(**asdict(key)) for key in service.keyring.all()]))


async def add_key(service: Service, request: Request) -> Response:
    """Make a key; this answer is the only place where it is ever shown."""
    asked = decoded(KEY, await json_body(request.scope["headers"], request.receive, service.options))
    try:
        text, key = await service.aside(service.keyring.add, **msgspec.structs.asdict(asked))
    except KeyTaken as error:
        raise Problem(409, "key-exists", str(error)) from error
    return answer(NewKey(**asdict(key), key=text), 201)


async def revoke_key(service: Service, request: Request) -> Response:
    """Forget a key: whoever holds it is refused from now on."""
    if not await service.aside(service.keyring.revoke, request.path_params["key_name"]):
        raise Problem(404, "unknown-key", "there is no key of this name")
    return Response(status_code=204, headers=COMMON)
