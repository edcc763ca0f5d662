"""Interpreted first, compiled beside: what a program sees on a fresh machine, and where nothing can be written."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tacit._compile.places import cache_root

LOADED = """
import sys
print("numba:", "numba" in sys.modules)
"""
SESSION = """
import sys, threading, time, warnings
import numpy as np
import tacit
from tacit._compile import beside
from tacit.policies.steps import run

rounds = np.random.default_rng(1).standard_normal(({rounds}, 4, 3))
rounds /= 1.001 * np.maximum(1.0, np.linalg.norm(rounds, axis=2, keepdims=True))

def played(policy, start, stop):
    arms = []
    for t in range(start, stop):
        decision = policy.select(rounds[t])
        policy.update(decision, float(t % 3 == 0))
        arms.append(decision.arm)
    return arms

def made():
    return tacit.make_policy("stream-glm", dim=3, horizon=1000, epsilon=2.0, delta=1e-5, seed=7)
"""


def ran(program: str, cache: Path, *, mode: str | None = None, **extra: str) -> str:
    """What a program of its own prints, with this cache; it must not fail."""
    environment = {key: value for key, value in os.environ.items() if key != "TACIT_COMPILE"}
    environment |= {"TACIT_CACHE": str(cache)} | ({} if mode is None else {"TACIT_COMPILE": mode}) | extra
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def five_lines() -> str:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the kernels of stream-glm; those that other tests have compiled need not be compiled again."""
    cache, known = tmp_path_factory.mktemp("full") / "kernels", cache_root()
    for path in [] if known is None else list(known.rglob("*")):
        with suppress(FileNotFoundError):  # another test is still writing it
            if path.is_file():
                copy = cache / path.relative_to(known or cache)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)
    command = [sys.executable, "-m", "tacit", "warm", "--policies", "stream-glm", "--jobs", "1"]
    done = subprocess.run(command, env=os.environ | {"TACIT_CACHE": str(cache)}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return cache


def test_the_first_private_decision_compiles_nothing(tmp_path: Path) -> None:
    assert "numba: False" in ran(five_lines() + LOADED, tmp_path / "kernels")
    assert not (tmp_path / "kernels").exists()


@pytest.mark.parametrize("program", ["import tacit", "import runpy, sys; sys.argv[1:] = ['--help']; help_of()"])
def test_imports_stay_lazy(program: str, tmp_path: Path) -> None:
    told = """
import contextlib, runpy, sys
def help_of():
    with contextlib.suppress(SystemExit):
        runpy.run_module("tacit", run_name="__main__")
"""
    heavy = "print('heavy:', sorted({'numba', 'scipy', 'matplotlib', 'numpy'} & set(sys.modules)))"
    assert "heavy: []" in ran(f"{told}\n{program}\n{heavy}", tmp_path)


def test_the_switch_changes_no_arm_and_no_release(full: Path) -> None:
    """Compiled code takes over in the middle of a run; a run that never compiled ends in the same state, to the bit."""
    program = (
        SESSION.format(rounds=120)
        + """
policy = made()
beside.PATIENCE = 0.0
arms = played(policy, 0, 60)
beside.wait()
arms += played(policy, 60, 120)
print("switched:", len(run.forms) == 1 and "numba" in sys.modules)
print(arms, [(name, values.tobytes()) for name, values in sorted(policy.snapshot().arrays.items())])
"""
    )
    switched = ran(program, full)
    interpreted = ran(program, full, mode="0")
    assert "switched: True" in switched
    assert "switched: False" in interpreted
    assert switched.splitlines()[1:] == interpreted.splitlines()[1:]


def test_another_process_compiles_while_decisions_go_on(tmp_path: Path) -> None:
    """With an empty cache: the interpreted loop goes on at its speed, and ends compiled, with no compiler in it."""
    program = (
        SESSION.format(rounds=120)
        + """
from numba.core import event
compiled_here = []
class Compiled(event.Listener):
    def on_start(self, told): compiled_here.append(told)
    def on_end(self, told): pass
event.register("numba:compile", Compiled())
policy = made()
beside.PATIENCE = 0.0
played(policy, 0, 20)
decided = 0
deadline = time.monotonic() + 240.0
while beside._state.thread is not None and time.monotonic() < deadline:
    time.sleep(0.001)  # the process that compiles is polite: a loop without pause on a busy machine would starve it
    played(policy, 20 + decided % 100, 21 + decided % 100)
    decided += 1
print("decided meanwhile:", decided > 50)
print("compiled:", len(run.forms) == 1, "here:", len(compiled_here))
"""
    )
    said = ran(program, tmp_path / "kernels")
    assert "decided meanwhile: True" in said
    assert "compiled: True here: 0" in said


def test_a_read_only_cache_that_is_full_is_used(full: Path) -> None:
    """As in an image: nobody writes there again, not even a user who could."""
    modes = {path: path.stat().st_mode for path in [full, *full.rglob("*")]}
    before = {path: path.stat().st_mtime_ns for path in modes}
    program = (
        SESSION.format(rounds=60)
        + """
beside.PATIENCE = 0.0
warnings.simplefilter("error")
policy = made()
played(policy, 0, 30)
beside.wait()
played(policy, 30, 60)
print("compiled:", len(run.forms) == 1)
"""
    )
    try:
        for path, mode in modes.items():
            path.chmod(mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
        assert "compiled: True" in ran(program, full)
        assert {path: path.stat().st_mtime_ns for path in [full, *full.rglob("*")]} == before
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def test_without_a_folder_it_says_once_what_would_help(tmp_path: Path) -> None:
    """No home and nothing to write to: interpreted, then compiled in memory."""
    nowhere = tmp_path / "file"
    nowhere.write_text("not a folder")
    program = (
        SESSION.format(rounds=60)
        + """
beside.PATIENCE = 0.0
policy = tacit.make_policy("random", dim=3, horizon=1000, seed=7)
played(policy, 0, 30)
beside.wait()
played(policy, 30, 60)
print("compiled:", len(run.forms) == 1)
"""
    )
    said = ran(program, nowhere / "kernels")
    assert "compiled: True" in said
    assert said.count("TACIT_CACHE") == 1


def test_a_program_that_ends_is_not_held_up(tmp_path: Path) -> None:
    """The thread that waits for the compiler must not keep the program alive, nor break its end."""
    program = (
        SESSION.format(rounds=30)
        + """
beside.PATIENCE = 0.0
policy = made()
played(policy, 0, 30)
print("ends with a thread:", beside._state.thread is not None)
"""
    )
    assert "ends with a thread: True" in ran(program, tmp_path / "kernels")


def test_damaged_files_are_compiled_anew(full: Path) -> None:
    """Half a file, or a bit that flipped, is no kernel."""
    files = [path for path in full.rglob("*first_refused*") if path.is_file()]
    assert files
    kept = {path: path.read_bytes() for path in files}
    program = """
import numpy as np
from tacit.policies.admission import first_refused
print(first_refused(np.zeros((2, 3, 4)), 0))
"""
    try:
        for path, content in kept.items():
            path.write_bytes(content[: len(content) // 2])
        assert "2" in ran(program, full, mode="now")
        # The cache may also hold kinds of arguments that this program does not ask for.
        made_anew = [path.read_bytes() for path in files if len(path.read_bytes()) != len(kept[path]) // 2]
        assert made_anew
        for content in made_anew:
            assert hashlib.sha256(content[32:]).digest() == content[:32]
    finally:
        for path, content in kept.items():
            path.write_bytes(content)
