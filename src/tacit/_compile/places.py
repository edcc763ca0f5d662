"""Where compiled kernels are kept."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def cache_root() -> Path | None:
    """The folder of the cache, which need not exist; None where there is no home to put it.

    ``TACIT_CACHE`` names it, for images whose file system cannot be written later; otherwise it is where programs of
    this user keep such things.
    """
    asked = os.environ.get("TACIT_CACHE")
    if asked:
        return Path(asked)
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "tacit" / "kernels"
    try:
        return Path.home() / ".cache" / "tacit" / "kernels"
    except RuntimeError:  # no home, and no user of that number
        return None


def can_write() -> bool:
    """Whether the cache takes new kernels."""
    root = cache_root()
    if root is None:
        return False
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe = root / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True
