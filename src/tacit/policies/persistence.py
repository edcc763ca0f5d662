"""Saved states: plain arrays and JSON in one file, resumed at most once.

Noise drawn twice for one release halves its variance, so a state may go on in one place only..  Every saved file
carries a token..  Whoever goes on first, a ``load`` of the file or the object that saved it, takes the token; everybody
else is refused..  Tokens are taken in two places: in a registry of this user on this machine, which also stops copies
of the file, and in the file itself, which travels to other machines.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._version import __version__
from tacit.errors import CorruptState, StateInUse, TacitError

FORMAT = 1
_HEADER = "header.json"
_RESUMED = "resumed"
Arrays = dict[str, npt.NDArray[Any]]


def _registry() -> Path:
    base = os.environ.get("TACIT_STATE_DIR") or os.environ.get("XDG_STATE_HOME")
    root = Path(base) if base else Path.home() / ".local" / "state"
    return root / "tacit" / "resumed"


@dataclass(frozen=True)
class Claim:
    """The right to go on from one saved state."""

    token: str

    def take(self) -> None:
        """Take the right, or raise when somebody else has."""
        registry = _registry()
        try:
            registry.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TacitError(
                f"cannot write to {registry}, where resumed states are registered: {error}; set TACIT_STATE_DIR to a "
                f"folder that lasts"
            ) from error
        try:
            descriptor = os.open(registry / self.token, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            raise StateInUse(
                "this saved state has been resumed already: noise drawn twice for one release is a privacy loss. "
                "Go on with the policy that resumed it, or load what that one saved last"
            ) from None
        os.fsync(descriptor)
        os.close(descriptor)


def write(path: str | Path, policy: str, header: dict[str, Any], arrays: Arrays) -> str:
    """Write a state atomically and return its token."""
    token = secrets.token_hex(16)
    full = {"format": FORMAT, "version": __version__, "policy": policy, "token": token, **header}
    target = Path(path)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            with zipfile.ZipFile(stream, "w") as archive:
                archive.writestr(_HEADER, json.dumps(full))
                for key, array in arrays.items():
                    with archive.open(f"{key}.npy", "w", force_zip64=True) as entry:
                        np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return token


def read(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    """Read a state without taking its token; anything odd about the file is an error."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                raise CorruptState(f"{path} is damaged: a checksum does not match")
            names = archive.namelist()
            if _RESUMED in names:
                raise StateInUse(f"{path} has been resumed already; load what the resumed policy saved last")
            header = json.loads(archive.read(_HEADER))
            arrays = {name[:-4]: _read_array(archive, name) for name in names if name.endswith(".npy")}
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, EOFError) as error:
        raise CorruptState(f"{path} is not a saved Tacit state, or is damaged: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CorruptState(f"{path} was saved in a format that version {__version__} does not read")
    return header, arrays


def resume(path: str | Path, token: str) -> None:
    """Take the token of a state and mark the file itself."""
    Claim(token).take()
    try:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(_RESUMED, "")
    except OSError:
        pass  # A read-only copy cannot be marked; the registry has the token.


def _read_array(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with archive.open(name) as entry:
        array: npt.NDArray[Any] = np.lib.format.read_array(entry, allow_pickle=False)
    return array
