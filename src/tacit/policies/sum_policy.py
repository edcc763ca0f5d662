"""Private policies that learn from sums: the author states the idea, and the machine follows.

A subclass of `SumPolicy` says what a user contributes and how large that can be, what is made of noisy sums, and how an
arm is chosen by that.  Sensitivity, noise, ledger, clock, one life, log, recovery and audit come from there.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from tacit.policies.admission import remember_rows
from tacit.policies.continual_policy import ContinualPolicy
from tacit.policies.steps import Steps
from tacit.privacy.continual import ContinualRelease, Stream, contribute, released_variance
from tacit.typing import Count, FloatArray, IntArray, count


class Contribution(NamedTuple):
    """What one user adds to the sums that are released: how many numbers, and how large they can be.

    Parameters
    ----------
    size : int
        How many numbers.
    norm : float
        Bound on their Euclidean norm.
    distance : float
        Bound on the distance of two users' contributions.

    Examples
    --------
    >>> from tacit.extend import Contribution
    >>> Contribution(size=3, norm=1.0, distance=2.0).size
    3
    """

    size: int
    """How many numbers."""
    norm: float
    """Bound on their Euclidean norm; longer ones are shortened to it."""
    distance: float
    """Bound on the Euclidean distance of two users' contributions; at most twice the norm."""


class SumConstants(NamedTuple):
    """The author's functions, and the bound that contributions are kept to."""

    norm: float
    contribute: Callable[[FloatArray, FloatArray], FloatArray]
    solve: Callable[[FloatArray, float, int], FloatArray]
    choose: Callable[[FloatArray, FloatArray, FloatArray], IntArray]


class SumState(NamedTuple):
    """The stream of sums, and what was made of its newest release."""

    stream: Stream
    estimate: FloatArray
    decisions: Count
    constants: SumConstants


def _choose(state: SumState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    arms = state.constants.choose(state.estimate, contexts, coins)
    remember_rows(contexts, arms, memos)
    return arms


def _learn(state: SumState, memos: FloatArray, rewards: FloatArray) -> None:
    values = state.constants.contribute(memos, rewards)
    # Privacy does not rest on the author's arithmetic: what is longer than stated is cut, what is no number left out.
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.vecdot(values, values)
    finite, norm = np.isfinite(squares), state.constants.norm
    length = np.sqrt(np.where(finite, squares, 0.0))
    share = np.where(length > norm, (1.0 - 1e-15) * norm / np.maximum(length, norm), 1.0)
    values = np.where(finite[:, np.newaxis], values, 0.0)
    contribute(state.stream, 0, share[:, np.newaxis] * values)


def _advance(state: SumState, fresh: bool, users: int) -> int:
    if fresh:
        noise_sd = math.sqrt(released_variance(state.stream))
        state.estimate[...] = state.constants.solve(state.stream.released, noise_sd, int(state.decisions[()]))
    state.decisions[()] += users
    return 0


class SumPolicy(ContinualPolicy):
    """A policy that chooses by what it makes of noisy sums over its users.

    The sums are released on a public schedule of decisions (option ``factorization``).  A subclass states its
    ``name`` and ``guarantee = "joint"``, ``coin_count`` where choices are random, and supplies the four members below;
    why ``contribution`` holds, its docstring says as a formal guarantee.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.extend import Contribution, SumPolicy
    >>> class Direction(SumPolicy):
    ...     \"\"\"Plays the arm that is most like the rewarded ones.\"\"\"
    ...
    ...     name, guarantee = "direction", "joint"
    ...
    ...     @property
    ...     def contribution(self):
    ...         longest = self.setting.reward_bound
    ...         return Contribution(self.setting.dim, norm=longest, distance=2.0 * longest)
    ...
    ...     def contribute(self, features, rewards):
    ...         return rewards[:, np.newaxis] * features
    ...
    ...     def solve(self, sums, noise_sd, decisions):
    ...         return sums
    ...
    ...     def choose(self, estimate, contexts, coins):
    ...         return (contexts @ estimate).argmax(axis=1)
    >>> policy = Direction(dim=2, epsilon=1.0, delta=1e-6, seed=1)
    >>> policy.update(policy.select([[1.0, 0.0], [0.0, 1.0]]), 1.0)
    """

    coin_count: int = 0
    """Uniform random numbers that ``choose`` is handed for each user; a property where it follows from the setting."""
    _coin_count = property(lambda self: self.coin_count)
    _steps = Steps(_choose, _learn, _advance)

    @property
    @abstractmethod
    def contribution(self) -> Contribution:
        """Size and bounds of what a user contributes, from public quantities (``self.setting``, ``self.config``)."""

    @abstractmethod
    def contribute(self, features: FloatArray, rewards: FloatArray) -> FloatArray:
        """Compute what users add to the sums.

        Parameters
        ----------
        features : ndarray, shape (N, d)
            Features of the arms that N users were given, of norm at most 1.
        rewards : ndarray, shape (N,)
            Their rewards, in [0, R].

        Returns
        -------
        ndarray
            Contributions, shape (N, size).  Each may depend on its own row alone.
        """

    @abstractmethod
    def solve(self, sums: FloatArray, noise_sd: float, decisions: int) -> FloatArray:
        """Make of the newest noisy sums what arms are chosen by.

        Parameters
        ----------
        sums : ndarray, shape (size,)
            Sums over all users so far, with noise; 0 before the first release.
        noise_sd : float
            Standard deviation of the noise of each sum.
        decisions : int
            Decisions so far.

        Returns
        -------
        ndarray
            What `choose` is given: an array of any shape, the same shape each time.
        """

    @abstractmethod
    def choose(self, estimate: FloatArray, contexts: FloatArray, coins: FloatArray) -> IntArray:
        """Choose an arm for each of N users.

        Parameters
        ----------
        estimate : ndarray
            The newest result of `solve`.
        contexts : ndarray, shape (N, K, d)
            Features of the K arms of each of N users.
        coins : ndarray, shape (N, ``coin_count``)
            Uniform random numbers; `standard_normals` makes Gaussian ones.

        Returns
        -------
        ndarray
            Number of the chosen arm for each user, shape (N,).
        """

    def _plan(self, horizon: int) -> ContinualRelease:
        size, norm, distance = self.contribution
        return self._plan_stream(
            f"sums of {self.name}",
            size,
            horizon,
            row_bound=max(distance, math.sqrt(2.0) * norm),  # replaced in place, or moved to another leaf
            row_norm=norm,
            mu=self._total_mu,
            factorization="geometric",
        )

    def _make_state(self) -> SumState:
        size, norm, _ = self.contribution
        constants = SumConstants(norm, self.contribute, self.solve, self.choose)
        estimate = np.array(self.solve(np.zeros(size), 0.0, 0), dtype=np.float64)
        return SumState(self._open_stream(), estimate, count(), constants)


def standard_normals(coins: FloatArray) -> FloatArray:
    """Return Gaussian numbers of mean 0 and variance 1, made of uniform ones.

    Parameters
    ----------
    coins : array
        Uniform random numbers in [0, 1).

    Returns
    -------
    array
        As many Gaussian numbers, in the same shape.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.extend import standard_normals
    >>> standard_normals(np.array([0.025, 0.5, 0.975])).round(2)
    array([-1.96,  0.  ,  1.96])
    """
    return np.asarray(ndtri(np.maximum(coins, 2.0**-54)))  # 0 would be minus infinity
