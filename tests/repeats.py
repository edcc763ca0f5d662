"""Run the tests that draw noise again and again, each time with other noise.

    python -m tests.repeats --times 50

A first run of the whole suite finds out which tests read a tape (`tests/steady.py`), or use a shared fixture that does.
They are then run that many times, each time with tapes of their own.  It stops at the first run in which one fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import steady

NOTES = "TACIT_TEST_NOTES"
"""Environment variable with the folder where each process of the first run writes the names of tests."""


class NoiseNotes:
    """Plugin of pytest that writes down the name of every test whose noise came from a tape."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"{os.getpid()}.txt"
        self._tapes: set[str] = set()
        read, tapes = steady.Tape.read, self._tapes

        def noted_read(self: steady.Tape, count: int) -> bytes:
            tapes.add(self.name)
            return read(self, count)

        steady.Tape.read = noted_read  # type: ignore[method-assign]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Remember the test when its own tape was read."""
        if nodeid in self._tapes:
            self._write(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Remember the test when the tape of a fixture that it shares with others was read."""
        names = getattr(item, "fixturenames", ())
        if any(tape.split("::")[-1].split("[")[0] in names for tape in self._tapes if not tape.startswith(item.nodeid)):
            self._write(item.nodeid)

    def _write(self, nodeid: str) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(nodeid + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Take notes in processes that run tests; with workers, the one that hands tests out runs none."""
    config.pluginmanager.register(NoiseNotes(Path(os.environ[NOTES])))


def run(arguments: Sequence[str], **environment: str) -> None:
    """Run pytest on as many workers as the test command does; stop with its exit code when a test fails."""
    workers = ("-n", str((os.cpu_count() or 1) + 2), "--dist", "worksteal")
    command = (sys.executable, "-m", "pytest", "-q", *workers, *arguments)
    code = subprocess.call(command, env={**os.environ, **environment})
    if code:
        sys.exit(code)


def main() -> None:
    """Find the tests that draw noise, and run them with other noise."""
    parser = argparse.ArgumentParser(prog="python -m tests.repeats", description="Run the tests that draw noise again.")
    parser.add_argument("--times", type=int, default=50, help="How often (default 50).")
    parser.add_argument("--first", type=int, default=1, help="Number of the first run, which names its tapes.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(["-p", "tests.repeats"], **{NOTES: folder})
        tests = sorted({line for notes in Path(folder).iterdir() for line in notes.read_text().splitlines()})
        chosen = Path(folder) / "tests"
        chosen.write_text("\n".join(tests))
        print(f"{len(tests)} tests draw noise", flush=True)
        for number in range(options.first, options.first + options.times):
            began = time.monotonic()
            run([f"@{chosen}"], **{steady.OTHERS: str(number)})
            print(f"run {number} of {options.times}: all passed, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
