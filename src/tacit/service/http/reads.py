"""Calls that read: all answers are made of published copies, which hold releases and public counts alone."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tacit.privacy.person import together
from tacit.service.deployment import Served
from tacit.service.host import REFUSING
from tacit.service.http import bodies
from tacit.service.http.bodies import answer
from tacit.service.http.connections import header
from tacit.service.http.problems import Problem, overloaded
from tacit.service.http.state import Service
from tacit.service.published import Published

_LOOK: Final = 1.0
"""Seconds between looks at what has changed."""
_HEARTBEAT: Final = 15.0
_SHORT: Final = ("target_epsilon", "delta", "spent_epsilon", "spent_mu", "remaining_mu", "model", "protects")


async def _newest(service: Service, request: Request) -> Published:
    """Return the newest published copy of the request's policy."""
    return (await service.newest(request.path_params["name"])).host.published


def document(served: Served) -> bodies.PolicyDocument:
    """Return a policy as it is shown."""
    seen = served.host.published
    return bodies.PolicyDocument(
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
    """Return whether a policy decides, and what its privacy report warns of."""
    return {"status": seen.mode if seen.mode in REFUSING else "ok", "warnings": list(seen.privacy.get("warnings", ()))}


async def policies(service: Service, request: Request) -> Response:
    """List all policies."""
    await service.see()
    found = service.policies_of(request.scope["tacit.key"])
    return answer(bodies.PolicyList([document(served) for served in found.values()]))


async def policy(service: Service, request: Request) -> Response:
    """Show configuration, decisions so far, released estimate and health."""
    return answer(document(await service.newest(request.path_params["name"])))


async def privacy(service: Service, request: Request) -> Response:
    """Show the privacy report."""
    return answer((await _newest(service, request)).privacy)


async def total_privacy(service: Service, request: Request) -> Response:
    """Show what all policies have spent together, since users may be in several."""
    await service.see()
    return answer(total({name: served.host.published for name, served in sorted(service.deployment.policies.items())}))


def total(seen: Mapping[str, Published]) -> bodies.TotalPrivacy:
    """Compose what policies have spent; it holds for the transcript of all of them, and of all lives known of."""
    mu = math.sqrt(sum(each.spent_mu * each.spent_mu for each in seen.values()))  # of a person who is in all policies
    lost = together(each.loss for each in seen.values())
    epsilon, delta = lost.epsilon, lost.total_delta
    return bodies.TotalPrivacy(
        mu if math.isfinite(mu) else None,
        epsilon if delta > 0.0 and math.isfinite(epsilon) else None,
        delta if delta > 0.0 else None,
        {name: dict(each.privacy) for name, each in seen.items()},
    )


async def history(service: Service, request: Request) -> Response:
    """List the newest releases and changes of mode."""
    seen = await _newest(service, request)
    releases = [bodies.ReleasePoint(*point) for point in seen.history]  # NaN is written as null
    return answer(bodies.History(releases, [bodies.ModePoint(*change) for change in seen.modes]))


async def explanation(service: Service, request: Request) -> Response:
    """List every feature with its released weight."""
    found = (await _newest(service, request)).explanation
    if found is None:
        raise Problem(404, "no-estimate", "this policy has no released estimate to explain anything by")
    return answer(found)


async def healthz(service: Service, request: Request) -> Response:
    """Say that the process answers."""
    return answer(bodies.Health("ok"))


async def readyz(service: Service, request: Request) -> Response:
    """Say whether requests are taken, as a public code."""
    return answer(bodies.Health(service.status), 200 if service.status == "ok" else 503)


async def live(service: Service, request: Request) -> Response:
    """Stream summaries: one at once, then one whenever something was published, at most one a second."""
    if service.live >= service.options.most_live:
        raise overloaded()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_changes(service, request), media_type="text/event-stream", headers=headers)


async def _changes(service: Service, request: Request) -> AsyncIterator[bytes]:
    """Yield events until the service stops or the key is revoked."""
    given = header(request.scope["headers"], b"authorization")
    service.live += 1
    try:
        shown, said_at = b"", time.monotonic()
        while not service.stopping.is_set() and service.keyring.holder(given) is not None:
            await service.see(age=_LOOK)
            found = service.policies_of(request.scope["tacit.key"])
            summary = bodies.encode({"policies": [_summary(served) for served in found.values()]})
            if summary != shown:
                shown, said_at = summary, time.monotonic()
                yield b"data: " + summary + b"\n\n"
            elif time.monotonic() - said_at >= _HEARTBEAT:
                said_at = time.monotonic()
                yield b": still here\n\n"
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await service.stopping.wait()
    finally:
        service.live -= 1


def _summary(served: Served) -> dict[str, Any]:
    """Return what the page shows of a policy in its list."""
    seen = served.host.published
    newest = seen.history[-1] if seen.history else None
    return {
        "name": served.name,
        "policy": served.policy,
        "mode": seen.mode,
        "decisions": seen.decisions,
        "releases": seen.releases,
        "newest_release": None if newest is None else newest.time,
        "best_reward": None if newest is None else newest.best_reward,
        "privacy": {name: seen.privacy.get(name) for name in _SHORT},
        "health": _health(seen),
    }
