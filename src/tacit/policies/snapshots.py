"""Snapshots: the whole state of a policy as JSON and plain arrays, from which it goes on as if nothing had happened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.policies.state import State, rebuild

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Snapshot:
    """``header`` holds what JSON can hold (policy, configuration, ledger, randomness), ``arrays`` all the rest."""

    header: dict[str, Any]
    arrays: dict[str, Array]

    def group(self, prefix: str) -> dict[str, Array]:
        """The arrays below ``prefix``, without it."""
        start = f"{prefix}."
        return {path.removeprefix(start): array for path, array in self.arrays.items() if path.startswith(start)}

    def copied(self) -> Snapshot:
        """The same with arrays of its own: those of a policy change with it."""
        return Snapshot(self.header, {path: np.array(array) for path, array in self.arrays.items()})

    def digest(self) -> str:
        """Hash of all of it."""
        return digest(self.header, self.arrays)


def restored_state(template: State, snapshot: Snapshot) -> State:
    """The state of a snapshot, with arrays of its own and the constants of ``template``."""
    return rebuild(template, snapshot.group("state"))


def digest(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Hash of JSON and arrays."""
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for path in sorted(arrays):
        found.update(path.encode())
        found.update(np.ascontiguousarray(arrays[path]).tobytes())
    return found.hexdigest()
