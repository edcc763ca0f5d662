"""Exact samples of the discrete Gaussian, P(v) proportional to exp(-v^2 / 2 s^2) on the integers, from random bits.

Karney's algorithm D (arXiv 1303.6257, section 4) for mean 0 and a whole parameter s: v = +-(k s + j) with k, j >= 0 and
j < s has v^2 / s^2 = k^2 + x (2 k + x), x = j / s, so that

    exp(-v^2 / 2 s^2) = exp(-k^2 / 2) exp(-x (2 k + x) / 2).

k is drawn by coins of probability exp(-1/2), j is uniform, and a coin of the last factor accepts.  All coins are made
of uniform integers by comparisons (Canonne, Kamath and Steinke, arXiv 2004.00010, Algorithm 1): no floating-point
number and no rounding takes part, hence no approximation either.  Oracles of the tests: the mass function, and OpenDP.

How many words a sample takes depends on its value: time is not covered by the guarantee, as nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tacit._compile import entry, kernel
from tacit._compile.kinds import INTEGER, array_kind
from tacit._validate import integer_at_least
from tacit.errors import InvalidInput
from tacit.typing import IntArray

Entropy = Callable[[int], bytes]
"""That many random bytes."""
MAX_PARAMETER = 1 << 46
"""Then values stay below 2^53, which is 128 parameters, and all integers on the way far below 2^63."""
_CHUNK = 16
"""Random bits come in words of so many: most of the integers that are drawn are small."""
_WORDS = 26
"""Words that are fetched for each sample, which takes 22 to 27 on average."""
_CUT = -1
"""In place of a random integer: the words are used up."""
Words = npt.NDArray[np.uint16]


def discrete_gaussian(parameter: int, size: int, entropy: Entropy = os.urandom) -> IntArray:
    """Independent samples; ``parameter`` is s, a whole number."""
    s = integer_at_least("parameter", parameter, 1)
    if s > MAX_PARAMETER:
        raise InvalidInput(f"parameter must be at most 2^46, got {parameter!r}")
    out, done, used = np.empty(size, dtype=np.int64), 0, 0
    left = b""
    while done < size:
        # A sample that was cut begins again with the words that it had: to give it others would favour short ones.
        left = left[2 * used :] + entropy(2 * _WORDS * (size - done))
        done, used = _filler()(s, np.frombuffer(left, dtype=np.uint16), out, done)
    return out


_KINDS = (INTEGER, ("array", "<u2", 1, "C", False), array_kind(1, "<i8"), INTEGER)
_bound: list[Callable[..., tuple[int, int]]] = []


def _filler() -> Callable[..., tuple[int, int]]:
    """`_fill` in the best form that there is, without the look at its arguments that a call of it takes."""
    if not _bound:
        _bound.append(_fill.bound(_KINDS, _bound.clear))
    return _bound[0]


@entry
def _fill(s: int, words: Words, out: IntArray, start: int) -> tuple[int, int]:
    """Samples from number ``start`` on, until the words are used up; how many there are, and the words they took."""
    position = 0
    for i in range(start, out.shape[0]):
        value, following = _sample(s, words, position)
        if following == _CUT:
            return i, position
        out[i] = value
        position = following
    return out.shape[0], position


@kernel
def _sample(s: int, words: Words, position: int) -> tuple[int, int]:
    """One sample, and the position of the word after its last one."""
    while True:
        k, position = _root(words, position)
        sign, position = _uniform(2, words, position)
        j, position = _uniform(s, words, position)
        if position == _CUT:
            return 0, _CUT
        if k == 0 and j == 0 and sign == 1:
            continue  # 0 has one sign
        accepted, position = _accept(s, k, j, words, position)
        if position == _CUT:
            return 0, _CUT
        if accepted:
            return (-(k * s + j) if sign == 1 else k * s + j), position


@kernel
def _root(words: Words, position: int) -> tuple[int, int]:
    """k >= 0 with probability proportional to exp(-k^2 / 2): exp(-k / 2), accepted by k (k - 1) more such coins."""
    while True:
        k, heads = 0, True
        while heads:
            heads, position = _half_coin(words, position)
            if heads:
                k += 1
        coins = k * (k - 1)
        while coins > 0:
            heads, position = _half_coin(words, position)
            if not heads:
                break
            coins -= 1
        if coins == 0 or position == _CUT:
            return k, position


@kernel
def _half_coin(words: Words, position: int) -> tuple[bool, int]:
    """True with probability exp(-1/2): whether the first n for which a coin of 1 / 2 n fails is odd."""
    n = 1
    while True:
        drawn, position = _uniform(2 * n, words, position)
        if drawn != 0:  # or the words are used up
            return n % 2 == 1 and position != _CUT, position
        n += 1


@kernel
def _accept(s: int, k: int, j: int, words: Words, position: int) -> tuple[bool, int]:
    """True with probability exp(-x (2 k + x) / 2), x = j / s: k + 1 coins of exp(-g), g = x (2 k + x) / (2 k + 2)."""
    for _ in range(k + 1):
        n = 1
        while True:  # coins of g / n, each of them three comparisons, until one fails
            heads, position = _three_coins(s, k, j, n, words, position)
            if not heads:
                break
            n += 1
        if position == _CUT or n % 2 == 0:
            return False, position
    return True, position


@kernel
def _three_coins(s: int, k: int, j: int, n: int, words: Words, position: int) -> tuple[bool, int]:
    """True with probability (j / s) ((2 k s + j) / ((2 k + 2) s)) / n; False where the words are used up."""
    first, position = _uniform(s, words, position)
    if not 0 <= first < j:
        return False, position
    second, position = _uniform((2 * k + 2) * s, words, position)
    if not 0 <= second < 2 * k * s + j:
        return False, position
    third, position = _uniform(n, words, position)
    return third == 0, position


@kernel
def _uniform(below: int, words: Words, position: int) -> tuple[int, int]:
    """An integer in [0, ``below``), all equally likely: low bits of words, those that are too large thrown away."""
    mask = below - 1
    for shift in (1, 2, 4, 8, 16, 32):
        mask |= mask >> shift
    size = 1
    while size < 4 and mask >> (_CHUNK * size) > 0:
        size += 1
    while 0 <= position <= words.shape[0] - size:
        drawn = 0
        for i in range(size):
            drawn = (drawn << _CHUNK) | int(words[position + i])
        position += size
        drawn &= mask
        if drawn < below:
            return drawn, position
    return _CUT, _CUT
