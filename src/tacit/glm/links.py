"""Links: the mean reward mu(z) at the score z = <x, theta>, its derivative, antiderivative and bounds.

The compiled kernels dispatch on an integer code here and nowhere else, so that a kernel of any other module
takes ``link.code`` and stays free of branches on names.  All of them are finite for every score with
``|z| <= 700``: no overflow, no NaN, and a derivative that is never negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from tacit._compile import kernel
from tacit.errors import InvalidInput
from tacit.typing import FloatArray

LOGISTIC, PROBIT, IDENTITY, LOG = 0, 1, 2, 3
MAX_SCORE = 700.0

_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)


@kernel
def mean(link: int, z: float) -> float:
    """mu(z)."""
    if link == LOGISTIC:
        tail = math.exp(-abs(z))
        return 1.0 / (1.0 + tail) if z >= 0.0 else tail / (1.0 + tail)
    if link == PROBIT:
        return 0.5 * math.erfc(-z * _SQRT_HALF)
    if link == IDENTITY:
        return z
    return math.exp(min(z, MAX_SCORE))


@kernel
def derivative(link: int, z: float) -> float:
    """mu'(z), never negative."""
    if link == LOGISTIC:
        tail = math.exp(-abs(z))
        return tail / ((1.0 + tail) * (1.0 + tail))
    if link == PROBIT:
        return _INV_SQRT_2PI * math.exp(-0.5 * z * z)
    if link == IDENTITY:
        return 1.0
    return math.exp(min(z, MAX_SCORE))


@kernel
def antiderivative(link: int, z: float) -> float:
    """The antiderivative of mu that vanishes at minus infinity (at 0 for the identity)."""
    if link == LOGISTIC:
        return max(z, 0.0) + math.log1p(math.exp(-abs(z)))
    if link == PROBIT:
        # Far in the left tail the two terms cancel down to rounding, which may not turn the sum negative.
        return max(0.0, z * mean(PROBIT, z) + derivative(PROBIT, z))
    if link == IDENTITY:
        return 0.5 * z * z
    # Beyond the saturated mean: its straight continuation, so that the loss stays convex.
    return math.exp(min(z, MAX_SCORE)) * (1.0 + max(z - MAX_SCORE, 0.0))


@kernel
def _fill(what: int, link: int, scores: FloatArray, out: FloatArray) -> None:
    for i in range(scores.shape[0]):
        if what == 0:
            out[i] = mean(link, scores[i])
        elif what == 1:
            out[i] = derivative(link, scores[i])
        else:
            out[i] = antiderivative(link, scores[i])


def _vectorised(what: int, link: int, scores: npt.ArrayLike) -> FloatArray:
    array = np.asarray(scores, dtype=np.float64)
    flat = np.ascontiguousarray(array).reshape(-1)
    out = np.empty_like(flat)
    _fill(what, link, flat, out)
    return out.reshape(array.shape)


@dataclass(frozen=True, slots=True)
class Link:
    """A link and everything that follows from it and from public bounds alone.

    ``theta_bound`` is S throughout: the score of a feature vector in the unit ball lies in [-S, S].
    ``reward_bound`` is R: rewards lie in [0, R].  A link with ``clips_rewards`` has unbounded observations,
    and rewards above R count as R.
    """

    name: str
    code: int
    default_reward_bound: float = 1.0
    clips_rewards: bool = False

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        """mu, elementwise."""
        return _vectorised(0, self.code, scores)

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        """mu', elementwise."""
        return _vectorised(1, self.code, scores)

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        """An antiderivative of mu, elementwise."""
        return _vectorised(2, self.code, scores)

    def mean_range(self, theta_bound: float) -> tuple[float, float]:
        """Smallest and largest mean over [-S, S]; mu is increasing."""
        bound = _checked_bound(theta_bound)
        return mean(self.code, -bound), mean(self.code, bound)

    def derivative_bounds(self, theta_bound: float) -> tuple[float, float]:
        """Smallest and largest mu' over [-S, S], exact.

        mu' is constant, increasing, or symmetric with its peak at 0: an end or the middle is extreme.
        """
        values = [derivative(self.code, z) for z in _critical_scores(theta_bound)]
        return min(values), max(values)

    def curvature_bound(self, theta_bound: float) -> float:
        """Bound on abs(mu'') over [-S, S]: how fast a weight can change with the score."""
        bound = _checked_bound(theta_bound)
        global_bounds = {LOGISTIC: 1.0 / (6.0 * math.sqrt(3.0)), PROBIT: _INV_SQRT_2PI * math.exp(-0.5), IDENTITY: 0.0}
        return global_bounds.get(self.code, math.exp(bound))

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

        The derivative of mu'(z) z - mu(z) is mu''(z) z, whose sign changes at 0 at most.
        """
        shifts = [derivative(self.code, z) * z - mean(self.code, z) for z in _critical_scores(theta_bound)]
        return max(abs(reward + shift) for shift in shifts for reward in (0.0, reward_bound))

    def supports(self, theta_bound: float, reward_bound: float) -> bool:
        """Whether every mean over [-S, S] is the mean of some reward in [0, R]."""
        low, high = self.mean_range(theta_bound)
        return low >= 0.0 and high <= reward_bound

    def admit_rewards(self, rewards: npt.ArrayLike, reward_bound: float) -> FloatArray:
        """``rewards`` as an array in [0, R]; refuses what is not finite or lies outside the support."""
        array = np.asarray(rewards, dtype=np.float64)
        too_high = np.zeros_like(array, dtype=np.bool_) if self.clips_rewards else array > reward_bound
        refused = ~np.isfinite(array) | (array < 0.0) | too_high
        if np.any(refused):
            first = float(array[refused].flat[0])
            bounds = f"[0, {reward_bound:g}]"
            raise InvalidInput(f"reward must lie in {bounds} for the {self.name} link, got {first}")
        return np.minimum(array, reward_bound)


def _checked_bound(theta_bound: float) -> float:
    if not 0.0 <= theta_bound <= MAX_SCORE:
        raise InvalidInput(f"theta_bound must lie in [0, {MAX_SCORE:g}], got {theta_bound}")
    return float(theta_bound)


def _critical_scores(theta_bound: float) -> tuple[float, float, float]:
    bound = _checked_bound(theta_bound)
    return -bound, 0.0, bound


LINKS: Mapping[str, Link] = MappingProxyType(
    {
        "logistic": Link("logistic", LOGISTIC),
        "probit": Link("probit", PROBIT),
        "identity": Link("identity", IDENTITY),
        "log": Link("log", LOG, default_reward_bound=10.0, clips_rewards=True),
    }
)


def get_link(name: str | Link) -> Link:
    """The link called ``name``; a link is returned as it is."""
    if isinstance(name, Link):
        return name
    if name not in LINKS:
        raise InvalidInput(f"link must be one of {', '.join(LINKS)}, got {name!r}")
    return LINKS[name]
