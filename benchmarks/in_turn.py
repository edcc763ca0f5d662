"""Two installations measured in turn: a neighbour on the machine can slow down seconds of one run by half.

A benchmark of this kind is a script that measures once for each line that it reads, in the interpreter that runs it,
and prints the result as JSON.  `measured` starts it in both interpreters and asks them in turn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any


class Player:
    """A process of one interpreter that measures when it is asked to."""

    def __init__(self, python: str, script: str, case: list[Any]) -> None:
        environment = os.environ | {"TACIT_COMPILE": "now"}  # for versions up to 0.2.0, which compiled
        if python != sys.executable:
            environment.pop("PYTHONPATH", None)  # which would lead both interpreters to the same package
        self.process = subprocess.Popen(
            [python, script, "--serve", json.dumps(case)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self) -> Any:
        """One more measurement."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def serve(measure: Callable[[int], Any]) -> None:
    """Measure once for each line that comes in, after one time that does not count."""
    measure(0)  # loads what is loaded once
    for turn, _ in enumerate(sys.stdin):
        print(json.dumps(measure(turn)), flush=True)


def measured(script: str, case: list[Any], pythons: list[str], repeats: int) -> list[list[Any]]:
    """Return ``repeats`` measurements of each interpreter, made in turn."""
    found: list[list[Any]] = [[] for _ in pythons]
    with ExitStack() as ended:
        players = [Player(python, script, case) for python in pythons]
        for player in players:
            ended.callback(player.process.communicate)  # no more lines: it ends
        for repeat in range(repeats):
            for player, results in list(zip(players, found, strict=True))[:: 1 if repeat % 2 else -1]:
                results.append(player.measure())
    return found
