"""Which process answers a request: the owner of its policy, whoever was asked.

Every process knows all keys and checks them.  A request about a policy of this process, or about none, is answered
here; others are passed on to the owner.  While a policy is on its way from one owner to the next, requests wait for a
moment, and are then told to come again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import Final
from urllib.parse import unquote_to_bytes

from tacit.service.cluster import Cluster
from tacit.service.http.answers import problem_answer
from tacit.service.http.keys import Key
from tacit.service.http.problems import Problem, overloaded
from tacit.service.http.receiving import ASGIApplication, ASGIScope, Disconnected, Receive, Send, header, json_body
from tacit.service.http.relay import Elsewhere, Passed, Relay
from tacit.service.http.state import Service
from tacit.service.sharing import Member, View, maker

PATIENCE: Final = 1.5
"""Seconds for which a request waits that its policy has an owner."""
_GRACE: Final = 0.5
"""Seconds that requests about a policy have to come to their end before it is closed; later ones come again."""
_LOOK: Final = 0.005
_REWARD: Final = b"/reward"


class News:
    """Wakes up all who wait that policies have come or gone; used in the event loop alone."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def spread(self) -> None:
        """Something has changed."""
        self._event.set()
        self._event = asyncio.Event()

    async def next(self, end: float) -> None:
        """Wait for a change, until this time of the clock at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(end - time.monotonic(), 0.0)):
                await self._event.wait()


class Router:
    """An ASGI application in front of that of this process."""

    def __init__(self, service: Service, app: ASGIApplication, cluster: Cluster, relay: Relay) -> None:
        self._service, self._app, self._cluster, self._relay = service, app, cluster, relay
        self._waiting, self._leaving = Counter[bool](), set[str]()
        self._busy: Counter[str] = Counter()
        self.news = News()

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            key, name = await self._key(scope), _policy_of(scope["raw_path"])
            if name is None or key is None or not key.reaches(name):  # the last two are refused there, unsearched
                await self._app(scope, receive, send)
            elif self._is_here(name):
                await self._answer(name, scope, receive, send)
            else:
                await self._find(name, scope, receive, send)
        except Disconnected:
            return
        except Problem as problem:
            await problem_answer(problem)(scope, receive, send)

    # Policies of this process

    def _is_here(self, name: str) -> bool:
        return name in self._service.deployment.policies and name not in self._leaving

    async def _answer(self, name: str, scope: ASGIScope, receive: Receive, send: Send) -> None:
        self._busy[name] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._busy[name] -= 1
            if not self._busy[name]:
                del self._busy[name]

    async def begin_to_leave(self, name: str) -> None:
        """Take no new requests about a policy, and let those that are under way come to their end, for a moment."""
        self._leaving.add(name)
        end = time.monotonic() + _GRACE
        while self._busy[name] and time.monotonic() < end:
            await asyncio.sleep(_LOOK)

    def leave(self, name: str) -> None:
        """The policy is closed, or stays after all."""
        self._leaving.discard(name)

    # Policies of others

    async def _key(self, scope: ASGIScope) -> Key | None:
        """The caller's key; one that is not known may have been made in another process a moment ago."""
        given = header(scope["headers"], b"authorization")
        found = self._service.keyring.holder(given)
        if given is not None and found is None:
            await self._service.neighbours.fresh()
            found = self._service.keyring.holder(given)
        return found

    async def _find(self, name: str, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Find the owner of a policy that is not here, and let it answer."""
        self._service.caller(scope)
        reward = scope["raw_path"].endswith(_REWARD)  # counted apart: no decision is refused because of rewards
        if self._waiting[reward] >= self._service.options.most_waiting:
            raise overloaded()
        self._waiting[reward] += 1
        try:
            empty = scope["method"] in ("GET", "HEAD")
            body = b"" if empty else await json_body(scope["headers"], receive, self._service.options)
            request = Passed(name, scope, body, receive, send)
            end = time.monotonic() + PATIENCE
            while not await self._answered(request, end):
                if time.monotonic() >= end or self._service.stopping.is_set():
                    raise request.refusal()
        finally:
            self._waiting[reward] -= 1

    async def _answered(self, request: Passed, end: float) -> bool:
        """Whether this process, or another one, has answered; if not, something has changed since."""
        view = self._cluster.view
        if request.name not in view.owners:
            view = await asyncio.wrap_future(self._cluster.fresh())
        if self._is_here(request.name) or self._is_unknown(request, view):
            await self._answer(request.name, request.scope, request.again(), request.send)
            return True
        chosen = _asked(request, view)
        if chosen is None or chosen.id == self._cluster.id:  # on its way
            await self.news.next(end)
            return False
        if request.passed_on:
            raise request.refusal()
        try:
            await self._relay.pass_on(chosen.address, lambda: self._lives(chosen), request)
        except Elsewhere:
            await self._service.neighbours.fresh()
            return False
        return True

    def _is_unknown(self, request: Passed, view: View) -> bool:
        """Whether there is no such policy, and nobody else is to make it."""
        if request.name in view.owners:
            return False
        chosen = maker(view, request.name)
        makes = request.scope["method"] == "PUT" and not request.passed_on
        return not makes or chosen is None or chosen.id == self._cluster.id

    def _lives(self, member: Member) -> bool:
        return any(each.id == member.id for each in self._cluster.view.members)


def _asked(request: Passed, view: View) -> Member | None:
    """Who owns a policy, or should make it."""
    return view.owner(request.name) if request.name in view.owners else maker(view, request.name)


def _policy_of(raw_path: bytes) -> str | None:
    """The policy that a path is about."""
    parts = raw_path.split(b"/", 4)
    if len(parts) < 4 or parts[1:3] != [b"v1", b"policies"] or not parts[3]:
        return None
    try:
        return unquote_to_bytes(parts[3]).decode()
    except UnicodeDecodeError:
        return None  # refused by the application
