"""The dominating Gaussian against exact hockey-stick and Renyi divergences of the binomial mechanism."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from tacit.privacy.gaussian import delta_from
from tacit.shuffle.guarantee import NO_GUARANTEE, binomial_dominance
from tacit.typing import FloatArray

TAIL = 1e-9
CASES = [(400, 0.5), (3_000, 0.5), (3_000, 0.2), (20_000, 0.03), (50_000, 0.4)]


def law(trials: int, p: float, x: float, reach: int) -> FloatArray:
    """Mass function of floor(x + U) + Bin(trials, p) on 0 .. trials + reach + 1."""
    mass = binom.pmf(np.arange(trials + 1), trials, p)
    out = np.zeros(trials + reach + 2)
    whole, part = math.floor(x), x - math.floor(x)
    out[whole : whole + trials + 1] += (1.0 - part) * mass
    out[whole + 1 : whole + trials + 2] += part * mass
    return out


def hockey_stick(p: FloatArray, q: FloatArray, epsilon: float) -> float:
    """Largest P(S) - e^epsilon Q(S)."""
    return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)))


@pytest.mark.parametrize(("trials", "p"), CASES)
def test_slope_is_close_to_that_of_a_gaussian_of_the_same_variance(trials: int, p: float) -> None:
    dominance = binomial_dominance(trials, p, 10, TAIL)
    sd = math.sqrt(trials * p * (1.0 - p))
    skew = (1.0 - 2.0 * p) / sd
    assert 1.0 <= dominance.slope * sd < 1.002 + 20.0 / trials + 3.0 * skew
    assert 0.0 < dominance.offset < 0.25 * dominance.slope


@pytest.mark.parametrize(("trials", "p"), CASES)
def test_no_shift_is_told_apart_better_than_claimed(trials: int, p: float) -> None:
    rng = np.random.default_rng(1)
    reach = 12
    dominance = binomial_dominance(trials, p, reach, TAIL)
    pairs = [(0.0, 1.0), (0.0, 12.0), (0.5, 0.75), (0.0, 0.5), (3.0, 3.01), (0.5, 11.5), (5.99, 6.01)]
    pairs += [tuple(sorted(rng.uniform(0.0, reach, 2))) for _ in range(20)]
    for x, y in pairs:
        first, second = law(trials, p, x, reach), law(trials, p, y, reach)
        mu = dominance.mu(y - x, 1)
        for epsilon in np.linspace(0.0, 6.0, 13) * mu:
            claim = delta_from(mu, float(epsilon)) + TAIL
            assert hockey_stick(first, second, float(epsilon)) <= claim
            assert hockey_stick(second, first, float(epsilon)) <= claim


def test_a_slope_four_percent_smaller_would_be_refuted() -> None:
    trials, p, shift = 3_000, 0.5, 12
    dominance = binomial_dominance(trials, p, shift, TAIL)
    first, second = law(trials, p, 0.0, shift), law(trials, p, float(shift), shift)
    mu = 0.96 * dominance.slope * shift
    excess = [
        hockey_stick(first, second, float(e)) - delta_from(mu, float(e)) - TAIL for e in np.linspace(0.0, 6.0, 30) * mu
    ]
    assert max(excess) > 0.0


@pytest.mark.parametrize(("trials", "p"), CASES)
def test_renyi_divergences_stay_below_the_curve(trials: int, p: float) -> None:
    reach = 12
    dominance = binomial_dominance(trials, p, reach, TAIL)
    low, high = (int(binom.ppf(level, trials, p)) for level in (0.4 * TAIL, 1.0 - 0.4 * TAIL))
    for shift in (1, 5, 12):
        y = np.arange(low + shift, high)
        log_p, log_q = binom.logpmf(y, trials, p), binom.logpmf(y - shift, trials, p)
        for order in (1.1, 2.0, 8.0, 32.0):
            for a, b in ((log_p, log_q), (log_q, log_p)):
                moment = np.logaddexp.reduce(order * a + (1.0 - order) * b)
                assert moment / (order - 1.0) <= 0.5 * order * dominance.mu(shift, 1) ** 2


def test_too_little_noise_gives_no_guarantee() -> None:
    assert binomial_dominance(20, 0.5, 12, TAIL) == NO_GUARANTEE
    assert math.isinf(binomial_dominance(20, 0.5, 12, TAIL).mu(1.0, 1))


def test_precise_where_log_gamma_is_not() -> None:
    dominance = binomial_dominance(40_000_000, 0.5, 100, 1e-12)
    assert dominance.slope * math.sqrt(1e7) == pytest.approx(1.0, abs=2e-6)
