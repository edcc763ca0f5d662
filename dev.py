#!/usr/bin/env python3
"""Set up and run: needs Python 3.11+ and the package index, nothing else.

    python3 dev.py demo     install what running needs, play the private-against-baselines comparison
    python3 dev.py test     install what testing needs, run all tests
    python3 dev.py check    lint, types, import contracts, documentation, rules of the house
    python3 dev.py lock     pin all versions anew

Everything goes into `.venv` beside this file, from versions and hashes pinned in `requirements/`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = str(BIN / "python")
UV = str(BIN / "uv")
UV_REQUIREMENT = ROOT / "requirements" / "uv.txt"


def call(*command: str) -> None:
    """Run a command from the project's root; stop with its exit code when it fails."""
    code = subprocess.call(command, cwd=ROOT)
    if code:
        sys.exit(code)


def install(kind: str) -> None:
    """Bring `.venv` to the locked versions of requirements/<kind>.txt; does nothing when it is there already."""
    lock = ROOT / "requirements" / f"{kind}.txt"
    wanted = hashlib.sha256(lock.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = VENV / f".installed-{kind}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"Installing locked versions ({kind}) into .venv ...", flush=True)
    if not Path(UV).exists():
        call(sys.executable, "-m", "venv", str(VENV))  # adds pip to an environment that was made without it
        quiet = ("-q", "--disable-pip-version-check", "--require-hashes")
        call(PYTHON, "-m", "pip", "install", *quiet, "-r", str(UV_REQUIREMENT))
    call(UV, "pip", "install", "-q", "--python", PYTHON, "--require-hashes", "-r", str(lock))
    call(UV, "pip", "install", "-q", "--python", PYTHON, "--no-deps", "--no-build-isolation", "-e", ".")
    stamp.write_text(wanted)


def demo(*arguments: str) -> None:
    """The main job: a comparison on embedded defaults, a table and a picture."""
    install("run")
    call(PYTHON, "-m", "tacit", "demo", *arguments)


def test(*arguments: str) -> None:
    """All tests; two workers more than cores, since many of them wait for servers and disks."""
    install("dev")
    workers = str((os.cpu_count() or 1) + 2)
    call(PYTHON, "-m", "pytest", *(arguments or ("-n", workers, "--dist", "worksteal")))


def check() -> None:
    """Lint, types, import contracts, documentation, rules of the house."""
    install("dev")
    call(PYTHON, "-m", "ruff", "check")
    call(PYTHON, "-m", "ruff", "format", "--check")
    call(PYTHON, "-m", "mypy")
    call(str(BIN / "lint-imports"))
    call(PYTHON, "-m", "pytest", "-q", "tests/test_docs.py", "tests/test_house.py")


def lock() -> None:
    """Pin the newest versions that pyproject.toml admits."""
    install("dev")
    common = (
        "--universal",
        "--generate-hashes",
        "--no-emit-index-url",
        "--no-header",
        "-q",
        "--upgrade",
        "--python-version",
        "3.11",
    )
    run = ("--extra", "lab", "--group", "build", "-o", "requirements/run.txt")
    call(UV, "pip", "compile", "pyproject.toml", *run, *common)
    call(
        UV,
        "pip",
        "compile",
        "pyproject.toml",
        "--all-extras",
        "--group",
        "build",
        "--group",
        "dev",
        "-o",
        "requirements/dev.txt",
        *common,
    )
    call(UV, "pip", "compile", "requirements/uv.in", "-o", "requirements/uv.txt", *common)


TASKS = {"demo": demo, "test": test, "check": check, "lock": lock}

if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - this file may be run by an older Python
        sys.exit(f"Tacit needs Python 3.11 or newer; this is {sys.version.split()[0]}")
    if len(sys.argv) < 2 or sys.argv[1] not in TASKS:
        sys.exit(str(__doc__).strip())
    # tests and simulations start hundreds of processes, each of which would compile every module anew
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    TASKS[sys.argv[1]](*sys.argv[2:])
