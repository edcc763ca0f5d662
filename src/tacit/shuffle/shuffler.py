"""The shuffler: takes reports apart into labelled bits, and lets nothing through but their multiset.

It admits a report or drops it whole, never repairs one. Every test is one that no honest device can fail,
so that what is dropped says nothing about honest users and does not bias the sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tacit.errors import AlreadyReleased, BatchTooSmall
from tacit.shuffle.messages import (
    ShuffledBits,
    decode_counts,
    decode_ids,
    header_matches,
    padding_is_zero,
    report_bytes,
)
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import BoolArray, ByteArray, IntArray

WordArray = npt.NDArray[np.uint64]


@dataclass
class Dropped:
    """Numbers of reports that were not admitted, by the first reason found.

    Parameters
    ----------
    truncated, oversized : int
        Reports that are too short or too long.
    mislabelled : int
        Reports for other parameters, another round or another batch.
    version_mismatched : int
        Reports of another version of the encoding.
    malformed : int
        Reports with bits set in the padding.
    impossible : int
        Reports that no honest device can make.
    repeated : int
        Reports whose id was seen before.
    """

    truncated: int = 0
    oversized: int = 0
    mislabelled: int = 0
    """Messages that are no report, or one made for other parameters, another round or another batch."""
    version_mismatched: int = 0
    malformed: int = 0
    """Bits set in the padding."""
    impossible: int = 0
    """Bits that no contribution and no noise can produce, such as all ones."""
    repeated: int = 0

    @property
    def total(self) -> int:
        """All reports that were dropped."""
        return sum(vars(self).values())


@dataclass
class Shuffler:
    """Collects the reports of one batch and releases their shuffled bits, once.

    It keeps the number of ones of each label and the ids seen, not the reports and not their order.

    Parameters
    ----------
    protocol : SumProtocol
        Parameters of the sum.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.shuffle import Ball, Shuffler, calibrate, randomize
    >>> rng = np.random.default_rng(0)
    >>> protocol = calibrate(Ball(2), users=1000, epsilon=1.0, delta=1e-6)
    >>> shuffler = Shuffler(protocol)
    >>> shuffler.collect([b"not a report"])
    >>> shuffler.collect(randomize(protocol, np.full((1200, 2), 0.5), rng))
    >>> shuffler.admitted, shuffler.dropped.total, shuffler.release(rng).reports
    (1200, 1, 1200)
    """

    protocol: SumProtocol
    admitted: int = field(default=0, init=False)
    """Reports admitted so far."""
    dropped: Dropped = field(default_factory=Dropped, init=False)
    """Reports dropped so far."""
    _ones: IntArray = field(init=False, repr=False)
    _seen: set[bytes] = field(default_factory=set, init=False, repr=False)
    _released: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self._ones = np.zeros(self.protocol.domain.size, dtype=np.int64)

    def collect(self, reports: Iterable[bytes] | ByteArray) -> None:
        """Admit the well-formed reports among ``reports`` and count the others.

        Parameters
        ----------
        reports : iterable of bytes or ndarray of uint8, shape (n, report_bytes(protocol))
            Byte strings, or the lines of an array of bytes.

        Raises
        ------
        AlreadyReleased
            When the batch was released.
        """
        if self._released:
            raise AlreadyReleased("this batch was released; open a new shuffler for the next one")
        lines = self._of_right_length(reports)
        lines = self._with_right_header(lines)
        counts = decode_counts(self.protocol, lines)
        possible = could_be_honest(self.protocol, counts)
        self.dropped.impossible += int(np.count_nonzero(~possible))
        fresh = self._first_seen(decode_ids(lines[possible]))
        self._ones += counts[possible][fresh].sum(axis=0)
        self.admitted += int(np.count_nonzero(fresh))

    def release(self, rng: np.random.Generator) -> ShuffledBits:
        """Return the admitted bits, label by label, in uniformly random order; everything else is forgotten.

        Parameters
        ----------
        rng : numpy.random.Generator
            Generator of the order.

        Returns
        -------
        ShuffledBits
            The message to the analyzer.

        Raises
        ------
        AlreadyReleased
            When the batch was released.
        BatchTooSmall
            When fewer than ``protocol.min_users`` reports were admitted.
        """
        if self._released:
            raise AlreadyReleased("this batch was released; open a new shuffler for the next one")
        if self.admitted < self.protocol.min_users:
            raise BatchTooSmall(
                f"{self.admitted} reports admitted, {self.protocol.min_users} are needed: wait for more, "
                "or let the users of this batch join a later one"
            )
        self._released = True
        lengths = tuple(int(width) * self.admitted for width in self.protocol.widths)
        bits = tuple(
            uniform_arrangement(length, int(ones), rng) for length, ones in zip(lengths, self._ones, strict=True)
        )
        self._seen.clear()
        self._ones[:] = 0
        return ShuffledBits(self.protocol.digest, self.admitted, bits, lengths)

    def _of_right_length(self, reports: Iterable[bytes] | ByteArray) -> ByteArray:
        size = report_bytes(self.protocol)
        if isinstance(reports, np.ndarray):
            lines = np.atleast_2d(np.asarray(reports, dtype=np.uint8))
            if lines.shape[1] == size:
                return lines
            reports = [line.tobytes() for line in lines]
        kept = []
        for report in reports:
            self.dropped.truncated += len(report) < size
            self.dropped.oversized += len(report) > size
            if len(report) == size:
                kept.append(report)
        return np.frombuffer(b"".join(kept), dtype=np.uint8).reshape(len(kept), size)

    def _with_right_header(self, lines: ByteArray) -> ByteArray:
        magic, version, digest = (flag.astype(np.bool_) for flag in header_matches(self.protocol, lines))
        padding = padding_is_zero(self.protocol, lines).astype(np.bool_)
        self.dropped.version_mismatched += int(np.count_nonzero(magic & ~version))
        self.dropped.mislabelled += int(np.count_nonzero(~magic | (version & ~digest)))
        self.dropped.malformed += int(np.count_nonzero(magic & version & digest & ~padding))
        return lines[magic & version & digest & padding]

    def _first_seen(self, ids: list[bytes]) -> BoolArray:
        fresh = np.zeros(len(ids), dtype=np.bool_)
        for i, report_id in enumerate(ids):
            if report_id not in self._seen:
                self._seen.add(report_id)
                fresh[i] = True
        self.dropped.repeated += int(np.count_nonzero(~fresh))
        return fresh


def could_be_honest(protocol: SumProtocol, counts: IntArray) -> BoolArray:
    """Whether some contribution and some noise give these numbers of ones; always true for an honest report.

    Noise adds 0 to b ones and rounding less than one step, so a coordinate of the contribution lies
    strictly between count - b - 1 and count + 1 steps. When no vector in that box has a norm within the
    bound, no honest device made the report.

    All ones is such a report from two coordinates on and for g >= 4, since the upper ends of all ranges
    lie outside the ball. In a single coordinate it is what a user at the upper end sends with probability
    p^b: it cannot be told from that, dropping it would censor honest users by their value, so it is
    admitted.
    """
    low = np.maximum(counts - (protocol.noise_bits + 1), 0)
    high = np.minimum(counts + 1, protocol.levels)
    # The distance of the box from 0 in each coordinate.
    nearest = np.maximum(protocol.lower + protocol.step * low, -(protocol.lower + protocol.step * high))
    nearest = np.maximum(nearest, 0.0)
    smallest = np.sqrt(np.vecdot(nearest, nearest))
    return np.asarray(smallest <= protocol.domain.bound * (1.0 + 1e-9), dtype=np.bool_)


def uniform_arrangement(length: int, ones: int, rng: np.random.Generator) -> ByteArray:
    """``length`` packed bits, ``ones`` of them set, in uniformly random order.

    A random permutation of bits is a uniformly random arrangement of their ones: it can be drawn from the
    number of ones alone, and then the old order cannot survive in it.  Independent bits of any
    probability are uniform given their number of ones; surplus ones are cleared, or missing ones set, at
    uniformly random places, which keeps the arrangement uniform.
    """
    words = _independent_bits(length, round(256 * ones / length), rng)
    surplus = int(np.sum(np.bitwise_count(words), dtype=np.int64)) - ones
    while surplus != 0:
        places = rng.integers(0, length, size=4 * abs(surplus) + 64)
        surplus = _flip(words, places, surplus)
    return words.view(np.uint8)[: (length + 7) // 8]


def _independent_bits(length: int, level: int, rng: np.random.Generator) -> WordArray:
    """Independent bits that are 1 with probability ``level`` / 256, zeros past ``length``."""
    size = (length + 63) // 64
    words = np.full(size, 2**64 - 1 if level == 256 else 0, dtype=np.uint64)
    if level < 256:
        for digit in range(8):  # compares 8 random binary digits with those of level, lowest first
            random_words = rng.integers(0, 2**64, size=size, dtype=np.uint64)
            if level >> digit & 1:
                words |= random_words
            else:
                words &= random_words
    if length % 64:
        words[-1] &= np.uint64((1 << length % 64) - 1)
    return words


def _flip(words: WordArray, places: IntArray, surplus: int) -> int:
    """Clear ones (or set zeros, when ``surplus`` is negative) at these places until the surplus is gone."""
    is_one = (words[places >> 6] >> (places & 63).astype(np.uint64)) & 1 == 1
    found = places[is_one == (surplus > 0)]
    first = np.unique(found, return_index=True)[1]  # a place that comes twice counts once
    chosen = found[np.sort(first)][: abs(surplus)]
    np.bitwise_xor.at(words, chosen >> 6, np.uint64(1) << (chosen & 63).astype(np.uint64))
    return surplus - int(chosen.size) if surplus > 0 else surplus + int(chosen.size)
