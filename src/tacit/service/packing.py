"""Entries of a log and snapshots as bytes, and the seals of everything that is stored.

JSON for names, raw numbers for arrays, nothing that runs code when it is read.  The two entries that every request
makes, a decision and a reward, have a form of their own: a letter and packed numbers.

A seal is a digest of the data and of the place where they belong; it is checked when they are read.  It is against
accidents (a disk that rots, a restored block), not against attackers: the digest has no key.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from tacit.errors import CorruptState, StoreDamaged
from tacit.policies.log import Decided, LogEntry, Rewarded, from_parts, to_parts
from tacit.policies.state import Snapshot

Array = npt.NDArray[Any]
_DECIDED, _REWARDED, _PARTS = b"D", b"W", b"P"
_DECISION: Final = struct.Struct("<cqI")
_REWARD: Final = struct.Struct("<cqd")
_LENGTH: Final = struct.Struct("<Q")
_PLACE: Final = struct.Struct(">qq")
_SEAL: Final = 8
"""Bytes of a digest: an accident goes unnoticed once in 10^19."""
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
            _, first, users = _DECISION.unpack_from(data)
            arms = struct.unpack_from(f"<{users}I", data, _DECISION.size)
            memos = np.frombuffer(data[_DECISION.size + 4 * users :], "<f8")
            return Decided(first, list(arms), memos.reshape(users, -1))
        if data[:1] == _PARTS:
            return from_parts(*unpack(data[1:]))
    except (struct.error, ValueError) as error:
        raise CorruptState(f"not an entry of a log: {error}") from error
    raise CorruptState(f"not an entry of a log: it begins with {data[:1]!r}")


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


def damaged(what: str) -> NoReturn:
    """Raise ``StoreDamaged``, with the remedy."""
    raise StoreDamaged(f"the store is damaged: {what}. Check the disk; `tacit restore` goes on from a backup")


def seal(place: bytes, data: bytes) -> bytes:
    """Data behind a digest of them and of their place."""
    return blake2b(place + data, digest_size=_SEAL).digest() + data


def unseal(place: bytes, sealed: bytes, what: str, *of: object) -> bytes:
    """Data that were sealed for this place; anything else is ``StoreDamaged``, and named by ``what.format(*of)``."""
    data = sealed[_SEAL:]
    if blake2b(place + data, digest_size=_SEAL).digest() != sealed[:_SEAL]:
        damaged(f"the checksum of {what.format(*of)} does not match")
    return data


def place_of(journal: int, seq: int) -> bytes:
    """Where an entry or a snapshot belongs: the number of its journal, and its own."""
    return _PLACE.pack(journal, seq)
