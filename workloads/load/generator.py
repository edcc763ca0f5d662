"""The load: connections that do the same thing again and again, and how long each time took."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import uvloop

from tacit.errors import ServiceUnavailable
from tacit.typing import FloatArray
from workloads.load.connection import Connection, connect, expect, request

POLICY: Final = "load"
DIM: Final = 5
ARMS: Final = 20
_CONTEXTS: Final = 256
"""Different arm sets that are sent."""
_BATCHES: Final = 8
"""Different batches that are sent."""
_WARM_UP: Final = 2.0
_PATIENCE: Final = 30.0
"""Seconds beyond the end after which a server is taken to hang."""


class LoadJob(NamedTuple):
    """A measurement of the server that listens on ``port`` and has the process id ``pid``."""

    port: int
    pid: int
    key: str
    connections: int
    seconds: float
    batch: int = 0
    """Decisions in each request; 0 for pairs of a decision and its reward."""


class Latency(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float


class Load(NamedTuple):
    """What was measured: of pairs, or of batches."""

    per_second: float
    whole: Latency
    calls: tuple[Latency, ...]
    """Of each request in turn: the decision, then the reward."""
    cpu_ms: float | None
    """Processor time of the server for each, user and system; None where the machine does not tell."""


Action = Callable[[Connection, str, int], Coroutine[None, None, tuple[float, ...]]]
"""Does something on a connection, under an event id and with a number; returns when each answer came."""


def contexts() -> list[bytes]:
    """Arm sets as JSON."""
    drawn = np.random.default_rng(0).standard_normal((_CONTEXTS, ARMS, DIM))
    drawn *= 0.999 / np.maximum(1.0, np.linalg.norm(drawn, axis=2, keepdims=True))
    return [json.dumps(arms.tolist()).encode() for arms in drawn]


def pairs(key: str) -> Action:
    """A decision and its reward."""
    prepared = contexts()

    async def pair(connection: Connection, identity: str, number: int) -> tuple[float, ...]:
        body = b'{"event_id":"%b","contexts":%b}' % (identity.encode(), prepared[number % _CONTEXTS])
        expect(await connection.ask(request("POST", f"/v1/policies/{POLICY}/decisions", key, body)), 201)
        decided = time.perf_counter()
        path = f"/v1/policies/{POLICY}/decisions/{identity}/reward"
        expect(await connection.ask(request("PUT", path, key, b'{"reward":1.0}')), 201)
        return decided, time.perf_counter()

    return pair


def batches(key: str, size: int) -> Action:
    """Many decisions in one request."""
    entries = [b'{"contexts":%b}' % arms for arms in contexts()]
    entries *= 1 + (size + _BATCHES) // _CONTEXTS
    bodies = [b'{"requests":[%b]}' % b",".join(entries[start : start + size]) for start in range(_BATCHES)]
    requests = [request("POST", f"/v1/policies/{POLICY}/decisions:batch", key, body) for body in bodies]

    async def batch(connection: Connection, identity: str, number: int) -> tuple[float, ...]:
        expect(await connection.ask(requests[number % _BATCHES]), 200)
        return (time.perf_counter(),)

    return batch


def generate(job: LoadJob) -> Load:
    """One measurement; meant for a process of its own."""
    action = batches(job.key, job.batch) if job.batch else pairs(job.key)
    warm_up = min(_WARM_UP, job.seconds)
    measured = asyncio.wait_for(_measured(job, action, warm_up), warm_up + job.seconds + _PATIENCE)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(measured)
        except TimeoutError as error:
            raise ServiceUnavailable(f"the server hangs: an answer took more than {_PATIENCE:g} seconds") from error


async def _measured(job: LoadJob, action: Action, warm_up: float) -> Load:
    """Let all connections do ``action`` again and again; what ends within the window after the warm-up counts."""
    connections = [await connect(job.port) for _ in range(job.connections)]
    run = secrets.token_hex(3)  # event ids of two measurements must differ
    begin = time.perf_counter() + warm_up
    end = begin + job.seconds
    moments: list[tuple[float, ...]] = []

    async def work(worker: int, connection: Connection) -> None:
        number = 0
        while (start := time.perf_counter()) < end:
            answered = await action(connection, f"{run}-{worker}-{number}", number)
            number += 1
            if begin <= answered[-1] <= end:
                moments.append((start, *answered))

    try:
        working = (work(worker, connection) for worker, connection in enumerate(connections))
        spent, *_ = await asyncio.gather(_spent(job.pid, begin, end), *working)
    finally:
        for connection in connections:
            connection.close()
    if not moments:
        raise ServiceUnavailable(f"nothing was answered within {job.seconds:g} seconds: measure for longer")
    return summary(np.array(moments), job.seconds, spent)


async def _spent(pid: int, begin: float, end: float) -> float | None:
    """Seconds of processor time that a process uses between two moments."""
    await asyncio.sleep(begin - time.perf_counter())
    before = cpu_seconds(pid)
    await asyncio.sleep(end - time.perf_counter())
    after = cpu_seconds(pid)
    return None if before is None or after is None else after - before


def cpu_seconds(pid: int) -> float | None:
    """User and system time of a process so far; None where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def summary(moments: FloatArray, seconds: float, spent: float | None) -> Load:
    """Of the moments at which each action began and was answered, one row for each."""
    return Load(
        len(moments) / seconds,
        _latency(moments[:, -1] - moments[:, 0]),
        tuple(_latency(column) for column in np.diff(moments, axis=1).T),
        None if spent is None else 1e3 * spent / len(moments),
    )


def _latency(taken: FloatArray) -> Latency:
    p50, p99 = np.quantile(taken, [0.5, 0.99]) * 1e3
    return Latency(float(p50), float(p99))
