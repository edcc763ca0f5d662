"""Two worlds that differ in one user's arms, reward and delay, over HTTP: everybody else is sent the same bytes.

The second world releases what the first did (`tests/service/test_host_privacy.py`).  Compared are the bodies and
headers of every route that scope `read` or nobody's key reaches, everybody else's answers and errors, and the log.
"""

from __future__ import annotations

import asyncio
import io
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from tacit.service.http.app import App
from tacit.service.http.keys import Keyring
from tacit.service.http.logs import Log
from tacit.service.http.operations import OPERATIONS
from tacit.service.http.options import Options
from tacit.service.http.reads import live
from tacit.service.http.state import Service
from tacit.service.http.writer import Writer
from tests.service.hosting import arms_of
from tests.service.test_host_privacy import ROWS, TARGET, TERMS, WAIT, World

ENDLESS = "/v1/live"
SHOWN = [
    operation.path.replace("{name}", "p")
    for operation in OPERATIONS
    if operation.method == "GET" and operation.scope in (None, "read") and operation.path != ENDLESS
]
HERE = "http://tacit"
LOOK_EVERY = 5
TOOK = re.compile(r',"microseconds":\d+')


class HttpWorld(World):
    """The same run through the application, with keys; the replaced user has a namespace of their own."""

    def __init__(self, *arguments: Any, **terms: Any) -> None:
        super().__init__(*arguments, **terms)
        self.words = io.StringIO()
        deployment = self.bench.deployment
        log = Log(self.words, clock=lambda: 1.8e9)
        writer = Writer(deployment, log, 1_000, quick=1e9)  # its thread is not started: time goes by the test's clock
        keyring = Keyring(deployment.store)
        self.service = Service(deployment, keyring, writer, log, Options())
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(App(self.service)), base_url=HERE)
        self._runner = asyncio.Runner()
        scopes = ("decide", "reward")
        self._keys = {name: keyring.add(name, scopes, name)[0] for name in ("target", "others")}
        self._reader = keyring.add("reader", ("read",))[0]

    def _ask(self, key: str, method: str, path: str, body: object = None) -> tuple[int, list[tuple[str, str]], bytes]:
        asking = self._client.request(method, path, json=body, headers={"Authorization": f"Bearer {key}"})
        answer = self._runner.run(asking)
        return answer.status_code, answer.headers.multi_items(), answer.content

    def _ask_as(self, user: int, method: str, path: str, body: object) -> None:
        key = self._keys["target" if user == TARGET else "others"]
        found = self._ask(key, method, f"/v1/policies/p/decisions{path}", body)
        if user != TARGET:
            self.told.append((user, found))

    def _decide(self, user: int) -> None:
        arms = arms_of(self.arms if user == TARGET else user).tolist()
        body = {"event_id": f"event {user}", "contexts": arms, "user_id": f"person {user % 60}"}
        for _ in range(2 if user % 5 == 0 else 1):
            self._ask_as(user, "POST", "", body)

    def _report(self, user: int, reward: float) -> None:
        value = self.value if user == TARGET else reward
        path = f"/event%20{user}/reward"
        if user != TARGET or value is not None:
            self._ask_as(user, "PUT", path, {"reward": value})
        self._ask_as(user, "PUT", path, {"reward": 0.25})
        if user % LOOK_EVERY == 0:  # never when the replaced user reports
            self._ask_as(user, "PUT", f"/event%20{TARGET}/reward", {"reward": 1.0})  # an id of another namespace
            self._look()

    def _look(self) -> None:
        for path in SHOWN:
            self.told.append((path, self._ask(self._reader, "GET", path)))
        self.told.append((ENDLESS, self._runner.run(self._summary())))
        self.service.log.flush()
        self.told.append(("log", TOOK.sub("", self.words.getvalue())))
        self.words.truncate(self.words.seek(0))

    async def _summary(self) -> bytes:
        """The first message of the live stream."""
        headers = [(b"authorization", f"Bearer {self._reader}".encode())]
        answer: Any = await live(self.service, Request({"type": "http", "path": ENDLESS, "headers": headers}))
        async for message in answer.body_iterator:
            await answer.body_iterator.aclose()
            return bytes(message)
        raise AssertionError("the stream says nothing")

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()
        self.bench.close()


@pytest.mark.parametrize(
    ("terms", "rows"),
    [(TERMS[1], ROWS[0]), (TERMS[2], ROWS[1]), (TERMS[3], ROWS[2]), (TERMS[1], ROWS[3])],
    ids=["arms-and-reward", "delay", "missing", "late"],
)
def test_everybody_else_is_sent_the_same_bytes(
    terms: dict[str, Any], rows: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1.8e9)
    first = HttpWorld(tmp_path / "0", rows[0], None, reward_wait=WAIT, **terms)
    first.run()
    second = HttpWorld(tmp_path / "1", rows[1], first.releases, reward_wait=WAIT, **terms)
    second.run()
    for number, (ours, theirs) in enumerate(zip(first.told, second.told, strict=True)):
        assert ours == theirs, number
    statuses = {told[1][0] for told in first.told if isinstance(told[1], tuple)}
    assert statuses >= {200, 201, 404, 409}
    assert any(told[0] == "log" and '"event":"request"' in told[1] for told in first.told)
    first.close()
    second.close()


def test_without_the_same_releases_readers_are_sent_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    monkeypatch.setattr(time, "time", lambda: 1.8e9)
    worlds = [
        HttpWorld(tmp_path / str(place), row, None, reward_wait=WAIT, **TERMS[1]) for place, row in enumerate(ROWS[0])
    ]
    for world in worlds:
        world.run()
    both = zip(*(world.told for world in worlds), strict=True)
    differing = {ours[0] for ours, theirs in both if isinstance(ours[0], str) and ours != theirs}
    assert differing >= {"/v1/policies/p", "/v1/policies/p/history", "/v1/policies/p/explanation", ENDLESS}
    for world in worlds:
        world.close()
