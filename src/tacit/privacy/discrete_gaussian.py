"""Exact samples of the discrete Gaussian, P(v) proportional to exp(-v^2 / 2 s^2) on the integers, from random bits.

Write 8 |v| = i s + d with i >= 0 and 0 <= d < s, in one way for every v: i says in which stratum of width s / 8 it is.
With x = d / s

    exp(-v^2 / 2 s^2) = exp(-(i + x)^2 / 128) = exp(-i^2 / 128) exp(-x (2 i + x) / 128).

A trial draws j uniform, i with the first factor as its weight, and a sign; d = 8 j + r, where r < 8 is what makes
i s + d divisible by 8.  It is kept with the probability of the last factor, which is above 0.95 on average (and never
where d >= s, nor 0 with a sign).  That is Karney's decomposition (arXiv 1303.6257, section 4) in finer strata.

Every trial has two words of 64 bits, so that all trials of a release are decided side by side and none is ever cut:
samples are the values of those that are kept, in their order.

**Exact.**  Both choices compare a uniform real number, of which bits are read as they are needed, with exponentials.
Tables of whole numbers, which bound these from below and from above, decide all but one trial in some six hundred.  The
others are told by `UniformNumber` from the number itself and further bits of it, to any precision.  No
floating-point number takes part, and nothing is approximated.  Oracles of the tests: the mass function, and OpenDP.

How long a sample takes depends on its value: time is not covered by the guarantee, as nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit._validate import integer_at_least
from tacit.errors import InvalidInput
from tacit.privacy import system_entropy
from tacit.typing import BoolArray, IntArray

Entropy = Callable[[int], bytes]
"""A source of randomness: gives as many random bytes as it is asked for."""
Words = npt.NDArray[np.uint64]
"""Two random words for each trial, shape (N, 2): j and sign in one, stratum and whether it is kept in the other."""
MAX_PARAMETER = 1 << 46
"""Largest parameter: up to it values stay below 2^53, which is 128 parameters, and integers on the way below 2^63."""
_SQUARED_WIDTH = 64
"""Strata are an eighth of s wide."""
_MOST_TRIALS = 1 << 13
"""Trials at a time: what they take stays in a processor's cache."""
_STRATA, _PIECES = 32, 64
"""Strata, and pieces of each, for which tables bound the probability that a trial is kept: enough for most trials."""


class Tables(NamedTuple):
    """Whole numbers that decide most trials."""

    thresholds: IntArray
    """floor(2^31 c_i), c_i the probability of a stratum up to i; the last is 2^31 - 1 and stands for all others."""
    least: IntArray
    """2^32 exp(-x (2 i + x) / 128) at the end of each piece, rounded down: below it the whole piece is kept.

    Piece p of stratum i, x in [p / 64, (p + 1) / 64), is at 64 i + p.  The last stratum, of zeros, is all others.
    """
    most: IntArray
    """The value at the beginning of each piece, rounded up: from it on none of the piece is kept; at last 2^32."""


@cache
def _tables() -> Tables:
    thresholds = [lower >> 32 for lower, _ in stratum_bounds(_SQUARED_WIDTH, 63)]
    thresholds = thresholds[: thresholds.index((1 << 31) - 1) + 1]
    ends = [[_kept_bounds(_PIECES, i, p, 32) for p in range(_PIECES + 1)] for i in range(_STRATA)]
    least = [lower for stratum in ends for lower, _ in stratum[1:]] + [0] * _PIECES
    most = [upper for stratum in ends for _, upper in stratum[:-1]] + [1 << 32] * _PIECES
    return Tables(np.array(thresholds), np.array(least), np.array(most))


def _kept_bounds(s: int, stratum: int, d: int, bits: int) -> Bounds:
    """Bounds of 2^bits exp(-x (2 i + x) / 128), x = d / s."""
    return exp_bounds(d * (2 * stratum * s + d), 2 * _SQUARED_WIDTH * s * s, bits)


def discrete_gaussian(parameter: int, size: int, entropy: Entropy | None = None) -> IntArray:
    """Draw ``size`` independent samples; ``parameter`` is s, a whole number.

    ``entropy`` gives random bytes, by default those of the operating system.
    """
    s = integer_at_least("parameter", parameter, 1)
    if s > MAX_PARAMETER:
        raise InvalidInput(f"parameter must be at most 2^46, got {parameter!r}")
    read = entropy or system_entropy.read
    out, done, offsets = np.empty(size, dtype=np.int64), 0, -(-s // 8)
    while done < size:
        # A trial is kept with probability 0.95 s / (8 offsets); a few more, so that one pass mostly suffices.
        count = min((size - done) * 9 * offsets // s + 8, _MOST_TRIALS)
        words = np.frombuffer(read(16 * count), dtype=np.uint64).reshape(count, 2)
        samples = _samples(s, words, read)[: size - done]
        out[done : done + samples.size] = samples
        done += samples.size
    return out


def _samples(s: int, words: Words, read: Entropy) -> IntArray:
    """The samples of those trials that have one, in their order."""
    tables, first, second = _tables(), words[:, 0], words[:, 1]
    negative = (first & 1).astype(bool)
    j, drawn = _offsets(s, (first >> 1).view(np.int64))
    stratum = _strata(tables, (second >> 33).view(np.int64), read)
    d = 8 * j + (-(stratum * s) & 7)
    inside = drawn & (d < s) & ~((stratum == 0) & (d == 0) & negative)
    kept = inside & _kept(s, stratum, d, (second & 0xFFFFFFFF).view(np.int64), read)
    value = (stratum * s + d) >> 3
    return np.asarray(np.where(negative, -value, value)[kept])


def _offsets(s: int, uniform: IntArray) -> tuple[IntArray, BoolArray]:
    """j, uniform below s / 8 rounded up, from 63 bits, and where there is one: as many numbers lead to each j."""
    offsets = -(-s // 8)
    quotient = uniform // offsets
    return uniform - quotient * offsets, quotient < (1 << 63) // offsets


def _strata(tables: Tables, uniform: IntArray, read: Entropy) -> IntArray:
    """i, the first stratum whose c_i is above a uniform number, from 31 bits or, if they are a threshold's, more."""
    strata = tables.thresholds.searchsorted(uniform)
    for n in np.flatnonzero(tables.thresholds[strata] == uniform):
        number, stratum = _number(uniform[n], 31, read), 0
        while not number.is_below(partial(cumulative_bounds, _SQUARED_WIDTH, stratum)):
            stratum += 1
        strata[n] = stratum
    return strata


def _kept(s: int, stratum: IntArray, d: IntArray, uniform: IntArray, read: Entropy) -> BoolArray:
    """True with probability exp(-x (2 i + x) / 128), x = d / s, from 32 bits or, if they do not decide it, more."""
    tables = _tables()
    piece = np.minimum(stratum, _STRATA) * _PIECES + _PIECES * d // s
    kept = uniform < tables.least.take(piece, mode="clip")
    for n in np.flatnonzero(~kept & (uniform < tables.most.take(piece, mode="clip"))):
        kept[n] = _number(uniform[n], 32, read).is_below(partial(_kept_bounds, s, int(stratum[n]), int(d[n])))
    return kept


def _number(bits: np.int64, count: int, read: Entropy) -> UniformNumber:
    """A uniform number that begins with so many bits, and goes on with what is read."""
    return UniformNumber(int(bits), count, lambda: int.from_bytes(read(2), "little"))


Bounds = tuple[int, int]
"""Whole numbers below and above 2^bits c, both sides included."""
_GUARD = 32
"""Bits beyond those that were asked for, for what rounding takes on the way."""


def exp_bounds(numerator: int, denominator: int, bits: int) -> Bounds:
    """Bounds of 2^bits exp(-e), e = ``numerator / denominator`` >= 0.

    With e = 2^k f, f <= 1: exp(-f) = h_1 where h_n = 1 - (f / n) h_{n+1}, all of them in [0, 1]; from h_{N+1} in [0, 1]
    on, every step rounds outwards.  f^N / N! is what that start is off by.  Then the bounds are squared k times.
    """
    halvings = (numerator // denominator).bit_length()
    precision = bits + _GUARD + 2 * halvings
    one = 1 << precision
    least, remainder = divmod(numerator << precision, denominator << halvings)
    most = least + (remainder > 0)
    lower, upper = 0, one
    for n in range(_terms(precision), 0, -1):
        lower, upper = one + (-most * upper // (n * one)), one - least * lower // (n * one)
    for _ in range(halvings):
        lower, upper = lower * lower >> precision, -(-upper * upper >> precision)
    spare = precision - bits
    return max(lower, 0) >> spare, -(-upper >> spare)


@cache
def _terms(precision: int) -> int:
    """N with N! >= 2^precision."""
    terms = 1
    while math.factorial(terms) >> precision == 0:
        terms += 1
    return terms


@cache
def stratum_bounds(squared_width: int, bits: int) -> tuple[Bounds, ...]:
    """Bounds of 2^bits c_m for m = 0, 1, ..., c_m the share of the first m + 1 terms in sum_i exp(-i^2 / 2 w^2).

    ``squared_width`` is w^2.  Terms from number N >= w^2 on fall by 1 / e at least with each step, so that together
    they are at most twice the first of them; N is so large that this is less than one of 2^(bits + guard).
    """
    precision = bits + _GUARD
    first_left_out = max(squared_width, math.isqrt(2 * squared_width * precision) + 1)  # ln 2 < 1
    terms = [exp_bounds(i * i, 2 * squared_width, precision) for i in range(first_left_out + 1)]
    least, most = sum(term[0] for term in terms[:-1]), sum(term[1] for term in terms[:-1]) + 2 * terms[-1][1]
    bounds, lower, upper = [], 0, 0
    for term in terms[:-1]:
        lower, upper = lower + term[0], upper + term[1]
        bounds.append(((lower << bits) // most, min(-(-(upper << bits) // least), 1 << bits)))
    return tuple(bounds)


def cumulative_bounds(squared_width: int, stratum: int, bits: int) -> Bounds:
    """`stratum_bounds` of one stratum; those beyond the last have what is left."""
    bounds = stratum_bounds(squared_width, bits)
    return bounds[stratum] if stratum < len(bounds) else (bounds[-1][0], 1 << bits)


class UniformNumber:
    """A uniform random number in [0, 1) of which ``count`` bits are known: ``value``; ``read`` gives 16 more.

    A comparison u < c with a real number c has exactly the probability c if it is decided by the first bits of u where
    bounds of c allow that, and else by further bits of u and closer bounds of c.  How many bits are read is a function
    of the bits read so far, so that those not read stay uniform and independent of everything.
    """

    def __init__(self, value: int, count: int, read: Callable[[], int]) -> None:
        self.value, self.count = value, count
        self._read = read

    def is_below(self, bounds: Callable[[int], Bounds]) -> bool:
        """Whether it is less than the number that has these bounds; more bits are read while they do not say."""
        while True:
            lower, upper = bounds(self.count)
            if self.value + 1 <= lower:
                return True
            if self.value >= upper:
                return False
            self.value, self.count = (self.value << 16) | self._read(), self.count + 16
