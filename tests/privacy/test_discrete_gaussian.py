"""The discrete Gaussian sampler: its mass function, OpenDP, and every trial against one that has no tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from tacit.errors import InvalidInput
from tacit.privacy.discrete_gaussian import (
    _PIECES,
    _STRATA,
    MAX_PARAMETER,
    UniformNumber,
    Words,
    _kept,
    _offsets,
    _samples,
    _strata,
    _tables,
    cumulative_bounds,
    discrete_gaussian,
    exp_bounds,
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


class Bits:
    """Random bytes that are known, and how many of them were read."""

    def __init__(self, *words: int) -> None:
        self._left = b"".join(word.to_bytes(2, "little") for word in words)
        self.read = 0

    def __call__(self, count: int) -> bytes:
        assert len(self._left) >= self.read + count
        self.read += count
        return self._left[self.read - count : self.read]


def halves(count: int) -> bytes:
    return b"\x00\x80" * (count // 2)


def words_of(*, sign: int = 0, offset: int = 0, stratum: int = 0, kept: int = 0) -> Words:
    """The words of one trial: 63 bits for j, 31 for the stratum, 32 for whether it is kept."""
    return np.array([[offset << 1 | sign, stratum << 33 | kept]], dtype=np.uint64)


def plain_trial(s: int, first: int, second: int) -> list[int]:
    """A trial with exact bounds in place of tables; further bits of its numbers are 1, 0, 0, ..."""
    count, uniform = -(-s // 8), first >> 1
    if uniform >= 2**63 - 2**63 % count:
        return []
    stratum, number = 0, UniformNumber(second >> 33, 31, lambda: 0x8000)
    while not number.is_below(partial(cumulative_bounds, 64, stratum)):
        stratum += 1
    d = 8 * (uniform % count) + -stratum * s % 8
    if d >= s or (stratum == d == 0 and first % 2 == 1):
        return []
    chance = UniformNumber(second % 2**32, 32, lambda: 0x8000)
    if not chance.is_below(lambda bits: exp_bounds(d * (2 * stratum * s + d), 128 * s * s, bits)):
        return []
    return [(-1) ** (first % 2) * ((stratum * s + d) // 8)]


@pytest.mark.parametrize("s", [1, 2, 5, 8, 77, 1_000, 2**35 + 1, MAX_PARAMETER - 1, MAX_PARAMETER])
def test_every_trial_is_the_one_without_tables(s: int) -> None:
    words = np.frombuffer(seeded(s)(16 * 1_500), dtype=np.uint64).reshape(-1, 2)
    extremes = np.array([0, 1, 2**32 - 1, 2**33, 2**63, 2**64 - 2**33, 2**64 - 2, 2**64 - 1], dtype=np.uint64)
    grid = np.stack(np.meshgrid(extremes, extremes), axis=-1).reshape(-1, 2)
    for each in (words, grid):
        expected = [value for first, second in each.tolist() for value in plain_trial(s, first, second)]
        assert _samples(s, each, halves).tolist() == expected


def test_samples_are_those_of_trials_in_order_however_many_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = discrete_gaussian(1_000, 5_000, seeded(11))
    monkeypatch.setattr("tacit.privacy.discrete_gaussian._MOST_TRIALS", 7)
    trials = np.frombuffer(seeded(11)(16 * 7_000), dtype=np.uint64).reshape(-1, 2)
    assert _samples(1_000, trials, halves)[:3_000].tolist() == whole[:3_000].tolist()
    assert surprise(discrete_gaussian(3, 20_000, seeded(12)), mass(3, 36)) > 1e-4


@pytest.mark.parametrize("stratum", [0, 1, 7, 20, 49])
def test_a_stratum_that_the_tables_leave_open_is_told_by_further_bits(stratum: int) -> None:
    tables, cut = _tables(), math.floor(cumulative(stratum) * 2**47) & 0xFFFF
    threshold = np.array([tables.thresholds[stratum]])
    for word, wanted in ((0, stratum), (cut - 1, stratum), (cut + 1, stratum + 1), (0xFFFF, stratum + 1)):
        bits = Bits(word)
        assert _strata(tables, threshold, bits).tolist() == [wanted]
        assert bits.read == 2
        words = words_of(stratum=int(threshold[0]))
        assert _samples(8, words, Bits(word)).tolist() == [wanted]  # s / 8 = 1: the stratum is the sample
    bits = Bits(cut, 0)
    assert _strata(tables, threshold, bits).tolist() == [stratum]
    assert bits.read == 4
    if stratum < 49:  # whose threshold the next one follows at once
        assert _strata(tables, threshold - 1, Bits()).tolist() == [stratum]
        assert _strata(tables, threshold + 1, Bits()).tolist() == [stratum + 1]


def test_strata_without_a_table_are_reached_too() -> None:
    """All bits are 1 for long: a stratum far out, whose samples nobody will ever see."""
    bits = Bits(*[0xFFFF] * 7, *[0] * 30)
    [value] = _samples(8, words_of(stratum=2**31 - 1), bits)
    assert 105 < value < 115  # exp(-value^2 / 128) is about 2^-143
    assert 14 < bits.read < 30


@pytest.mark.parametrize(
    ("s", "stratum", "d"),
    [
        (80, 3, 72),
        (8 * 10**9 + 8, 20, 5 * 10**9),
        (MAX_PARAMETER, 31, 2**45),
        (MAX_PARAMETER - 1, 32, 2**44),
        (1_000, 60, 999),
    ],
)
def test_a_sample_that_the_tables_leave_open_is_kept_by_its_bits_and_further_ones(s: int, stratum: int, d: int) -> None:
    exponent = Decimal(-d * (2 * stratum * s + d)) / (128 * s * s)
    chance = int(exponent.exp() * 2**64)
    front, last = chance >> 32, chance >> 16 & 0xFFFF

    def keeps(uniform: int, *further: int) -> tuple[bool, int]:
        bits = Bits(*further)
        [kept] = _kept(s, np.array([stratum]), np.array([d]), np.array([uniform]), bits)
        return bool(kept), bits.read

    assert keeps(0) == keeps(front - 1) == (True, 0)
    assert keeps(front + 1) == keeps(2**32 - 1) == (False, 0)
    for word, wanted in ((0, True), (last - 1, True), (last + 1, False), (0xFFFF, False)):
        assert keeps(front, word) == (wanted, 2)


def cumulative(stratum: int) -> Decimal:
    """The probability of a stratum up to this one."""
    terms = [(Decimal(-i * i) / 128).exp() for i in range(200)]
    return sum(terms[: stratum + 1], Decimal(0)) / sum(terms, Decimal(0))


def test_tables_are_what_they_are_said_to_be() -> None:
    tables = _tables()
    expected = [math.floor(cumulative(i) * 2**31) for i in range(tables.thresholds.size)]
    assert tables.thresholds.tolist() == expected
    assert expected[-1] == 2**31 - 1 > expected[-2]
    for i in range(_STRATA):
        for p in range(_PIECES):
            ends = [(Decimal(-x * (2 * i * _PIECES + x)) / (128 * _PIECES**2)).exp() * 2**32 for x in (p + 1, p)]
            assert tables.least[_PIECES * i + p] == math.floor(ends[0])
            assert tables.most[_PIECES * i + p] == math.ceil(ends[1])
    assert set(tables.least[_STRATA * _PIECES :]) == {0}
    assert set(tables.most[_STRATA * _PIECES :]) == {2**32}
    assert tables.least.size == tables.most.size == (_STRATA + 1) * _PIECES


def test_offsets_are_equally_likely() -> None:
    """As many of the numbers below 2^63 lead to each offset: whole periods, and what is left over leads to none."""
    for s in (1, 8, 9, 17, 800, 801, 2**40 + 9, MAX_PARAMETER):
        offsets = -(-s // 8)
        whole = 2**63 // offsets * offsets
        numbers = [0, 1, offsets - 1, offsets, offsets + 1, whole // 2, whole - 1, whole, 2**63 - 1]
        numbers = [number for number in numbers if number < 2**63]
        j, drawn = _offsets(s, np.array(numbers))
        assert j.tolist() == [number % offsets for number in numbers]
        assert drawn.tolist() == [number < whole for number in numbers]


def test_a_sample_takes_no_more_entropy_than_two_words_and_few_trials_more() -> None:
    used, tape = 0, seeded(6)

    def read(count: int) -> bytes:
        nonlocal used
        used += count
        return tape(count)

    for s in (1_000, 2**40 + 1):
        used = 0
        discrete_gaussian(s, 10_000, read)
        assert 16 * 10_000 < used < 18.5 * 10_000


def test_parameters_that_cannot_be_are_refused() -> None:
    for parameter in (0, -1, 2.5, MAX_PARAMETER + 1):
        with pytest.raises(InvalidInput, match="parameter"):
            discrete_gaussian(parameter, 3)  # type: ignore[arg-type]
    assert discrete_gaussian(5, 0).size == 0
