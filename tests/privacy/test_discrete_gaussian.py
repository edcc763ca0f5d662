"""The discrete Gaussian sampler: its mass function, OpenDP, and the words that it is a function of."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from tacit.errors import InvalidInput
from tacit.privacy.discrete_gaussian import (
    _OFF,
    CUT,
    MAX_PARAMETER,
    REJECTED,
    UNDECIDED,
    Words,
    _decided,
    _fill,
    _fixed_exp,
    _kept,
    _offset,
    _offset_bits,
    _Reader,
    _tables,
    _trial,
    discrete_gaussian,
)
from tacit.typing import FloatArray, IntArray


def seeded(seed: int) -> Callable[[int], bytes]:
    return np.random.default_rng(seed).bytes


def mass(parameter: float, reach: int) -> FloatArray:
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (values / parameter) ** 2)
    return np.asarray(weights / weights.sum())


def surprise(sample: IntArray, expected: FloatArray) -> float:
    """p-value of a chi-square test; values whose expected number is below 10 are one class."""
    reach = expected.size // 2
    inside = sample[np.abs(sample) <= reach]
    counts, wanted = np.bincount(inside + reach, minlength=expected.size), sample.size * expected
    large = wanted >= 10.0
    rest = sample.size - counts[large].sum(), sample.size - wanted[large].sum()
    statistic = float(np.sum((counts[large] - wanted[large]) ** 2 / wanted[large]))
    statistic += (rest[0] - rest[1]) ** 2 / rest[1] if rest[1] > 1.0 else 0.0
    return float(stats.chi2.sf(statistic, int(large.sum())))


@pytest.mark.parametrize("parameter", [1, 2, 3, 7, 40])
def test_samples_have_the_mass_function_and_no_other(parameter: int) -> None:
    sample = discrete_gaussian(parameter, 400_000, seeded(parameter))
    assert surprise(sample, mass(parameter, 12 * parameter)) > 1e-4
    assert surprise(sample, mass(parameter * 2.0 / 3.0, 12 * parameter)) < 1e-12
    assert surprise(sample, mass(parameter * 1.02, 12 * parameter)) < 1e-4


@pytest.mark.parametrize("parameter", [1_000, 10**6, 2**40, MAX_PARAMETER])
def test_large_parameters_are_gaussian(parameter: int) -> None:
    sample = discrete_gaussian(parameter, 200_000, seeded(3)) / parameter
    assert stats.kstest(sample, "norm").pvalue > 1e-4
    assert abs(float(np.std(sample)) - 1.0) < 4.0 / math.sqrt(2.0 * sample.size)
    assert np.max(np.abs(sample)) * parameter < 2.0**53


def likeness(ours: IntArray, theirs: IntArray, parameter: int) -> float:
    """p-value of both being drawn from one distribution."""
    edges = np.arange(-4 * parameter, 4 * parameter + 1, max(1, parameter // 3))
    table = np.array([np.histogram(sample, edges)[0] for sample in (ours, theirs)])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 20]).pvalue)


def test_opendp_draws_from_the_same_distribution() -> None:
    """OpenDP takes no seed: the right answer is rejected with a chance of 1e-10 in each of the two rounds.

    The wrong ones are 6% away or more, at 14 standard errors of the scale and more.
    """
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    for parameter, wrong in ((3, 4), (50, 53)):
        theirs = np.array(dp.m.make_gaussian(*space, scale=float(parameter))([0] * 60_000))
        assert likeness(discrete_gaussian(parameter, 60_000, seeded(5)), theirs, parameter) > 1e-10
        assert likeness(discrete_gaussian(wrong, 60_000, seeded(5)), theirs, parameter) < 1e-10


def test_samples_are_a_function_of_the_words_however_these_come() -> None:
    """A sample for which the words are not enough goes on with the same ones: to begin anew would favour short ones."""
    words = seeded(11)(2 * 60_000)

    def entropy(most: int) -> Callable[[int], bytes]:
        position = 0

        def some(size: int) -> bytes:
            nonlocal position
            taken = words[position : position + min(size, 2 * most)]
            position += len(taken)
            return taken

        return some

    whole = discrete_gaussian(1_000, 1_000, entropy(60_000))
    for most in (1, 3, 100):
        np.testing.assert_array_equal(discrete_gaussian(1_000, 1_000, entropy(most)), whole)


def hard_words(stratum: int, further: list[int]) -> Words:
    """A trial of s = 8, whose j takes no word: 31 bits that are those of a threshold, then these."""
    drawn = int(_tables().thresholds[stratum])
    return np.array([drawn >> 16 << 1, drawn & 0xFFFF, *further], dtype=np.uint16)


@pytest.mark.parametrize("stratum", [0, 1, 7, 20, 49])
def test_a_stratum_that_the_tables_leave_open_is_told_by_further_bits(stratum: int) -> None:
    tables, cut = _tables(), math.floor(cumulative(stratum) * 2**47) & 0xFFFF
    for word, wanted in ((0, stratum), (cut - 1, stratum), (cut + 1, stratum + 1), (0xFFFF, stratum + 1)):
        words = hard_words(stratum, [word, 0, 0, 0])
        assert _trial(8, 0, tables, words, 0)[1] == UNDECIDED
        assert _decided(8, tables, words, 0) == (wanted, 4)  # s / 8 = 1: the stratum is the sample
    words = hard_words(stratum, [cut, 0, 0, 0, 0])
    assert _decided(8, tables, words, 0) == (stratum, 5)
    assert _decided(8, tables, words[:4], 0) == (0, CUT)


def test_strata_without_a_table_are_reached_too() -> None:
    """All bits are 1 for long: a stratum far out, whose samples nobody will ever see."""
    words = np.array([0xFFFE, *([0xFFFF] * 8), *([0] * 30)], dtype=np.uint16)
    value, following = _decided(8, _tables(), words, 0)
    assert 105 < value < 115  # exp(-value^2 / 128) is about 2^-143
    assert 9 < following < 15


@pytest.mark.parametrize(("s", "stratum", "d"), [(80, 3, 72), (8 * 10**9 + 8, 20, 5 * 10**9), (MAX_PARAMETER, 49, 8)])
def test_a_sample_that_fixed_point_leaves_open_is_kept_by_further_bits(s: int, stratum: int, d: int) -> None:
    tables = _tables()
    chance = Decimal(-d * (2 * stratum * s + d)) / (128 * s * s)
    bits = int(chance.exp() * 2**64)
    front = [bits >> shift & 0xFFFF for shift in (48, 32)]
    last = bits >> 16 & 0xFFFF
    assert _kept(s, tables, stratum, d, np.array(front, dtype=np.uint16), 0) == (UNDECIDED, 2)
    for word, wanted in ((0, True), (last - 1, True), (last + 1, False), (0xFFFF, False)):
        reader = _Reader(np.array([*front, word], dtype=np.uint16), 0)
        assert reader.keeps(s, tables, stratum, d) == wanted
        assert reader.position == 3


def test_samples_with_open_trials_are_the_same_however_their_words_come() -> None:
    tail = np.frombuffer(seeded(4)(2_000), dtype=np.uint16)
    words = np.concatenate([hard_words(3, [5, 5, 5]), hard_words(0, [0xFFFF, 7]), tail])

    def entropy(most: int) -> Callable[[int], bytes]:
        left = words.tobytes()

        def some(size: int) -> bytes:
            nonlocal left
            taken, left = left[: min(size, 2 * most)], left[min(size, 2 * most) :]
            return taken

        return some

    whole = discrete_gaussian(8, 50, entropy(10_000))
    assert whole[:2].tolist() == [3, 1]
    for most in (1, 4, 17):
        np.testing.assert_array_equal(discrete_gaussian(8, 50, entropy(most)), whole)


def cumulative(stratum: int) -> Decimal:
    """The probability of a stratum up to this one."""
    terms = [(Decimal(-i * i) / 128).exp() for i in range(200)]
    return sum(terms[: stratum + 1], Decimal(0)) / sum(terms, Decimal(0))


def test_tables_are_what_they_are_said_to_be() -> None:
    tables = _tables()
    expected = [math.floor(cumulative(i) * 2**31) for i in range(tables.thresholds.size)]
    assert tables.thresholds.tolist() == expected
    assert expected[-1] == 2**31 - 1 > expected[-2]
    assert tables.thresholds.size <= 51  # `_fixed_exp` rests on strata up to 50
    sure = [math.floor((Decimal(-2 * i - 1) / 128).exp() * 2**16) for i in range(tables.sure.size)]
    assert tables.sure.tolist() == sure
    for bits in range(1 << 15):  # whatever follows these bits, the stratum is the same, or open
        first, last = (int(np.searchsorted(expected, drawn)) for drawn in (bits << 16, (bits << 16) + 0xFFFF))
        is_open = any(threshold >> 16 == bits for threshold in expected)
        assert tables.strata[bits] == (255 if is_open else first)
        assert is_open or first == last


def test_fixed_point_exponentials_are_within_what_is_proven() -> None:
    rng, largest = np.random.default_rng(8), 0.0
    for s in (1, 2, 9, 1_000, 2**31 - 1, 2**31, 2**31 + 1, 3 * 2**33 + 5, MAX_PARAMETER - 1, MAX_PARAMETER):
        distances = {0, s // 2, s - 1, *(int(d) for d in rng.integers(s, size=30))}
        for stratum in (0, 1, 25, 50):
            for d in distances:
                exact = (Decimal(-d * (2 * stratum * s + d)) / (128 * s * s)).exp() * 2**30
                largest = max(largest, abs(float(_fixed_exp(s, stratum, d) - exact)))
    assert 0.5 < largest < 7.0 < _OFF


def test_offsets_are_equally_likely() -> None:
    """Every word is as likely as any other, and as many of them lead to each offset."""
    for s in (1, 8, 9, 17, 800, 801):
        bits, offsets = _offset_bits(s), -(-s // 8)
        counts = [0] * offsets
        for word in range(1 << 16):
            drawn, position = _offset(s, bits, np.array([word], dtype=np.uint16), 0)
            assert position == (offsets > 1)
            if drawn != REJECTED:
                counts[drawn] += 1
        assert counts == [(1 << 16) >> bits] * offsets
    words = np.array([3, 0xFFFF, 0x1234], dtype=np.uint16)
    assert _offset(1 << 45, 42, words, 0) == (3 << 32 | 0xFFFF << 16 | 0x1234, 3)


def test_both_forms_give_the_same_samples() -> None:
    words, tables = np.frombuffer(seeded(2)(2 * 4_000), dtype=np.uint16), _tables()
    for s in (77, 2**35 + 1):
        compiled, plain = np.zeros(1_000, dtype=np.int64), np.zeros(1_000, dtype=np.int64)
        assert _fill(s, tables, words, compiled, 0, 0) == _fill.function(s, tables, words, plain, 0, 0)
        np.testing.assert_array_equal(compiled, plain)
        assert _fill(s, tables, words[:3], compiled, 0, 0) == _fill.function(s, tables, words[:3], plain, 0, 0)
        assert _fill(s, tables, words[:3], compiled, 0, 0) == (0, 0, CUT)
    open_trial = hard_words(2, [0] * 10)
    assert _fill(8, tables, open_trial, compiled, 0, 0) == _fill.function(8, tables, open_trial, plain, 0, 0)
    assert _fill(8, tables, open_trial, compiled, 0, 0) == (0, 0, UNDECIDED)


def test_parameters_that_cannot_be_are_refused() -> None:
    for parameter in (0, -1, 2.5, MAX_PARAMETER + 1):
        with pytest.raises(InvalidInput, match="parameter"):
            discrete_gaussian(parameter, 3)  # type: ignore[arg-type]
    assert discrete_gaussian(5, 0).size == 0
