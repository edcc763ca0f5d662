"""Runs of experiments: in parallel, reproducible, and resumable.

Each run has its own seeds, made from (seed, run) alone: the same rows come out whatever the number of jobs, and all
policies meet the same instances.  Finished runs are appended to a journal, so that Ctrl-C loses at most the runs under
way.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tacit.experiments.engines import make_engine
from tacit.experiments.spec import Experiment
from tacit.typing import FloatArray

CURVE_POINTS = 50
Row = dict[str, Any]
_PACKAGE = Path(__file__).parents[1]
_NOT_PLAYED = frozenset({"cli", "service", "audit"})


@dataclass(frozen=True)
class RunResult:
    """One run: cumulative regret at 50 points, time, and what was spent."""

    regret_curve: list[float]
    us_per_round: float
    epsilon_spent: float | None


def run_once(experiment: Experiment, seed: int, run: int) -> RunResult:
    """Play one run from its own seeds."""
    world_seed, policy_seed = np.random.SeedSequence([seed, run]).spawn(2)
    policy = experiment.make_policy(int(policy_seed.generate_state(1, np.uint64)[0]))
    regrets = np.empty(experiment.horizon)
    played, elapsed = 0, 0.0
    started = time.perf_counter()
    for block in experiment.environment().blocks(np.random.default_rng(world_seed)):
        arms = policy.play(block.contexts, block.rewards)
        regrets[played : played + arms.size] = block.regrets[np.arange(arms.size), arms]
        played += arms.size
    elapsed = time.perf_counter() - started
    spent = None if policy.ledger is None else policy.ledger.epsilon_spent
    return RunResult(_curve(regrets), 1e6 * elapsed / experiment.horizon, spent)


def prepare(experiment: Experiment, rounds: int = 1024) -> None:
    """Make the policy and play its first rounds: bad settings stop here, and kernels are compiled."""
    policy = experiment.make_policy(0)
    if rounds > 0:
        block = next(experiment.environment().blocks(np.random.default_rng(0)))
        policy.play(block.contexts[:rounds], block.rewards[:rounds])


def prepare_all(experiments: list[Experiment], jobs: int, engine: str = "joblib") -> None:
    """Prepare several experiments at the same time, in the processes that will run them."""
    for _ in make_engine(engine, jobs).finished(prepare, [(experiment,) for experiment in experiments]):
        pass


def _curve(regrets: FloatArray) -> list[float]:
    marks = np.linspace(0, regrets.size, CURVE_POINTS + 1).round().astype(int)[1:]
    return [float(value) for value in np.cumsum(regrets)[np.maximum(marks, 1) - 1]]


class Journal:
    """Finished runs in a file of JSON lines; unfinished lines are ignored.

    A run is found again only under the same sources: after an upgrade or an edit it is run anew.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._runs: dict[str, RunResult] = {}
        self._torn = False
        if path is not None and path.exists():
            text = path.read_text()
            self._torn = not text.endswith("\n")
            for line in text.splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            entry = json.loads(line)
            self._runs[entry["key"]] = RunResult(**entry["result"])
        except (ValueError, KeyError, TypeError):
            return

    def find(self, experiment: Experiment, seed: int, run: int) -> RunResult | None:
        """The result of a run that was finished earlier."""
        return self._runs.get(_key(experiment, seed, run))

    def add(self, experiment: Experiment, seed: int, run: int, result: RunResult) -> None:
        """Keep a finished run."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as stream:
            entry = json.dumps({"key": _key(experiment, seed, run), "result": asdict(result)})
            stream.write(f"\n{entry}\n" if self._torn else f"{entry}\n")
        self._torn = False


def _key(experiment: Experiment, seed: int, run: int) -> str:
    return f"{source_digest()}-{experiment.digest()}-{seed}-{run}"


@cache
def source_digest() -> str:
    """Hash of every source that a run's result may depend on."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        name = path.relative_to(_PACKAGE)
        if name.parts[0] not in _NOT_PLAYED and (
            name.parts[0] != "experiments" or path.name in ("spec.py", "runner.py")
        ):
            digest.update(str(name).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def run_all(
    experiments: list[Experiment],
    *,
    runs: int,
    seed: int,
    jobs: int = 1,
    engine: str = "joblib",
    journal: Path | None = None,
    on_run: Callable[[Experiment], None] = lambda _: None,
) -> list[Row]:
    """Rows of all experiments, in their order.  After Ctrl-C: rows of what was finished."""
    kept = Journal(journal)
    results: dict[tuple[int, int], RunResult] = {}
    open_tasks = []
    for run in range(runs):
        for position, experiment in enumerate(experiments):
            found = kept.find(experiment, seed, run)
            if found is None:
                open_tasks.append((position, run))
            else:
                results[position, run] = found
                on_run(experiment)
    try:
        tasks = [(experiments[position], position, seed, run) for position, run in open_tasks]
        for position, run, result in make_engine(engine, jobs).finished(_task, tasks):
            results[position, run] = result
            kept.add(experiments[position], seed, run, result)
            on_run(experiments[position])
    except KeyboardInterrupt:
        pass
    return [
        row(experiment, [results[i, run] for run in range(runs) if (i, run) in results], seed)
        for i, experiment in enumerate(experiments)
        if any((i, run) in results for run in range(runs))
    ]


def _task(experiment: Experiment, position: int, seed: int, run: int) -> tuple[int, int, RunResult]:
    return position, run, run_once(experiment, seed, run)


def row(experiment: Experiment, results: list[RunResult], seed: int) -> Row:
    """The public row of an experiment, as the command line writes it."""
    curves = np.array([result.regret_curve for result in results])
    final = curves[:, -1]
    spread = np.std(curves, axis=0, ddof=1) if len(results) > 1 else np.zeros(curves.shape[1])
    std = float(spread[-1])
    spent = max((result.epsilon_spent for result in results if result.epsilon_spent is not None), default=None)
    return {
        "policy": experiment.policy,
        "epsilon": jsonable(experiment.epsilon),
        "delta": experiment.delta,
        "link": experiment.link,
        "dim": experiment.dim,
        "arms": experiment.arms,
        "horizon": experiment.horizon,
        "theta_norm": experiment.theta_norm,
        "contexts": experiment.contexts,
        "runs": len(results),
        "seed": seed,
        "regret_mean": float(np.mean(final)),
        "regret_std": std,
        "regret_se": std / math.sqrt(len(results)),
        "regret_curve": [float(value) for value in np.mean(curves, axis=0)],
        "us_per_round": float(np.median([result.us_per_round for result in results])),
        "epsilon_spent": jsonable(spent),
        "options": experiment.options,
        "regret_max": float(np.max(final)),
        "regret_curve_se": [float(value) for value in spread / math.sqrt(len(results))],
    }


def jsonable(value: float | None) -> float | str | None:
    """JSON has no infinity: it is written as the word ``inf``, which float() reads."""
    return "inf" if value is not None and math.isinf(value) else value
