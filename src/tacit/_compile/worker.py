"""The process that compiles beside a program: kernels and kinds come as lines of JSON, results go into the cache."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tacit._compile.entries import as_entry
from tacit._compile.kinds import found, from_json
from tacit._compile.places import cache_root


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """One compiler at a time for each cache: whoever comes second finds what the first one made."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system: work is done twice, and nothing is spoilt
        yield
        return
    root.mkdir(parents=True, exist_ok=True)
    with (root / "compiling").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Compile what standard input asks for."""
    with suppress(OSError, AttributeError):
        os.nice(10)
    root = cache_root()
    if root is None:
        return
    with alone(root):
        from tacit._compile import machine

        for line in sys.stdin:
            name, kinds = json.loads(line)
            machine.code(as_entry(found(name)).kernel, from_json(kinds))


if __name__ == "__main__":
    main()
