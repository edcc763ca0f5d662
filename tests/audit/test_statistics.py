"""Bounds are valid and strong enough: they stay below the truth as often as stated, and find too little noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from tacit.audit.mechanisms import MECHANISMS
from tacit.audit.statistics import (
    Samples,
    clopper_pearson_bound,
    gaussian_bound,
    noise_scale_bounds,
    upper_rate,
)
from tacit.privacy import epsilon_from, mu_from

DELTA = 1e-5


def ideal(mu: float, runs: int, seed: int) -> Samples:
    """Log-likelihood ratios of a Gaussian mechanism."""
    rng = np.random.default_rng(seed)
    return Samples(rng.normal(-0.5 * mu**2, mu, runs), rng.normal(0.5 * mu**2, mu, runs))


@pytest.mark.parametrize(("count", "total"), [(0, 10), (3, 50), (447, 1000)])
def test_upper_rate_is_the_exact_one(count: int, total: int) -> None:
    assert binom.cdf(count, total, upper_rate(count, total, 0.025)) == pytest.approx(0.025, rel=1e-6)
    assert upper_rate(total, total, 0.025) == 1.0


def test_bounds_cover_as_often_as_they_say() -> None:
    mu = mu_from(1.0, DELTA)
    gaussian = [gaussian_bound(ideal(mu, 400, seed), DELTA).epsilon for seed in range(400)]
    chosen = [gaussian_bound(ideal(mu, 400, seed), DELTA, threshold=None).epsilon for seed in range(20)]
    counted = [clopper_pearson_bound(ideal(mu, 400, seed), DELTA).epsilon for seed in range(20)]
    for bounds, allowed in ((gaussian, 24), (chosen, 3), (counted, 3)):
        assert sum(bound > 1.0 for bound in bounds) <= allowed


@pytest.mark.parametrize(("epsilon", "expected"), [(1.0, 0.6), (4.0, 3.2)])
def test_an_ideal_attack_finds_most_of_epsilon_and_twice_of_it_is_refuted(epsilon: float, expected: float) -> None:
    mu = mu_from(epsilon, DELTA)
    found = [gaussian_bound(ideal(mu, 5_000, seed), DELTA).epsilon for seed in range(20)]
    assert np.median(found) > expected
    assert sum(bound > epsilon for bound in found) <= 2  # one in forty is expected
    assert all(gaussian_bound(ideal(2.0 * mu, 5_000, seed), DELTA).epsilon > epsilon for seed in range(20))


def test_a_statistic_that_points_the_other_way_is_turned() -> None:
    samples = ideal(2.0, 500, 1)
    turned = Samples(-samples.first, -samples.second).oriented()
    assert gaussian_bound(turned, DELTA, threshold=None).epsilon > 1.0


def test_noise_scale_is_told_from_two_thirds_and_three_halves() -> None:
    draws = np.random.default_rng(0).standard_normal(3_000)
    for factor in (1.0, 2.0 / 3.0, 1.5):
        low, high = noise_scale_bounds(factor * draws)
        assert low <= factor <= high
        assert (low <= 1.0 <= high) == (factor == 1.0)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "shuffle-bits"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_mechanisms_hold_and_most_of_their_epsilon_is_found(name: str, epsilon: float) -> None:
    samples = MECHANISMS[name](epsilon, DELTA, 5_000, np.random.default_rng(1))
    found = gaussian_bound(samples, DELTA).epsilon
    assert 0.5 * epsilon < found <= epsilon
    assert clopper_pearson_bound(samples, DELTA).epsilon <= epsilon


def test_bits_and_sums_are_as_hard_to_tell_apart() -> None:
    """Distance of means over their error: the two paths have one distribution."""
    ratios = [MECHANISMS[name](4.0, DELTA, 400, np.random.default_rng(2)) for name in ("shuffle-sum", "shuffle-bits")]
    for side in ("first", "second"):
        a, b = (getattr(samples, side) for samples in ratios)
        assert abs(a.mean() - b.mean()) < 5.0 * math.sqrt((a.var() + b.var()) / a.size)
    assert epsilon_from(mu_from(4.0, DELTA), DELTA) == pytest.approx(4.0)
