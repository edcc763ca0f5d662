"""The package's links, and those that were registered from outside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtr

from tacit.errors import InvalidInput
from tacit.glm.link import MAX_SCORE, ClickLink, Link, bounded_variance, checked_bound
from tacit.typing import FloatArray

__all__ = [
    "LINKS",
    "MAX_SCORE",
    "ClickLink",
    "Identity",
    "Link",
    "Log",
    "Logistic",
    "Probit",
    "bounded_variance",
    "checked_bound",
    "get_link",
    "register_link",
]

_MAX_RATE = 700.0
"""Largest Poisson rate that can be sampled: above it exp(-rate), where the sum starts, underflows."""
_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)


class Logistic(ClickLink):
    """The logistic link, mu = 1 / (1 + exp(-z)), for clicks.

    Examples
    --------
    >>> from tacit.glm.links import Logistic
    >>> Logistic().mean([0.0, 1.0]).round(3).tolist()
    [0.5, 0.731]
    """

    __slots__ = ()
    name = "logistic"
    inflections = (0.0,)

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(expit(np.asarray(scores, dtype=np.float64)))

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        # mu (1 - mu), in a form that does not cancel in the tails
        tail = np.exp(-np.abs(np.asarray(scores, dtype=np.float64)))
        return np.asarray(tail / np.square(1.0 + tail))

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        # log(1 + exp(z))
        return np.asarray(np.logaddexp(0.0, np.asarray(scores, dtype=np.float64)))

    def mean_at(self, z: float) -> float:
        # 1 / (1 + exp(-z))
        tail = math.exp(-abs(z))
        return 1.0 / (1.0 + tail) if z >= 0.0 else tail / (1.0 + tail)

    def derivative_at(self, z: float) -> float:
        # mu (1 - mu)
        tail = math.exp(-abs(z))
        return tail / ((1.0 + tail) * (1.0 + tail))

    def antiderivative_at(self, z: float) -> float:
        # log(1 + exp(z))
        return max(z, 0.0) + math.log1p(math.exp(-abs(z)))

    def curvature_bound(self, theta_bound: float) -> float:
        # reached where mu = 1/2 +- 1 / sqrt(12); not below S = 1.32, where it still holds
        checked_bound(theta_bound)
        return 1.0 / (6.0 * math.sqrt(3.0))

    def curvature_between(self, low: float, high: float) -> float:
        # mu' abs(1 - 2 mu): it rises to its two peaks at abs(z) = log(2 + sqrt(3)) and falls beyond
        ends = _peak_and_ends(low, high, math.log(2.0 + math.sqrt(3.0)))
        return float(np.max(self.derivative(ends) * np.abs(1.0 - 2.0 * self.mean(ends))))

    def score_of(self, mean: float) -> float:
        return math.log(mean) - math.log1p(-mean)


class Probit(ClickLink):
    """The probit link, mu = Phi(z), for clicks whose hidden utility is Gaussian.

    Examples
    --------
    >>> from tacit.glm.links import Probit
    >>> Probit().mean([0.0, 1.0]).round(3).tolist()
    [0.5, 0.841]
    """

    __slots__ = ()
    name = "probit"
    inflections = (0.0,)

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(ndtr(np.asarray(scores, dtype=np.float64)))

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        # phi(z), the normal density
        return np.asarray(_INV_SQRT_2PI * np.exp(-0.5 * np.square(np.asarray(scores, dtype=np.float64))))

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        # z Phi(z) + phi(z); the terms cancel down to rounding far in the left tail, which may not turn it negative
        z = np.asarray(scores, dtype=np.float64)
        return np.asarray(np.maximum(0.0, z * self.mean(z) + self.derivative(z)))

    def mean_at(self, z: float) -> float:
        # Phi(z)
        return 0.5 * math.erfc(-z * _SQRT_HALF)

    def derivative_at(self, z: float) -> float:
        # phi(z)
        return _INV_SQRT_2PI * math.exp(-0.5 * z * z)

    def antiderivative_at(self, z: float) -> float:
        # z Phi(z) + phi(z), not negative
        return max(0.0, z * self.mean_at(z) + self.derivative_at(z))

    def curvature_bound(self, theta_bound: float) -> float:
        # abs(z) phi(z) at its maximum z = 1; not reached below S = 1, where it still holds
        checked_bound(theta_bound)
        return _INV_SQRT_2PI * math.exp(-0.5)

    def curvature_between(self, low: float, high: float) -> float:
        # abs(z) phi(z): it rises to its two peaks at abs(z) = 1 and falls beyond
        ends = _peak_and_ends(low, high, 1.0)
        return float(np.max(np.abs(ends) * self.derivative(ends)))


class Identity(ClickLink):
    """The identity link, mu = z, for linear rewards.

    Examples
    --------
    >>> from tacit.glm.links import Identity
    >>> Identity().mean([0.0, 1.0]).round(3).tolist()
    [0.0, 1.0]
    """

    __slots__ = ()
    name = "identity"
    inflections = ()

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        return np.array(scores, dtype=np.float64)

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        return np.ones(np.shape(scores))

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(0.5 * np.square(np.asarray(scores, dtype=np.float64)))

    def mean_at(self, z: float) -> float:
        return z

    def derivative_at(self, z: float) -> float:
        return 1.0

    def antiderivative_at(self, z: float) -> float:
        return 0.5 * z * z

    def curvature_bound(self, theta_bound: float) -> float:
        checked_bound(theta_bound)
        return 0.0

    def score_of(self, mean: float) -> float:
        return float(mean)

    def simulated_reward_bound(self, theta_norm: float) -> float:
        # the largest mean
        return theta_norm


class Log(Link):
    """The log link, mu = exp(z), for counts, which are Poisson in simulations.

    Examples
    --------
    >>> from tacit.glm.links import Log
    >>> Log().mean([0.0, 1.0]).round(3).tolist()
    [1.0, 2.718]
    """

    __slots__ = ()
    name = "log"
    inflections = ()
    default_reward_bound = 10.0
    clips_rewards = True

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        # constant beyond the largest score
        return np.asarray(np.exp(np.minimum(np.asarray(scores, dtype=np.float64), MAX_SCORE)))

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        return self.mean(scores)

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        # beyond the largest score its straight continuation, so that losses stay convex
        beyond = np.maximum(np.asarray(scores, dtype=np.float64) - MAX_SCORE, 0.0)
        return np.asarray(self.mean(scores) * (1.0 + beyond))

    def mean_at(self, z: float) -> float:
        # constant beyond the largest score
        return math.exp(min(z, MAX_SCORE))

    def derivative_at(self, z: float) -> float:
        return self.mean_at(z)

    def antiderivative_at(self, z: float) -> float:
        # beyond the largest score its straight continuation
        return self.mean_at(z) * (1.0 + max(z - MAX_SCORE, 0.0))

    def draw_rewards(self, means: npt.ArrayLike, reward_bound: float, uniforms: npt.ArrayLike) -> FloatArray:
        # Poisson counts by their quantile function, cut to R
        rates, uniform = np.broadcast_arrays(
            np.asarray(means, dtype=np.float64), np.asarray(uniforms, dtype=np.float64)
        )
        if np.any(rates > _MAX_RATE):
            raise ValueError("the mean count is above 700: too large to be sampled")
        return np.minimum(reward_bound, _poisson_quantiles(rates, uniform))

    def curvature_bound(self, theta_bound: float) -> float:
        # exp(z) at the upper end
        return math.exp(checked_bound(theta_bound))

    def curvature_between(self, low: float, high: float) -> float:
        # exp(z) at the upper end
        return math.exp(high)

    def score_of(self, mean: float) -> float:
        return math.log(mean)

    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        # a Poisson count has variance mu, which clipping cannot raise; R^2 / 4 bounds all that lies in [0, R]
        return np.asarray(np.minimum(self.mean(scores), 0.25 * reward_bound**2))

    def simulated_reward_bound(self, theta_norm: float) -> float:
        # six standard deviations above the largest mean: clipping is then too rare to be seen
        top = math.exp(min(theta_norm, MAX_SCORE))
        if top > _MAX_RATE:
            limit = math.log(_MAX_RATE)
            raise InvalidInput(f"theta_norm must be at most {limit:.2f} for simulated counts, got {theta_norm}")
        return float(math.ceil(top + 6.0 * math.sqrt(top)))


def _peak_and_ends(low: float, high: float, peak: float) -> FloatArray:
    """Where a function is largest over [low, high] that has peaks at +-``peak`` and is monotone between and beyond."""
    return np.array([low, high, *(z for z in (-peak, peak) if low < z < high)])


def _poisson_quantiles(rates: FloatArray, uniforms: FloatArray) -> FloatArray:
    """The smallest count whose distribution function reaches each uniform number, by summing the mass function."""
    mass = np.exp(-rates)
    total, count = mass.copy(), np.zeros(rates.shape)
    while np.any(below := (total < uniforms) & (mass > 0.0)):
        count += below
        mass = np.where(below, mass * rates / np.maximum(count, 1.0), mass)
        total += np.where(below, mass, 0.0)
    return count


_links: dict[str, Link] = {link.name: link for link in (Logistic(), Probit(), Identity(), Log())}
LINKS: Mapping[str, Link] = MappingProxyType(_links)
"""Every link that is known now, by its name."""


def register_link(link: Link) -> None:
    """Make a link from outside the package known by its name.

    Call it in the module that defines the link: any process that imports the module can then use the link, and no
    other can.  Registered again from the same class, as when a module is reloaded, it replaces the link for policies
    that are made from then on.

    Parameters
    ----------
    link : Link
        An instance of a subclass of `Link` or `ClickLink`.

    Raises
    ------
    InvalidInput
        When ``link`` is no `Link`, another class has its name, or its functions are not elementwise, finite
        and increasing.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> from scipy.special import expit
    >>> from tacit.extend import ClickLink, register_link
    >>> class Steep(ClickLink):
    ...     name = "steep-example"
    ...     inflections = (0.0,)
    ...
    ...     def mean(self, scores):
    ...         return expit(8.0 * np.asarray(scores))
    ...
    ...     def derivative(self, scores):
    ...         return 8.0 * self.mean(scores) * self.mean(np.negative(scores))
    ...
    ...     def antiderivative(self, scores):
    ...         return np.logaddexp(0.0, 8.0 * np.asarray(scores)) / 8.0
    ...
    ...     def curvature_bound(self, theta_bound):
    ...         return 64.0 / (6.0 * math.sqrt(3.0))
    >>> register_link(Steep())
    """
    if not isinstance(link, Link):
        raise InvalidInput(f"a link to register must be an instance of a subclass of Link, got {link!r}")
    known = _links.get(link.name)
    if known is not None and _home(known) != _home(link):
        raise InvalidInput(f"a link named {link.name!r} is known already: choose another name")
    _check_functions(link)
    _links[link.name] = link


def _check_functions(link: Link) -> None:
    """Refuse functions that are not elementwise, not finite somewhere or fall: sums would be lost for good."""
    scores = np.linspace(-MAX_SCORE, MAX_SCORE, 2_801).reshape(1, -1)
    with np.errstate(all="ignore"):
        found = {function.__name__: function(scores) for function in (link.mean, link.derivative, link.antiderivative)}
    for name, values in found.items():
        if np.shape(values) != scores.shape:
            raise InvalidInput(f"link {link.name}: {name} must give a number for each score, got {np.shape(values)}")
        if not np.all(np.isfinite(values)):
            raise InvalidInput(f"link {link.name}: {name} must be finite for scores up to {MAX_SCORE:g}")
    if np.any(found["derivative"] < 0.0):
        raise InvalidInput(f"link {link.name}: the derivative must not be negative, means increase")


def _home(link: Link) -> tuple[str, str]:
    return type(link).__module__, type(link).__qualname__


def get_link(name: str | Link) -> Link:
    """Return the link of this name.

    Parameters
    ----------
    name : str or Link
        ``"logistic"``, ``"probit"``, ``"identity"``, ``"log"`` or the name of a link that was registered; a link is
        returned as it is.

    Returns
    -------
    Link
        The link, shared by all callers.

    Raises
    ------
    InvalidInput
        When no link has this name.

    Examples
    --------
    >>> from tacit.glm.links import get_link
    >>> get_link("logistic").mean_at(0.0)
    0.5
    """
    if isinstance(name, Link):
        return name
    if name not in LINKS:
        known = ", ".join(LINKS)
        raise InvalidInput(
            f"link must be one of {known}, got {name!r}; a link of your own is known once its module was imported"
        )
    return LINKS[name]
