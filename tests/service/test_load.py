"""The load generator: what it sends, what it counts, and what it says of servers that fail."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workloads.load import generator
from workloads.load.connection import Connection, Reply, call, request
from workloads.load.generator import (
    ARMS,
    DIM,
    Latency,
    Load,
    LoadJob,
    batches,
    cpu_seconds,
    generate,
    pairs,
    summary,
)
from workloads.load.measurement import Bench, LoadPlan, Trial, batch_row, pairs_row, syncs_per_second
from workloads.load.servers import ServerProcess, TacitServer, echo_server

from tacit.errors import InvalidInput, ServiceUnavailable

ANSWERS = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        if sys.argv[1] == "closes":
            sys.exit("out of patience")
        body = b'{"detail": "too many requests wait"}'
        self.send_response(503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_PUT = do_POST
server = HTTPServer(("127.0.0.1", 0), Handler)
print("listening on http://127.0.0.1:%d" % server.server_port, flush=True)
server.handle_request() if sys.argv[1] == "closes" else server.serve_forever()
"""


class Recorded(Connection):
    """A connection that keeps what is sent, and answers at once."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status, self.sent = status, list[bytes]()

    async def ask(self, request: bytes) -> Reply:
        self.sent.append(request)
        return Reply(self.status, b"{}")


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[ServerProcess]:
    with echo_server(tmp_path) as server:
        yield server


def _body(sent: bytes) -> dict[str, object]:
    head, _, body = sent.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    found: dict[str, object] = json.loads(body)
    return found


def test_a_pair_is_a_decision_and_its_reward_under_the_same_id() -> None:
    connection = Recorded(201)
    decided, rewarded = asyncio.run(pairs("key")(connection, "run-3-7", 7))
    assert rewarded >= decided
    question, reward = connection.sent
    assert question.startswith(b"POST /v1/policies/load/decisions HTTP/1.1\r\n")
    assert reward.startswith(b"PUT /v1/policies/load/decisions/run-3-7/reward HTTP/1.1\r\n")
    asked = _body(question)
    assert asked["event_id"] == "run-3-7"
    arms = np.array(asked["contexts"])
    assert arms.shape == (ARMS, DIM)
    assert (np.linalg.norm(arms, axis=1) < 1.0).all()
    assert _body(reward) == {"reward": 1.0}


@pytest.mark.parametrize("size", [1, 50, 300])
def test_a_batch_has_as_many_decisions_as_it_should(size: int) -> None:
    connection = Recorded(200)
    asyncio.run(batches("key", size)(connection, "", 9))
    asked = _body(connection.sent[0])["requests"]
    assert isinstance(asked, list)
    assert len(asked) == size


def test_the_echo_is_measured(echo: ServerProcess) -> None:
    load = generate(LoadJob(echo.port, echo.pid, "key", connections=2, seconds=1.0))
    assert load.per_second > 0.0
    assert len(load.calls) == 2
    assert 0.0 < load.whole.p50 <= load.whole.p99
    assert load.calls[0].p50 < load.whole.p99
    assert load.cpu_ms is not None
    assert call(echo.port, "GET", "/anything", "key") == Reply(201, b'{"event_id":"abcd","arm":0}')


def test_the_warm_up_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(port: int) -> Connection:
        connection = Recorded(201)
        connection.connection_made(_Deaf())
        return connection

    async def slowly(connection: Connection, identity: str, number: int) -> tuple[float, ...]:
        await asyncio.sleep(0.01)
        return (time.perf_counter(),)

    monkeypatch.setattr(generator, "connect", connect)
    job = LoadJob(1, os.getpid(), "key", connections=2, seconds=0.3)
    load = asyncio.run(generator._measured(job, slowly, warm_up=0.3))
    assert 0.0 < load.per_second <= 2 * (100.0 + 1.0 / 0.3)


def test_what_is_answered_in_pieces_is_put_together() -> None:
    async def heard() -> list[Reply]:
        connection = Connection()
        connection.connection_made(_Deaf())
        found = []
        for pieces in (
            [b"HTTP/1.1 200 OK\r\ncontent-le", b"ngth: 3\r\n\r\na", b"bc"],
            [b"HTTP/1.1 404 x\r\nA: b\r\ncontent-length: 0\r\n\r\n"],
        ):
            asking = asyncio.ensure_future(connection.ask(b""))
            await asyncio.sleep(0)
            for piece in pieces:
                assert not asking.done()
                connection.data_received(piece)
            found.append(await asking)
        return found

    assert asyncio.run(heard()) == [Reply(200, b"abc"), Reply(404, b"")]


class _Deaf(asyncio.Transport):
    def write(self, data: object) -> None: ...
    def close(self) -> None: ...
    def is_closing(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("refuses", 'answered 503 in place of 201: {"detail": "too many requests wait"}$'),
        ("closes", "closed a connection.*; it ended with exit code 1 and said: out of patience$"),
    ],
)
def test_a_server_that_fails_is_named_with_its_last_words(
    kind: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TacitServer, "key", "key")
    service = object.__new__(TacitServer)
    with (
        ServerProcess("a server", "-c", ANSWERS, kind, log=tmp_path / "log") as server,
        ThreadPoolExecutor(1) as pool,
    ):
        bench = Bench(LoadPlan(), print, tmp_path, server, service, pool)
        with pytest.raises(ServiceUnavailable, match=f"a server failed: the server .*{words}"):
            bench.load(server, connections=1)
    with pytest.raises(ServiceUnavailable, match="nobody listens"):
        call(server.port, "GET", "/", "key")


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match=r"a server did not start; it ended .* said: no luck"):
        ServerProcess("a server", "-c", "import sys; sys.exit('no luck')", log=tmp_path / "log")


def test_a_database_that_was_served_before_is_not_measured_on(tmp_path: Path) -> None:
    """Its admin key is with whoever served it first."""
    server = object.__new__(TacitServer)
    server.data = tmp_path
    with pytest.raises(ServiceUnavailable, match="measure on an empty one"):
        assert server.key


def test_processor_time_is_that_of_the_process() -> None:
    before = cpu_seconds(os.getpid())
    own = sum(os.times()[:2])
    while sum(os.times()[:2]) - own < 0.2:
        pass
    after = cpu_seconds(os.getpid())
    assert before is not None
    assert after is not None
    assert 0.15 < after - before < 0.5
    assert cpu_seconds(1 << 30) is None


def test_moments_become_rates_and_latencies() -> None:
    start = np.arange(1000) / 1000.0
    moments = np.column_stack([start, start + 0.001, start + 0.004])
    moments[:20, 2] += 0.1
    load = summary(moments, 2.0, 0.5)
    assert load.per_second == 500.0
    assert load.cpu_ms == 0.5
    assert load.whole.p50 == pytest.approx(4.0)
    assert load.whole.p99 == pytest.approx(104.0)
    assert load.calls[0] == pytest.approx((1.0, 1.0))
    assert load.calls[1] == pytest.approx((3.0, 103.0))


def _load(rate: float, cpu: float | None = 0.2) -> Load:
    latency = Latency(1e3 / rate, 2e3 / rate)
    return Load(rate, latency, (latency, latency), cpu)


def test_medians_and_shares_of_neighbours() -> None:
    """The machine was slow in the second round, for both; the echo alone was disturbed in the third."""
    rates = ((8000.0, 2000.0), (2000.0, 500.0), (1000.0, 1000.0))
    trials = [Trial(echo / 4.0, _load(echo), _load(service)) for echo, service in rates]
    row = pairs_row(16, trials)
    assert row["pairs_per_second"] == 1000.0
    assert row["echo_pairs_per_second"] == 2000.0
    assert row["share_of_echo"] == 0.25
    assert row["fdatasyncs_per_second"] == 500.0
    assert (row["p50_ms"], row["p99_ms"]) == (1.0, 2.0)
    assert row["cpu_ms_per_pair"] == 0.2
    assert pairs_row(1, [Trial(1.0, _load(1.0), _load(1.0, cpu=None))])["cpu_ms_per_pair"] is None
    batch = batch_row(50, [_load(100.0), _load(300.0), _load(200.0)])
    assert batch["decisions_per_second"] == 10_000.0
    assert batch["cpu_ms_per_decision"] == pytest.approx(0.004)


def test_the_steps_of_a_plan_are_counted() -> None:
    assert LoadPlan((1, 16, 64), repeats=3, batch=50).steps == 21
    assert LoadPlan((1,), repeats=2, batch=0).steps == 4


@pytest.mark.parametrize(
    "wrong", [{"connections": (1, 0)}, {"repeats": 0}, {"batch": -1}, {"seconds": 0.0}, {"wait": float("nan")}]
)
def test_a_plan_that_cannot_be_measured_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be positive"):
        LoadPlan(**wrong)


def test_syncs_are_counted(tmp_path: Path) -> None:
    assert syncs_per_second(tmp_path, 0.05) > 0.0
    assert (tmp_path / "bare").stat().st_size % 4096 == 0


def test_a_request_is_these_bytes() -> None:
    assert request("PUT", "/x", "k", b"{}") == (
        b"PUT /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
