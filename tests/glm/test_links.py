"""Every link satisfies the same contract; bounds are compared with a dense grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from tacit.glm import links
from tacit.glm.links import LINKS, Link, get_link

SCORES = np.array([-700.0, -300.0, -40.0, -37.5, -5.0, -1e-9, 0.0, 1e-9, 0.3, 5.0, 40.0, 300.0, 700.0])


@pytest.fixture(params=list(LINKS))
def link(request: pytest.FixtureRequest) -> Link:
    return get_link(str(request.param))


def test_finite_up_to_score_700(link: Link) -> None:
    for function in (link.mean, link.derivative, link.antiderivative):
        assert np.all(np.isfinite(function(SCORES)))
    assert np.all(link.derivative(SCORES) >= 0.0)
    assert np.all(np.diff(link.mean(SCORES)) >= 0.0)


def test_saturates_beyond_score_700(link: Link) -> None:
    far = np.array([-1e6, 1e6])
    assert np.all(np.isfinite(link.mean(far)))
    assert np.all(np.isfinite(link.derivative(far)))


def test_derivative_matches_finite_differences(link: Link) -> None:
    z, h = np.linspace(-6.0, 6.0, 41), 1e-5
    slope = (link.mean(z + h) - link.mean(z - h)) / (2.0 * h)
    np.testing.assert_allclose(link.derivative(z), slope, rtol=1e-7, atol=1e-9)


def test_antiderivative_matches_quadrature(link: Link) -> None:
    for z in (-30.0, -8.0, -1.0, 0.5, 4.0, 20.0):
        expected, _ = integrate.quad(lambda s: float(link.mean(s)), 0.0, z, epsabs=1e-13, epsrel=1e-12)
        difference = link.antiderivative(z) - link.antiderivative(0.0)
        np.testing.assert_allclose(difference, expected, rtol=1e-9, atol=1e-12)


def test_agrees_with_scipy() -> None:
    z = np.linspace(-37.0, 37.0, 301)
    np.testing.assert_allclose(LINKS["logistic"].mean(z), special.expit(z), rtol=1e-14)
    np.testing.assert_allclose(LINKS["logistic"].antiderivative(z), np.logaddexp(0.0, z), rtol=1e-14)
    np.testing.assert_allclose(LINKS["probit"].mean(z), special.ndtr(z), rtol=1e-12)
    np.testing.assert_allclose(LINKS["probit"].derivative(z), stats.norm.pdf(z), rtol=1e-12)


def test_probit_antiderivative_keeps_its_left_tail() -> None:
    # Asymptotically phi(z) / z^2 (1 - 3 / z^2 + ...), Abramowitz and Stegun 26.2.12.
    z = np.array([-20.0, -30.0])
    leading = stats.norm.pdf(z) / z**2 * (1.0 - 3.0 / z**2 + 15.0 / z**4)
    np.testing.assert_allclose(LINKS["probit"].antiderivative(z), leading, rtol=1e-5)


@pytest.mark.parametrize("bound", [0.0, 0.5, 2.0, 3.5, 6.0])
def test_bounds_are_exact(link: Link, bound: float) -> None:
    grid = np.linspace(-bound, bound, 20_001)
    slopes, means = link.derivative(grid), link.mean(grid)
    low, high = link.derivative_bounds(bound)
    assert low == pytest.approx(slopes.min(), rel=1e-12)
    assert high == pytest.approx(slopes.max(), rel=1e-12)
    assert link.kappa(bound) == pytest.approx(1.0 / low)
    assert link.kappa_star(bound) == pytest.approx(1.0 / high)
    assert link.mean_range(bound) == pytest.approx((means.min(), means.max()), rel=1e-12)


@pytest.mark.parametrize("reward_bound", [0.5, 1.0, 10.0])
@pytest.mark.parametrize("bound", [0.5, 2.0, 3.5])
def test_response_bounds_hold_and_are_attained(link: Link, bound: float, reward_bound: float) -> None:
    z = np.linspace(-bound, bound, 20_001)
    shift = link.derivative(z) * z - link.mean(z)
    worst = max(np.abs(shift).max(), np.abs(reward_bound + shift).max())
    assert link.pseudo_response_bound(bound, reward_bound) == pytest.approx(worst, rel=1e-9)
    residual = max(np.abs(link.mean(z)).max(), np.abs(reward_bound - link.mean(z)).max())
    claimed = link.residual_bound(bound, reward_bound)
    assert claimed >= residual * (1.0 - 1e-12)
    expected = reward_bound if link.supports(bound, reward_bound) else residual
    assert claimed == pytest.approx(expected)


def test_published_kappas() -> None:
    # The paper's first table has 18.4, 56.4 and 222, over the scores that occurred: slightly inside [-S, S].
    kappas = [LINKS["probit"].kappa(s) for s in (2.0, 2.5, 3.0)]
    assert kappas == pytest.approx([18.52, 57.05, 225.6], rel=1e-3)


def test_kappa_is_infinite_where_the_derivative_underflows() -> None:
    assert LINKS["probit"].kappa(100.0) == math.inf


@pytest.mark.parametrize("bound", [-1.0, math.nan, 701.0, math.inf])
def test_refuses_bad_theta_bound(link: Link, bound: float) -> None:
    with pytest.raises(ValueError, match="theta_bound must lie in"):
        link.kappa(bound)


def test_rewards_are_admitted_clipped_or_refused() -> None:
    assert LINKS["log"].admit_rewards([3.0, 40.0], 10.0).tolist() == [3.0, 10.0]
    assert LINKS["logistic"].admit_rewards([0.0, 1.0], 1.0).tolist() == [0.0, 1.0]
    for bad in (1.1, -0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="reward must lie in"):
            LINKS["logistic"].admit_rewards([0.5, bad], 1.0)


def test_unknown_name_lists_what_is_possible(link: Link) -> None:
    assert get_link(link.name) is link
    assert get_link(link) is link
    with pytest.raises(ValueError, match=r"logistic, probit, identity, log, got 'logit'"):
        get_link("logit")


def test_scalar_kernels_agree_with_the_arrays(link: Link) -> None:
    for z in (-3.0, 0.0, 2.5):
        assert links.mean(link.code, z) == link.mean(z)
        assert links.derivative(link.code, z) == link.derivative(z)
        assert links.antiderivative(link.code, z) == link.antiderivative(z)
