"""Bounds of exponentials by whole numbers, as close as anybody asks for, and random numbers to compare with them.

A comparison u < c of a uniform random number u in [0, 1) with a real number c has exactly the probability c if it is
decided by the first bits of u where bounds of c allow that, and else by further bits of u and closer bounds of c.
`is_below` does so.  How many bits are read is a function of the bits read so far, so that those not read stay uniform
and independent of everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

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
    """A uniform random number in [0, 1) of which ``count`` bits are known: ``value``; ``read`` gives 16 more."""

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
