"""What may be seen: everything here is made of published copies, which are made of releases and public counts."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tacit.privacy.gaussian import epsilon_from
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
from tacit.service.http.problems import Problem, overloaded
from tacit.service.http.state import Service
from tacit.service.published import Published

_LOOK: Final = 1.0
"""Seconds between looks at what has changed."""
_HEARTBEAT: Final = 15.0
_SHORT: Final = ("target_epsilon", "delta", "spent_epsilon", "spent_mu", "remaining_mu", "model", "protects")


def _served(service: Service, request: Request) -> Served:
    return service.deployment.get(request.path_params["name"])


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
    return answer(PolicyList([document(served) for _, served in sorted(service.deployment.policies.items())]))


async def policy(service: Service, request: Request) -> Response:
    """One policy."""
    return answer(document(_served(service, request)))


async def privacy(service: Service, request: Request) -> Response:
    """The privacy report of one policy."""
    return answer(_served(service, request).host.published.privacy)


async def total_privacy(service: Service, request: Request) -> Response:
    """What all policies have spent together: users may be in several."""
    served = service.deployment.policies
    reports = {name: dict(each.host.published.privacy) for name, each in sorted(served.items())}
    mu = service.deployment.total_mu()
    deltas = [float(report["delta"]) for report in reports.values() if report.get("delta")]
    delta = max(deltas, default=None)
    epsilon = epsilon_from(mu, delta) if delta is not None and math.isfinite(mu) else None
    return answer(TotalPrivacy(mu if math.isfinite(mu) else None, epsilon, delta, reports))


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
    if service.live >= service.options.most_live:
        raise overloaded()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_changes(service), media_type="text/event-stream", headers=headers)


async def _changes(service: Service) -> AsyncIterator[bytes]:
    service.live += 1
    try:
        shown, said_at = b"", time.monotonic()
        while not service.stopping.is_set():
            summary = encode({"policies": [_summary(each) for _, each in sorted(service.deployment.policies.items())]})
            if summary != shown:
                shown, said_at = summary, time.monotonic()
                yield b"data: " + summary + b"\n\n"
            elif time.monotonic() - said_at >= _HEARTBEAT:
                said_at = time.monotonic()
                yield b": still here\n\n"
            await _pause(service.stopping)
    finally:
        service.live -= 1


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
