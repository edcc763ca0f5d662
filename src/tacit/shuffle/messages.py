"""What the roles send each other, and its encoding on the wire.

A report is a header and packed bits, little-endian throughout::

    bytes 0-1    b"TS"
    bytes 2-3    version
    bytes 4-11   digest of the protocol's public parameters, its label included
    bytes 12-27  report id, 16 random bytes, used to count a report once and then forgotten
    bytes 28-    payload: coordinate after coordinate, ``widths[k]`` bits each, then zeros up to a whole byte

The position of a bit is its label. Within a coordinate only the number of ones has a meaning; the
randomizer puts them first. Every report of a protocol has the same length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from tacit.errors import InvalidInput
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import ByteArray, FloatArray, IntArray

MAGIC: Final = b"TS"
VERSION: Final = 1
ID_BYTES: Final = 16
_PREFIX: Final = struct.Struct("<2sH8s")
HEADER_BYTES: Final = _PREFIX.size + ID_BYTES
_CHUNK_NUMBERS: Final = 1 << 17
"""Bits or bytes of reports that are worked on at a time: they stay in the processor's cache."""


@dataclass(frozen=True)
class ShuffledBits:
    """The shuffler's message to the analyzer: for each label its bits in random order, packed, and how many.

    Parameters
    ----------
    digest : bytes
        Digest of the protocol.
    reports : int
        Number of reports admitted.
    bits : tuple of ndarray of uint8
        Packed bits of each label.
    lengths : tuple of int
        Number of bits of each label.
    """

    digest: bytes
    reports: int
    bits: tuple[ByteArray, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Aggregate:
    """The analyzer's result, public: an unbiased estimate of the sum over the reports that arrived.

    Parameters
    ----------
    protocol : SumProtocol
        Parameters of the sum.
    values : ndarray, shape (domain.size,)
        The estimate, in the domain's coordinates; `decoded` gives its natural shape.
    reports : int
        Number of reports in the sum.
    """

    protocol: SumProtocol
    values: FloatArray
    reports: int

    @property
    def noise_sd(self) -> float:
        """Standard deviation of each entry of ``values``, at worst."""
        return self.protocol.noise_sd(self.reports)

    def decoded(self) -> FloatArray:
        """Give the sum its natural shape.

        Returns
        -------
        ndarray
            A vector, or a symmetric matrix.
        """
        return self.protocol.domain.decode(self.values)


def report_bytes(protocol: SumProtocol) -> int:
    """Return the size of one report on the wire.

    Parameters
    ----------
    protocol : SumProtocol
        Parameters of the sum.

    Returns
    -------
    int
        Bytes, header included.

    Examples
    --------
    >>> from tacit.shuffle import Ball, SumProtocol, report_bytes
    >>> report_bytes(SumProtocol("sum", Ball(2), grid=4, noise_bits=5, noise_numerator=1 << 15, min_users=1000))
    32
    """
    return HEADER_BYTES + protocol.payload_bytes


def encode_reports(protocol: SumProtocol, ids: ByteArray, counts: IntArray) -> ByteArray:
    """Reports as lines of bytes, from their ids and the number of ones of each coordinate."""
    users = counts.shape[0]
    if ids.shape != (users, ID_BYTES) or counts.shape != (users, protocol.domain.size):
        raise InvalidInput(f"ids and counts must have a line per report, got {ids.shape}, {counts.shape}")
    reports = np.zeros((users, report_bytes(protocol)), dtype=np.uint8)
    prefix = _PREFIX.pack(MAGIC, VERSION, protocol.digest)
    reports[:, : _PREFIX.size] = np.frombuffer(prefix, dtype=np.uint8)
    reports[:, _PREFIX.size : HEADER_BYTES] = ids
    _write_ones(counts, protocol.widths, reports[:, HEADER_BYTES:])
    return reports


def header_matches(protocol: SumProtocol, reports: ByteArray) -> tuple[ByteArray, ByteArray, ByteArray]:
    """Per report of the right length: whether magic, version and digest are this protocol's."""
    magic, version, digest = (
        np.all(reports[:, start:stop] == np.frombuffer(expected, dtype=np.uint8), axis=1)
        for start, stop, expected in (
            (0, 2, MAGIC),
            (2, 4, VERSION.to_bytes(2, "little")),
            (4, 12, protocol.digest),
        )
    )
    return magic.astype(np.uint8), version.astype(np.uint8), digest.astype(np.uint8)


def padding_is_zero(protocol: SumProtocol, reports: ByteArray) -> ByteArray:
    """Per report of the right length: whether the bits after the last coordinate are zero."""
    used = protocol.payload_bits % 8
    allowed = 0xFF if used == 0 else (1 << used) - 1
    return np.asarray((reports[:, -1] & ~np.uint8(allowed)) == 0, dtype=np.uint8)


def decode_ids(reports: ByteArray) -> list[bytes]:
    """Report ids of encoded reports."""
    raw = np.ascontiguousarray(reports[:, _PREFIX.size : HEADER_BYTES]).tobytes()
    return [raw[i : i + ID_BYTES] for i in range(0, len(raw), ID_BYTES)]


def decode_counts(protocol: SumProtocol, reports: ByteArray) -> IntArray:
    """Number of ones of each coordinate of encoded reports."""
    counts = np.zeros((reports.shape[0], protocol.domain.size), dtype=np.int64)
    _count_ones(reports[:, HEADER_BYTES:], protocol.widths, counts)
    return counts


def _write_ones(counts: IntArray, widths: IntArray, payload: ByteArray) -> None:
    """Set the first ``counts[i, k]`` bits of every coordinate k of report i."""
    place = np.arange(widths.sum()) - np.repeat(widths.cumsum() - widths, widths)  # of a bit in its coordinate
    for some in _chunks(counts.shape[0], place.size):
        payload[some] = np.packbits(place < np.repeat(counts[some], widths, axis=1), axis=1, bitorder="little")


def _count_ones(payload: ByteArray, widths: IntArray, counts: IntArray) -> None:
    """Write the number of ones of every coordinate into ``counts``: differences of those before its ends."""
    ends = np.concatenate([[0], widths.cumsum()])
    last, below = np.minimum(ends >> 3, payload.shape[1] - 1), (1 << (ends & 7)) - 1
    for some in _chunks(*payload.shape):
        ones = np.bitwise_count(payload[some])
        whole = np.cumsum(ones, axis=1, dtype=np.int64)
        # Bytes before the one that an end lies in; an end at the end of the payload lies behind its last byte.
        before = np.where(ends >> 3 > last, whole[:, last], whole[:, last] - ones[:, last])
        counts[some] = np.diff(before + np.bitwise_count(payload[some][:, last] & below.astype(np.uint8)), axis=1)


def _chunks(reports: int, numbers: int) -> Iterator[slice]:
    """Slices of reports, small enough to be worked on at a time."""
    size = max(1, _CHUNK_NUMBERS // max(1, numbers))
    return (slice(start, start + size) for start in range(0, reports, size))
