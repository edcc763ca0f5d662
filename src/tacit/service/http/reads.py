"""What may be seen: everything here is made of published copies, which are made of releases and public counts."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tacit.privacy.person import Loss, together
from tacit.service.deployment import Served
from tacit.service.http.answers import answer
from tacit.service.http.bodies import (
    Health,
    History,
    ModePoint,
    PolicyDocument,
    PolicyList,
    ReleasePoint,
    TotalPrivacy,
    encode,
)
from tacit.service.http.neighbours import Part
from tacit.service.http.problems import Problem, overloaded
from tacit.service.http.state import Service
from tacit.service.published import Published, composed

_LOOK: Final = 1.0
"""Seconds between looks at what has changed."""
_HEARTBEAT: Final = 15.0
_SHORT: Final = ("target_epsilon", "delta", "spent_epsilon", "spent_mu", "remaining_mu", "model", "protects")


def _served(service: Service, request: Request) -> Served:
    return service.served(request.path_params["name"])


def document(served: Served) -> PolicyDocument:
    """A policy as it is shown."""
    seen = served.host.published
    return PolicyDocument(
        name=served.name,
        policy=served.policy,
        config=dict(served.config),
        terms=served.terms.to_json(),
        mode=seen.mode,
        decisions=seen.decisions,
        releases=seen.releases,
        estimate=None if seen.estimate is None else list(seen.estimate),
        health=_health(seen),
    )


def _health(seen: Published) -> dict[str, Any]:
    """Whether it decides, and what its privacy report warns of."""
    return {"status": "off" if seen.mode == "off" else "ok", "warnings": list(seen.privacy.get("warnings", ()))}


def _own(service: Service, request: Request, shown: Callable[[Served], Any]) -> Part:
    """Something of each policy of this process that the caller's key reaches."""
    return {name: shown(served) for name, served in service.policies_of(request.scope["tacit.key"]).items()}


async def _together(
    service: Service, request: Request, shown: Callable[[Served], Any], whole: Callable[[Part], Any]
) -> Response:
    """An answer about all policies: ``whole`` makes it of what is shown of each, in whatever process."""
    if service.neighbours.is_part(request.scope):
        return answer(_own(service, request, shown))
    found = await service.neighbours.whole(request.scope, lambda: _own(service, request, shown))
    return answer(whole(dict(sorted(found.items()))))


async def policies(service: Service, request: Request) -> Response:
    """All policies."""
    return await _together(service, request, document, lambda found: PolicyList(list(found.values())))


async def policy(service: Service, request: Request) -> Response:
    """One policy."""
    return answer(document(_served(service, request)))


async def privacy(service: Service, request: Request) -> Response:
    """The privacy report of one policy."""
    return answer(_served(service, request).host.published.privacy)


async def total_privacy(service: Service, request: Request) -> Response:
    """What all policies have spent together: users may be in several."""
    return await _together(service, request, _spending, _total)


def _spending(served: Served) -> dict[str, Any]:
    seen = served.host.published
    mu = seen.spent_mu if math.isfinite(seen.spent_mu) else None
    return {"mu": mu, "loss": seen.loss.to_json(), "report": dict(seen.privacy)}


def _total(found: Part) -> TotalPrivacy:
    """Epsilon and delta hold for the transcript of all policies, and of all lives that are known of."""
    mu = composed(math.inf if each["mu"] is None else each["mu"] for each in found.values())
    lost = together(Loss.from_json(each["loss"]) for each in found.values())
    epsilon, delta = lost.epsilon, lost.total_delta
    return TotalPrivacy(
        mu if math.isfinite(mu) else None,
        epsilon if delta > 0.0 and math.isfinite(epsilon) else None,
        delta if delta > 0.0 else None,
        {name: each["report"] for name, each in found.items()},
    )


async def history(service: Service, request: Request) -> Response:
    """The newest releases and changes of mode."""
    seen = _served(service, request).host.published
    releases = [
        ReleasePoint(point.decisions, point.time, None if math.isnan(point.best_reward) else point.best_reward)
        for point in seen.history
    ]
    return answer(History(releases, [ModePoint(*change) for change in seen.modes]))


async def explanation(service: Service, request: Request) -> Response:
    """Every feature with its released weight."""
    found = _served(service, request).host.published.explanation
    if found is None:
        raise Problem(404, "no-estimate", "this policy has no released estimate to explain anything by")
    return answer(found)


async def healthz(service: Service, request: Request) -> Response:
    """That the process answers."""
    return answer(Health("ok"))


async def readyz(service: Service, request: Request) -> Response:
    """Whether requests are taken, as a public code."""
    return answer(Health(service.status), 200 if service.status == "ok" else 503)


async def live(service: Service, request: Request) -> Response:
    """A stream of summaries: one at once, then one whenever something was published, at most one a second."""
    if service.neighbours.is_part(request.scope):
        return answer(_own(service, request, _summary))
    if service.live >= service.options.most_live:
        raise overloaded()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_changes(service, request), media_type="text/event-stream", headers=headers)


async def _changes(service: Service, request: Request) -> AsyncIterator[bytes]:
    """Nothing new is said while a policy has no owner, nor anything at all to a key that was revoked."""
    service.live += 1
    try:
        shown, said_at = b"", time.monotonic()
        while not service.stopping.is_set() and service.keyring.holder(_key(request)) is not None:
            summary = await _summaries(service, request)
            if summary not in (shown, b""):
                shown, said_at = summary, time.monotonic()
                yield b"data: " + summary + b"\n\n"
            elif time.monotonic() - said_at >= _HEARTBEAT:
                said_at = time.monotonic()
                yield b": still here\n\n"
            await _pause(service.stopping)
    finally:
        service.live -= 1


def _key(request: Request) -> bytes:
    return request.headers.get("authorization", "").encode("latin-1")


async def _summaries(service: Service, request: Request) -> bytes:
    """What is said of all policies; nothing where one of them cannot be asked."""
    try:
        found = await service.neighbours.whole(request.scope, lambda: _own(service, request, _summary), age=_LOOK)
    except Problem:
        return b""
    return encode({"policies": [each for _, each in sorted(found.items())]})


async def _pause(stopping: asyncio.Event) -> None:
    """Wait a while, or until the service stops."""
    try:
        async with asyncio.timeout(_LOOK):
            await stopping.wait()
    except TimeoutError:
        return


def _summary(served: Served) -> dict[str, Any]:
    seen = served.host.published
    report: Mapping[str, Any] = seen.privacy
    newest = seen.history[-1] if seen.history else None
    return {
        "name": served.name,
        "policy": served.policy,
        "mode": seen.mode,
        "decisions": seen.decisions,
        "releases": seen.releases,
        "newest_release": None if newest is None else newest.time,
        "best_reward": None if newest is None or math.isnan(newest.best_reward) else newest.best_reward,
        "privacy": {name: report.get(name) for name in _SHORT},
        "health": _health(seen),
    }
