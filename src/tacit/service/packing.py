"""Entries of a log and snapshots as bytes: JSON for names, raw numbers for arrays, nothing that runs code when read.

The two entries that every request makes, a decision and a reward, have a form of their own: a letter and packed
numbers. Checksums are the store's business.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tacit.errors import CorruptState
from tacit.policies.log import Decided, LogEntry, Rewarded, from_parts, to_parts
from tacit.policies.state import Snapshot

Array = npt.NDArray[Any]
_DECIDED, _REWARDED, _PARTS = b"D", b"W", b"P"
_DECISION: Final = struct.Struct("<cqI")
_REWARD: Final = struct.Struct("<cqd")
_LENGTH: Final = struct.Struct("<Q")
_KINDS: Final = "biuf"
"""Arrays of whole numbers, floating-point numbers and truth values; no objects."""
_TYPE: Final = re.compile(rf"[<>|]?[{_KINDS}][1-9][0-9]?")


def pack_entry(entry: LogEntry) -> bytes:
    """An entry of a policy's log as bytes."""
    if isinstance(entry, Rewarded):
        return _REWARD.pack(_REWARDED, entry.decision, entry.reward)
    if isinstance(entry, Decided):
        arms = np.asarray(entry.arms, dtype="<u4")
        memos = np.ascontiguousarray(entry.memos, dtype="<f8")
        return _DECISION.pack(_DECIDED, entry.first, arms.size) + arms.tobytes() + memos.tobytes()
    return _PARTS + pack(*to_parts(entry))


def unpack_entry(data: bytes) -> LogEntry:
    """The entry that gave these bytes."""
    try:
        if data[:1] == _REWARDED:
            _, decision, reward = _REWARD.unpack(data)
            return Rewarded(decision, reward)
        if data[:1] == _DECIDED:
            return _unpack_decision(data)
        if data[:1] == _PARTS:
            return from_parts(*unpack(data[1:]))
    except (struct.error, ValueError) as error:
        raise CorruptState(f"not an entry of a log: {error}") from error
    raise CorruptState(f"not an entry of a log: it begins with {data[:1]!r}")


def _unpack_decision(data: bytes) -> Decided:
    _, first, users = _DECISION.unpack_from(data)
    arms = struct.unpack_from(f"<{users}I", data, _DECISION.size)
    memos = np.frombuffer(data[_DECISION.size + 4 * users :], "<f8")
    return Decided(first, list(arms), memos.reshape(users, -1))


def pack_snapshot(snapshot: Snapshot) -> bytes:
    """A snapshot as bytes."""
    return pack(snapshot.header, snapshot.arrays)


def unpack_snapshot(data: bytes) -> Snapshot:
    """The snapshot that gave these bytes."""
    return Snapshot(*unpack(data))


def pack(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """JSON and arrays as bytes."""
    described, parts = [], []
    for name, array in arrays.items():
        if array.dtype.kind not in _KINDS:
            raise CorruptState(f"array {name!r} holds {array.dtype}, which is not plain numbers")
        little = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        described.append([name, little.dtype.str, list(little.shape)])
        parts.append(little.tobytes())
    text = json.dumps({"header": header, "arrays": described}, separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *parts])


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """The JSON and the arrays that gave these bytes; the arrays may be written to."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        found = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        position, arrays = _LENGTH.size + length, {}
        for name, kind, shape in found["arrays"]:
            dtype, size = _described(kind, shape)
            values = np.frombuffer(data, dtype, size, position).reshape(shape)
            arrays[name] = values.astype(dtype.newbyteorder("="))
            position += size * dtype.itemsize
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes are left over")
        return dict(found["header"]), arrays
    except (struct.error, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CorruptState(f"not a packed state: {error}") from error


def _described(kind: str, shape: list[int]) -> tuple[np.dtype[Any], int]:
    """Type and number of entries of an array; ``ValueError`` for what no packed array has."""
    if not _TYPE.fullmatch(kind) or not isinstance(shape, list):
        raise ValueError(f"{kind!r} of shape {shape!r} is no array of plain numbers")
    if any(type(side) is not int or side < 0 for side in shape):
        raise ValueError(f"no array has shape {shape!r}")
    return np.dtype(kind), math.prod(shape)
