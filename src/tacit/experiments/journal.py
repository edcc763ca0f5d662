"""Finished runs in a file, so that Ctrl-C loses at most the runs under way."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

from tacit.experiments.results import RunResult
from tacit.experiments.spec import Experiment

_PACKAGE = Path(__file__).parents[1]
_NOT_PLAYED = frozenset({"cli", "service", "audit"})
_OF_A_RUN = frozenset({"spec.py", "runner.py", "delivery.py", "results.py"})
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
        """The result of a run that was finished earlier."""
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
