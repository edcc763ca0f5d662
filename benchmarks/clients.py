"""Processor time of `Client` and of `AsyncClient` for a pair of a decision and its reward, in turn, and their ratio.

    python -m benchmarks.clients [--repeats 20]

The service is a process of its own; what is measured is the process of the callers alone, each with one connection.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from workloads.load.servers import TacitServer

from tacit.client import AsyncClient, Client

ARMS = [[0.1 * (1 + (arm + place) % 4) for place in range(5)] for arm in range(20)]
PAIRS = 100


def waiting(client: Client) -> None:
    """Make pairs of calls with `Client`."""
    for _ in range(PAIRS):
        client.reward("p", client.decide("p", ARMS), 1.0)


async def awaiting(client: AsyncClient) -> None:
    """Make pairs of calls with `AsyncClient`."""
    for _ in range(PAIRS):
        await client.reward("p", await client.decide("p", ARMS), 1.0)


def spent(pairs: Callable[[], None]) -> float:
    """Milliseconds of this process for a pair."""
    start = time.process_time()
    pairs()
    return (time.process_time() - start) * 1e3 / PAIRS


def main() -> None:
    """Measure both clients in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder, TacitServer(Path(folder)) as server, asyncio.Runner() as runner:
        url = f"http://127.0.0.1:{server.port}"
        plain, loop = Client(url, server.key, timeout=60.0), AsyncClient(url, server.key, timeout=60.0)
        plain.create("p", "stream-glm", dim=5, epsilon=4.0, delta=1e-6, theta_bound=3.5)
        times = [
            (spent(lambda: waiting(plain)), spent(lambda: runner.run(awaiting(loop)))) for _ in range(repeats + 1)
        ][1:]  # the first ones open connections
        plain.close()
        runner.run(loop.close())
    for name, found in zip(("Client", "AsyncClient"), zip(*times, strict=True), strict=True):
        print(f"{name:12} {statistics.median(found):.3f} ms for a pair")
    print(f"ratio        {statistics.median(other / one for one, other in times):.2f}")


if __name__ == "__main__":
    main()
