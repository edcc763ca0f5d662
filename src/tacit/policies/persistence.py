"""Saved states: plain arrays and JSON in one file, resumed at most once.

Noise drawn twice for one release halves its variance, so that a state may go on in one place only.  Every saved file
carries a token and, as the last bytes of the file, a mark.  The first to go on, a ``load`` of the file or the object
that saved it, takes the token and sets the mark; any other is refused.  The token is taken in a registry of this
user on this machine, which also stops copies of the file; the mark travels with the file.  A file that cannot be marked
is not resumed.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tacit._version import __version__
from tacit.errors import CannotMark, CorruptState, StateInUse

FORMAT = 3
_HEADER = "header.json"
_FRESH, _RESUMED = b"tacit state: fresh..", b"tacit state: resumed"
"""The archive's comment, of one length, so that one write of its last bytes marks a file and can damage nothing."""
Arrays = dict[str, npt.NDArray[Any]]


def _registry() -> Path:
    base = os.environ.get("TACIT_STATE_DIR") or os.environ.get("XDG_STATE_HOME")
    root = Path(base) if base else Path.home() / ".local" / "state"
    return root / "tacit" / "resumed"


@dataclass(frozen=True)
class Claim:
    """The right to go on from one saved state, by its token and the file that holds it."""

    token: str
    path: Path

    def take(self) -> None:
        """Go on in the object that saved: register, and mark the file if it is still where it was written."""
        register(self.token)
        # Moved, replaced or set read-only meanwhile: the registry has the token, and no more is promised.
        with suppress(CannotMark, CorruptState):
            _mark(self.path, self.token)


def register(token: str) -> None:
    """Enter a token into this machine's registry, once."""
    registry = _registry()
    try:
        registry.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(registry / token, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        if not registry.is_dir():
            raise CannotMark(_unwritable(registry, "it is a file")) from None
        raise StateInUse(_in_use("this saved state")) from None
    except OSError as error:
        raise CannotMark(_unwritable(registry, str(error))) from error
    os.close(descriptor)
    sync_folder(registry)


def _unwritable(registry: Path, why: str) -> str:
    return (
        f"cannot write to {registry}, where resumed states are registered: {why}; set TACIT_STATE_DIR to a folder "
        f"that lasts"
    )


def _in_use(what: str) -> str:
    return (
        f"{what} has been resumed already: noise drawn twice for one release is a privacy loss. Go on with the policy "
        "that resumed it, or load what that one saved last. If it crashed, load with recover=True: that goes on from "
        "what is public and drops the rest"
    )


def new_claim(path: str | Path) -> Claim:
    """The right to go on from a state that is about to be written to ``path``."""
    return Claim(secrets.token_hex(16), Path(path).absolute())


def write(claim: Claim, header: dict[str, Any], arrays: Arrays) -> None:
    """Write a state atomically.

    The caller must hold the claim.  An error or a signal may come when the file is in its place.
    """
    full = {"format": FORMAT, "version": __version__, "token": claim.token, **header}
    target = claim.path

    def fill(stream: IO[bytes]) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            archive.comment = _FRESH
            archive.writestr(_HEADER, json.dumps(full))
            for key, array in arrays.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)

    name = write_beside(target, fill)
    try:
        os.replace(name, target)
        sync_folder(target.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_beside(path: Path, fill: Callable[[IO[bytes]], object]) -> str:
    """Write and sync a new file in the folder of ``path``, readable by its owner alone; returns its name."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            fill(stream)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return name


def read(path: str | Path, *, resumed_too: bool = False) -> tuple[dict[str, Any], Arrays]:
    """Read a state without taking its token; anything odd about the file is an error."""
    with _archive(path) as archive:
        if archive.testzip() is not None:
            raise CorruptState(f"{path} is damaged: a checksum does not match")
        if archive.comment != _FRESH and not resumed_too:
            raise StateInUse(_in_use(str(path)))
        header = json.loads(archive.read(_HEADER))
        arrays = {name[:-4]: _read_array(archive, name) for name in archive.namelist() if name.endswith(".npy")}
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CorruptState(f"{path} was saved in a format that version {__version__} does not read")
    return header, arrays


def resume(path: str | Path, token: str) -> None:
    """Mark the file of a state as resumed, durably, and take its token; refuses where either cannot be done."""
    register(token)
    try:
        _mark(Path(path), token)
    except BaseException as error:
        if not isinstance(error, StateInUse):  # not resumed: leave everything as it was
            (_registry() / token).unlink(missing_ok=True)
        raise


@contextmanager
def _archive(path: str | Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, EOFError, NotImplementedError) as error:
        raise CorruptState(f"{path} is not a saved Tacit state, or is damaged: {error}") from error


def _token(stream: IO[bytes]) -> str | None:
    """The token of the state in an open file."""
    with zipfile.ZipFile(stream) as archive:
        token: str | None = json.loads(archive.read(_HEADER)).get("token")
    return token


def _mark(path: Path, token: str) -> None:
    """Turn the mark of the state's file from fresh to resumed and wait until it is on the disk."""
    try:
        with path.open("r+b") as stream:
            _lock(stream)
            if _token(stream) != token:
                raise CannotMark(f"{path} was replaced by another state meanwhile: load it again")
            stream.seek(-len(_FRESH), os.SEEK_END)
            if stream.read() != _FRESH:
                raise StateInUse(_in_use(str(path)))
            stream.seek(-len(_FRESH), os.SEEK_END)
            stream.write(_RESUMED)
            stream.flush()
            os.fsync(stream.fileno())
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise CorruptState(f"{path} is not a saved Tacit state, or is damaged: {error}") from error
    except OSError as error:
        raise CannotMark(
            f"{path} cannot be marked as resumed ({error}), so that nothing would stop a second resumption: copy it to "
            "where it can be written, once, and load the copy; or load with recover=True, which drops what is secret"
        ) from error


def _lock(stream: IO[bytes]) -> None:
    """Keep other processes from marking the same file at the same time, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(stream, fcntl.LOCK_EX)


def sync_folder(folder: Path) -> None:
    """Make the new name of a file durable, where folders can be synced."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_array(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with archive.open(name) as entry:
        array: npt.NDArray[Any] = np.lib.format.read_array(entry, allow_pickle=False)
    return array
