"""Exact samples of the discrete Gaussian, P(v) proportional to exp(-v^2 / 2 s^2) on the integers, from random bits.

Write 8 |v| = i s + d with i >= 0 and 0 <= d < s, in one way for every v: i says in which stratum of width s / 8 it is.
With x = d / s

    exp(-v^2 / 2 s^2) = exp(-(i + x)^2 / 128) = exp(-i^2 / 128) exp(-x (2 i + x) / 128).

A trial draws j uniform, i with the first factor as its weight, and a sign; d = 8 j + r, where r < 8 is what makes
i s + d divisible by 8.  It is kept with the probability of the last factor, which is above 0.95 on average (and never
where d >= s, nor 0 with a sign).  That is Karney's decomposition (arXiv 1303.6257, section 4) in finer strata.

**Exact.**  Both choices compare a uniform real number, of which bits are read as they are needed, with exponentials.
Here whole numbers decide whose distance from the truth is proven: all but one trial in some ten million.  The others
are told by `tacit.privacy.exponentials` from further bits of the same numbers, to any precision.  No floating-point
number takes part, and nothing is approximated.  Oracles of the tests: the mass function, and OpenDP.

How many words a sample takes depends on its value: time is not covered by the guarantee, as nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit._compile import entry, kernel
from tacit._compile.kinds import INTEGER, array_kind, kind_of
from tacit._validate import integer_at_least
from tacit.errors import InvalidInput
from tacit.privacy import system_entropy
from tacit.privacy.exponentials import UniformNumber, cumulative_bounds, exp_bounds, stratum_bounds
from tacit.typing import IntArray

Entropy = Callable[[int], bytes]
"""That many random bytes."""
Words = npt.NDArray[np.uint16]
"""Random bits come in words of 16: most numbers that are drawn need no more."""
MAX_PARAMETER = 1 << 46
"""Then values stay below 2^53, which is 128 parameters, and all integers on the way below 2^63."""
DONE, CUT, UNDECIDED = 0, -1, -2
"""Why `_fill` ended: nothing is left to do, the words are used up, or a trial needs closer bounds."""
REJECTED = 1 << 62
"""In place of a sample: the trial has none."""
_SQUARED_WIDTH = 64
"""Strata are an eighth of s wide."""
_OPEN = 255
"""In place of a stratum: 15 bits do not tell it."""
_LONGEST = 4
"""Words that a trial takes beside those of j, at most, while whole numbers decide it."""
_UNIT = 1 << 30
"""Fixed point: what stands for 1."""
_OFF = 8
"""By how much `_fixed_exp` may be off."""


class Tables(NamedTuple):
    """Whole numbers that decide most trials."""

    strata: npt.NDArray[np.uint8]
    """The stratum that 15 bits of its uniform number mean, or `_OPEN`."""
    thresholds: IntArray
    """floor(2^31 c_m), c_m the probability of a stratum up to m; the last is 2^31 - 1 and stands for all others."""
    sure: IntArray
    """floor(2^16 exp(-(2 i + 1) / 128)) for every stratum of ``thresholds``: below it all of the stratum is kept."""


@cache
def _tables() -> Tables:
    thresholds = [lower >> 32 for lower, _ in stratum_bounds(_SQUARED_WIDTH, 63)]
    thresholds = thresholds[: thresholds.index((1 << 31) - 1) + 1]
    first_bits = np.array(thresholds) >> 16
    strata = np.searchsorted(first_bits, np.arange(1 << 15)).astype(np.uint8)
    strata[first_bits] = _OPEN
    sure = [exp_bounds(2 * i + 1, 2 * _SQUARED_WIDTH, 16)[0] for i in range(len(thresholds))]
    return Tables(strata, np.array(thresholds, dtype=np.int64), np.array(sure, dtype=np.int64))


def discrete_gaussian(parameter: int, size: int, entropy: Entropy | None = None) -> IntArray:
    """Independent samples; ``parameter`` is s, a whole number.  By default the bits are the operating system's."""
    s = integer_at_least("parameter", parameter, 1)
    if s > MAX_PARAMETER:
        raise InvalidInput(f"parameter must be at most 2^46, got {parameter!r}")
    read = entropy or system_entropy.read
    tables, out, done, left = _tables(), np.empty(size, dtype=np.int64), 0, b""
    while done < size:
        # A trial that was cut begins again with the words that it had: to give it others would favour short ones.
        left += read(2 * _wanted(s, size - done))
        words = np.frombuffer(left, dtype=np.uint16)
        done, position, status = _filler()(s, tables, words, out, done, 0)
        while status == UNDECIDED:
            value, following = _decided(s, tables, words, position)
            if following == CUT:
                break
            if value != REJECTED:
                out[done] = value
                done += 1
            done, position, status = _filler()(s, tables, words, out, done, following)
        left = left[2 * position :]
    return out


def _wanted(s: int, samples: int) -> int:
    """Words that so many samples take on average, and a few: j until it is small enough, and two, in 1.05 trials."""
    offsets, bits = (s + 7) >> 3, _offset_bits(s)
    chunks = (bits + 15) >> 4
    return samples * 17 * ((chunks << bits) + 2 * offsets) // (16 * offsets) + 4 * (chunks + _LONGEST)


_bound: list[Callable[..., tuple[int, int, int]]] = []


def _filler() -> Callable[..., tuple[int, int, int]]:
    """`_fill` in the best form that there is, without the look at its arguments that a call of it takes."""
    if not _bound:
        words, out = ("array", "<u2", 1, "C", False), array_kind(1, "<i8")
        _bound.append(_fill.bound((INTEGER, kind_of(_tables()), words, out, INTEGER, INTEGER), _bound.clear))
    return _bound[0]


@entry
def _fill(s: int, tables: Tables, words: Words, out: IntArray, done: int, position: int) -> tuple[int, int, int]:
    """Samples from number ``done`` on; how many there are now, the word that the next trial begins with, and why."""
    bits = _offset_bits(s)
    longest = ((bits + 15) >> 4) + _LONGEST
    while done < out.shape[0]:
        if position + longest > words.shape[0]:
            return done, position, CUT
        value, following = _trial(s, bits, tables, words, position)
        if following == UNDECIDED:
            return done, position, UNDECIDED
        position = following
        if value != REJECTED:
            out[done] = value
            done += 1
    return done, position, DONE


@kernel
def _offset_bits(s: int) -> int:
    """How many bits hold every j."""
    bits = 0
    while 8 << bits < s:
        bits += 1
    return bits


@kernel
def _trial(s: int, bits: int, tables: Tables, words: Words, position: int) -> tuple[int, int]:
    """A sample or `REJECTED`, and the word after its last one, or `UNDECIDED`."""
    j, position = _offset(s, bits, words, position)
    if j == REJECTED:
        return REJECTED, position
    sign = int(words[position]) & 1
    stratum, position = _stratum(tables, words, position)
    if stratum == UNDECIDED:
        return 0, UNDECIDED
    d = _distance(s, stratum, j)
    if _is_outside(s, stratum, d, sign):
        return REJECTED, position
    kept, position = _kept(s, tables, stratum, d, words, position)
    if kept == UNDECIDED:
        return 0, UNDECIDED
    return _signed(s, stratum, d, sign) if kept == 1 else REJECTED, position


@kernel
def _offset(s: int, bits: int, words: Words, position: int) -> tuple[int, int]:
    """j, uniform below s / 8 rounded up, from the low bits of words; `REJECTED` where they are too large."""
    j, chunks = 0, (bits + 15) >> 4
    for i in range(chunks):
        j = (j << 16) | int(words[position + i])
    j &= (1 << bits) - 1
    return j if 8 * j < s else REJECTED, position + chunks


@kernel
def _distance(s: int, stratum: int, j: int) -> int:
    """d = 8 j + r, such that 8 divides i s + d."""
    return 8 * j + (-(stratum * s) & 7)


@kernel
def _is_outside(s: int, stratum: int, d: int, sign: int) -> bool:
    """Whether d is that of another stratum, or the sign one that 0 does not have."""
    return d >= s or (stratum == 0 and d == 0 and sign == 1)


@kernel
def _signed(s: int, stratum: int, d: int, sign: int) -> int:
    value = (stratum * s + d) >> 3
    return -value if sign == 1 else value


@kernel
def _stratum(tables: Tables, words: Words, position: int) -> tuple[int, int]:
    """i, from the upper 15 bits of a word and, if they are those of a threshold, the bits of another one."""
    upper = int(words[position]) >> 1
    stratum = int(tables.strata[upper])
    if stratum != _OPEN:
        return stratum, position + 1
    drawn, stratum = (upper << 16) | int(words[position + 1]), 0
    while tables.thresholds[stratum] < drawn:
        stratum += 1
    return stratum if drawn < tables.thresholds[stratum] else UNDECIDED, position + 2


@kernel
def _kept(s: int, tables: Tables, stratum: int, d: int, words: Words, position: int) -> tuple[int, int]:
    """1 with probability exp(-x (2 i + x) / 128), x = d / s, else 0, from the bits of one word or two."""
    drawn = int(words[position])
    if drawn < tables.sure[stratum]:  # the exponent is at most (2 i + 1) / 128
        return 1, position + 1
    chance = _fixed_exp(s, stratum, d)
    if (drawn + 1) << 14 <= chance - _OFF:
        return 1, position + 1
    if drawn << 14 >= chance + _OFF:
        return 0, position + 1
    drawn = (drawn << 16) | int(words[position + 1])
    if drawn + 1 <= (chance - _OFF) << 2:
        return 1, position + 2
    return 0 if drawn >= (chance + _OFF) << 2 else UNDECIDED, position + 2


@kernel
def _fixed_exp(s: int, stratum: int, d: int) -> int:
    """2^30 exp(-x (2 i + x) / 128) up to `_OFF`, for the strata of the tables: i <= 50.

    In units of 2^-30: x is off by 2 at most (the bits of d and s that are left out move it by 1 / s' <= 2^-30, the
    division rounds), y = (2 i + x) / 128 < 0.8 by 1.02, e = x y by 2 * 0.8 + 1.02 + 1 < 4, and so is exp(-e).  The
    recursion is that of `exp_bounds` from h_13 = 1 on: what that is off by counts e^12 / 12! < 2^-32, and roundings of
    less than 1 in each step add up to less than exp(0.8) < 2.3.
    """
    while s >= 1 << 31:
        s, d = s >> 1, d >> 1
    x = (d << 30) // s
    e = (x * (((stratum << 31) + x) >> 7)) >> 30
    h = _UNIT
    for n in range(12, 0, -1):
        h = _UNIT - ((e * h) >> 30) // n
    return h


def _decided(s: int, tables: Tables, words: Words, position: int) -> tuple[int, int]:
    """A trial that `_trial` left open, to its end: what was read stays read, and further bits follow behind it."""
    reader = _Reader(words, position)
    try:
        j, reader.position = _offset(s, _offset_bits(s), words, position)
        sign = int(words[reader.position]) & 1
        stratum = reader.stratum(tables)
        d = _distance(s, stratum, j)
        kept = not _is_outside(s, stratum, d, sign) and reader.keeps(s, tables, stratum, d)
    except IndexError:
        return 0, CUT
    return _signed(s, stratum, d, sign) if kept else REJECTED, reader.position


class _Reader:
    """Reads the choices of a trial, with more bits than the kernels take where these do not decide."""

    def __init__(self, words: Words, position: int) -> None:
        self.words, self.position = words, position

    def read(self) -> int:
        """The next 16 bits; an IndexError where there are none."""
        self.position += 1
        return int(self.words[self.position - 1])

    def stratum(self, tables: Tables) -> int:
        """`_stratum`; where that is undecided, the first one whose c_m is above the number begun with its 31 bits."""
        first, second = (int(word) for word in self.words[self.position : self.position + 2])
        stratum, self.position = _stratum(tables, self.words, self.position)
        if stratum != UNDECIDED:
            return stratum
        number, stratum = UniformNumber((first >> 1 << 16) | second, 31, self.read), 0
        while not number.is_below(partial(cumulative_bounds, _SQUARED_WIDTH, stratum)):
            stratum += 1
        return stratum

    def keeps(self, s: int, tables: Tables, stratum: int, d: int) -> bool:
        """`_kept`; where that is undecided, or has no table, the number is compared with the exponential itself."""
        number = UniformNumber(0, 0, self.read)
        if stratum < tables.sure.shape[0]:
            kept, following = _kept(s, tables, stratum, d, self.words, self.position)
            if kept != UNDECIDED:
                self.position = following
                return kept == 1
            number = UniformNumber((self.read() << 16) | self.read(), 32, self.read)
        return number.is_below(partial(exp_bounds, d * (2 * stratum * s + d), 2 * _SQUARED_WIDTH * s * s))
