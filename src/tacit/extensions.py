"""Modules outside of the package, which register policies, links and environments when they are imported.

A name is enough in the process that the user started.  Processes that this one starts, here or on other machines, are
told where the module was found and what its file held, so that all of them run the same code or none.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tacit.errors import InvalidInput


class Extension(NamedTuple):
    """A module as it was imported."""

    name: str
    folder: str
    """Where it was found: an entry of ``sys.path``."""
    digest: str
    """Hash of its file; of a package, of every source below it.  Other modules that it imports are not part of it."""


class _Import(NamedTuple):
    spec: ModuleSpec | None
    """Tells one import from the next: a module that is reloaded gets a new one."""
    extension: Extension


_IMPORTS: dict[str, _Import] = {}


def load_modules(names: Iterable[str]) -> tuple[Extension, ...]:
    """Import modules and say what was imported; calling it again costs nothing.

    Parameters
    ----------
    names : iterable of str
        Names of modules, for which the current directory is searched too, or paths to files that end in ``.py``.

    Returns
    -------
    tuple of Extension
        The modules as they were imported; a file is called by its name without ``.py``.

    Raises
    ------
    InvalidInput
        For a module that cannot be imported, with the cause.
    """
    return tuple(_load_file(Path(name)) if name.endswith(".py") else _load(name) for name in names)


def load_again(extensions: Iterable[Extension]) -> None:
    """Import in a worker what `load_modules` imported elsewhere.

    A worker that has an earlier version imports the module anew; `InvalidInput` when the file has changed since then.
    """
    for extension in extensions:
        known = _IMPORTS.get(extension.name)
        if known is not None and known.extension.digest == extension.digest:
            continue
        if known is not None:
            _forget(extension.name)
        if extension.folder not in sys.path:
            sys.path.insert(0, extension.folder)
        if _load(extension.name).digest != extension.digest:
            raise InvalidInput(f"the module {extension.name!r} was edited while it was in use: start again")


def _load_file(path: Path) -> Extension:
    """Import a file by its stem, from its own folder, so that workers find it as they find any other module."""
    if not path.is_file():
        raise InvalidInput(f"there is no file {path} to import")
    if not path.stem.isidentifier():
        raise InvalidInput(f"cannot import {path}: {path.stem!r} cannot be the name of a module; rename the file")
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    loaded = _load(path.stem)
    if not Path(loaded.folder, path.name).samefile(path):
        raise InvalidInput(
            f"cannot import {path}: {path.stem!r} is a module of {loaded.folder} already; rename the file"
        )
    return loaded


def _load(name: str) -> Extension:
    module = _import(name)
    known = _IMPORTS.get(name)
    if known is None or known.spec is not module.__spec__:
        files = _files(name, module)
        folder = files[0].parents[name.count(".") + hasattr(module, "__path__")]
        known = _Import(module.__spec__, Extension(name, str(folder), _digest(files)))
        _IMPORTS[name] = known
    return known.extension


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if not {here, ""} & set(sys.path):
        sys.path.insert(0, here)
    if name not in sys.modules:
        invalidate_caches()  # the file may be younger than what Python remembers of its folder
    try:
        return import_module(name)
    except Exception as error:  # a module may raise anything
        raise InvalidInput(f"cannot import the module {name!r}: {type(error).__name__}: {error}") from error


def _forget(name: str) -> None:
    del _IMPORTS[name]
    for loaded in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
        del sys.modules[loaded]


def _files(name: str, module: ModuleType) -> list[Path]:
    """The module's file; of a package every source below it, ``__init__.py`` first."""
    file = getattr(module, "__file__", None)
    if file is None:
        raise InvalidInput(f"the module {name!r} has no source file, so that it cannot register anything")
    own = Path(file).absolute()
    return [own, *sorted(own.parent.rglob("*.py"))] if hasattr(module, "__path__") else [own]


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
