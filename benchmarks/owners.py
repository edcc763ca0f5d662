"""Several processes on one PostgreSQL database: how long a takeover takes, and what a second process adds.

    python -m benchmarks.owners [--kills 10] [--seconds 5] [--connections 32]

**Takeover.**  Two processes own a policy each.  One of them is killed (SIGKILL), and its policy is asked for a decision
through the other one until there is an answer.  A new process takes the place of the dead one, and so on.

**Throughput.**  Durable pairs of a decision and its reward for two policies: with one process that owns both; with two
that own one each, asked at the owner; and the same asked at the other process, which passes everything on.  The load
generator (two processes), the server of the database and the service share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from workloads.fencing import own_server

NAMES: Final = ("a", "b")
POLICY: Final = {"policy": "stream-glm", "dim": 5, "epsilon": 4.0, "delta": 1e-6, "theta_bound": 3.5}
ARMS: Final = json.dumps([[0.1 * (1 + (arm + place) % 4) for place in range(5)] for arm in range(20)])
_PATIENCE: Final = 60.0


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

    def owned(self) -> set[str]:
        """The policies that this process owns."""
        return set(self.ask("GET", "/v1/policies", None, **{"Tacit-Hop": "1"})[1])


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def make_policies(database: str, folder: Path) -> str:
    """Make the policies in a process that ends; its key."""
    process = Process(database, folder / "maker")
    for name in NAMES:
        assert process.ask("PUT", f"/v1/policies/{name}", POLICY)[0] == 201
    process.end()
    return process.key


# Takeover


def takeovers(database: str, folder: Path, kills: int) -> list[float]:
    """Seconds from the death of an owner to the first answer by another one."""
    key = make_policies(database, folder)
    stays = Process(database, folder / "stays", key)
    found = []
    for number in range(kills):
        other = Process(database, folder / f"process{number}", key)
        wait_until(partial(_owns_one, other))
        (name,) = other.owned()
        found.append(_taken_over_in(stays, other, name))
    stays.end()
    return found


def _owns_one(process: Process) -> bool:
    return len(process.owned()) == 1


def _taken_over_in(stays: Process, other: Process, name: str) -> float:
    start = time.monotonic()
    body = {"contexts": json.loads(ARMS), "event_id": str(start)}
    other.end(signal.SIGKILL)
    wait_until(lambda: stays.ask("POST", f"/v1/policies/{name}/decisions", body)[0] in (200, 201))
    return time.monotonic() - start


# Throughput


def throughput(database: str, folder: Path, connections: int, seconds: float) -> dict[str, float]:
    """Pairs a second."""
    key = make_policies(database, folder)
    one = Process(database, folder / "one", key)
    found = {"one process": _rate(dict.fromkeys(NAMES, one), connections, seconds)}
    two = Process(database, folder / "two", key)
    wait_until(partial(_owns_one, two))
    owners = {name: one if name in one.owned() else two for name in NAMES}
    found["two processes, asked at the owner"] = _rate(owners, connections, seconds)
    others = {name: two if owner is one else one for name, owner in owners.items()}
    found["two processes, asked at the other one"] = _rate(others, connections, seconds)
    two.end()
    one.end()
    return found


def _rate(asked: dict[str, Process], connections: int, seconds: float) -> float:
    """All pairs of both policies, each with a load generator of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(asked)) as pool:
        given = [(process.port, name, process.key, connections, seconds) for name, process in asked.items()]
        return sum(pool.starmap(generate, given))


def generate(port: int, name: str, key: str, connections: int, seconds: float) -> float:
    """Pairs a second of one policy, in a process of its own."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measured(port, name, key, connections, seconds))


async def _measured(port: int, name: str, key: str, connections: int, seconds: float) -> float:
    begin = time.monotonic() + seconds / 2.0
    end, counted = begin + seconds, 0

    async def work(worker: int) -> None:
        nonlocal counted
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        number = 0
        while time.monotonic() < end:
            event = f"{os.getpid()}-{worker}-{number}-{begin}"
            path, number = f"/v1/policies/{name}/decisions", number + 1
            for method, target, body in (
                ("POST", path, f'{{"event_id":"{event}","contexts":{ARMS}}}'),
                ("PUT", f"{path}/{event}/reward", '{"reward":1.0}'),
            ):
                head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: "
                writer.write(f"{head}{len(body)}\r\n\r\n{body}".encode())
                assert await _status(reader) == 201
            counted += time.monotonic() >= begin
        writer.close()

    await asyncio.gather(*(work(worker) for worker in range(connections)))
    return counted / seconds


async def _status(reader: asyncio.StreamReader) -> int:
    """Of an answer, all of which is read."""
    head = await reader.readuntil(b"\r\n\r\n")
    start = head.index(b"content-length: ") + 16
    await reader.readexactly(int(head[start : head.index(b"\r\n", start)]))
    return int(head[9:12])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=32, help="of each policy")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "kills", Path(folder) / "throughput"
        for each in (first, second):
            each.mkdir()
        if given.kills:
            with own_server() as url:
                waits = takeovers(url, first, given.kills)
            print(f"takeover after SIGKILL, {len(waits)} times: ", end="")
            print(f"median {statistics.median(waits):.2f} s, slowest {max(waits):.2f} s")
        with own_server() as url:
            found = throughput(url, second, given.connections, given.seconds)
        for what, rate in found.items():
            print(f"{what}: {rate:,.0f} pairs/s, {rate / found['one process']:.2f} times")


if __name__ == "__main__":
    main()
