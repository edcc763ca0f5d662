"""Links of the package keep the contract, as do sound ones from outside; a link that misstates a bound breaks it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import special

from tacit.glm.links import LINKS, Link, bounded_variance
from tacit.testing import check_link, link_checks
from tacit.testing.links import failures
from tacit.typing import FloatArray


@pytest.mark.parametrize(
    ("name", "check"), [(name, check) for name, link in LINKS.items() for check in link_checks(link)]
)
def test_links_of_the_package(name: str, check: str) -> None:
    link_checks(LINKS[name])[check]()


class OutsideLink(Link):
    """What a researcher writes who does not know `ClickLink`; clicks."""

    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        return bounded_variance(self.mean(scores), reward_bound)

    def draw_rewards(self, means: npt.ArrayLike, reward_bound: float, uniforms: npt.ArrayLike) -> FloatArray:
        return np.where(np.asarray(uniforms) * reward_bound < np.asarray(means), reward_bound, 0.0)

    def simulated_reward_bound(self, theta_norm: float) -> float:
        return 1.0


class SteepLogistic(OutsideLink):
    """sigma(8 z)."""

    name = "steep logistic"
    inflections = (0.0,)

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(special.expit(8.0 * np.asarray(scores)))

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        z = 8.0 * np.asarray(scores)
        return np.asarray(8.0 * special.expit(z) * special.expit(-z))

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(np.logaddexp(0.0, 8.0 * np.asarray(scores)) / 8.0)

    def curvature_bound(self, theta_bound: float) -> float:
        return 64.0 / (6.0 * math.sqrt(3.0))


class Cloglog(OutsideLink):
    """1 - exp(-exp(z + 1)): the chance of at least one event at an exposure of e; mu' peaks at -1, unevenly."""

    name = "cloglog"
    inflections: tuple[float, ...] = (-1.0,)

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(-np.expm1(-np.exp(np.asarray(scores) + 1.0)))

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        z = np.asarray(scores) + 1.0
        return np.asarray(np.exp(z - np.exp(z)))

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        z = np.asarray(scores) + 1.0
        return np.asarray(z + special.exp1(np.exp(z)))

    def curvature_bound(self, theta_bound: float) -> float:
        """x (x - 1) exp(-x) at its maximum, x = exp(z + 1) = (3 + sqrt(5)) / 2: about 0.309."""
        x = 0.5 * (3.0 + math.sqrt(5.0))
        return x * (x - 1.0) * math.exp(-x)


@pytest.mark.parametrize("link", [SteepLogistic(), Cloglog()], ids=lambda link: link.name)
def test_a_sound_link_from_outside_keeps_the_contract(link: Link) -> None:
    check_link(link)


class SteepWithExp(SteepLogistic):
    """The fall-back of the first release."""

    def curvature_bound(self, theta_bound: float) -> float:
        return math.exp(theta_bound)


class SteepWithLogistic(SteepLogistic):
    """Forgets the factor 8^2."""

    def curvature_bound(self, theta_bound: float) -> float:
        return LINKS["logistic"].curvature_bound(theta_bound)


class FlatCloglog(Cloglog):
    """A third of the curvature."""

    def curvature_bound(self, theta_bound: float) -> float:
        return 0.1


class WastefulCloglog(Cloglog):
    """Holds, at the price of noise."""

    def curvature_bound(self, theta_bound: float) -> float:
        return math.exp(theta_bound)


class CloglogPeakedAtZero(Cloglog):
    """What a link that is symmetric about 0 would state."""

    inflections = (0.0,)


class CloglogWithOneEnd(Cloglog):
    """Takes the bounds of mu' from the ends of [-S, S] alone."""

    def derivative_bounds(self, theta_bound: float) -> tuple[float, float]:
        ends = self.derivative([-theta_bound, theta_bound])
        return float(np.min(ends)), float(np.max(ends))


class Calm(SteepLogistic):
    """Understates the variance by a third."""

    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        return np.asarray(2.0 / 3.0 * super().variance_bound(scores, reward_bound))


class WrongRewards(SteepLogistic):
    """Samples with 0.05 too many clicks."""

    def draw_rewards(self, means: npt.ArrayLike, reward_bound: float, uniforms: npt.ArrayLike) -> FloatArray:
        return super().draw_rewards(means, reward_bound, np.maximum(np.asarray(uniforms) - 0.05, 0.0))


class WrongDerivative(SteepLogistic):
    """Off by one part in a thousand, as by a mistyped constant."""

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(1.001 * super().derivative(scores))


class WrongAntiderivative(SteepLogistic):
    """Forgets to divide by 8."""

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        return 8.0 * super().antiderivative(scores)


class OtherAtOneScore(SteepLogistic):
    """A fast form for single scores that forgets the factor 8."""

    def derivative_at(self, z: float) -> float:
        return float(LINKS["logistic"].derivative(8.0 * z))


class Overflowing(SteepLogistic):
    """Written without a thought for large scores."""

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            power = np.exp(8.0 * np.asarray(scores))
            return np.asarray(power / (1.0 + power))


class ShortResponses(SteepLogistic):
    """Bounds of rows that forget that a reward can be 0."""

    def residual_bound(self, theta_bound: float, reward_bound: float) -> float:
        return reward_bound - self.mean_range(theta_bound)[1]

    def pseudo_response_bound(self, theta_bound: float, reward_bound: float) -> float:
        return 0.5 * super().pseudo_response_bound(theta_bound, reward_bound)


@pytest.mark.parametrize(
    ("link", "broken"),
    [
        (SteepWithExp(), {"check_curvature_bound", "check_curvature_bound_is_near"}),
        (SteepWithLogistic(), {"check_curvature_bound"}),
        (FlatCloglog(), {"check_curvature_bound"}),
        (WastefulCloglog(), {"check_curvature_bound_is_near"}),
        (CloglogPeakedAtZero(), {"check_inflections", "check_derivative_bounds", "check_pseudo_response_bound"}),
        (CloglogWithOneEnd(), {"check_derivative_bounds"}),
        (Calm(), {"check_variance_bound"}),
        (WrongRewards(), {"check_sampled_mean", "check_variance_bound"}),
        (WrongDerivative(), {"check_derivative", "check_curvature_bound"}),
        (WrongAntiderivative(), {"check_antiderivative"}),
        (OtherAtOneScore(), {"check_single_scores"}),
        (Overflowing(), {"check_far_scores"}),
        (ShortResponses(), {"check_residual_bound", "check_pseudo_response_bound"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Link) else "",
)
def test_a_misstated_link_breaks_it_where_it_is_wrong_and_nowhere_else(link: Link, broken: set[str]) -> None:
    assert set(failures(link_checks(link))) == broken
    with pytest.raises(AssertionError, match=min(broken)):
        check_link(link)


def test_an_assumed_peak_understates_the_largest_derivative() -> None:
    """0.255 for 0.368 at S = 2: sensitivities would be too small by as much."""
    right, wrong = Cloglog().derivative_bounds(2.0)[1], CloglogPeakedAtZero().derivative_bounds(2.0)[1]
    assert right == pytest.approx(math.exp(-1.0))
    assert wrong < 0.75 * right


def test_no_bound_has_a_default() -> None:
    required = {
        "name", "mean", "derivative", "antiderivative", "inflections", "curvature_bound", "variance_bound",
        "draw_rewards", "simulated_reward_bound",
    }  # fmt: skip
    assert Link.__abstractmethods__ == required

    class Bare(OutsideLink):
        name = "bare"

    with pytest.raises(TypeError, match="curvature_bound"):
        Bare()  # type: ignore[abstract]
