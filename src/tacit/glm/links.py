"""The package's links, those that were registered from outside, and the kernels that dispatch on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.glm.link import ClickLink, CompiledLink, Link, bounded_variance, checked_bound
from tacit.glm.link_kernels import (
    IDENTITY,
    INV_SQRT_2PI,
    LOG,
    LOGISTIC,
    MAX_RATE,
    MAX_SCORE,
    PROBIT,
    LinkForm,
    antiderivative,
    derivative,
    mean,
    sample_reward,
)
from tacit.glm.link_names import add_link_name
from tacit.glm.link_table import LinkKernels, add_kernels, two_valued_reward
from tacit.typing import FloatArray

__all__ = [
    "IDENTITY",
    "LINKS",
    "LOG",
    "LOGISTIC",
    "MAX_SCORE",
    "PROBIT",
    "ClickLink",
    "CompiledLink",
    "Link",
    "LinkForm",
    "LinkKernels",
    "antiderivative",
    "bounded_variance",
    "checked_bound",
    "derivative",
    "get_link",
    "mean",
    "register_link",
    "sample_reward",
    "two_valued_reward",
]


class Logistic(ClickLink):
    """mu = 1 / (1 + exp(-z)): clicks."""

    __slots__ = ()
    name = "logistic"
    code = LOGISTIC
    inflections = (0.0,)

    def curvature_bound(self, theta_bound: float) -> float:
        """1 / (6 sqrt(3)), reached where mu = 1/2 +- 1 / sqrt(12); not below S = 1.32, where it still holds."""
        checked_bound(theta_bound)
        return 1.0 / (6.0 * math.sqrt(3.0))

    def curvature_between(self, low: float, high: float) -> float:
        """mu' abs(1 - 2 mu): it rises to its two peaks at abs(z) = log(2 + sqrt(3)) and falls beyond."""
        ends = _peak_and_ends(low, high, math.log(2.0 + math.sqrt(3.0)))
        return float(np.max(self.derivative(ends) * np.abs(1.0 - 2.0 * self.mean(ends))))

    def score_of(self, mean: float) -> float:
        """log(mu / (1 - mu))."""
        return math.log(mean) - math.log1p(-mean)


class Probit(ClickLink):
    """mu = Phi(z): clicks whose hidden utility is Gaussian."""

    __slots__ = ()
    name = "probit"
    code = PROBIT
    inflections = (0.0,)

    def curvature_bound(self, theta_bound: float) -> float:
        """abs(z) phi(z) at its maximum z = 1; not reached below S = 1, where it still holds."""
        checked_bound(theta_bound)
        return INV_SQRT_2PI * math.exp(-0.5)

    def curvature_between(self, low: float, high: float) -> float:
        """abs(z) phi(z): it rises to its two peaks at abs(z) = 1 and falls beyond."""
        ends = _peak_and_ends(low, high, 1.0)
        return float(np.max(np.abs(ends) * self.derivative(ends)))


class Identity(ClickLink):
    """mu = z: linear rewards."""

    __slots__ = ()
    name = "identity"
    code = IDENTITY
    inflections = ()

    def curvature_bound(self, theta_bound: float) -> float:
        """0: the weight is constant."""
        checked_bound(theta_bound)
        return 0.0

    def score_of(self, mean: float) -> float:
        """The mean itself."""
        return float(mean)

    def simulated_reward_bound(self, theta_norm: float) -> float:
        """The largest mean."""
        return theta_norm


class Log(CompiledLink):
    """mu = exp(z): counts, Poisson in simulations."""

    __slots__ = ()
    name = "log"
    code = LOG
    inflections = ()
    default_reward_bound = 10.0
    clips_rewards = True

    def curvature_bound(self, theta_bound: float) -> float:
        """exp(S), at the upper end."""
        return math.exp(checked_bound(theta_bound))

    def curvature_between(self, low: float, high: float) -> float:
        """exp(z) at the upper end."""
        return math.exp(high)

    def score_of(self, mean: float) -> float:
        """log mu."""
        return math.log(mean)

    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        """A Poisson count has variance mu, which clipping cannot raise; R^2 / 4 bounds all that lies in [0, R]."""
        return np.asarray(np.minimum(self.mean(scores), 0.25 * reward_bound**2))

    def simulated_reward_bound(self, theta_norm: float) -> float:
        """Six standard deviations above the largest mean: clipping is then too rare to be seen."""
        top = math.exp(min(theta_norm, MAX_SCORE))
        if top > MAX_RATE:
            limit = math.log(MAX_RATE)
            raise InvalidInput(f"theta_norm must be at most {limit:.2f} for simulated counts, got {theta_norm}")
        return float(math.ceil(top + 6.0 * math.sqrt(top)))


def _peak_and_ends(low: float, high: float, peak: float) -> FloatArray:
    """Where a function is largest over [low, high] that has peaks at +-``peak`` and is monotone between and beyond."""
    return np.array([low, high, *(z for z in (-peak, peak) if low < z < high)])


_links: dict[str, Link] = {link.name: link for link in (Logistic(), Probit(), Identity(), Log())}
LINKS: Mapping[str, Link] = MappingProxyType(_links)
"""Every link that is known now, by its name."""


def register_link(link: CompiledLink) -> None:
    """Make a link from outside the package known by its name, with the ``kernels`` that it states.

    Call it in the module that defines the link: whatever process imports the module can then use the link, and no
    other can.  Registered again from the same class, as when a module is reloaded, it replaces the link for policies
    that are made from then on.  For mu = 1 / (1 + exp(-8 z)):

        class Steep(ClickLink):
            name = "steep"
            inflections = (0.0,)
            kernels = LinkKernels(steep_mean, steep_derivative, steep_antiderivative)

            def curvature_bound(self, theta_bound: float) -> float:
                return 64.0 / (6.0 * math.sqrt(3.0))

        register_link(Steep())
    """
    if not isinstance(link, CompiledLink) or link.kernels is None:
        raise InvalidInput(f"a link to register must be a CompiledLink that states its kernels, got {link!r}")
    known = _links.get(link.name)
    if known is not None and _home(known) != _home(link):
        raise InvalidInput(f"a link named {link.name!r} is known already: choose another name")
    add_kernels(link.name, link.kernels)
    _links[link.name] = link
    add_link_name(link.name)


def _home(link: Link) -> tuple[str, str]:
    return type(link).__module__, type(link).__qualname__


def get_link(name: str | Link) -> Link:
    """The link called ``name``; a link is returned as it is."""
    if isinstance(name, Link):
        return name
    if name not in LINKS:
        known = ", ".join(LINKS)
        raise InvalidInput(
            f"link must be one of {known}, got {name!r}; a link of your own is known once its module was imported"
        )
    return LINKS[name]
