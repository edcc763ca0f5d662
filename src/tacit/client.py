"""Clients of a decision service: `Client` for ordinary code, `AsyncClient` for asyncio, with the same methods.

    with Client("http://127.0.0.1:8470", key) as client:
        choice = client.decide("news", user={"device": "ios"}, arms=articles, default_arm=0)
        show(articles[choice.arm])
        client.reward("news", choice, 1.0)

Every decision has an event id, made up here where the caller has none, so that a call can be made again: the service
answers the same, and nothing counts twice.  When the service cannot answer in time, ``default_arm`` is shown in place
of an error.  The decision may have been made all the same; so the service is told, as soon as it can be reached, that
its arm was never shown, and rewards of such a choice are not sent.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote

from tacit.errors import InvalidInput, ServiceRefused, ServiceUnavailable
from tacit.extras import named_extras

with named_extras():
    import httpx

_AGAIN: Final = frozenset((429, 502, 503, 504))
"""Answers after which a call is made again."""
_FIRST_PAUSE: Final = 0.05
_MOST_UNSHOWN: Final = 1_000
"""Decisions that wait to be abandoned; more are left to expire by themselves."""


@dataclass(frozen=True)
class Choice:
    """An arm to show."""

    arm: int
    event_id: str
    answered: bool = True
    """False when the service did not answer, and ``arm`` is the default."""


@dataclass(frozen=True)
class _Call:
    """One request, which may be sent again."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


_Steps = Generator["_Call | float", Any, Any]
"""A conversation without a network: yields a call, and is sent its response or the error; yields a pause in seconds."""


class _Conversations:
    """The logic of both clients as generators, which `Client` runs by blocking calls and `AsyncClient` by awaiting."""

    def __init__(self, retries: int) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise InvalidInput(f"retries must be a whole number of at least 0, not {retries!r}")
        self._retries = retries
        self._unshown: deque[_Call] = deque(maxlen=_MOST_UNSHOWN)

    def _deciding(self, policy: str, asked: Mapping[str, Any], default_arm: int | None) -> _Steps:
        body = {name: value for name, value in asked.items() if value is not None}
        body.setdefault("event_id", secrets.token_urlsafe(18))
        if "contexts" in body:
            body["contexts"] = [[float(value) for value in row] for row in body["contexts"]]
        try:
            answer = yield from self._carrying_out(_Call("POST", f"{_path(policy)}/decisions", body))
        except ServiceUnavailable:
            if default_arm is None:
                raise
            # It may have been made all the same: its arm is not the one that is shown.
            self._unshown.append(_about(policy, body["event_id"], {"abandoned": True}))
            return Choice(default_arm, body["event_id"], answered=False)
        return Choice(int(answer["arm"]), body["event_id"])

    def _rewarding(self, policy: str, event: Choice | str, reward: float) -> _Steps:
        if isinstance(event, str):
            yield from self._carrying_out(_about(policy, event, {"reward": reward}))
        elif event.answered:
            yield from self._carrying_out(_about(policy, event.event_id, {"reward": reward, "arm": event.arm}))

    def _abandoning(self, policy: str, event: Choice | str) -> _Steps:
        identity = event if isinstance(event, str) else event.event_id
        yield from self._carrying_out(_about(policy, identity, {"abandoned": True}))

    def _reporting(self, policy: str | None) -> _Steps:
        path = "/v1/privacy" if policy is None else f"{_path(policy)}/privacy"
        return (yield from self._carrying_out(_Call("GET", path)))

    def _carrying_out(self, call: _Call) -> _Steps:
        """Carry out a call, and then those that could not be made before."""
        answer = yield from self._sending(call, self._retries)
        while self._unshown:
            left = self._unshown.popleft()
            try:
                yield from self._sending(left, 0)
            except ServiceRefused:
                continue  # it was never made, or is over already
            except ServiceUnavailable:
                self._unshown.append(left)
                break
        return answer

    def _sending(self, call: _Call, retries: int) -> _Steps:
        for attempt in range(retries + 1):
            response = yield call
            if isinstance(response, httpx.Response) and response.status_code not in _AGAIN:
                return _answer(response)
            if attempt < retries:  # spread, so that many clients do not come back at once
                yield _FIRST_PAUSE * 2.0**attempt * random.uniform(0.5, 1.5)
        said = f"it answered {response.status_code}" if isinstance(response, httpx.Response) else repr(response)
        raise ServiceUnavailable(f"the service could not answer: {said}")


def _path(policy: str) -> str:
    return f"/v1/policies/{quote(policy, safe='')}"


def _about(policy: str, event_id: str, body: Mapping[str, Any]) -> _Call:
    """A call about a decision."""
    return _Call("PUT", f"{_path(policy)}/decisions/{quote(event_id, safe='')}/reward", body)


def _answer(response: httpx.Response) -> Any:
    """The decoded answer of the service; raises `ServiceRefused` with its message on a refusal."""
    if response.is_success:
        return response.json() if response.content else None
    try:
        problem = response.json()
        detail = str(problem.get("detail") or problem.get("title"))
    except (ValueError, AttributeError):
        detail = response.reason_phrase
    raise ServiceRefused(response.status_code, detail)


class Client(_Conversations):
    """Calls a service and waits for its answers; may be used from several threads."""

    def __init__(self, url: str, key: str, *, timeout: float = 2.0, retries: int = 3, **options: Any) -> None:
        """``timeout`` is in seconds, for each attempt; ``options`` are those of `httpx.Client`."""
        super().__init__(retries)
        self._http = httpx.Client(base_url=url, timeout=timeout, headers={"Authorization": f"Bearer {key}"}, **options)

    def decide(
        self,
        policy: str,
        contexts: Sequence[Sequence[float]] | None = None,
        *,
        user: Mapping[str, Any] | None = None,
        arms: Sequence[Mapping[str, Any]] | None = None,
        event_id: str | None = None,
        user_id: str | None = None,
        default_arm: int | None = None,
    ) -> Choice:
        """Ask for an arm; with ``default_arm`` there is always one, whether or not the service answers."""
        asked = {"contexts": contexts, "user": user, "arms": arms, "event_id": event_id, "user_id": user_id}
        found: Choice = self._drive(self._deciding(policy, asked, default_arm))
        return found

    def reward(self, policy: str, event: Choice | str, reward: float) -> None:
        """Report a reward; once is enough, and more often does no harm."""
        self._drive(self._rewarding(policy, event, reward))

    def abandon(self, policy: str, event: Choice | str) -> None:
        """Say that the arm was never shown: the decision teaches nothing."""
        self._drive(self._abandoning(policy, event))

    def privacy(self, policy: str | None = None) -> dict[str, Any]:
        """The privacy report of a policy, or of the whole deployment."""
        found: dict[str, Any] = self._drive(self._reporting(policy))
        return found

    def _drive(self, steps: _Steps) -> Any:
        answer: httpx.Response | httpx.TransportError | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(step, _Call):
                answer = self._request(step)
            else:
                time.sleep(step)

    def _request(self, call: _Call) -> httpx.Response | httpx.TransportError:
        try:
            return self._http.request(call.method, call.path, json=call.body)
        except httpx.TransportError as error:
            return error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Conversations):
    """Calls a service from asyncio: the methods of `Client` as coroutines."""

    def __init__(self, url: str, key: str, *, timeout: float = 2.0, retries: int = 3, **options: Any) -> None:
        """``timeout`` is in seconds, for each attempt; ``options`` are those of `httpx.AsyncClient`."""
        super().__init__(retries)
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.AsyncClient(base_url=url, timeout=timeout, headers=headers, **options)

    async def decide(
        self,
        policy: str,
        contexts: Sequence[Sequence[float]] | None = None,
        *,
        user: Mapping[str, Any] | None = None,
        arms: Sequence[Mapping[str, Any]] | None = None,
        event_id: str | None = None,
        user_id: str | None = None,
        default_arm: int | None = None,
    ) -> Choice:
        """Ask for an arm; with ``default_arm`` there is always one, whether or not the service answers."""
        asked = {"contexts": contexts, "user": user, "arms": arms, "event_id": event_id, "user_id": user_id}
        found: Choice = await self._drive(self._deciding(policy, asked, default_arm))
        return found

    async def reward(self, policy: str, event: Choice | str, reward: float) -> None:
        """Report a reward; once is enough, and more often does no harm."""
        await self._drive(self._rewarding(policy, event, reward))

    async def abandon(self, policy: str, event: Choice | str) -> None:
        """Say that the arm was never shown: the decision teaches nothing."""
        await self._drive(self._abandoning(policy, event))

    async def privacy(self, policy: str | None = None) -> dict[str, Any]:
        """The privacy report of a policy, or of the whole deployment."""
        found: dict[str, Any] = await self._drive(self._reporting(policy))
        return found

    async def _drive(self, steps: _Steps) -> Any:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = await (self._request(step) if isinstance(step, _Call) else asyncio.sleep(step))

    async def _request(self, call: _Call) -> httpx.Response | httpx.TransportError:
        try:
            return await self._http.request(call.method, call.path, json=call.body)
        except httpx.TransportError as error:
            return error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
