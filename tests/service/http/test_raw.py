"""Bytes that no client library sends: refused, without a change, while others are answered."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest
from workloads import raw_requests as raw

from tests.service.http.running import TWO, Running
from tests.service.http.test_bounds import body, count, raw_request
from tests.service.http.test_routes import decide


@pytest.fixture(scope="module")
def target(running: Running) -> Any:
    path = running.policy()
    return raw.Target(running.port, running.key, path.rpartition("/")[2])


@pytest.fixture(scope="module")
def slow_target(impatient: Running) -> Any:
    """The same of a service that gives clients up which are slow."""
    path = impatient.policy()
    return raw.Target(impatient.port, impatient.key, path.rpartition("/")[2])


def public(client: httpx.Client, target: Any) -> list[str]:
    path = f"/v1/policies/{target.policy}"
    return [client.get(each).text for each in (path, f"{path}/privacy", f"{path}/history", "/v1/keys")]


@pytest.mark.parametrize("name", raw.CASES)
def test_what_nobody_sends_changes_nothing(request: pytest.FixtureRequest, name: str) -> None:
    case = raw.CASES[name]
    service: Running = request.getfixturevalue("impatient" if case.slow else "running")
    to = request.getfixturevalue("slow_target" if case.slow else "target")
    with service.client() as client:
        before = public(client, to)
        found = raw.sent(case, to)
        assert set(found) <= case.allowed, (name, found)
        assert public(client, to) == before
    with service.client() as other:
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


def test_others_are_answered_while_many_are_slow(impatient: Running, slow_target: Any) -> None:
    """The slow ones are given up after seconds: were others held back by them, at most one would come meanwhile."""
    slow = [name for name, case in raw.CASES.items() if case.slow]
    found: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda name=name: found.append(raw.sent(raw.CASES[name], slow_target)))
        for name in slow * 15
    ]
    for thread in threads:
        thread.start()
    path, meanwhile = impatient.policy(), 0
    with impatient.client() as client:
        while any(thread.is_alive() for thread in threads):
            assert client.post(f"{path}/decisions", json={"contexts": TWO}).status_code == 201
            meanwhile += all(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join()
    assert meanwhile > 5
    assert {status for each in found for status in each} <= {408, 400}
