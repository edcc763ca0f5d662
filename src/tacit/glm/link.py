"""The interface of a link: the mean reward mu(z) at the score z = <x, theta>, and all that depends on it.

``Link`` is the interface, and says what a link must state; ``ClickLink`` is one whose rewards are 0 or R.  The links
themselves are in `tacit.glm.links`.

Sensitivities, and with them the scale of the noise, rest on the bounds that a link states:
`tacit.testing.check_link` checks them for any object of this interface.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.typing import FloatArray

MAX_SCORE = 700.0
"""Mean, derivative and antiderivative are finite for every score up to it, and down to its negative."""
_HALVINGS = 80
"""Bisections of `score_of`: [-700, 700] is then shorter than the spacing of floats, except close to 0."""


class Link(ABC):
    """A link and everything that follows from it and from public bounds alone.

    ``theta_bound`` is S throughout: the score of a feature vector in the unit ball lies in [-S, S].
    ``reward_bound`` is R: rewards lie in [0, R].  Abstract members have no default, as none would be safe: a bound
    that is too small makes the noise too small, and nothing in a run would show it.

    Examples
    --------
    >>> from tacit.glm.links import get_link
    >>> link = get_link("identity")
    >>> link.mean([0.0, 0.5]).tolist()
    [0.0, 0.5]
    >>> link.mean_range(theta_bound=2.0)
    (-2.0, 2.0)
    """

    __slots__ = ()  # shared by every policy of a process: nothing can be assigned

    default_reward_bound: float = 1.0
    """R unless the caller gives one."""
    clips_rewards: bool = False
    """Whether observations are unbounded, so that rewards above R count as R; otherwise they are refused."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name by which users choose the link."""

    @abstractmethod
    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        """Compute mu at each score: it increases.

        Parameters
        ----------
        scores : array_like
            Scores z.

        Returns
        -------
        ndarray
            The mean reward at each score, of the shape of ``scores``.
        """

    @abstractmethod
    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        """Compute mu', the slope of the mean, at each score: it is never negative.

        Parameters
        ----------
        scores : array_like
            Scores z.

        Returns
        -------
        ndarray
            The slope at each score, of the shape of ``scores``.
        """

    @abstractmethod
    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        """Compute an antiderivative of mu at each score: losses are made of it.

        Parameters
        ----------
        scores : array_like
            Scores z.

        Returns
        -------
        ndarray
            Its values, of the shape of ``scores``.
        """

    def mean_at(self, z: float) -> float:
        """Compute mu at one score; `math` is ten times as fast as NumPy there, where a link has it.

        Parameters
        ----------
        z : float
            The score.

        Returns
        -------
        float
            The mean reward.
        """
        return float(self.mean(z))

    def derivative_at(self, z: float) -> float:
        """Compute mu' at one score.

        Parameters
        ----------
        z : float
            The score.

        Returns
        -------
        float
            The slope of the mean.
        """
        return float(self.derivative(z))

    def antiderivative_at(self, z: float) -> float:
        """Compute the antiderivative of mu at one score.

        Parameters
        ----------
        z : float
            The score.

        Returns
        -------
        float
            Its value.
        """
        return float(self.antiderivative(z))

    @property
    @abstractmethod
    def inflections(self) -> tuple[float, ...]:
        """Every score at which mu'' changes its sign; mu' is monotone between neighbouring ones and beyond them."""

    @abstractmethod
    def curvature_bound(self, theta_bound: float) -> float:
        """Bound abs(mu'') over [-S, S]: how fast a weight can change with the score.

        Parameters
        ----------
        theta_bound : float
            S: scores lie in [-S, S].

        Returns
        -------
        float
            The bound; sensitivities rest on it.
        """

    @abstractmethod
    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        """Bound the variance of a reward at each score.

        Parameters
        ----------
        scores : array_like
            Scores z.
        reward_bound : float
            R: rewards lie in [0, R].

        Returns
        -------
        ndarray
            The bounds, of the shape of ``scores``.
        """

    @abstractmethod
    def draw_rewards(self, means: npt.ArrayLike, reward_bound: float, uniforms: npt.ArrayLike) -> FloatArray:
        """Make rewards of simulated users from their means, as a function of uniform numbers.

        Parameters
        ----------
        means : array_like
            Mean rewards.
        reward_bound : float
            R: rewards lie in [0, R].
        uniforms : array_like
            Numbers in [0, 1), uniform if drawn at random; broadcast with ``means``.

        Returns
        -------
        ndarray
            Rewards in [0, R].  For a fixed uniform number a reward never falls as its mean rises.
        """

    @abstractmethod
    def simulated_reward_bound(self, theta_norm: float) -> float:
        """Choose R for a simulated instance whose parameter has this length.

        Parameters
        ----------
        theta_norm : float
            Length of the parameter, so that scores are at most that.

        Returns
        -------
        float
            R: no mean is above it.
        """

    @property
    def max_score(self) -> float:
        """Mean, derivative and antiderivative are finite for every score up to it, and down to its negative."""
        return MAX_SCORE

    @property
    def has_negative_means(self) -> bool:
        """Whether some scores have no reward in [0, R] with their mean, so that a simulation must avoid them."""
        return float(self.mean(-MAX_SCORE)) < 0.0

    def mean_range(self, theta_bound: float) -> tuple[float, float]:
        """Compute the range of means: mu increases, so that both are at the ends.

        Parameters
        ----------
        theta_bound : float
            S: scores lie in [-S, S].

        Returns
        -------
        tuple of float
            Smallest and largest mean over [-S, S].
        """
        bound = self._checked_bound(theta_bound)
        return float(self.mean(-bound)), float(self.mean(bound))

    def derivative_bounds(self, theta_bound: float) -> tuple[float, float]:
        """Compute the range of mu', exactly: mu' is monotone between critical scores.

        Parameters
        ----------
        theta_bound : float
            S: scores lie in [-S, S].

        Returns
        -------
        tuple of float
            Smallest and largest mu' over [-S, S].
        """
        values = self.derivative(self._critical_scores(theta_bound))
        return float(np.min(values)), float(np.max(values))

    def curvature_between(self, low: float, high: float) -> float:
        """Bound abs(mu'') over [low, high]: by its bound over [-S, S] with S large enough, unless a link knows better.

        Parameters
        ----------
        low : float
            Lower end of the scores.
        high : float
            Upper end of the scores.

        Returns
        -------
        float
            The bound.
        """
        return self.curvature_bound(max(abs(low), abs(high)))

    def score_of(self, mean: float) -> float:
        """Find the score that has a mean, by halving.

        Parameters
        ----------
        mean : float
            A mean between those of the scores -700 and 700.

        Returns
        -------
        float
            The score.
        """
        low, high = -MAX_SCORE, MAX_SCORE
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            found = float(self.mean(middle))
            if found == mean:
                return middle
            low, high = (middle, high) if found < mean else (low, middle)
        return 0.5 * (low + high)

    def kappa(self, theta_bound: float) -> float:
        """Compute 1 / min mu' over [-S, S].

        Parameters
        ----------
        theta_bound : float
            S: scores lie in [-S, S].

        Returns
        -------
        float
            kappa; infinite where mu' underflows.
        """
        smallest = self.derivative_bounds(theta_bound)[0]
        return 1.0 / smallest if smallest > 0.0 else math.inf

    def kappa_star(self, theta_bound: float) -> float:
        """Compute 1 / max mu' over [-S, S].

        Parameters
        ----------
        theta_bound : float
            S: scores lie in [-S, S].

        Returns
        -------
        float
            kappa*.
        """
        return 1.0 / self.derivative_bounds(theta_bound)[1]

    def residual_bound(self, theta_bound: float, reward_bound: float) -> float:
        """Bound abs(mu(z) - r) over scores in [-S, S] and rewards in [0, R].

        Parameters
        ----------
        theta_bound : float
            S: scores lie in [-S, S].
        reward_bound : float
            R: rewards lie in [0, R].

        Returns
        -------
        float
            The bound: R itself when the mean stays in [0, R], as the reward needs no second look at S then.
        """
        if self.supports(theta_bound, reward_bound):
            return reward_bound
        low, high = self.mean_range(theta_bound)
        return max(reward_bound - low, high)

    def pseudo_response_bound(self, theta_bound: float, reward_bound: float) -> float:
        """Compute max abs(r - mu(z) + mu'(z) z) over scores in [-S, S] and rewards in [0, R], exactly.

        The derivative of mu'(z) z - mu(z) is mu''(z) z, whose sign changes at critical scores only.

        Parameters
        ----------
        theta_bound : float
            S: scores lie in [-S, S].
        reward_bound : float
            R: rewards lie in [0, R].

        Returns
        -------
        float
            The maximum.
        """
        scores = self._critical_scores(theta_bound)
        shifts = self.derivative(scores) * scores - self.mean(scores)
        return max(abs(reward + float(shift)) for shift in shifts for reward in (0.0, reward_bound))

    def supports(self, theta_bound: float, reward_bound: float) -> bool:
        """Tell whether every mean over [-S, S] is the mean of some reward in [0, R].

        Parameters
        ----------
        theta_bound : float
            S: scores lie in [-S, S].
        reward_bound : float
            R: rewards lie in [0, R].

        Returns
        -------
        bool
            Whether all means lie in [0, R].
        """
        low, high = self.mean_range(theta_bound)
        return low >= 0.0 and high <= reward_bound

    def _critical_scores(self, theta_bound: float) -> FloatArray:
        """Both ends of [-S, S], 0, and the inflections inside."""
        bound = self._checked_bound(theta_bound)
        return np.array([-bound, 0.0, bound, *(z for z in self.inflections if abs(z) < bound)])

    def _checked_bound(self, theta_bound: float) -> float:
        """``theta_bound`` as a float; raises unless mean and derivative are finite over [-S, S]."""
        return checked_bound(theta_bound, self.max_score)


class ClickLink(Link):
    """A link whose simulated rewards are 0 or R: nothing in [0, R] of the same mean varies more.

    Examples
    --------
    >>> from tacit.glm.links import get_link
    >>> get_link("logistic").draw_rewards([0.2, 0.7], reward_bound=1.0, uniforms=[0.5, 0.5]).tolist()
    [0.0, 1.0]
    """

    __slots__ = ()

    def draw_rewards(self, means: npt.ArrayLike, reward_bound: float, uniforms: npt.ArrayLike) -> FloatArray:
        # R with the probability that gives the mean, else 0
        return np.where(np.asarray(uniforms) * reward_bound < np.asarray(means), reward_bound, 0.0)

    def variance_bound(self, scores: npt.ArrayLike, reward_bound: float) -> FloatArray:
        # mu (R - mu), the variance of rewards that are 0 or R
        return bounded_variance(self.mean(scores), reward_bound)

    def simulated_reward_bound(self, theta_norm: float) -> float:
        # a reward is a click or none
        return 1.0


def bounded_variance(means: FloatArray, reward_bound: float) -> FloatArray:
    """Return mu (R - mu), the largest variance of a reward in [0, R] of mean mu: that of a reward which is 0 or R.

    Parameters
    ----------
    means : ndarray
        Means; those outside of [0, R] count as its nearest end.
    reward_bound : float
        R.

    Returns
    -------
    ndarray
        Variance for each mean, of the shape of ``means``.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.glm.links import bounded_variance
    >>> bounded_variance(np.array([0.0, 0.5]), reward_bound=1.0).tolist()
    [0.0, 0.25]
    """
    inside = np.clip(means, 0.0, reward_bound)
    return np.asarray(inside * (reward_bound - inside))


def checked_bound(theta_bound: float, max_score: float = MAX_SCORE) -> float:
    """Return ``theta_bound`` as a float after a check that scores may go up to it.

    Parameters
    ----------
    theta_bound : float
        S: scores lie in [-S, S].
    max_score : float, default 700
        Largest S at which mean, derivative and antiderivative of the link are finite.

    Returns
    -------
    float
        S.

    Raises
    ------
    InvalidInput
        Unless S is in [0, ``max_score``].

    Examples
    --------
    >>> from tacit.glm.links import checked_bound
    >>> checked_bound(3)
    3.0
    """
    if not 0.0 <= theta_bound <= max_score:
        raise InvalidInput(f"theta_bound must lie in [0, {max_score:g}], got {theta_bound}")
    return float(theta_bound)
