"""Latency of decisions and health checks while thousands of clients without a key hold connections, and without them.

    python -m benchmarks.crowd
    python -m benchmarks.crowd --clients 100 --seconds 2 --repeats 1 --json crowd.json

Half of the clients say nothing, the others send the head of a request byte by byte, one a second; each comes back
within ten seconds after it was closed.  Meanwhile a few connections with a key decide and report rewards, and
`/healthz` is asked for on a new connection each time.  Quiet and crowded measurements take turns.  Every answer must
be the right one: exit code 1 otherwise.  The crowd's process has a low priority, since it would run on other machines.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np
import uvloop
from workloads.load.connection import HOST, call, connect, expect, request
from workloads.load.generator import DIM, POLICY, pairs
from workloads.load.servers import TacitServer

from tacit.cli.shared import write_json
from tacit.errors import ServiceUnavailable
from tacit.service.http.connections import open_files

_CALLERS: Final = 4
"""Connections with a key."""
_RETURN: Final = 10.0
"""Seconds within which a client that was closed comes back."""
_HEAD: Final = b"GET /healthz HTTP/1.1\r\nHost: crowd\r\nX-Slow: " + b"a" * 200
_SETTLED: Final = 5.0
"""Seconds in which a crowd comes together before the measurement begins."""
_START: Final = 2.0
"""Seconds until the process of a crowd runs."""
_OTHER_FILES: Final = 100


class Latencies(NamedTuple):
    """Milliseconds of one measurement."""

    decisions: int
    decision_p50: float
    decision_p99: float
    health_checks: int
    health_p50: float
    health_p99: float


async def _asked(port: int, key: str, seconds: float) -> Latencies:
    """Decide, report rewards and check the health for so many seconds."""
    run, end = secrets.token_hex(3), time.perf_counter() + seconds
    pair, decisions, checks = pairs(key), list[float](), list[float]()

    async def decide(caller: int) -> None:
        connection, number = await connect(port), 0
        while (start := time.perf_counter()) < end:
            decided, _ = await pair(connection, f"{run}-{caller}-{number}", number)
            decisions.append(decided - start)
            number += 1
        connection.close()

    async def check() -> None:
        while (start := time.perf_counter()) < end:
            connection = await connect(port)
            expect(await connection.ask(request("GET", "/healthz", "", b"")), 200)
            checks.append(time.perf_counter() - start)
            connection.close()
            await asyncio.sleep(0.02)

    await asyncio.gather(check(), *(decide(caller) for caller in range(_CALLERS)))
    found = [(len(taken), *(1e3 * np.quantile(taken, [0.5, 0.99])).tolist()) for taken in (decisions, checks)]
    return Latencies(*found[0], *found[1])


class _Client(asyncio.Protocol):
    """A client that is never done with its request; ``lost`` is set at the end of its connection."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


async def _crowd(port: int, clients: int) -> None:
    """Hold connections for ever, half of them silent."""
    draws = random.Random(0)
    await asyncio.gather(*(_stay(port, draws, slow=number % 2 == 1) for number in range(clients)))


async def _stay(port: int, draws: random.Random, *, slow: bool) -> None:
    await asyncio.sleep(draws.uniform(0.0, _SETTLED))
    while True:
        transport, client = await asyncio.get_running_loop().create_connection(_Client, HOST, port)
        for place in range(len(_HEAD) if slow else 0):
            if client.lost.is_set():
                break
            transport.write(_HEAD[place : place + 1])
            await asyncio.sleep(1.0)
        await client.lost.wait()
        await asyncio.sleep(draws.uniform(0.0, _RETURN))


def _run_crowd(port: int, clients: int) -> None:
    open_files(clients + _OTHER_FILES)
    os.nice(10)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_crowd(port, clients))


@contextmanager
def crowded(port: int, clients: int) -> Iterator[None]:
    """A process of clients, while the block runs."""
    process = get_context("spawn").Process(target=_run_crowd, args=(port, clients))
    process.start()
    try:
        time.sleep(_SETTLED + _START)
        yield
        if not process.is_alive():
            raise ServiceUnavailable("the crowd has ended: may this machine open so many connections?")
    finally:
        process.kill()
        process.join()


def measure(clients: int, seconds: float, repeats: int) -> list[dict[str, Any]]:
    """A row for each measurement: quiet, crowded, quiet and so on."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, TacitServer(Path(folder)) as server:
        body = {"policy": "stream-glm", "dim": DIM, "epsilon": 4.0, "delta": 1e-6, "theta_bound": 3.5}
        expect(call(server.port, "PUT", f"/v1/policies/{POLICY}", server.key, body), 201)
        asked = partial(_asked, server.port, server.key)
        for _ in range(repeats):
            for size in (0, clients):
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    if size:
                        with crowded(server.port, size):
                            found = runner.run(asked(seconds))
                    else:
                        found = runner.run(asked(seconds))
                rows.append({"clients": size, **found._asdict()})
                print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Measure in turn and print medians over all turns, and the medians of the ratios of neighbours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=3_000, help="clients without a key")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON; - for standard output")
    given = parser.parse_args()
    try:
        rows = measure(given.clients, given.seconds, given.repeats)
    except (ServiceUnavailable, OSError) as error:
        sys.exit(str(error))
    quiet, crowd = rows[::2], rows[1::2]
    for name in Latencies._fields:
        ratio = median(b[name] / a[name] for a, b in zip(quiet, crowd, strict=True))
        before, after = (median(row[name] for row in side) for side in (quiet, crowd))
        line = f"{name:>15}: {before:10.2f} quiet {after:10.2f} crowded   ratio {ratio:.2f}"
        print(line, file=sys.stderr if given.json == "-" else sys.stdout)
    write_json(rows, given.json)


if __name__ == "__main__":
    main()
