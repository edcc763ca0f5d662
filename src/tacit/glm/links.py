"""Links: the mean reward mu(z) at the score z = <x, theta>, and everything else that depends on the link.

``Link`` is the interface, and says what a link must state; ``CompiledLink`` has kernels and so can be used by
policies.  ``LINKS`` has those of the package.  Sensitivities, and with them the scale of the noise, rest on the bounds
that a link states: the contract suite in ``tests/contracts/links.py`` checks them for any object of this interface.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.glm.link_kernels import (
    ANTIDERIVATIVE,
    DERIVATIVE,
    IDENTITY,
    INV_SQRT_2PI,
    LOG,
    LOGISTIC,
    MAX_RATE,
    MAX_SCORE,
    MEAN,
    PROBIT,
    antiderivative,
    derivative,
    evaluate_each,
    mean,
    sample_each,
    sample_reward,
)
from tacit.typing import FloatArray

__all__ = [
    "IDENTITY",
    "LINKS",
    "LOG",
    "LOGISTIC",
    "MAX_SCORE",
    "PROBIT",
    "CompiledLink",
    "Link",
    "antiderivative",
    "bounded_variance",
    "checked_bound",
    "derivative",
    "get_link",
    "mean",
    "sample_reward",
]


class Link(ABC):
    """A link and everything that follows from it and from public bounds alone.

    ``theta_bound`` is S throughout: the score of a feature vector in the unit ball lies in [-S, S].
    ``reward_bound`` is R: rewards lie in [0, R].  Abstract members have no default, as none would be safe: a bound
    that is too small makes the noise too small, and nothing in a run would show it.
    """

    __slots__ = ()  # shared by every policy of a process: nothing can be assigned

    default_reward_bound: float = 1.0
    """R unless the caller gives one."""
    clips_rewards: bool = False
    """Whether observations are unbounded, so that rewards above R count as R; otherwise they are refused."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What users call the link."""

    @property
    def code(self) -> int:
        """What compiled kernels know the link by."""
        raise InvalidInput(f"the link {self.name} has no compiled kernels, so that no policy can use it")

    @abstractmethod
    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        """mu, elementwise: increasing."""

    @abstractmethod
    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        """mu', elementwise: never negative."""

    @abstractmethod
    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        """An antiderivative of mu, elementwise."""

    @property
    @abstractmethod
    def inflections(self) -> tuple[float, ...]:
        """Every score at which mu'' changes its sign; mu' is monotone between neighbouring ones and beyond them."""

    @abstractmethod
    def curvature_bound(self, theta_bound: float) -> float:
        """Bound on abs(mu'') over [-S, S]: how fast a weight can change with the score."""

    @abstractmethod
    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        """Bound on the variance of a reward at each score."""

    @abstractmethod
    def sample_rewards(self, scores: npt.ArrayLike, reward_bound: float, uniforms: npt.ArrayLike) -> FloatArray:
        """Rewards in [0, R] of a simulated user at each score, as a function of numbers uniform in [0, 1)."""

    @abstractmethod
    def simulated_reward_bound(self, theta_norm: float) -> float:
        """R for a simulated instance whose parameter has this norm: no mean is above it."""

    @property
    def has_negative_means(self) -> bool:
        """Whether some scores have no reward in [0, R] with their mean, so that a simulation must avoid them."""
        return float(self.mean(-MAX_SCORE)) < 0.0

    def mean_range(self, theta_bound: float) -> tuple[float, float]:
        """Smallest and largest mean over [-S, S]; mu is increasing."""
        bound = checked_bound(theta_bound)
        return float(self.mean(-bound)), float(self.mean(bound))

    def derivative_bounds(self, theta_bound: float) -> tuple[float, float]:
        """Smallest and largest mu' over [-S, S], exact: mu' is monotone between critical scores."""
        values = self.derivative(self._critical_scores(theta_bound))
        return float(np.min(values)), float(np.max(values))

    def kappa(self, theta_bound: float) -> float:
        """1 / min mu' over [-S, S]; infinite where mu' underflows."""
        smallest = self.derivative_bounds(theta_bound)[0]
        return 1.0 / smallest if smallest > 0.0 else math.inf

    def kappa_star(self, theta_bound: float) -> float:
        """1 / max mu' over [-S, S]."""
        return 1.0 / self.derivative_bounds(theta_bound)[1]

    def residual_bound(self, theta_bound: float, reward_bound: float) -> float:
        """Bound on abs(mu(z) - r) over scores in [-S, S] and rewards in [0, R].

        R itself when the mean stays in [0, R]: the reward needs no second look at S then.
        """
        if self.supports(theta_bound, reward_bound):
            return reward_bound
        low, high = self.mean_range(theta_bound)
        return max(reward_bound - low, high)

    def pseudo_response_bound(self, theta_bound: float, reward_bound: float) -> float:
        """max abs(r - mu(z) + mu'(z) z) over scores in [-S, S] and rewards in [0, R], exact.

        The derivative of mu'(z) z - mu(z) is mu''(z) z, whose sign changes at critical scores only.
        """
        scores = self._critical_scores(theta_bound)
        shifts = self.derivative(scores) * scores - self.mean(scores)
        return max(abs(reward + float(shift)) for shift in shifts for reward in (0.0, reward_bound))

    def supports(self, theta_bound: float, reward_bound: float) -> bool:
        """Whether every mean over [-S, S] is the mean of some reward in [0, R]."""
        low, high = self.mean_range(theta_bound)
        return low >= 0.0 and high <= reward_bound

    def _critical_scores(self, theta_bound: float) -> FloatArray:
        """Both ends of [-S, S], 0, and the inflections inside."""
        bound = checked_bound(theta_bound)
        return np.array([-bound, 0.0, bound, *(z for z in self.inflections if abs(z) < bound)])


class CompiledLink(Link):
    """A link that the kernels of ``tacit.glm.link_kernels`` know by its code: what policies and environments run."""

    __slots__ = ()

    @property
    @abstractmethod
    def code(self) -> int:
        """What compiled kernels know the link by."""

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        """mu, elementwise."""
        return evaluate_each(MEAN, self.code, scores)

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        """mu', elementwise."""
        return evaluate_each(DERIVATIVE, self.code, scores)

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        """An antiderivative of mu, elementwise."""
        return evaluate_each(ANTIDERIVATIVE, self.code, scores)

    def sample_rewards(self, scores: npt.ArrayLike, reward_bound: float, uniforms: npt.ArrayLike) -> FloatArray:
        """Rewards in [0, R] of a simulated user at each score."""
        return sample_each(self.code, scores, reward_bound, uniforms)


class Logistic(CompiledLink):
    """mu = 1 / (1 + exp(-z)): clicks."""

    __slots__ = ()
    name = "logistic"
    code = LOGISTIC
    inflections = (0.0,)

    def curvature_bound(self, theta_bound: float) -> float:
        """1 / (6 sqrt(3)), reached where mu = 1/2 +- 1 / sqrt(12); not below S = 1.32, where it still holds."""
        checked_bound(theta_bound)
        return 1.0 / (6.0 * math.sqrt(3.0))

    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        """That of rewards in [0, R]."""
        return bounded_variance(self.mean(scores), reward_bound)

    def simulated_reward_bound(self, theta_norm: float) -> float:
        """A click or none."""
        return 1.0


class Probit(CompiledLink):
    """mu = Phi(z): clicks whose hidden utility is Gaussian."""

    __slots__ = ()
    name = "probit"
    code = PROBIT
    inflections = (0.0,)

    def curvature_bound(self, theta_bound: float) -> float:
        """abs(z) phi(z) at its maximum z = 1; not reached below S = 1, where it still holds."""
        checked_bound(theta_bound)
        return INV_SQRT_2PI * math.exp(-0.5)

    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        """That of rewards in [0, R]."""
        return bounded_variance(self.mean(scores), reward_bound)

    def simulated_reward_bound(self, theta_norm: float) -> float:
        """A click or none."""
        return 1.0


class Identity(CompiledLink):
    """mu = z: linear rewards."""

    __slots__ = ()
    name = "identity"
    code = IDENTITY
    inflections = ()

    def curvature_bound(self, theta_bound: float) -> float:
        """0: the weight is constant."""
        checked_bound(theta_bound)
        return 0.0

    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        """That of rewards in [0, R]."""
        return bounded_variance(self.mean(scores), reward_bound)

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


def bounded_variance(means: FloatArray, reward_bound: float) -> FloatArray:
    """mu (R - mu), the largest variance of a reward in [0, R] of mean mu: that of a reward which is 0 or R."""
    inside = np.clip(means, 0.0, reward_bound)
    return np.asarray(inside * (reward_bound - inside))


def checked_bound(theta_bound: float) -> float:
    """S, if kernels are finite over [-S, S]."""
    if not 0.0 <= theta_bound <= MAX_SCORE:
        raise InvalidInput(f"theta_bound must lie in [0, {MAX_SCORE:g}], got {theta_bound}")
    return float(theta_bound)


LINKS: Mapping[str, Link] = MappingProxyType({link.name: link for link in (Logistic(), Probit(), Identity(), Log())})


def get_link(name: str | Link) -> Link:
    """The link called ``name``; a link is returned as it is."""
    if isinstance(name, Link):
        return name
    if name not in LINKS:
        raise InvalidInput(f"link must be one of {', '.join(LINKS)}, got {name!r}")
    return LINKS[name]
