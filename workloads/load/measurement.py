"""What is measured: the service, a bare echo and a bare loop of syncs, in turn on the same machine.

The speed of a machine changes between minutes.  So every measurement of the service follows one of the echo, shares
are taken between neighbours, and medians over all repeats are reported.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from tacit.errors import InvalidInput, ServiceUnavailable
from workloads.load.connection import call, expect
from workloads.load.generator import DIM, POLICY, Load, LoadJob, generate
from workloads.load.servers import ServerProcess, TacitServer, echo_server

Row = dict[str, Any]
BATCH_CONNECTIONS: Final = 4
"""Connections that send batches."""
_SYNC_SECONDS: Final = 1.0
_PAGE: Final = 4_096
_SETTING: Final = {"policy": "stream-glm", "dim": DIM, "epsilon": 4.0, "delta": 1e-6, "theta_bound": 3.5}


@dataclass(frozen=True)
class LoadPlan:
    """What is measured, for how long and how often."""

    connections: Sequence[int] = (1, 16, 64)
    seconds: float = 5.0
    """Of each measurement, its warm-up aside."""
    repeats: int = 3
    batch: int = 50
    """Decisions of a batch; 0 for no batches."""
    wait: float = 600.0
    """Seconds for which the policy waits for rewards."""
    database: str | None = None
    """A PostgreSQL database, in place of SQLite."""

    def __post_init__(self) -> None:
        counted = min(*self.connections, self.repeats, 1 + self.batch) >= 1
        if not (counted and self.seconds > 0.0 and self.wait > 0.0):
            raise InvalidInput("connections, repeats, seconds and wait must be positive, and batch at least 0")

    @property
    def steps(self) -> int:
        """How many measurements that is."""
        return self.repeats * (2 * len(self.connections) + bool(self.batch))


class Trial(NamedTuple):
    """Neighbours in time."""

    syncs: float
    echo: Load
    service: Load


def measure(plan: LoadPlan, on_step: Callable[[str], None]) -> list[Row]:
    """A row for each number of connections, then one for batches; ``on_step`` hears of each measurement's begin."""
    with (
        tempfile.TemporaryDirectory() as name,
        echo_server(Path(name)) as echo,
        TacitServer(Path(name), plan.database) as service,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as generator,
    ):
        body = _SETTING | {"reward_wait": plan.wait}
        expect(call(service.port, "PUT", f"/v1/policies/{POLICY}", service.key, body), 201)
        bench = Bench(plan, on_step, Path(name), echo, service, generator)
        return list(bench.rows())


@dataclass(frozen=True)
class Bench:
    """Both servers and the load generator, while they run."""

    plan: LoadPlan
    on_step: Callable[[str], None]
    folder: Path
    echo: ServerProcess
    service: TacitServer
    generator: Executor

    def rows(self) -> Iterator[Row]:
        """All of them."""
        for connections in self.plan.connections:
            yield pairs_row(connections, [self._trial(connections) for _ in range(self.plan.repeats)])
        if self.plan.batch:
            yield batch_row(self.plan.batch, [self._batches() for _ in range(self.plan.repeats)])

    def _trial(self, connections: int) -> Trial:
        self.on_step(f"echo, {connections} at a time")
        syncs = syncs_per_second(self.folder, min(_SYNC_SECONDS, self.plan.seconds))
        echo = self.load(self.echo, connections)
        self.on_step(f"tacit, {connections} at a time")
        return Trial(syncs, echo, self.load(self.service, connections))

    def _batches(self) -> Load:
        self.on_step(f"batches of {self.plan.batch}")
        return self.load(self.service, BATCH_CONNECTIONS, self.plan.batch)

    def load(self, server: ServerProcess, connections: int, batch: int = 0) -> Load:
        """One measurement by the generator; a server that fails is named, with what it said last."""
        job = LoadJob(server.port, server.pid, self.service.key, connections, self.plan.seconds, batch)
        try:
            return self.generator.submit(generate, job).result()
        except ServiceUnavailable as error:
            raise ServiceUnavailable(f"{server.name} failed: {error}{server.last_words()}") from error


def syncs_per_second(folder: Path, seconds: float) -> float:
    """Bare writes of a page, each followed by fdatasync."""
    sync = getattr(os, "fdatasync", os.fsync)
    begun = time.perf_counter()
    with (folder / "bare").open("wb", buffering=0) as stream:
        count = 0
        while time.perf_counter() - begun < seconds:
            stream.write(bytes(_PAGE))
            sync(stream.fileno())
            count += 1
        return count / (time.perf_counter() - begun)


def pairs_row(connections: int, trials: Sequence[Trial]) -> Row:
    """Medians over trials; the share is that of neighbours in time."""
    services, echoes = [trial.service for trial in trials], [trial.echo for trial in trials]
    decisions, rewards = ([load.calls[place] for load in services] for place in (0, 1))
    return {
        "connections": connections,
        "pairs_per_second": median(load.per_second for load in services),
        "p50_ms": median(load.whole.p50 for load in services),
        "p99_ms": median(load.whole.p99 for load in services),
        "decision_p50_ms": median(call.p50 for call in decisions),
        "decision_p99_ms": median(call.p99 for call in decisions),
        "reward_p50_ms": median(call.p50 for call in rewards),
        "reward_p99_ms": median(call.p99 for call in rewards),
        "cpu_ms_per_pair": _cpu(services),
        "echo_pairs_per_second": median(load.per_second for load in echoes),
        "echo_p99_ms": median(load.whole.p99 for load in echoes),
        "echo_cpu_ms_per_pair": _cpu(echoes),
        "share_of_echo": median(trial.service.per_second / trial.echo.per_second for trial in trials),
        "fdatasyncs_per_second": median(trial.syncs for trial in trials),
    }


def batch_row(batch: int, loads: Sequence[Load]) -> Row:
    """Medians over repeats; latencies are those of whole batches."""
    spent = _cpu(loads)
    return {
        "batch": batch,
        "connections": BATCH_CONNECTIONS,
        "decisions_per_second": batch * median(load.per_second for load in loads),
        "p50_ms": median(load.whole.p50 for load in loads),
        "p99_ms": median(load.whole.p99 for load in loads),
        "cpu_ms_per_decision": None if spent is None else spent / batch,
    }


def _cpu(loads: Sequence[Load]) -> float | None:
    """Processor time; None where the machine does not tell."""
    told = [load.cpu_ms for load in loads if load.cpu_ms is not None]
    return median(told) if told else None
