"""Routes that are called often, on bare ASGI: decisions, batches of decisions, rewards.

Everything that can be refused is refused here, before the writer sees it; the writer carries out what it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from tacit.errors import InvalidInput
from tacit.service.deployment import Served
from tacit.service.host import Answer, Decide, Refusal, Reward
from tacit.service.http import bodies
from tacit.service.http.bodies import DecisionAnswer, DecisionBody, RewardAnswer, decoded, encode
from tacit.service.http.connections import ASGIScope, Receive, json_body
from tacit.service.http.keys import Key
from tacit.service.http.problems import Problem, problem_of, refused
from tacit.service.http.state import Service
from tacit.service.http.writer import Writer

DECISIONS: Final = "/v1/policies/{name}/decisions"
BATCHES: Final = "/v1/policies/{name}/decisions:batch"
REWARDS: Final = "/v1/policies/{name}/decisions/{event_id}/reward"
HOT_ROUTES: Final = {(5, b"decisions"): DECISIONS, (5, b"decisions:batch"): BATCHES, (7, b"decisions"): REWARDS}
"""By the number of parts of a path, and by its fifth part."""

Parts = tuple[str, ...]
"""What stands in the placeholders of a path."""


def hot_route(raw_path: bytes) -> tuple[str | None, Parts]:
    """Return the hot route of a path and what stands in its placeholders; None for all other paths.

    A path is split before it is decoded: an event id may have slashes of its own, as %2F.
    """
    parts = raw_path.split(b"/")
    if len(parts) not in (5, 7) or parts[1] != b"v1" or parts[2] != b"policies":
        return None, ()
    route = HOT_ROUTES.get((len(parts), unquote_to_bytes(parts[4]) if b"%" in parts[4] else parts[4]))
    if route is None or (len(parts) == 7 and parts[6] != b"reward"):
        return None, ()
    return route, tuple(_text(part) for part in parts[3:7:2])


def _text(part: bytes) -> str:
    try:
        return (unquote_to_bytes(part) if b"%" in part else part).decode()
    except UnicodeDecodeError:
        raise Problem(400, "path", "a part of the path is not UTF-8") from None


async def decide(service: Service, key: Key, parts: Parts, scope: ASGIScope, receive: Receive) -> tuple[int, bytes]:
    """Choose an arm. The same event_id and content again: the stored answer, 200."""
    body = await json_body(scope, receive, service.options)
    stamp = service.deployment.clock()  # before it waits for anything, or is read, which takes a time that tells of it
    served = await service.found(parts[0])
    identity, request = _admitted(served, key, decoded(bodies.DECISION, body), stamp)
    answer = await _carried_out(service.writer, served, request)
    return _status(answer), encode(DecisionAnswer(identity, answer.arm, answer.propensity))


async def reward(service: Service, key: Key, parts: Parts, scope: ASGIScope, receive: Receive) -> tuple[int, bytes]:
    """Report a reward, or that the arm was never shown. The same again: 200."""
    body = await json_body(scope, receive, service.options)
    stamp, (name, identity) = service.deployment.clock(), parts
    served, told = await service.already_found(name), decoded(bodies.REWARD, body)
    request = served.intake.reward(
        key.namespace, identity, reward=told.reward, abandoned=told.abandoned, arm=told.arm, stamp=stamp
    )
    answer = await _carried_out(service.rewarder, served, request)
    return _status(answer), encode(RewardAnswer(identity, answer.arm))


async def _carried_out(writer: Writer, served: Served, request: Decide | Reward) -> Answer:
    (answer,) = await writer.carry_out(served.host, (request,))
    if isinstance(answer, Refusal):
        raise refused(answer, served.terms.default_reward)
    return answer


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
    """Choose for many users; a bad request gets its own error in its place."""
    body = await json_body(scope, receive, service.options)
    stamp = service.deployment.clock()
    served = await service.found(parts[0])
    asked = decoded(bodies.BATCH, body).requests
    if len(asked) > service.options.most_batch:
        raise InvalidInput(f"at most {service.options.most_batch} requests are taken at once, not {len(asked)}")
    service.rates.charge(key, max(len(asked) - 1, 0))  # one was counted when the call came
    checked = [_admitted_or_problem(served, key, each, stamp) for each in asked]
    wanted = [each[1] for each in checked if not isinstance(each, Problem)]
    answers = iter(await service.writer.carry_out(served.host, wanted) if wanted else ())
    return 200, encode(bodies.BatchAnswer([_entry(each, answers) for each in checked]))


def _admitted_or_problem(served: Served, key: Key, asked: msgspec.Raw, stamp: float) -> tuple[str, Decide] | Problem:
    try:
        return _admitted(served, key, decoded(bodies.DECISION, asked), stamp)
    except (Problem, InvalidInput) as error:
        return problem_of(error) or Problem(422, "invalid", "this request cannot be read")


def _entry(found: tuple[str, Decide] | Problem, answers: Iterator[Answer | Refusal]) -> bodies.BatchEntry:
    """Return one entry of a batch's answer; ``answers`` are those to the requests that were carried out, in order."""
    if not isinstance(found, Problem):
        answer = next(answers)
        if isinstance(answer, Answer):
            arm, new, propensity = answer
            return bodies.BatchEntry(status=201 if new else 200, event_id=found[0], arm=arm, propensity=propensity)
        found = refused(answer)
    return bodies.BatchEntry(**msgspec.structs.asdict(found.document()))
