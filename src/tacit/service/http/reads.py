"""What may be seen: everything here is made of published copies, which are made of releases and public counts."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tacit.privacy.person import together
from tacit.service.deployment import Served
from tacit.service.http.bodies import (
    Health,
    History,
    ModePoint,
    PolicyDocument,
    PolicyList,
    ReleasePoint,
    TotalPrivacy,
    answer,
    encode,
)
from tacit.service.http.problems import Problem, overloaded
from tacit.service.http.state import Service
from tacit.service.published import Published, composed

_LOOK: Final = 1.0
"""Seconds between looks at what has changed."""
_HEARTBEAT: Final = 15.0
_SHORT: Final = ("target_epsilon", "delta", "spent_epsilon", "spent_mu", "remaining_mu", "model", "protects")


async def _newest(service: Service, request: Request) -> Published:
    """What may be seen of one policy."""
    return (await service.newest(request.path_params["name"])).host.published


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


async def policies(service: Service, request: Request) -> Response:
    """All policies."""
    await service.see()
    return answer(PolicyList([document(served) for served in service.policies_of(request.scope["tacit.key"]).values()]))


async def policy(service: Service, request: Request) -> Response:
    """One policy."""
    return answer(document(await service.newest(request.path_params["name"])))


async def privacy(service: Service, request: Request) -> Response:
    """The privacy report of one policy."""
    return answer((await _newest(service, request)).privacy)


async def total_privacy(service: Service, request: Request) -> Response:
    """What all policies have spent together: users may be in several."""
    await service.see()
    return answer(total({name: served.host.published for name, served in sorted(service.deployment.policies.items())}))


def total(seen: Mapping[str, Published]) -> TotalPrivacy:
    """Epsilon and delta hold for the transcript of all policies, and of all lives that are known of."""
    mu = composed(each.spent_mu for each in seen.values())
    lost = together(each.loss for each in seen.values())
    epsilon, delta = lost.epsilon, lost.total_delta
    return TotalPrivacy(
        mu if math.isfinite(mu) else None,
        epsilon if delta > 0.0 and math.isfinite(epsilon) else None,
        delta if delta > 0.0 else None,
        {name: dict(each.privacy) for name, each in seen.items()},
    )


async def history(service: Service, request: Request) -> Response:
    """The newest releases and changes of mode."""
    seen = await _newest(service, request)
    releases = [
        ReleasePoint(point.decisions, point.time, None if math.isnan(point.best_reward) else point.best_reward)
        for point in seen.history
    ]
    return answer(History(releases, [ModePoint(*change) for change in seen.modes]))


async def explanation(service: Service, request: Request) -> Response:
    """Every feature with its released weight."""
    found = (await _newest(service, request)).explanation
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
    if service.live >= service.options.most_live:
        raise overloaded()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_changes(service, request), media_type="text/event-stream", headers=headers)


async def _changes(service: Service, request: Request) -> AsyncIterator[bytes]:
    """Nothing more is said to a key that was revoked."""
    service.live += 1
    try:
        shown, said_at = b"", time.monotonic()
        while not service.stopping.is_set() and service.keyring.holder(_key(request)) is not None:
            await service.see(age=_LOOK)
            found = service.policies_of(request.scope["tacit.key"])
            summary = encode({"policies": [_summary(served) for served in found.values()]})
            if summary != shown:
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
