"""Chromium for tests of the page: found, or installed where that is allowed; else tests are skipped in words."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import pytest

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE: Final = 600
"""Seconds that an installation may take."""


def chromium() -> str:
    """Path of a Chromium; skips the test where there is none, and fails it where ``CI`` is set."""
    found = _found()
    if found is None and _may_install():
        with _one_at_a_time():
            found = _found() or _installed()
    return found or _absent("there is no Chromium: install the package chromium, or say its path in TACIT_CHROMIUM")


def _found() -> str | None:
    paths = (os.environ.get("TACIT_CHROMIUM"), *(shutil.which(name) for name in _NAMES))
    return next((path for path in paths if path and Path(path).exists()), None)


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _installed() -> str | None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        try:
            subprocess.run(
                ["apt-get", "-qq", *command], env=environment, capture_output=True, timeout=_PATIENCE, check=True
            )
        except (subprocess.SubprocessError, OSError) as error:
            return _absent(f"there is no Chromium, and apt-get could not install it: {error}")
    return _found()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Tests run in several processes, of which one installs."""
    with (Path(tempfile.gettempdir()) / "tacit-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _absent(words: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{words} (CI is set, so that this is a failure)")
    pytest.skip(words)
