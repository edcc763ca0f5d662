"""Bodies and connections that are too big, too slow, cut off or run together; more requests than can be answered."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from tacit.errors import InvalidInput
from tacit.service.http.options import Options, read_options
from tests.service.http.running import TWO, Running, problem
from tests.service.http.test_routes import decide


def raw_request(running: Running, path: str, body: bytes, *, length: int | None = None, more: str = "") -> bytes:
    head = f"POST {path}/decisions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {running.key}\r\n{more}"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def statuses(answers: bytes) -> list[int]:
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]


def body(event: str) -> bytes:
    return json.dumps({"contexts": TWO, "event_id": event}).encode()


def count(admin: httpx.Client, path: str) -> int:
    return int(admin.get(path).json()["decisions"])


def test_big_bodies_are_refused(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    for size in ((1 << 20) + 1, 3 << 20):
        problem(admin.post(f"{path}/decisions", content=b" " * size), 413, "too-large")
    huge = raw_request(running, path, b"", length=1 << 40)
    assert statuses(running.raw(huge)) == [413]

    def chunks() -> object:
        yield from [b" " * 65536] * 64

    problem(admin.post(f"{path}/decisions", content=chunks()), 413, "too-large")  # type: ignore[arg-type]
    assert count(admin, path) == 0


def test_slow_bodies_are_given_up(impatient: Running) -> None:
    path = impatient.policy()
    slow = raw_request(impatient, path, b"{", length=100)
    assert statuses(impatient.raw(slow)) == [408]
    with impatient.client() as client:
        assert count(client, path) == 0


def test_slow_and_endless_heads_are_given_up(impatient: Running) -> None:
    assert impatient.raw(b"") == b""
    assert impatient.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A") == b""
    assert statuses(impatient.raw(b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 200_000)) in ([400], [])


def test_requests_that_are_cut_off_change_nothing(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    whole = raw_request(running, path, body("cut"))
    for end in (10, len(whole) // 2, len(whole) - 1):
        with socket.create_connection(("127.0.0.1", running.port)) as connection:
            connection.sendall(whole[:end])
    time.sleep(0.3)
    assert count(admin, path) == 0
    close = raw_request(running, path, body("cut"), more="Connection: close\r\n")
    assert statuses(running.raw(close, pieces=len(close))) == [201]


def test_requests_that_run_together_are_answered_in_order(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    last = raw_request(running, path, body("p0"), more="Connection: close\r\n")
    several = b"".join(raw_request(running, path, body(f"p{i}")) for i in range(20)) + last
    for pieces in (1, 7):
        answers = running.raw(several, pieces=pieces)
        assert statuses(answers) == ([201] * 20 if pieces == 1 else [200] * 20) + [200]
        places = [answers.index(f'"p{i}"'.encode()) for i in range(20)]
        assert places == sorted(places)
    assert count(admin, path) == 20


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET http:// HTTP/1.1\r\n\r\n",
        b"PUT /v1/policies/x HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/keys HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"POST /v1/keys HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_nonsense_is_no_fault_of_the_service(running: Running, data: bytes) -> None:
    assert all(status < 500 for status in statuses(running.raw(data, end=True)))
    with running.client() as client:
        assert client.get("/healthz").status_code == 200


def test_overload_is_refused_before_the_queue_grows(tmp_path: Path) -> None:
    with Running(tmp_path / "data", most_waiting=1) as running:
        path = running.policy()
        batches: list[httpx.Response] = []
        seen = threading.Event()

        def many() -> None:
            with running.client() as client:
                while not seen.is_set() and len(batches) < 300:
                    body = {"requests": [{"contexts": TWO}] * 1000}
                    batches.append(client.post(f"{path}/decisions:batch", json=body))

        thread = threading.Thread(target=many)
        thread.start()
        with running.client() as client:
            refused = None
            while refused is None and thread.is_alive():
                answer = decide(client, path, event_id="patient")
                refused = answer if answer.status_code == 503 else None
            seen.set()
            thread.join()
            assert refused is not None
            problem(refused, 503, "overloaded")
            assert refused.headers["retry-after"] == "1"
            assert decide(client, path, event_id="patient").status_code in (200, 201)
            made = sum(1000 for batch in batches if batch.status_code == 200)
            assert {batch.status_code for batch in batches} <= {200, 503}
            assert count(client, path) == made + 1


def test_options_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('host = "127.0.0.2"\nbody_bytes = 10\nbody_seconds = 2\nlog_requests = false\n')
    options = Options().changed(read_options(file))
    assert (options.host, options.body_bytes, options.body_seconds, options.log_requests) == ("127.0.0.2", 10, 2, False)
    for wrong in ({"prot": 1}, {"port": -1}, {"port": 70_000}, {"port": True}, {"most_arms": 0}, {"host": 3}):
        with pytest.raises(InvalidInput):
            Options().changed(wrong)
    for seconds in (0.0, float("nan"), float("inf"), "1"):
        with pytest.raises(InvalidInput):
            Options().changed({"body_seconds": seconds})
    file.write_text("= 3")
    with pytest.raises(InvalidInput, match="not TOML"):
        read_options(file)
