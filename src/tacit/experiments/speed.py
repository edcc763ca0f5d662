"""Speed of policies: cost of a round, beside that of drawing it; latency of a decision; memory."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit._version import __version__
from tacit.experiments.results import Row, described
from tacit.experiments.runner import prepare
from tacit.experiments.spec import Experiment, combinations, for_each_epsilon
from tacit.experiments.tables import Table, epsilon_text, number
from tacit.policies.registry import policy_class
from tacit.policies.state import size_in_bytes
from tacit.typing import FloatArray

LATENCY_ROUNDS = 2_000
RUN_SECONDS = 20.0
"""A run that takes longer is cut after the block under way, and not repeated; its row says how many rounds it had."""


def grid(fixed: Mapping[str, Any], varied: Mapping[str, Sequence[Any]], epsilon: float) -> list[Experiment]:
    """All combinations; a policy that does not support the link takes the first one that it supports."""
    found: list[Experiment] = []
    for chosen in combinations(fixed, varied):
        supported = policy_class(chosen.policy).links
        link = chosen.link if chosen.link in supported else next(iter(supported))
        found += for_each_epsilon(replace(chosen, link=link), [epsilon])
    return found


class Run(NamedTuple):
    """One run: microseconds per round of the policy and of the environment, rounds played, the state's peak size."""

    us_per_round: float
    environment_us: float
    rounds: int
    state_bytes: int

    @property
    def seconds(self) -> float:
        """Length of the whole run."""
        return 1e-6 * self.rounds * (self.us_per_round + self.environment_us)


def measure(experiment: Experiment, repeats: int = 3, seconds: float = RUN_SECONDS) -> Row:
    """Measure the best of ``repeats`` whole runs, and the latency of single calls."""
    prepare(experiment, min(experiment.horizon, LATENCY_ROUNDS))
    runs = [whole_run(experiment, seconds)]
    while len(runs) < repeats and runs[-1].seconds <= 0.5 * seconds:
        runs.append(whole_run(experiment, seconds))
    best, environment_us = min(runs), min(run.environment_us for run in runs)
    select, update = _latencies(experiment)
    return described(experiment) | {
        "us_per_round": best.us_per_round,
        "rounds": best.rounds,
        "environment_us": environment_us,
        "ratio": best.us_per_round / environment_us,
        "state_bytes": best.state_bytes,
        "process_peak_bytes": _process_peak(),
        "select_p50_us": _percentile(select, 50),
        "select_p99_us": _percentile(select, 99),
        "update_p50_us": _percentile(update, 50),
        "update_p99_us": _percentile(update, 99),
    }


def whole_run(experiment: Experiment, seconds: float = math.inf) -> Run:
    """Play the horizon, or as much of it as ``seconds`` allow."""
    policy, peak, rounds, playing, drawing = experiment.make_policy(0), 0, 0, 0.0, 0.0
    started = time.perf_counter()
    for block in experiment.environment().blocks(np.random.default_rng(0)):
        drawn = time.perf_counter()
        policy.play(block.contexts, block.rewards)
        drawing, playing = drawing + drawn - started, playing + time.perf_counter() - drawn
        peak, rounds = max(peak, size_in_bytes(policy.state)), rounds + block.rewards.shape[0]
        if drawing + playing > seconds:
            break
        started = time.perf_counter()
    return Run(1e6 * playing / rounds, 1e6 * drawing / rounds, rounds, peak)


def _process_peak() -> int:
    """Return the peak memory of this process; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if platform.system() == "Darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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


def _horizon(row: Row) -> str:
    return f"{row['horizon']:,}" if row["rounds"] == row["horizon"] else f"{row['rounds']:,} of {row['horizon']:,}"


def table(rows: Sequence[Row], before: Mapping[str, float]) -> Table:
    """Tabulate cost, latency and memory; ``before`` holds earlier costs by `identity`."""
    cells = [
        (
            row["policy"],
            epsilon_text(row["epsilon"]),
            str(row["dim"]),
            str(row["arms"]),
            _horizon(row),
            number(row["us_per_round"]),
            number(row["environment_us"]),
            f"{row['ratio']:.1f}",
            f"{row['select_p50_us']:.0f} / {row['select_p99_us']:.0f}",
            f"{row['update_p50_us']:.0f} / {row['update_p99_us']:.0f}",
            f"{row['state_bytes'] / 1024:,.1f}",
            f"{row['us_per_round'] / before[identity(row)]:.2f}" if identity(row) in before else "-",
        )
        for row in rows
    ]
    columns = ("policy", "epsilon", "d", "K", "T", "us/round", "world", "ratio", "p50/p99\nselect", "p50/p99\nupdate")
    notes = (
        "us/round: the policy's part of whole runs, best of several. world: drawing contexts and rewards of a round; "
        "ratio: us/round to that.",
        "select, update: latencies in us through the Python API. vs last: ratio to the history's last entry.",
    )
    narrow = ((0, 1), (2, 3), (4,), (5, 11), (6, 7), (8, 9), (10,))
    return Table(
        "Speed", (*columns, "state\nKiB", "vs last"), tuple(cells), notes=(*notes, *growth(rows)), narrow=narrow
    )


def growth(rows: Sequence[Row]) -> list[str]:
    """Say how cost grows with d, as a fitted power, and with T, as a ratio; one sentence each.

    Runs that were cut stay out: their mean cost is that of early rounds, which differ from later ones.
    """
    told = []
    rows = [row for row in rows if row["rounds"] == row["horizon"]]
    for policy, arms, horizon in dict.fromkeys((row["policy"], row["arms"], row["horizon"]) for row in rows):
        group = [row for row in rows if (row["policy"], row["arms"], row["horizon"]) == (policy, arms, horizon)]
        power = exponent({row["dim"]: row["us_per_round"] for row in group if row["dim"] >= _FIT_FROM})
        if power is not None:
            dims = sorted(row["dim"] for row in group if row["dim"] >= _FIT_FROM)
            where = f"d = {dims[0]} to {dims[-1]}, K = {arms}, T = {horizon:,}"
            told.append(f"{policy}: cost grows as d^{power:.2f}, {where}.")
    for policy, arms, dim in dict.fromkeys((row["policy"], row["arms"], row["dim"]) for row in rows):
        group = sorted(
            (row for row in rows if (row["policy"], row["arms"], row["dim"]) == (policy, arms, dim)),
            key=lambda row: int(row["horizon"]),
        )
        if len(group) > 1:
            first, last = group[0], group[-1]
            told.append(
                f"{policy}, d = {dim}, K = {arms}: cost at T = {last['horizon']:,} is "
                f"{last['us_per_round'] / first['us_per_round']:.2f} times that at T = {first['horizon']:,}, "
                f"state {last['state_bytes'] / first['state_bytes']:.2f} times."
            )
    return told


_FIT_FROM = 5
"""Smallest dimension of the fit: below it the cost is all overhead."""


def exponent(costs: Mapping[int, float]) -> float | None:
    """Least-squares slope of log cost over log d; None for fewer than two dimensions."""
    if len(costs) < 2:
        return None
    return float(np.polyfit(np.log(list(costs)), np.log(list(costs.values())), 1)[0])


def identity(row: Row) -> str:
    """Name a measurement by what must agree for two of them to be compared."""
    return "/".join(str(row[key]) for key in ("policy", "epsilon", "link", "dim", "arms", "horizon"))


def machine() -> dict[str, str | int]:
    """Describe the machine that measurements were made on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
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
    """Read the last cost of each measurement on this machine.

    Up to version 0.2.0 ``us_per_round`` counted the environment too, whose part is in ``floor_us``: it is taken off.
    """
    costs: dict[str, float] = {}
    if path is None or not path.exists():
        return costs
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry["machine"]["processor"] == machine()["processor"]:
            costs |= {identity(row): row["us_per_round"] - row.get("floor_us", 0.0) for row in entry["rows"]}
    return {measurement: cost for measurement, cost in costs.items() if cost > 0.0}
