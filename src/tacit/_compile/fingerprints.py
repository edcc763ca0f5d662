"""What compiled kernels depend on, as a name for the folder that they are kept in: a cache that cannot go stale.

Numba keys its own cache by the file of the *outer* function only, though callees are compiled into it: a changed
helper in another file would silently keep running in its old form.  Here a folder is named after the contents of a
kernel's module and of all modules of the package that it uses, directly or not.  Kernels that are generic over policy
states may come to include any kernel, so that their folder stands for all of the package.
"""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
_ALWAYS = (_PACKAGE / "glm" / "link_machine.py", _PACKAGE / "typing.py")


def digest(*parts: str) -> str:
    """A short name for texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


@cache
def _contents(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def package_fingerprint() -> str:
    """Names everything that a compiled kernel can depend on."""
    sources = [path for path in sorted(_PACKAGE.rglob("*.py")) if _matters(path.read_bytes())]
    return digest(*map(_contents, sources), *_compiler_sources())


def _matters(source: bytes) -> bool:
    """Whether it has kernels, or tuples that kernels take."""
    return b"_compile import" in source or b"NamedTuple" in source


@cache
def _compiler_sources() -> list[str]:
    """What every compiled kernel depends on: the compiler, and how it is told what to do."""
    settings = f"numba {version('numba')}, llvmlite {version('llvmlite')}, python {sys.version_info[:2]}"
    return [settings, *map(_contents, (*sorted((_PACKAGE / "_compile").glob("*.py")), *_ALWAYS))]


@cache
def module_fingerprint(name: str) -> str:
    """Names the contents of a module of the package and of those that it uses."""
    seen: set[str] = set()
    _follow(name, seen)
    files = [Path(str(sys.modules[used].__file__)) for used in sorted(seen)]
    return digest(*map(_contents, files), *_compiler_sources())


def _follow(name: str, seen: set[str]) -> None:
    seen.add(name)
    for value in list(vars(sys.modules[name]).values()):
        home = getattr(value, "__module__", None)
        if isinstance(home, str) and home.startswith("tacit.") and home not in seen and home in sys.modules:
            _follow(home, seen)
