"""The links of the package against references of their own, and what names refuse.

What every link must satisfy is in ``tacit.testing``.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from tacit.errors import InvalidInput
from tacit.glm.links import LINKS, Link, get_link


@pytest.fixture(params=list(LINKS))
def link(request: pytest.FixtureRequest) -> Link:
    return get_link(str(request.param))


def test_saturates_beyond_score_700(link: Link) -> None:
    far = np.array([-1e6, 1e6])
    assert np.all(np.isfinite(link.mean(far)))
    assert np.all(np.isfinite(link.derivative(far)))


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
def test_kappas_and_means_at_the_ends(link: Link, bound: float) -> None:
    grid = np.linspace(-bound, bound, 20_001)
    slopes, means = link.derivative(grid), link.mean(grid)
    assert link.kappa(bound) == pytest.approx(1.0 / slopes.min(), rel=1e-12)
    assert link.kappa_star(bound) == pytest.approx(1.0 / slopes.max(), rel=1e-12)
    assert link.mean_range(bound) == pytest.approx((means.min(), means.max()), rel=1e-12)


def test_curvature_bounds_are_the_published_maxima() -> None:
    # |mu''| of logistic is mu (1 - mu) |1 - 2 mu|, largest at log(2 + sqrt(3)); of probit |z| phi(z), largest at 1.
    middle = special.expit(math.log(2.0 + math.sqrt(3.0)))
    assert LINKS["logistic"].curvature_bound(3.0) == pytest.approx(middle * (1.0 - middle) * (2.0 * middle - 1.0))
    assert LINKS["probit"].curvature_bound(3.0) == pytest.approx(stats.norm.pdf(1.0))
    assert LINKS["identity"].curvature_bound(3.0) == 0.0
    assert LINKS["log"].curvature_bound(3.0) == pytest.approx(math.exp(3.0))


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
    with pytest.raises(ValueError, match="theta_bound must lie in"):
        link.curvature_bound(bound)


def test_rewards_are_quantiles_of_their_distribution() -> None:
    uniforms = np.random.default_rng(3).random(2_000)
    rates = np.exp(np.linspace(-3.0, 3.0, 7))[:, None]
    counts = LINKS["log"].draw_rewards(LINKS["log"].mean(np.log(rates)), 1e6, uniforms)
    np.testing.assert_array_equal(counts, stats.poisson.ppf(uniforms, rates))
    assert LINKS["log"].draw_rewards(LINKS["log"].mean(2.0), 4.0, 0.999) == 4.0  # clipped
    clicks = LINKS["probit"].draw_rewards(LINKS["probit"].mean([0.3, 0.3]), 2.0, [0.3, 0.31])
    assert list(clicks) == [2.0, 0.0]  # mu / R = 0.309


@pytest.mark.parametrize("z", [6.6, 30.0, 700.0])
def test_counts_too_large_to_sample_are_refused(z: float) -> None:
    with pytest.raises(ValueError, match="above 700"):
        LINKS["log"].draw_rewards(LINKS["log"].mean(z), 1e9, 0.5)
    with pytest.raises(InvalidInput, match=r"theta_norm must be at most 6\.55"):
        LINKS["log"].simulated_reward_bound(z)


def test_variance_bounds() -> None:
    assert LINKS["logistic"].variance_bound([0.0], 2.0) == pytest.approx(0.5 * 1.5)
    assert LINKS["identity"].variance_bound([-1.0, 0.5, 3.0], 2.0) == pytest.approx([0.0, 0.75, 0.0])
    assert LINKS["log"].variance_bound([0.0, 3.0], 4.0) == pytest.approx([1.0, 4.0])


def test_links_are_read_only(link: Link) -> None:
    for attribute in ("clips_rewards", "inflections", "anything"):
        with pytest.raises(AttributeError):
            setattr(link, attribute, True)


def test_unknown_name_lists_what_is_possible(link: Link) -> None:
    assert get_link(link.name) is link
    assert get_link(link) is link
    with pytest.raises(ValueError, match=r"logistic, probit, identity, log, got 'logit'"):
        get_link("logit")


def test_means_and_uniform_numbers_are_broadcast(link: Link) -> None:
    means, uniforms = link.mean(np.array([-0.5, 0.0, 0.7])), np.linspace(0.1, 0.9, 5)
    rewards = link.draw_rewards(means[:, np.newaxis], 1.0, uniforms)
    assert rewards.tolist() == [[float(link.draw_rewards(mean, 1.0, u)) for u in uniforms] for mean in means]
