"""Speed of policies: cost of a round, latency of a decision, memory of the state, and the floor beneath them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import numpy as np

from tacit._version import __version__
from tacit.experiments.runner import Row, prepare
from tacit.experiments.spec import Experiment
from tacit.experiments.tables import Table, epsilon_text, number
from tacit.policies.state import size_in_bytes
from tacit.typing import FloatArray

LATENCY_ROUNDS = 2_000


def environment_floor(experiment: Experiment) -> float:
    """Microseconds per round of drawing contexts and rewards alone."""
    started = time.perf_counter()
    for _ in experiment.environment().blocks(np.random.default_rng(0)):
        pass
    return 1e6 * (time.perf_counter() - started) / experiment.horizon


FLOORS: Mapping[str, Callable[[Experiment], float]] = MappingProxyType({})
"""Bare compiled loops by policy, environment included; `environment_floor` stands in for a policy without one."""


def measure(experiment: Experiment, repeats: int = 3) -> Row:
    """The best of ``repeats`` whole runs, compiled beforehand, and the latency of single calls."""
    prepare(experiment, min(experiment.horizon, LATENCY_ROUNDS))
    floor_of = FLOORS.get(experiment.policy, environment_floor)
    timings, memory = zip(*(_whole_run(experiment) for _ in range(repeats)), strict=True)
    floor = min(floor_of(experiment) for _ in range(repeats))
    select, update = _latencies(experiment)
    return {
        "policy": experiment.policy, "epsilon": experiment.epsilon, "link": experiment.link, "dim": experiment.dim,
        "arms": experiment.arms, "horizon": experiment.horizon, "us_per_round": min(timings), "floor_us": floor,
        "floor": "own loop" if experiment.policy in FLOORS else "environment", "ratio": min(timings) / floor,
        "state_bytes": max(memory), "select_p50_us": _percentile(select, 50), "select_p99_us": _percentile(select, 99),
        "update_p50_us": _percentile(update, 50), "update_p99_us": _percentile(update, 99),
    }


def _whole_run(experiment: Experiment) -> tuple[float, int]:
    """Microseconds per round, environment included, and the state's peak size."""
    policy, peak = experiment.make_policy(0), 0
    started = time.perf_counter()
    for block in experiment.environment().blocks(np.random.default_rng(0)):
        policy.play(block.contexts, block.rewards)
        peak = max(peak, size_in_bytes(policy.state))
    return 1e6 * (time.perf_counter() - started) / experiment.horizon, peak


def _latencies(experiment: Experiment) -> tuple[FloatArray, FloatArray]:
    """Microseconds of each ``select`` and each ``update`` through the Python interface."""
    policy = experiment.make_policy(0)
    block = next(experiment.environment().blocks(np.random.default_rng(0)))
    rounds = min(LATENCY_ROUNDS, block.contexts.shape[0])
    policy.update(policy.select(block.contexts[0]), 0.0)
    select, update = np.empty(rounds - 1), np.empty(rounds - 1)
    for t in range(1, rounds):
        start = time.perf_counter_ns()
        decision = policy.select(block.contexts[t])
        middle = time.perf_counter_ns()
        policy.update(decision, float(block.rewards[t, decision.arm]))
        select[t - 1], update[t - 1] = middle - start, time.perf_counter_ns() - middle
    return select / 1e3, update / 1e3


def _percentile(values: FloatArray, share: int) -> float:
    return float(np.percentile(values, share))


def table(rows: Sequence[Row], before: Mapping[str, float]) -> Table:
    """Cost, ratio to the floor, latency and memory; ``before`` holds earlier costs by `identity`."""
    cells = [
        (
            row["policy"], epsilon_text(row["epsilon"]), str(row["dim"]), str(row["arms"]), f"{row['horizon']:,}",
            number(row["us_per_round"]), number(row["floor_us"]), f"{row['ratio']:.1f}",
            f"{row['select_p50_us']:.0f} / {row['select_p99_us']:.0f}",
            f"{row['update_p50_us']:.0f} / {row['update_p99_us']:.0f}", f"{row['state_bytes'] / 1024:,.1f}",
            f"{row['us_per_round'] / before[identity(row)]:.2f}" if identity(row) in before else "-",
        )
        for row in rows
    ]
    columns = (
        "policy", "epsilon", "d", "K", "T", "us/round", "floor", "ratio", "select p50/p99", "update p50/p99",
        "state KiB", "vs last",
    )
    notes = (
        "us/round: select, update and environment in the compiled loop, best of several runs.",
        "select, update: latencies in us through the Python API. vs last: ratio to the history's last entry.",
        "floor: drawing contexts and rewards alone, or the policy's arithmetic as one bare loop where there is one.",
    )
    return Table("Speed", columns, tuple(cells), notes=notes)


def identity(row: Row) -> str:
    """What makes two measurements comparable."""
    return "/".join(str(row[key]) for key in ("policy", "epsilon", "link", "dim", "arms", "horizon"))


def machine() -> dict[str, str | int]:
    """What the figures depend on beyond the code."""
    return {
        "processor": _processor(), "cores": os.cpu_count() or 1, "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(), "numpy": np.__version__,
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return f"version {__version__}"


def remember(rows: Sequence[Row], path: Path) -> None:
    """Add one line to a history file: when, which commit, which machine, what was measured."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {"time": now, "commit": _commit(), "machine": machine(), "rows": list(rows)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        stream.write(json.dumps(entry) + "\n")


def recall(path: Path | None) -> dict[str, float]:
    """The last cost of each measurement on this machine."""
    costs: dict[str, float] = {}
    if path is None or not path.exists():
        return costs
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry["machine"]["processor"] == machine()["processor"]:
            costs |= {identity(row): row["us_per_round"] for row in entry["rows"]}
    return costs
