"""The calls that come often, on bare ASGI: decisions, batches of them, rewards.

Everything that can be refused is refused here, before the writer sees it; what the writer is given it carries out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from tacit.errors import InvalidInput
from tacit.service.deployment import Served
from tacit.service.host import Answer, Decide, Refusal
from tacit.service.http.bodies import (
    BATCH,
    DECISION,
    REWARD,
    BatchAnswer,
    BatchEntry,
    DecisionAnswer,
    DecisionBody,
    decoded,
    encode,
)
from tacit.service.http.connections import WHOLE, ASGIScope, Receive, json_body
from tacit.service.http.keys import Key, Scope
from tacit.service.http.problems import Problem, problem_of, refused
from tacit.service.http.state import Service

DECISIONS: Final = "/v1/policies/{name}/decisions"
BATCHES: Final = "/v1/policies/{name}/decisions:batch"
REWARDS: Final = "/v1/policies/{name}/decisions/{event_id}/reward"

Parts = tuple[str, ...]
Handler = Callable[[Service, Key, Parts, ASGIScope, Receive], Awaitable[tuple[int, bytes]]]
"""Answers with a status and JSON."""


class HotRoute(msgspec.Struct, frozen=True):
    """A route that is looked up without Starlette."""

    template: str
    method: str
    scope: Scope
    handler: Handler


def hot_route(raw_path: bytes) -> tuple[HotRoute, Parts] | None:
    """The route of a path and what stands in its placeholders; None for all other paths.

    A path is split before it is decoded: an event id may have slashes of its own, as %2F.
    """
    parts = raw_path.split(b"/")
    if len(parts) not in (5, 7) or parts[1] != b"v1" or parts[2] != b"policies":
        return None
    route = _ROUTES.get((len(parts), unquote_to_bytes(parts[4]) if b"%" in parts[4] else parts[4]))
    if route is None or (len(parts) == 7 and parts[6] != b"reward"):
        return None
    return route, tuple(_text(part) for part in parts[3:7:2])


def _text(part: bytes) -> str:
    try:
        return (unquote_to_bytes(part) if b"%" in part else part).decode()
    except UnicodeDecodeError:
        raise Problem(400, "path", "a part of the path is not UTF-8") from None


async def _body(service: Service, scope: ASGIScope, receive: Receive) -> bytes:
    return await json_body(scope["headers"], receive, service.options, whole=WHOLE in scope)


async def decide(service: Service, key: Key, parts: Parts, scope: ASGIScope, receive: Receive) -> tuple[int, bytes]:
    """An arm for one user."""
    body = await _body(service, scope, receive)
    served = await service.found(parts[0])
    stamp = served.intake.clock()  # before anything is done whose time depends on the arms
    identity, request = _admitted(served, key, decoded(DECISION, body), stamp)
    (answer,) = await service.writer.carry_out(served.host, (request,))
    if isinstance(answer, Refusal):
        raise refused(answer)
    return _status(answer), encode(DecisionAnswer(identity, answer.arm))


def _admitted(served: Served, key: Key, asked: DecisionBody, stamp: float) -> tuple[str, Decide]:
    return served.intake.decision(
        key.namespace,
        contexts=asked.contexts,
        user=asked.user,
        arms=asked.arms,
        event_id=asked.event_id,
        user_id=asked.user_id,
        stamp=stamp,
    )


def _status(answer: Answer) -> int:
    return 201 if answer.new else 200


async def decide_batch(
    service: Service, key: Key, parts: Parts, scope: ASGIScope, receive: Receive
) -> tuple[int, bytes]:
    """An arm for each of many users; a bad request gets its own error and does not touch the others."""
    body = await _body(service, scope, receive)
    served = await service.found(parts[0])
    stamp = served.intake.clock()
    asked = decoded(BATCH, body).requests
    if len(asked) > service.options.most_batch:
        raise InvalidInput(f"at most {service.options.most_batch} requests are taken at once, not {len(asked)}")
    service.rates.charge(key, max(len(asked) - 1, 0))  # one was counted when the call came
    looked_at = [_looked_at(served, key, each, stamp) for each in asked]
    wanted = [each[1] for each in looked_at if not isinstance(each, Problem)]
    answers = iter(await service.writer.carry_out(served.host, wanted) if wanted else ())
    entries = [_entry(each, answers.__next__) for each in looked_at]
    return 200, encode(BatchAnswer(entries))


def _looked_at(served: Served, key: Key, asked: msgspec.Raw, stamp: float) -> tuple[str, Decide] | Problem:
    try:
        return _admitted(served, key, decoded(DECISION, asked), stamp)
    except (Problem, InvalidInput) as error:
        return problem_of(error) or Problem(422, "invalid", "this request cannot be read")


def _entry(found: tuple[str, Decide] | Problem, answered: Callable[[], Answer | Refusal]) -> BatchEntry:
    """The answer in its place; ``answered`` gives that to the next request that was carried out."""
    if not isinstance(found, Problem):
        answer = answered()
        if isinstance(answer, Answer):
            return BatchEntry(status=_status(answer), event_id=found[0], arm=answer.arm)
        found = refused(answer)
    document = found.document()
    return BatchEntry(status=found.status, kind=document.kind, title=document.title, detail=document.detail)


async def reward(service: Service, key: Key, parts: Parts, scope: ASGIScope, receive: Receive) -> tuple[int, bytes]:
    """What a decision has earned, or that its arm was never shown."""
    body = await _body(service, scope, receive)
    served, identity = await service.found(parts[0]), parts[1]
    told = decoded(REWARD, body)
    request = served.intake.reward(key.namespace, identity, reward=told.reward, abandoned=told.abandoned, arm=told.arm)
    (answer,) = await service.rewarder.carry_out(served.host, (request,))
    if isinstance(answer, Refusal):
        raise refused(answer)
    return _status(answer), encode(DecisionAnswer(identity, answer.arm))


_ROUTES: Final[dict[tuple[int, bytes], HotRoute]] = {
    (5, b"decisions"): HotRoute(DECISIONS, "POST", "decide", decide),
    (5, b"decisions:batch"): HotRoute(BATCHES, "POST", "decide", decide_batch),
    (7, b"decisions"): HotRoute(REWARDS, "PUT", "reward", reward),
}
