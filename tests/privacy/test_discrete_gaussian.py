"""The discrete Gaussian sampler: its mass function, OpenDP, and the words that it is a function of."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from tacit.errors import InvalidInput
from tacit.privacy.discrete_gaussian import _CUT, MAX_PARAMETER, _fill, _uniform, discrete_gaussian
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


def test_opendp_draws_from_the_same_distribution() -> None:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    for parameter in (3, 50):
        theirs = np.array(dp.m.make_gaussian(*space, scale=float(parameter))([0] * 60_000))
        ours = discrete_gaussian(parameter, 60_000, seeded(5))
        edges = np.arange(-4 * parameter, 4 * parameter + 1, max(1, parameter // 3))
        table = np.array([np.histogram(sample, edges)[0] for sample in (ours, theirs)])
        assert stats.chi2_contingency(table[:, table.sum(axis=0) > 20]).pvalue > 1e-4


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


def test_uniform_integers_are_equally_likely() -> None:
    """Every word is as likely as any other, and as many of them lead to each integer."""
    for below in (1, 2, 3, 6, 7, 100):
        counts = [0] * below
        for word in range(1 << 16):
            drawn, position = _uniform(below, np.array([word], dtype=np.uint16), 0)
            assert (drawn == _CUT) == (position == _CUT)
            if drawn != _CUT:
                counts[drawn] += 1
        assert counts == [(1 << 16) >> (below - 1).bit_length()] * below


@pytest.mark.parametrize("below", [(1 << 16) + 1, 3 << 30, (5 << 40) + 7, 1 << 62])
def test_large_uniform_integers(below: int) -> None:
    """Of as many words as they need, the first one in front; what is not below the bound is passed over."""
    words = np.frombuffer(seeded(9)(2 * 400_000), dtype=np.uint16)
    found, position = [], 0
    while True:
        drawn, position = _uniform(below, words, position)
        if position == _CUT:
            break
        found.append(drawn)
    assert stats.kstest(np.array(found) / below, "uniform").pvalue > 1e-4
    chunks = -(-(below - 1).bit_length() // 16)
    whole = int.from_bytes(words[:chunks].astype(">u2").tobytes(), "big") & ((1 << (below - 1).bit_length()) - 1)
    assert found[0] == whole or whole >= below


def test_both_forms_give_the_same_samples() -> None:
    words = np.frombuffer(seeded(2)(2 * 4_000), dtype=np.uint16)
    compiled, plain = np.zeros(100, dtype=np.int64), np.zeros(100, dtype=np.int64)
    assert _fill(77, words, compiled, 0) == _fill.function(77, words, plain, 0)
    np.testing.assert_array_equal(compiled, plain)
    assert _fill(77, words[:5], compiled, 0) == _fill.function(77, words[:5], plain, 0) == (0, 0)


def test_parameters_that_cannot_be_are_refused() -> None:
    for parameter in (0, -1, 2.5, MAX_PARAMETER + 1):
        with pytest.raises(InvalidInput, match="parameter"):
            discrete_gaussian(parameter, 3)  # type: ignore[arg-type]
    assert discrete_gaussian(5, 0).size == 0
