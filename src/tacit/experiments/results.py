"""Results of runs, the row that sums up all runs of an experiment, and the journal that keeps finished runs."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tacit.environments import NOW
from tacit.experiments.spec import Experiment
from tacit.typing import FloatArray, IntArray

CURVE_POINTS = 50
Row = dict[str, Any]


@dataclass(frozen=True)
class RunResult:
    """Cumulative regret of one run at 50 public round numbers, the policy's time, and what was spent."""

    regret_curve: list[float]
    us_per_round: float
    epsilon_spent: float | None


def curve_rounds(horizon: int) -> IntArray:
    """Return the 50 round numbers at which curves are kept, the last round included."""
    marks = np.linspace(0, horizon, CURVE_POINTS + 1).round().astype(np.int64)[1:]
    return np.maximum(marks, 1)


def regret_curve(regrets: FloatArray) -> list[float]:
    """Return the cumulative regret at `curve_rounds`, from the regret of every round."""
    cumulative = np.cumsum(regrets)[curve_rounds(regrets.size) - 1]
    return [float(value) for value in cumulative]


def described(experiment: Experiment) -> Row:
    """Describe an experiment in a row; base rate, rewards and schema are left out where they are the usual ones."""
    fields = ("policy", "delta", "options", "link", "dim", "arms", "horizon", "theta_norm", "contexts")
    unusual = {
        "base_rate": experiment.base_rate,
        "rewards": None if experiment.rewards == NOW else experiment.rewards,
        "schema": experiment.schema and experiment.schema_digest,
    }
    return {key: getattr(experiment, key) for key in fields} | {
        "epsilon": jsonable(experiment.epsilon),
        "theta_bound": experiment.told_bound,
        "modules": list(experiment.modules),
        **{key: value for key, value in unusual.items() if value is not None},
    }


def row(experiment: Experiment, results: list[RunResult], seed: int) -> Row:
    """Sum up an experiment in one public row; ``results`` are in the order of runs."""
    curves = np.array([result.regret_curve for result in results])
    final = curves[:, -1]
    spread = np.std(curves, axis=0, ddof=1) if len(results) > 1 else np.zeros(curves.shape[1])
    std = float(spread[-1])
    spent = max((result.epsilon_spent for result in results if result.epsilon_spent is not None), default=None)
    return described(experiment) | {
        "runs": len(results),
        "seed": seed,
        "regret_mean": float(np.mean(final)),
        "regret_std": std,
        "regret_se": std / math.sqrt(len(results)),
        "regret_median": float(np.median(final)),
        "regret_max": float(np.max(final)),
        "regrets": [float(value) for value in final],
        "regret_rounds": [int(mark) for mark in curve_rounds(experiment.horizon)],
        "regret_curves": [result.regret_curve for result in results],
        "regret_curve": [float(value) for value in np.mean(curves, axis=0)],
        "regret_curve_se": [float(value) for value in spread / math.sqrt(len(results))],
        "us_per_round": float(np.median([result.us_per_round for result in results])),
        "epsilon_spent": jsonable(spent),
    }


_OF_A_WORLD = ("link", "dim", "arms", "horizon", "theta_norm", "contexts", "rewards", "base_rate", "schema", "seed")


def with_gains(rows: list[Row]) -> list[Row]:
    """Add ``gain``, the share of what is to be gained over random arms, where `random` was played too.

    It is 1 - regret / regret of `random` in the same world: 0 for random arms, 1 for the best ones, and negative for
    what is worse than random.
    """
    worlds = [tuple(row.get(key) for key in _OF_A_WORLD) for row in rows]
    random = {world: row["regret_mean"] for world, row in zip(worlds, rows, strict=True) if row["policy"] == "random"}
    return [
        row | {"gain": 1.0 - row["regret_mean"] / random[world]} if random.get(world) else row
        for world, row in zip(worlds, rows, strict=True)
    ]


def jsonable(value: float | None) -> float | str | None:
    """Replace infinity, which JSON does not have, by the word ``inf``, which `float` reads."""
    return "inf" if value is not None and math.isinf(value) else value


_PACKAGE = Path(__file__).parents[1]
_NOT_PLAYED = frozenset({"cli", "service", "audit", "evaluation"})
_OF_A_RUN = frozenset({"spec.py", "runner.py", "results.py"})
"""What of this package a run's result depends on."""


class RunJournal:
    """Finished runs in a file of JSON lines; unfinished lines are ignored.

    A run is found again only under the same sources, those of the user's modules included: after an upgrade or an edit
    it is run anew.
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
        """Return the result of a run that was finished earlier, or None."""
        return self._runs.get(_key(experiment, seed, run)) if self._runs else None

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
    """Hash of every source of the package that a run's result may depend on."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        name = path.relative_to(_PACKAGE)
        if name.parts[0] not in _NOT_PLAYED and (name.parts[0] != "experiments" or path.name in _OF_A_RUN):
            digest.update(str(name).encode() + path.read_bytes())
    return digest.hexdigest()[:12]
