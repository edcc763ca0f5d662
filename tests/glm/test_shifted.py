"""A link at a base rate: what every link must satisfy, and what holds for symmetric links and not for this one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from scipy import special, stats
from tests.contracts.links import link_called
from tests.contracts.test_links import Cloglog

from tacit.errors import InvalidInput
from tacit.estimation.linearised import blended_weights
from tacit.glm import links
from tacit.glm.likelihood import fit
from tacit.glm.links import LINKS, ClickLink, get_link, register_link
from tacit.glm.shifted import ShiftedLink, with_base_rate
from tacit.testing import check_link
from tacit.typing import FloatArray

SHIFTED = ["logistic at 0.01", "logistic at 0.9", "probit at 0.08", "identity at 0.4", "log at 0.05", "log at 1.5"]


class ShiftedCauchit(ClickLink):
    """A link from outside, without closed forms for a shift."""

    name = "cauchit for shifts"
    inflections = (0.0,)

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(0.5 + np.arctan(scores) / math.pi)

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(1.0 / (math.pi * (1.0 + np.square(scores))))

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        z = np.asarray(scores)
        return np.asarray(0.5 * z + (z * np.arctan(z) - 0.5 * np.log1p(z * z)) / math.pi)

    def curvature_bound(self, theta_bound: float) -> float:
        return 3.0 * math.sqrt(3.0) / (8.0 * math.pi)  # 2 z / (1 + z^2)^2 at z = 1 / sqrt(3)


@pytest.fixture
def cauchit() -> Iterator[ClickLink]:
    link = ShiftedCauchit()
    register_link(link)
    yield link
    links._links.pop(link.name)


@pytest.mark.parametrize("text", SHIFTED)
def test_it_keeps_the_contract(text: str) -> None:
    check_link(link_called(text))


def test_a_link_from_outside_keeps_it_too(cauchit: ClickLink) -> None:
    shifted = with_base_rate(get_link(cauchit.name), 0.2)
    assert isinstance(shifted, ShiftedLink)
    assert shifted.offset == pytest.approx(math.tan(math.pi * (0.2 - 0.5)), rel=1e-12)
    check_link(shifted)
    assert shifted.mean_at(0.7) == shifted.mean(0.7) == cauchit.mean(0.7 + shifted.offset)
    check_link(with_base_rate(Cloglog(), 0.1))


@pytest.mark.parametrize("rate", [1e-9, 0.01, 0.3, 0.5, 0.9, 0.9999])
def test_score_0_means_the_base_rate(rate: float) -> None:
    scores = {"logistic": special.logit(rate), "probit": stats.norm.ppf(rate), "identity": rate, "log": math.log(rate)}
    for name, score in scores.items():
        link = with_base_rate(LINKS[name], rate)
        assert float(link.mean(0.0)) == pytest.approx(rate, rel=1e-12)
        offset = link.offset if isinstance(link, ShiftedLink) else 0.0
        assert offset == pytest.approx(score, rel=1e-12, abs=1e-15)


def test_without_a_shift_it_is_the_link_itself() -> None:
    for name, own in (("logistic", 0.5), ("probit", 0.5), ("log", 1.0)):
        assert with_base_rate(LINKS[name], own) is with_base_rate(LINKS[name], None) is LINKS[name]


def test_equal_shifts_are_equal() -> None:
    """Sensitivities are remembered by their link."""
    one, other = link_called("logistic at 0.08"), link_called("logistic at 0.08")
    assert one is not other
    assert (one, hash(one)) == (other, hash(other))
    assert one not in (link_called("logistic at 0.09"), link_called("probit at 0.08"), LINKS["logistic"])
    with pytest.raises(AttributeError):
        one.offset = 1.0  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match="link must be one of"):
        get_link(one.name)  # a name would lose the shift


@pytest.mark.parametrize(
    ("name", "rate", "bound", "between"),
    [
        ("logistic", 0.0, 1.0, "0 and 1"),
        ("logistic", 1.0, 1.0, "0 and 1"),
        ("probit", -0.2, 1.0, "0 and 1"),
        ("probit", 0.6, 0.5, "0 and 0.5"),
        ("identity", 2.0, 1.5, "0 and 1.5"),
        ("log", 10.0, 10.0, "0 and 10"),
        ("logistic", math.nan, 1.0, "0 and 1"),
    ],
)
def test_a_base_rate_is_the_mean_of_some_reward(name: str, rate: float, bound: float, between: str) -> None:
    with pytest.raises(InvalidInput, match=f"base_rate must lie strictly between {between} with the link {name}"):
        with_base_rate(LINKS[name], rate, bound)


def test_a_base_rate_at_which_secants_would_be_rounding_is_refused() -> None:
    for name in ("logistic", "probit"):
        with pytest.raises(InvalidInput, match="too close to the largest mean"):
            with_base_rate(LINKS[name], 1.0 - 1e-9)
        link = with_base_rate(LINKS[name], 1.0 - 2e-6)
        _, steps = blended_weights(link, 1.0, np.geomspace(1e-5, 1e-3, 50))
        np.testing.assert_allclose(steps, float(link.derivative(0.0)), rtol=0.02)


def test_the_range_of_scores_is_what_the_offset_leaves() -> None:
    link = link_called("logistic at 1e-200")
    with pytest.raises(InvalidInput, match=r"theta_bound must lie in \[0, 239\.4"):
        link.derivative_bounds(300.0)
    with pytest.raises(InvalidInput, match="theta_bound must lie in"):
        link.curvature_bound(300.0)


def test_bounds_are_not_those_of_a_symmetric_link() -> None:
    """Each of these holds for logistic and probit, and would make noise too small or bonuses too short here."""
    rare, frequent = link_called("logistic at 0.01"), link_called("logistic at 0.9")
    assert float(rare.mean(-1.0)) != 1.0 - float(rare.mean(1.0))
    assert rare.derivative_bounds(2.0)[1] > 5.0 * float(rare.derivative(0.0))  # the largest weight is not at 0
    assert rare.kappa(2.0) > 50.0 > 10.0 * LINKS["logistic"].kappa(2.0) / 2.0  # nor the smallest at both ends
    assert float(rare.derivative(-2.0)) < 0.02 < float(rare.derivative(2.0))
    assert rare.inflections == (-rare.offset,)  # type: ignore[attr-defined]
    assert rare.pseudo_response_bound(6.0, 1.0) == pytest.approx(
        max(abs(r - rare.mean(z) + rare.derivative(z) * z) for r in (0.0, 1.0) for z in np.linspace(-6.0, 6.0, 4001)),
        rel=1e-5,
    )
    log = link_called("log at 5")
    assert log.curvature_bound(1.0) == pytest.approx(5.0 * math.e)  # over [o - S, o + S], not over [-S, S]
    assert link_called("log at 0.2").curvature_bound(1.0) == pytest.approx(0.2 * math.e)
    assert link_called("probit at 0.001").curvature_bound(0.5) < 0.2 * LINKS["probit"].curvature_bound(0.5)
    identity = link_called("identity at 0.3")
    assert identity.residual_bound(1.0, 1.0) == pytest.approx(1.7)  # a mean of -0.7, a reward of 1
    assert identity.simulated_reward_bound(2.0) == pytest.approx(2.3)
    assert frequent.variance_bound([0.0], 1.0) == pytest.approx([0.09])


def test_a_fit_finds_what_differs_from_the_base_rate() -> None:
    rng, theta = np.random.default_rng(1_003), np.array([1.0, -0.7])
    x = rng.uniform(-0.7, 0.7, (40_000, 2))
    link = link_called("logistic at 0.08")
    rewards = link.draw_rewards(link.mean(x @ theta), 1.0, rng.random(40_000))
    assert np.mean(rewards) < 0.1
    np.testing.assert_allclose(fit(link, x, rewards).theta, theta, atol=4.0 * 0.05)
    assert np.linalg.norm(fit("logistic", x, rewards).theta - theta) > 0.3
