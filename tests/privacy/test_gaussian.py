"""Conversions of Gaussian and Renyi DP, against the definition, mpmath and an outside accountant."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidInput
from tacit.privacy import (
    Budget,
    GaussianRelease,
    Ledger,
    delta_from,
    epsilon_from,
    epsilon_from_renyi,
    mu_from,
    renyi_budget,
)
from tacit.typing import FloatArray

PUBLISHED = [
    (1.0, 0.02, 0.60650),
    (2.0, 0.02, 0.99277),
    (4.0, 0.02, 1.61882),
    (6.0, 0.02, 2.14154),
    (8.0, 0.02, 2.60182),
    (1.0, 1e-5, 0.26805),
    (1.0, 1e-6, 0.23670),
]
EXTREMES = [(e, d) for e in (0.01, 0.1, 1.0, 10.0, 50.0) for d in (1e-12, 1e-9, 1e-6, 1e-3, 0.02, 0.5)]


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """The definition, with 80 digits."""
    with mpmath.workdps(80):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def exact_mu(epsilon: float, delta: float) -> float:
    """Root of the definition by bisection with 80 digits, independent of the code under test."""
    with mpmath.workdps(80):
        low, high = mpmath.mpf("1e-8"), mpmath.mpf(100)
        for _ in range(70):
            middle = mpmath.sqrt(low * high)
            m, e = middle, mpmath.mpf(epsilon)
            value = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
            low, high = (middle, high) if value < delta else (low, middle)
        return float(low)


@pytest.mark.parametrize(("epsilon", "delta", "mu"), PUBLISHED)
def test_published_values(epsilon: float, delta: float, mu: float) -> None:
    assert mu_from(epsilon, delta) == pytest.approx(mu, abs=5.1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), EXTREMES)
def test_mu_at_extremes(epsilon: float, delta: float) -> None:
    assert mu_from(epsilon, delta) == pytest.approx(exact_mu(epsilon, delta), rel=1e-11)


@pytest.mark.parametrize(("epsilon", "delta"), EXTREMES)
def test_epsilon_inverts_mu(epsilon: float, delta: float) -> None:
    assert epsilon_from(mu_from(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-10)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.05, 0.999, 1.0, 1.001, 3.0, 12.0, 60.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 1.0, 5.0, 30.0, 200.0])
def test_delta_against_the_definition(mu: float, epsilon: float) -> None:
    exact = exact_delta(mu, epsilon)
    if exact < 1e-280:
        assert delta_from(mu, epsilon) < 1e-270
    else:
        assert delta_from(mu, epsilon) == pytest.approx(float(exact), rel=1e-10)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(0.01, 50.0), st.floats(-12.0, -0.31))
def test_round_trips(epsilon: float, log10_delta: float) -> None:
    delta = 10.0**log10_delta
    mu = mu_from(epsilon, delta)
    assert delta_from(mu, epsilon) == pytest.approx(delta, rel=1e-10)
    assert epsilon_from(mu, delta) == pytest.approx(epsilon, rel=1e-9)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(1e-4, 50.0), st.floats(0.0, 60.0), st.floats(1.001, 3.0))
def test_monotone(mu: float, epsilon: float, factor: float) -> None:
    assert delta_from(mu * factor, epsilon) >= delta_from(mu, epsilon)
    assert delta_from(mu, epsilon * factor) <= delta_from(mu, epsilon)


def test_limits() -> None:
    assert mu_from(math.inf, 1e-5) == math.inf
    assert epsilon_from(math.inf, 1e-5) == math.inf
    assert epsilon_from(0.0, 1e-5) == 0.0
    assert epsilon_from(1e-6, 0.02) == 0.0  # already (0, 0.02)-DP
    assert delta_from(math.inf, 3.0) == 1.0
    assert delta_from(0.0, 0.0) == delta_from(2.0, math.inf) == 0.0
    assert delta_from(mu_from(0.0, 0.1), 0.0) == pytest.approx(0.1, rel=1e-12)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan, 2.0])
def test_bad_delta_is_refused(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta must lie strictly between 0 and 1"):
        mu_from(1.0, delta)
    with pytest.raises(InvalidInput, match="delta"):
        epsilon_from(1.0, delta)


@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_bad_epsilon_and_mu_are_refused(value: float) -> None:
    with pytest.raises(InvalidInput, match=r"epsilon must be nonnegative .* got"):
        mu_from(value, 1e-5)
    with pytest.raises(InvalidInput, match="mu"):
        epsilon_from(value, 1e-5)


def test_agrees_with_privacy_loss_distributions() -> None:
    """200 random compositions of one to three Gaussians against dp-accounting."""
    rng = np.random.default_rng(20)
    for _ in range(200):
        ratios = rng.uniform(0.05, 0.6, size=rng.integers(1, 4))
        delta = 10.0 ** rng.uniform(-8.0, -1.7)
        ledger = Ledger(Budget(math.inf, delta))
        losses = []
        for ratio in ratios:
            ledger.charge(GaussianRelease("sum", 1.0, 1.0 / ratio))
            losses.append(pld.from_gaussian_mechanism(1.0 / ratio, value_discretization_interval=1e-3))
        oracle = losses[0]
        for loss in losses[1:]:
            oracle = oracle.compose(loss)
        expected = oracle.get_epsilon_for_delta(delta)
        assert ledger.epsilon_spent == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_agrees_with_privacy_loss_distributions_at_many_compositions() -> None:
    oracle = pld.from_gaussian_mechanism(25.0, value_discretization_interval=1e-4).self_compose(64)
    ledger = Ledger(Budget(math.inf, 1e-6))
    ledger.charge(GaussianRelease("sum", 1.0, 25.0, count=64))
    assert ledger.epsilon_spent == pytest.approx(oracle.get_epsilon_for_delta(1e-6), rel=1e-4)


def test_renyi_conversion_is_close_above_the_exact_value() -> None:
    orders = 1.0 + np.geomspace(0.05, 500.0, 4000)
    for mu, delta in [(0.2367, 1e-6), (1.0, 1e-5), (2.0, 0.02)]:
        converted = epsilon_from_renyi(orders, 0.5 * mu**2 * orders, delta)
        assert epsilon_from(mu, delta) < converted < 1.3 * epsilon_from(mu, delta)


def delta_from_renyi(orders: FloatArray, divergences: FloatArray, epsilon: float) -> float:
    """Proposition 12 of arXiv 2004.00010 solved for delta: the oracle of the conversion to epsilon."""
    log_delta = (orders - 1.0) * (divergences - epsilon + np.log1p(-1.0 / orders)) - np.log(orders)
    return math.exp(min(0.0, float(np.min(log_delta))))


def test_renyi_conversions_invert_each_other() -> None:
    orders = np.linspace(1.5, 60.0, 300)
    curve = 0.02 * orders
    epsilon = epsilon_from_renyi(orders, curve, 1e-6)
    assert delta_from_renyi(orders, curve, epsilon) == pytest.approx(1e-6, rel=1e-9)
    at_budget = renyi_budget([30.0], epsilon, 1e-6)
    assert epsilon_from_renyi([30.0], at_budget, 1e-6) == pytest.approx(epsilon, rel=1e-12)


def test_renyi_conversion_anchors() -> None:
    """One Gaussian at (1, 1e-6): noise 4.531 by Renyi DP, where 4.2247 is exact."""
    orders = 1.0 + np.geomspace(0.05, 500.0, 4000)
    assert epsilon_from_renyi(orders, 0.5 * orders / 4.531**2, 1e-6) == pytest.approx(1.0, abs=2e-4)
    assert 1.0 / mu_from(1.0, 1e-6) == pytest.approx(4.2247, abs=5e-5)


@pytest.mark.parametrize(("orders", "curve"), [([1.0], [0.1]), ([2.0, 3.0], [0.1]), ([2.0], [-0.1]), ([], [])])
def test_bad_curves_are_refused(orders: list[float], curve: list[float]) -> None:
    with pytest.raises(InvalidInput):
        epsilon_from_renyi(orders, curve, 1e-6)
