"""Everything that is stored carries a digest of itself and of where it belongs, which is checked when it is read.

Against accidents (a disk that rots, a restored block), not against attackers: the digest has no key.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import NoReturn

from tacit.errors import StoreDamaged
from tacit.service.store import Row

_PLACE = struct.Struct(">qq")
SEAL = 8
"""Bytes of a digest: an accident goes unnoticed once in 10^19."""


def damaged(what: str) -> NoReturn:
    """Refuse to go on, and say what can be done."""
    raise StoreDamaged(f"the store is damaged: {what}. Check the disk; `tacit restore` goes on from a backup")


def seal(place: bytes, data: bytes) -> bytes:
    """Data behind a digest of them and of their place."""
    return blake2b(place + data, digest_size=SEAL).digest() + data


def unseal(place: bytes, sealed: bytes, what: str, *of: object) -> bytes:
    """What was sealed for this place; anything else is ``StoreDamaged``, and named by ``what.format(*of)``."""
    data = sealed[SEAL:]
    if blake2b(place + data, digest_size=SEAL).digest() != sealed[:SEAL]:
        damaged(f"the checksum of {what.format(*of)} does not match")
    return data


def place_of(journal: int, seq: int) -> bytes:
    """Where an entry or a snapshot belongs."""
    return _PLACE.pack(journal, seq)


def _place_of_row(journal: int, table: str, key: bytes, position: int) -> bytes:
    return place_of(journal, position) + table.encode() + b"\0" + key


def row_values(journal: int, table: str, row: Row) -> tuple[int, str, bytes, int, bytes]:
    """A row as it is stored."""
    value = seal(_place_of_row(journal, table, row.key, row.position), row.value)
    return journal, table, row.key, row.position, value


def row_from(journal: int, table: str, key: bytes, position: int, value: bytes) -> Row:
    """A row as it was given."""
    place = _place_of_row(journal, table, key, position)
    return Row(key, position, unseal(place, value, "a row of table {!r} at {}", table, position))
