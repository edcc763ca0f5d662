"""Bounds of exponentials: on the right side, close, and closer with every bit."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest

from tacit.privacy.discrete_gaussian import UniformNumber, cumulative_bounds, exp_bounds, stratum_bounds


@pytest.mark.parametrize(
    ("numerator", "denominator"), [(0, 1), (1, 128), (1, 1), (7, 5), (10**30, 3 * 10**29), (90, 1)]
)
@pytest.mark.parametrize("bits", [0, 15, 64, 300])
def test_exponentials_lie_within_their_bounds(numerator: int, denominator: int, bits: int) -> None:
    lower, upper = exp_bounds(numerator, denominator, bits)
    with localcontext(prec=200):
        exact = (Decimal(-numerator) / denominator).exp() * 2**bits
    assert lower <= exact <= upper <= lower + 1


@pytest.mark.parametrize("bits", [0, 31, 63, 200])
def test_shares_of_strata_lie_within_their_bounds(bits: int) -> None:
    with localcontext(prec=200):
        terms = [(Decimal(-i * i) / 128).exp() for i in range(400)]
        for stratum, (lower, upper) in enumerate(stratum_bounds(64, bits)):
            exact = sum(terms[: stratum + 1], Decimal(0)) / sum(terms, Decimal(0)) * 2**bits
            assert lower <= exact <= upper <= lower + 1
    beyond = cumulative_bounds(64, 10_000, bits)
    assert beyond[0] <= 2**bits == beyond[1]


def test_comparisons_read_as_many_bits_as_they_need() -> None:
    third = {bits: ((1 << bits) // 3, (1 << bits) // 3 + 1) for bits in range(0, 200, 16)}
    words = iter([0x5555, 0x5555, 0x5554])
    number = UniformNumber(0, 0, lambda: next(words))
    assert number.is_below(third.__getitem__)
    assert number.count == 48
    assert number.is_below(lambda bits: ((1 << bits) // 2, (1 << bits) // 2))
    assert number.count == 48


def test_comparisons_have_the_probability_that_they_are_compared_with() -> None:
    rng = np.random.default_rng(3)

    def below() -> bool:
        number = UniformNumber(0, 0, lambda: int(rng.integers(1 << 16)))
        return number.is_below(lambda bits: exp_bounds(1, 2, bits))

    hits, chance = sum(below() for _ in range(4_000)), np.exp(-0.5)
    assert abs(hits - 4_000 * chance) < 4.0 * np.sqrt(4_000 * chance * (1.0 - chance))
