"""Throughput of the service: durable decide+reward pairs a second, beside a bare echo and a bare fdatasync loop.

    python benchmarks/serve.py [--seconds 5] [--connections 1,16,64] [--batch 50]

One process serves, another one generates the load; d = 5, K = 20, `stream-glm`, SQLite.  The echo is a raw ASGI
application under the same server and settings that reads a body and answers with a few bytes; a pair is two echoes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DIM, ARMS, CONTEXTS = 5, 20, 256
WARM_UP = 2.0
ECHO = """
import sys, uvicorn
from tacit.service.http.connections import BoundedProtocol
async def echo(scope, receive, send):
    body = (await receive())["body"]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"26")]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"event_id":"abcd","arm":0}'[:26]})
class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print("listening on http://127.0.0.1:%d" % self.servers[0].sockets[0].getsockname()[1], flush=True)
settings = dict(http=BoundedProtocol, ws="none", lifespan="off", log_config=None, log_level="critical",
                access_log=False, server_header=False, proxy_headers=False)
Server(uvicorn.Config(echo, port=0, **settings)).run()
"""


class Load(NamedTuple):
    """What was measured at a number of connections."""

    connections: int
    rate: float
    p50: float
    p99: float


class Connection(asyncio.Protocol):
    """A client that sends one request at a time and hears of each answer."""

    def __init__(self) -> None:
        self.buffer = b""
        self.waiter: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, end, rest = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        start = head.index(b"content-length: ") + 16
        stop = head.find(b"\r\n", start)
        length = int(head[start:stop] if stop > 0 else head[start:])
        if len(rest) >= length:
            self.buffer = rest[length:]
            if self.waiter is not None:
                self.waiter.set_result((int(head[9:12]), rest[:length]))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and wait for its answer."""
        self.waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.waiter


def request(method: str, path: str, key: str, body: bytes) -> bytes:
    """The bytes of a request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def contexts() -> list[str]:
    """Arm sets as JSON."""
    drawn = np.random.default_rng(0).standard_normal((CONTEXTS, ARMS, DIM))
    drawn *= 0.999 / np.maximum(1.0, np.linalg.norm(drawn, axis=2, keepdims=True))
    return [json.dumps(arms.tolist()) for arms in drawn]


def pairs(key: str) -> Callable[[Connection, int, int], Awaitable[None]]:
    """A decision and its reward."""
    prepared = contexts()

    async def pair(connection: Connection, worker: int, number: int) -> None:
        identity = f"{os.getpid()}-{worker}-{number}"
        body = f'{{"event_id":"{identity}","contexts":{prepared[number % CONTEXTS]}}}'.encode()
        status, _ = await connection.ask(request("POST", "/v1/policies/load/decisions", key, body))
        path = f"/v1/policies/load/decisions/{identity}/reward"
        other, _ = await connection.ask(request("PUT", path, key, b'{"reward":1.0}'))
        if (status, other) != (201, 201):
            raise SystemExit(f"answered {status} and {other}")

    return pair


def batches(key: str, size: int) -> Callable[[Connection, int, int], Awaitable[None]]:
    """Many decisions in one request."""
    prepared = contexts()
    entries = [",".join(f'{{"contexts":{arms}}}' for arms in prepared[i : i + size]) for i in range(8)]
    requests = [
        request("POST", "/v1/policies/load/decisions:batch", key, f'{{"requests":[{entry}]}}'.encode())
        for entry in entries
    ]

    async def batch(connection: Connection, worker: int, number: int) -> None:
        status, _ = await connection.ask(requests[number % 8])
        if status != 200:
            raise SystemExit(f"answered {status}")

    return batch


async def measured(
    port: int, connections: int, seconds: float, action: Callable[[Connection, int, int], Awaitable[None]]
) -> Load:
    """Let all connections do ``action`` again and again."""
    loop = asyncio.get_running_loop()
    times: list[float] = []
    begin = time.perf_counter() + min(WARM_UP, seconds)
    end = begin + seconds

    async def work(worker: int) -> None:
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        number = 0
        while (start := time.perf_counter()) < end:
            await action(connection, worker, number)
            number += 1
            if start >= begin:
                times.append(time.perf_counter() - start)
        connection.transport.close()

    await asyncio.gather(*(work(worker) for worker in range(connections)))
    p50, p99 = np.quantile(times, [0.5, 0.99]) * 1e3
    return Load(connections, len(times) / seconds, float(p50), float(p99))


def generate(port: int, connections: int, seconds: float, key: str, batch: int) -> Load:
    """One measurement, in a process of its own."""
    import uvloop

    action = batches(key, batch) if batch else pairs(key)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measured(port, connections, seconds, action))


class Server:
    """A server process, ready when this is made."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
        stdout = self.process.stdout
        line = stdout.readline() if stdout is not None else ""
        self.port = int(line.rpartition(":")[2])

    def stop(self) -> None:
        """End it as an operator would."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def call(port: int, method: str, path: str, key: str, body: dict[str, Any]) -> int:
    """One request."""

    async def once() -> int:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
        status, _ = await connection.ask(request(method, path, key, json.dumps(body).encode()))
        return status

    return asyncio.run(once())


def syncs(folder: Path, seconds: float) -> float:
    """Bare writes of 4 kB with fdatasync, a second."""
    count, end = 0, time.perf_counter() + seconds
    with (folder / "bare").open("wb", buffering=0) as stream:
        while time.perf_counter() < end:
            stream.write(bytes(4096))
            os.fdatasync(stream.fileno())
            count += 1
    return count / seconds


def loads(port: int, connections: list[int], seconds: float, key: str, batch: int = 0) -> Iterator[Load]:
    """A measurement for each number of connections."""
    context = multiprocessing.get_context("spawn")
    for number in connections:
        with context.Pool(1) as pool:
            yield pool.apply(generate, (port, number, seconds, key, batch))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", default="1,16,64")
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--wait", type=float, default=600.0, help="reward_wait of the policy")
    chosen = parser.parse_args()
    numbers = [int(part) for part in chosen.connections.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"fdatasync of 4 kB: {syncs(folder, 1.0):,.0f} a second")
        echo = Server("-c", ECHO)
        bare = {load.connections: load for load in loads(echo.port, numbers, chosen.seconds, "none")}
        echo.stop()
        subprocess.run([sys.executable, "-m", "tacit", "warm", "--policies", "stream-glm"], check=True)
        options = ("--data", str(folder / "store"), "--port", "0", "--no-log-requests")
        service = Server("-m", "tacit", "serve", *options)
        key = (folder / "store" / "admin.key").read_text().strip()
        setting = {"policy": "stream-glm", "dim": DIM, "epsilon": 4.0, "delta": 1e-6, "theta_bound": 3.5}
        assert call(service.port, "PUT", "/v1/policies/load", key, setting | {"reward_wait": chosen.wait}) == 201
        print(f"{'connections':>12}{'pairs/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'echo pairs/s':>14}{'share':>8}")
        for load in loads(service.port, numbers, chosen.seconds, key):
            other = bare[load.connections]
            print(
                f"{load.connections:>12}{load.rate:>10,.0f}{load.p50:>9.2f}{load.p99:>9.2f}{other.rate:>14,.0f}"
                f"{load.rate / other.rate:>8.2f}"
            )
        if chosen.batch:
            (load,) = loads(service.port, [4], chosen.seconds, key, chosen.batch)
            print(
                f"batches of {chosen.batch}: {load.rate * chosen.batch:,.0f} decisions a second, p99 {load.p99:.1f} ms"
            )
        service.stop()


if __name__ == "__main__":
    main()
