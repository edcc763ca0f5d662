"""Rare calls that change policies and keys.  They run in a thread of their own, so that decisions go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tacit.errors import InvalidInput, StoreError, TacitError
from tacit.features import Schema
from tacit.service.deployment import Served
from tacit.service.http import bodies
from tacit.service.http.bodies import answer, decoded
from tacit.service.http.connections import json_body
from tacit.service.http.keys import KeyTaken
from tacit.service.http.problems import COMMON, Problem, overloaded
from tacit.service.http.reads import document
from tacit.service.http.state import Service
from tacit.service.published import ModeChange
from tacit.service.terms import DELETED

BINARY: Final = "application/octet-stream"
_SMALLEST: Final = 1e-100
_LARGEST: Final = 1e9
"""Sizes of numbers in the configuration of a policy: beyond them searches for a scale or a plan would not end."""
_PATIENCE: Final = 10.0
"""Seconds for which a call waits while another policy is made."""


async def put_policy(service: Service, request: Request) -> Response:
    """Make a policy, or change the mode of one; everything else never changes."""
    body = decoded(bodies.POLICY, await json_body(request.scope, request.receive, service.options))
    name = request.path_params["name"]
    await service.aside(_check_size, service, body)
    async with _alone(service):
        await service.see()
        _check_count(service, name)
        known = service.deployment.policies.get(name)
        before = known.host.published.modes if known is not None else ()
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
    asked = decoded(bodies.MODE, await json_body(request.scope, request.receive, service.options))
    return await _switched(service, request, partial(service.deployment.set_mode, mode=asked.mode))


async def delete_policy(service: Service, request: Request) -> Response:
    """Erase all of a policy but what is public; what it has spent stays in the total."""
    return await _switched(service, request, service.deployment.delete)


async def _switched(service: Service, request: Request, change: Callable[[str], Served]) -> Response:
    name = request.path_params["name"]
    async with _alone(service):
        before = (await service.newest(name)).host.published.modes
        served = await service.aside(service.writer.alone, partial(change, name))
        _log_mode(service, served, before)
    return answer(document(served))


async def backup(service: Service, request: Request) -> Response:
    """Return a backup of all policies, as a file; with keys=true also the keys of callers."""
    keys = request.query_params.get("keys", "false")
    if keys not in ("true", "false"):
        raise InvalidInput(f"keys must be true or false, not {keys!r}")
    return Response(await service.aside(service.deployment.backup, keys=keys == "true"), 200, COMMON, BINARY)


def _log_mode(service: Service, served: Served, before: tuple[ModeChange, ...]) -> None:
    """Log the newest change of a policy's mode, unless it is the one from before."""
    for last in served.host.published.modes[-1:]:
        if last not in before[-1:]:
            service.log.say("mode", policy=served.name, number=last.number, mode=last.mode, decisions=last.decisions)


@asynccontextmanager
async def _alone(service: Service) -> AsyncIterator[None]:
    """Make one policy at a time; a call that has waited long enough is answered that it may be tried again."""
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
    if name not in known and sum(each.host.published.mode != DELETED for each in known.values()) >= most:
        raise Problem(409, "too-many-policies", f"there are {most} policies, the most allowed")


def _check_size(service: Service, body: dict[str, Any]) -> None:
    """Refuse what this process could not hold; a policy's state has the square of its features."""
    for field, value in body.items():
        if isinstance(value, int | float) and value and not _SMALLEST <= abs(value) <= _LARGEST:
            raise InvalidInput(f"{field} must be 0 or between {_SMALLEST:g} and {_LARGEST:g} in size, not {value!r}")
    features, dim, most = body.get("features"), body.get("dim"), service.options.most_dim
    if isinstance(features, dict):
        dim = Schema.from_json(features).dim
    if isinstance(dim, int) and dim > most:  # one that is not valid is refused later
        raise InvalidInput(f"dim must be at most {most} here, not {dim}; the option most_dim says so")


async def keys(service: Service, request: Request) -> Response:
    """List all keys, without their secret parts."""
    await service.see_keys()
    return answer(bodies.KeyList([bodies.KeyDocument(**asdict(key)) for key in service.keyring.all()]))


async def add_key(service: Service, request: Request) -> Response:
    """Make a key, which is shown this once."""
    asked = decoded(bodies.KEY, await json_body(request.scope, request.receive, service.options))
    try:
        text, key = await service.aside(service.keyring.add, **msgspec.structs.asdict(asked))
    except KeyTaken as error:
        raise Problem(409, "key-exists", str(error)) from error
    return answer(bodies.NewKey(**asdict(key), key=text), 201)


async def revoke_key(service: Service, request: Request) -> Response:
    """Revoke a key: calls with it are refused from now on."""
    if not await service.aside(service.keyring.revoke, request.path_params["key_name"]):
        raise Problem(404, "unknown-key", "there is no key of this name")
    return Response(status_code=204, headers=COMMON)
