"""Several processes on one PostgreSQL database: what a second process adds, and what it costs to share a policy.

    python -m benchmarks.turns [--seconds 3] [--connections 32] [--repeats 3]

Durable pairs of a decision and its reward, four ways in turn:

- one process, four policies;
- two processes, four policies, each asked at one process only (affinity, as a proxy gives it);
- one process, one policy;
- two processes, one policy, asked at both processes in turn, request by request.

The load generators, the server of the database and the service share the machine.  Processor time is that of the
serving processes.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import uvloop
from workloads.turns import own_server

POLICY: Final = {"policy": "stream-glm", "dim": 5, "epsilon": 4.0, "delta": 1e-6, "theta_bound": 3.5}
NAMES: Final = ("a", "b", "c", "d")
ARMS: Final = json.dumps([[0.1 * (1 + (arm + place) % 4) for place in range(5)] for arm in range(20)])
_PATIENCE: Final = 60.0
Asked = dict[str, tuple["Process", ...]]
"""By policy: the processes that its requests go to, one after the other."""


class Process:
    """`tacit serve` on a database."""

    def __init__(self, database: str, folder: Path, key: str = "") -> None:
        command = [sys.executable, "-m", "tacit", "serve", "--database", database, "--data", str(folder)]
        self._process = subprocess.Popen([*command, "--port", "0", "--no-log-requests"], stdout=subprocess.PIPE)
        line = self._process.stdout.readline() if self._process.stdout is not None else b""
        self.port = int(line.rpartition(b":")[2])
        self.key = key or (folder / "admin.key").read_text().strip()

    def end(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)
        self._process.wait(_PATIENCE)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            given = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **headers}
            connection.request(method, path, None if body is None else json.dumps(body), given)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(database: str, folder: Path, connections: int, seconds: float, repeats: int) -> dict[str, list[float]]:
    """Pairs a second and processor milliseconds of a pair, the medians of ``repeats``, by way of asking."""
    one = Process(database, folder / "one")
    for name in NAMES:
        assert one.ask("PUT", f"/v1/policies/{name}", POLICY)[0] == 201
    two = Process(database, folder / "two", one.key)
    ways: dict[str, Asked] = {
        "4 policies, one process": dict.fromkeys(NAMES, (one,)),
        "4 policies, two processes with affinity": {name: ((one, two)[n % 2],) for n, name in enumerate(NAMES)},
        "1 policy, one process": {"a": (one,)},
        "1 policy, two processes in turn": {"a": (one, two)},
    }
    found: dict[str, list[list[float]]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, asked in ways.items():
            found[way].append(_measure(asked, connections, seconds, (one, two)))
    two.end()
    one.end()
    return {way: [statistics.median(column) for column in zip(*each, strict=True)] for way, each in found.items()}


def _measure(asked: Asked, connections: int, seconds: float, processes: Sequence[Process]) -> list[float]:
    """Pairs a second, and processor milliseconds of a pair."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_pairs(asked, connections, 0.5))  # what is read for the first time
        before = sum(process.cpu_seconds for process in processes)
        pairs = runner.run(_pairs(asked, connections, seconds))
        spent = sum(process.cpu_seconds for process in processes) - before
    return [pairs / seconds, 1000.0 * spent / pairs]


async def _pairs(asked: Asked, connections: int, seconds: float) -> int:
    """How many pairs are answered in so many seconds."""
    end, counted, names = time.monotonic() + seconds, 0, list(asked)

    async def work(worker: int) -> None:
        nonlocal counted
        name = names[worker % len(names)]
        open_ = [await asyncio.open_connection("127.0.0.1", process.port) for process in asked[name]]
        links = itertools.cycle(open_)
        while time.monotonic() < end:
            event, path = secrets.token_urlsafe(12), f"/v1/policies/{name}/decisions"
            for method, target, body in (
                ("POST", path, f'{{"event_id":"{event}","contexts":{ARMS}}}'),
                ("PUT", f"{path}/{event}/reward", '{"reward":1.0}'),
            ):
                reader, writer = next(links)
                key = asked[name][0].key
                head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: "
                writer.write(f"{head}{len(body)}\r\n\r\n{body}".encode())
                assert await _status(reader) == 201
            next(links)  # a pair is two requests: without this, decisions would all go to one process
            counted += 1
        for _, writer in open_:
            writer.close()

    await asyncio.gather(*(work(worker) for worker in range(connections)))
    return counted


async def _status(reader: asyncio.StreamReader) -> int:
    """Read an answer to its end and return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    start = head.index(b"content-length: ") + 16
    await reader.readexactly(int(head[start : head.index(b"\r\n", start)]))
    return int(head[9:12])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, own_server() as url:
        found = measured(url, Path(folder), given.connections, given.seconds, given.repeats)
    base = [0.0, 0.0]
    for way, (rate, cpu) in found.items():
        base = [rate, cpu] if "one process" in way else base
        ratios = f"{rate / base[0]:.2f} times the pairs, {cpu / base[1]:.2f} times the processor time of a pair"
        print(f"{way}: {rate:,.0f} pairs/s, {cpu:.2f} ms of processor a pair; {ratios}")


if __name__ == "__main__":
    main()
