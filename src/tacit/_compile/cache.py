"""Compiled kernels on disk, in a cache that cannot go stale, need not be writable, and may have many writers.

Folders are named after what a kernel was compiled from (`tacit._compile.fingerprints`).  Numba's own cache keeps an
index for each function, which two processes that compile at once can spoil.  Here each compiled
form is one file, written whole or not at all, whose name says what it is.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numba
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from tacit._compile.fingerprints import digest, module_fingerprint, package_fingerprint
from tacit._compile.kernels import Kernel
from tacit._compile.places import cache_root

_DIGEST = 32


class KernelCache(_Cache):
    """The compiled forms of one kernel, as numba asks for them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._enabled = True

    @property
    def cache_path(self) -> str:
        """The folder."""
        return str(self._folder() or "")

    def enable(self) -> None:
        """Use the cache."""
        self._enabled = True

    def disable(self) -> None:
        """Do without."""
        self._enabled = False

    def flush(self) -> None:
        """Nothing is kept in memory."""

    def _folder(self) -> Path | None:
        root = cache_root()
        if root is None or not self._enabled:
            return None
        generic = self._kernel.generic
        return root / (package_fingerprint() if generic else module_fingerprint(self._kernel.function.__module__))

    def _path(self, signature: Any, codegen: Any) -> Path | None:
        folder, kinds = self._folder(), [_described(kind) for kind in signature]
        function = self._kernel.function
        if folder is None or any(kind is None for kind in kinds) or not function.__module__.startswith("tacit."):
            return None
        form = f"line {function.__code__.co_firstlineno}, {'called from Python' if self._kernel.entered else 'inner'}"
        what = digest(*map(str, kinds), repr(codegen.magic_tuple()), form)
        return folder / f"{function.__module__}.{function.__qualname__}-{what}".replace("<", "").replace(">", "")

    def holds(self, signature: Any, codegen: Any) -> bool:
        """Whether there is a compiled form for arguments of these types."""
        path = self._path(signature, codegen)
        return path is not None and os.access(path, os.R_OK)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled form; None where there is none, or none that is whole."""
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        try:
            content = b"" if path is None else path.read_bytes()
        except OSError:
            return None
        if len(content) <= _DIGEST or hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
            return None
        return CompileResult._rebuild(target_context, *pickle.loads(content[_DIGEST:]))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled form; where that cannot be done, it lives as long as this process."""
        if data.lifted or data.library.has_dynamic_globals:
            return
        path = self._path(sig, data.codegen)
        if path is None:
            return
        content = dumps(data._reduce())
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(hashlib.sha256(content).digest() + content)
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()


def _described(kind: Any) -> str | None:
    """A type in words, with the modules of its classes; None if one of these is not the package's.

    A class is stored by reference: one of somebody's own module could not be loaded by any other program, and an edit
    of that module would go unnoticed.
    """
    if not isinstance(kind, numba.types.BaseTuple):
        return str(kind)
    owner = getattr(kind, "instance_class", None)
    if owner is not None and not owner.__module__.startswith("tacit."):
        return None
    inner = [_described(part) for part in cast(Any, kind).types]
    if any(part is None for part in inner):
        return None
    return f"{owner.__module__}.{owner.__qualname__}({inner})" if owner is not None else str(inner)
