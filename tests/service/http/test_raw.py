"""Bytes that no client library sends: refused, without a change, while others are answered."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest

from tests.scripts import benchmark
from tests.service.http.running import TWO, Running
from tests.service.http.test_bounds import body, count, raw_request
from tests.service.http.test_routes import decide

raw = benchmark("raw_requests")


@pytest.fixture(scope="module")
def target(running: Running) -> Any:
    path = running.policy()
    return raw.Target(running.port, running.key, path.rpartition("/")[2])


def public(admin: httpx.Client, target: Any) -> list[str]:
    path = f"/v1/policies/{target.policy}"
    return [admin.get(each).text for each in (path, f"{path}/privacy", f"{path}/history", "/v1/keys")]


@pytest.mark.parametrize("name", raw.CASES)
def test_what_nobody_sends_changes_nothing(running: Running, admin: httpx.Client, target: Any, name: str) -> None:
    case = raw.CASES[name]
    before = public(admin, target)
    found = raw.sent(case, target)
    assert set(found) <= case.allowed, (name, found)
    assert public(admin, target) == before
    with running.client() as other:
        assert other.get("/healthz").status_code == 200


def test_none_of_them_has_decided(admin: httpx.Client, target: Any) -> None:
    assert decide(admin, f"/v1/policies/{target.policy}", event_id="cut").status_code == 201


def test_a_bad_request_in_the_middle_does_not_touch_the_others(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    good, close = body("once"), "Connection: close\r\n"
    several = [
        raw_request(running, path, good),
        raw_request(running, path, b"{"),
        raw_request(running, path, good),
        raw_request(running, path, json.dumps({"contexts": [[9.0, 9.0]], "event_id": "once"}).encode()),
        raw_request(running, path, good, more=close),
    ]
    assert raw.statuses(running.raw(b"".join(several))) == [201, 400, 200, 422, 200]
    assert count(admin, path) == 1
    broken = raw_request(running, path, body("two")) + b"nonsense\r\n\r\n" + raw_request(running, path, body("three"))
    assert raw.statuses(running.raw(broken)) in ([201, 400], [201], [400], [])  # no more is read of such a connection
    assert count(admin, path) in (1, 2)


def test_others_are_answered_while_many_are_slow(running: Running, admin: httpx.Client, target: Any) -> None:
    slow = [name for name, case in raw.CASES.items() if case.slow]
    found: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda name=name: found.append(raw.sent(raw.CASES[name], target))) for name in slow * 15
    ]
    for thread in threads:
        thread.start()
    path, worst = running.policy(), 0.0
    while any(thread.is_alive() for thread in threads):
        start = time.monotonic()
        assert admin.post(f"{path}/decisions", json={"contexts": TWO}).status_code == 201
        worst = max(worst, time.monotonic() - start)
    for thread in threads:
        thread.join()
    assert worst < 2.0
    assert {status for each in found for status in each} <= {408, 400}
