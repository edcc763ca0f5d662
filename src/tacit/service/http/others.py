"""The other processes of a deployment, as the routes of this one see them: lists and totals are put together from all.

A list is whole, or it is refused: it must have every policy that the database knows.  So a process that cannot be asked
is missed by what it owns, and a policy that moves from one process to another meanwhile is asked for again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from tacit.errors import JournalExists
from tacit.service.cluster import Cluster
from tacit.service.deployment import Deployment
from tacit.service.http.exchange import BROKEN, HOP, Exchange, Unreachable
from tacit.service.http.neighbours import Part
from tacit.service.http.problems import Problem, no_owner
from tacit.service.http.receiving import ASGIScope, header

_ASKED: Final = 2.0
"""Seconds that another process has for its part."""
_PATIENCE: Final = 2.0
"""Seconds for which a whole list is tried for."""
_PAUSE: Final = 0.1


def not_whole() -> Problem:
    """Some policy cannot be asked for."""
    detail = "a policy has no owner that can be asked at this moment: all of them together are known within seconds"
    return Problem(503, "no-owner", detail, {"Retry-After": "1"})


class Others:
    """The `Neighbours` of a process on a database."""

    def __init__(self, cluster: Cluster, deployment: Deployment, exchange: Exchange) -> None:
        self._cluster, self._deployment, self._exchange = cluster, deployment, exchange
        self._recent: dict[object, tuple[float, asyncio.Task[Part]]] = {}
        """By path, and by what the caller's key is bound to."""

    def names(self) -> Set[str]:
        return self._cluster.view.owners.keys()

    def ready(self) -> bool:
        """Whether every policy has an owner, and those of this process are open."""
        view = self._cluster.view
        own = {name for name, owner in view.owners.items() if owner == self._cluster.id}
        return view.whole and own <= self._deployment.policies.keys()

    def is_part(self, scope: ASGIScope) -> bool:
        return header(scope["headers"], HOP) is not None

    async def fresh(self) -> None:
        await asyncio.wrap_future(self._cluster.fresh())

    def tell(self) -> None:
        self._cluster.tell()

    @contextmanager
    def making(self, name: str) -> Iterator[None]:
        """Hold the policy's lock; where another process has it, or has made the policy, the caller comes again."""
        new = name not in self._deployment.policies
        if new and not self._cluster.reserve(name).result():
            raise no_owner()
        try:
            yield
        except JournalExists:
            if name in self._deployment.policies:  # with another configuration
                raise
            raise no_owner() from None
        finally:
            if new and name not in self._deployment.policies:
                self._cluster.let_go(name)
            elif new:
                self._cluster.tell()

    async def whole(self, scope: ASGIScope, own: Callable[[], Part], *, age: float = 0.0) -> Part:
        """Put together what all processes have; callers that do with an older answer share it."""
        if not age:
            return await self._gathered(scope, own)
        asked = scope["path"], scope["tacit.key"].policies
        begun, task = self._recent.get(asked, (0.0, None))
        if task is None or time.monotonic() - begun >= age:
            task = asyncio.ensure_future(self._gathered(scope, own))
            task.add_done_callback(_seen)
            self._recent[asked] = time.monotonic(), task
        return await asyncio.shield(task)

    async def _gathered(self, scope: ASGIScope, own: Callable[[], Part]) -> Part:
        end = time.monotonic() + _PATIENCE
        while True:
            view = await asyncio.wrap_future(self._cluster.fresh())
            others = (member.address for member in view.members if member.id != self._cluster.id)
            parts = await asyncio.gather(*(self._part(address, scope) for address in others))
            found = {name: shown for part in (*parts, own()) for name, shown in part.items()}
            if {name for name in view.owners if scope["tacit.key"].reaches(name)} <= found.keys():
                return found
            if time.monotonic() > end:
                raise not_whole()
            await asyncio.sleep(_PAUSE)

    async def _part(self, address: str, scope: ASGIScope) -> Part:
        """What another process has; nothing where it does not say."""
        asked = {**scope, "method": "GET"}
        status, body = 0, bytearray()
        try:
            async with asyncio.timeout(_ASKED), self._exchange.answering(address, asked, b"") as parts:
                async for part in parts:
                    status = part.get("status", status)
                    body += part.get("body", b"")
        except (Unreachable, *BROKEN):
            return {}
        found: dict[str, Any] = msgspec.json.decode(body) if status == 200 else {}
        return found


def _seen(task: asyncio.Task[Part]) -> None:
    """Look at the end of a task: whoever wanted to know it may be gone."""
    if not task.cancelled():
        task.exception()
