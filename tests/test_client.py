"""Clients against a service that fails in every way: nothing counts twice, and there is always an arm to show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import tacit.client
from tacit.client import AsyncClient, Choice, Client
from tacit.errors import InvalidInput, ServiceRefused, ServiceUnavailable

Reply = httpx.Response | Exception
URL = "http://service.test"


class Fake:
    """Answers from a list, and remembers what was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, str, Any]] = []
        self.keys: set[str] = set()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, request.url.raw_path.decode(), body))
        self.keys.add(request.headers["Authorization"])
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return httpx.Response(reply.status_code, content=reply.content)  # anew: one may be listed several times


class Waiting:
    """The verbs of `AsyncClient`, each waited for, so that every test runs with both clients."""

    def __init__(self, fake: Fake, **options: Any) -> None:
        self._client = AsyncClient(URL, "secret", transport=httpx.MockTransport(fake), **options)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return lambda *arguments, **named: asyncio.run(getattr(self._client, verb)(*arguments, **named))


def plain(fake: Fake, **options: Any) -> Client:
    return Client(URL, "secret", transport=httpx.MockTransport(fake), **options)


@pytest.fixture(params=[plain, Waiting], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(tacit.client, "_FIRST_PAUSE", 0.0)
    return request.param


def decided(arm: int = 2) -> httpx.Response:
    return httpx.Response(201, json={"event_id": "x", "arm": arm})


def problem(status: int, detail: str = "no") -> httpx.Response:
    return httpx.Response(status, json={"title": "Refused", "status": status, "detail": detail})


def test_a_decision_and_its_reward(connect: Callable[..., Any]) -> None:
    fake = Fake(decided(), httpx.Response(201, json={}), httpx.Response(200, json={"epsilon": 1.0}))
    client = connect(fake)
    choice = client.decide("a b", [[1, 0]], event_id="e/1", user_id="u")
    assert choice == Choice(2, "e/1")
    client.reward("a b", choice, 1.0)
    assert client.privacy() == {"epsilon": 1.0}
    assert fake.asked == [
        (
            "POST",
            "/v1/policies/a%20b/decisions",
            {"event_id": "e/1", "contexts": [[1.0, 0.0]], "user_id": "u"},
        ),
        ("PUT", "/v1/policies/a%20b/decisions/e%2F1/reward", {"reward": 1.0, "arm": 2}),
        ("GET", "/v1/privacy", None),
    ]
    assert fake.keys == {"Bearer secret"}


def test_records_are_sent_as_they_are(connect: Callable[..., Any]) -> None:
    fake = Fake(decided(0))
    connect(fake).decide("p", user={"age": 41}, arms=[{"topic": "news"}])
    ((_, _, body),) = fake.asked
    assert body["user"] == {"age": 41}
    assert body["arms"] == [{"topic": "news"}]
    assert len(body["event_id"]) >= 20  # made up: a call that is made again must be known


@pytest.mark.parametrize(
    "fault", [httpx.ConnectError("gone"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("cut"), problem(503)]
)
def test_calls_are_made_again_with_the_same_id(connect: Callable[..., Any], fault: Reply) -> None:
    fake = Fake(fault, fault, decided(1))
    assert connect(fake).decide("p", [[1.0]]).arm == 1
    assert len({body["event_id"] for _, _, body in fake.asked}) == 1
    assert len(fake.asked) == 3


def test_refusals_are_not_tried_again(connect: Callable[..., Any]) -> None:
    fake = Fake(problem(409, "used for another request"))
    with pytest.raises(ServiceRefused, match=r"used for another request \(409\)") as caught:
        connect(fake).decide("p", [[1.0]], default_arm=0)
    assert caught.value.status == 409
    assert len(fake.asked) == 1


def test_without_a_default_arm_the_caller_is_told(connect: Callable[..., Any]) -> None:
    fake = Fake(*[httpx.ConnectError("gone")] * 3)
    with pytest.raises(ServiceUnavailable, match="gone"):
        connect(fake, retries=2).decide("p", [[1.0]])
    assert len(fake.asked) == 3


def test_a_default_arm_is_shown_and_the_decision_abandoned_later(connect: Callable[..., Any]) -> None:
    """The decision may have been made: the answer was lost.  Its reward must never be that of the default arm."""
    fake = Fake(httpx.ReadTimeout("slow"), decided(1), httpx.Response(201, json={}))
    client = connect(fake, retries=0)
    choice = client.decide("p", [[1.0]], event_id="lost", default_arm=7)
    assert choice == Choice(7, "lost", answered=False)
    client.reward("p", choice, 1.0)
    assert len(fake.asked) == 1  # nothing was sent
    assert client.decide("p", [[1.0]], event_id="next").arm == 1
    assert fake.asked[2] == ("PUT", "/v1/policies/p/decisions/lost/reward", {"abandoned": True})


def test_what_cannot_be_abandoned_yet_is_tried_again_and_what_was_never_made_is_dropped(
    connect: Callable[..., Any],
) -> None:
    fake = Fake(httpx.ReadTimeout("slow"), decided(1), httpx.ReadTimeout("slow"), decided(1), problem(404), decided(1))
    client = connect(fake, retries=0)
    client.decide("p", [[1.0]], event_id="lost", default_arm=0)
    for _ in range(3):
        assert client.decide("p", [[1.0]]).answered
    assert [path for _, path, _ in fake.asked].count("/v1/policies/p/decisions/lost/reward") == 2
    assert not fake.replies


def test_abandoning_and_events_by_id(connect: Callable[..., Any]) -> None:
    fake = Fake(httpx.Response(201, json={}), httpx.Response(200, json={}))
    client = connect(fake)
    client.abandon("p", Choice(3, "e"))
    client.reward("p", "e", 0.0)
    assert [body for _, _, body in fake.asked] == [{"abandoned": True}, {"reward": 0.0}]


@pytest.mark.parametrize("retries", [-1, 1.5, True])
def test_bad_retries(retries: Any) -> None:
    with pytest.raises(InvalidInput, match="retries"):
        Client(URL, "secret", retries=retries)
