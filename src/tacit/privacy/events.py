"""Releases as values: what was published about the users, with the numbers the ledger needs.

Every event states its adjacency and its sensitivities. ``sensitivity`` bounds the l2 change of the released
sum when one row is **replaced**; ``moving_sensitivity`` bounds the l2 norm of one row's contribution, which
is the change when a row leaves the sum or enters it. The second is needed only for events of a named cohort
(see ``Ledger``) and defaults to the first, which is right whenever the absent row counts as a possible
replacement. Stating it pays: sqrt(2) and 1 for a unit outer product, 2L and L for a gradient of norm L.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from tacit._validate import (
    finite,
    integer_at_least,
    nonnegative,
    nonnegative_or_inf,
    positive,
    positive_or_inf,
    real,
)
from tacit.errors import InvalidInput
from tacit.privacy.lattice import discretisation_slack

REPLACEMENT: Final = "replacement"


@dataclass(frozen=True)
class _NoisySum:
    """A sum of one contribution per row, plus noise; ``count`` such releases, each computed from all rows."""

    name: str
    sensitivity: float
    noise_sd: float
    count: int = 1
    note: str = ""
    moving_sensitivity: float | None = None
    adjacency: str = REPLACEMENT

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        _check_common(self.name, self.note, self.adjacency)
        object.__setattr__(self, "sensitivity", nonnegative("sensitivity", self.sensitivity))
        object.__setattr__(self, "noise_sd", nonnegative_or_inf("noise_sd", self.noise_sd))
        object.__setattr__(self, "count", integer_at_least("count", self.count, 1))
        object.__setattr__(self, "moving_sensitivity", _moving(self.moving_sensitivity, self.sensitivity))

    @property
    def mu(self) -> float:
        """sqrt(count) * sensitivity / noise_sd; infinite without noise."""
        return math.sqrt(self.cost)

    @property
    def cost(self) -> float:
        """Square of mu: what adds up."""
        return self.count * _squared_ratio(self.sensitivity, self.noise_sd)

    @property
    def moving(self) -> float:
        """The moving sensitivity: as stated, or else the sensitivity."""
        return self.sensitivity if self.moving_sensitivity is None else self.moving_sensitivity

    @property
    def moving_cost(self) -> float:
        """``cost`` for a row that leaves or enters."""
        return self.count * _squared_ratio(self.moving, self.noise_sd)

    def divergence(self, order: float) -> float:
        """Compute the Renyi divergence when a row is replaced.

        Parameters
        ----------
        order : float
            Order alpha, above 1.

        Returns
        -------
        float
            alpha mu^2 / 2 (arXiv 1702.07476, Corollary 3).
        """
        return 0.5 * order * self.cost

    def moving_divergence(self, order: float) -> float:
        """Compute the Renyi divergence when a row leaves or enters.

        Parameters
        ----------
        order : float
            Order alpha, above 1.

        Returns
        -------
        float
            The divergence.
        """
        return 0.5 * order * self.moving_cost


@dataclass(frozen=True)
class GaussianRelease(_NoisySum):
    """The release of a sum with continuous Gaussian noise, ``count`` times.

    Parameters
    ----------
    name : str
        Name of the release in the report.
    sensitivity : float
        l2 change of the sum when one row is replaced.
    noise_sd : float
        Standard deviation of the noise of each coordinate, in the unit of ``sensitivity``; 0 means no noise.
    count : int, default 1
        Number of such releases, each with noise of its own.
    note : str, optional
        Remark for the report.
    moving_sensitivity : float, optional
        l2 norm of one row's contribution, at least half of ``sensitivity``, which is its default.
    adjacency : str
        ``"replacement"``, the only one.

    Formal guarantee
    ----------------
    Adjacency: one row replaced. With l2 sensitivity D and noise N(0, s^2 I) the release is
    exactly (D/s)-GDP (Dong, Roth and Su, arXiv 1905.02383, Theorem 2.7), ``count`` of them sqrt(count) D/s
    (Corollary 3.3). A continual release with factorization A = B C is one event whose sensitivity is the
    row bound times the largest column norm of C (docs/theory.md#adaptivity-with-moved-rows).

    Examples
    --------
    >>> from tacit.privacy import GaussianRelease
    >>> GaussianRelease("sum of clicks", sensitivity=2.0, noise_sd=10.0, count=4).mu
    0.4
    """

    kind: ClassVar[str] = "gaussian"


@dataclass(frozen=True)
class DiscreteGaussianRelease(_NoisySum):
    """The release of a sum of multiples of ``grid`` with discrete Gaussian noise on that grid, ``count`` times.

    Parameters
    ----------
    name : str
        Name of the release in the report.
    sensitivity : float
        l2 change of the sum when one row is replaced.
    noise_sd : float
        Parameter of the noise of each coordinate, in the unit of ``sensitivity``.
    count : int, default 1
        Number of such releases, each with noise of its own.
    note : str, optional
        Remark for the report.
    moving_sensitivity : float, optional
        l2 norm of one row's contribution, at least half of ``sensitivity``, which is its default.
    adjacency : str
        ``"replacement"``, the only one.
    draws : int
        Number of noise values drawn in all; must be given, at least 1.
    grid : float, default 2**-20
        Spacing of the released values.
    weight : float, optional
        What the draws count for in ``slack``; their number by default.

    Formal guarantee
    ----------------
    Adjacency: one row replaced. With parameter s and l2 sensitivity D, both in the same
    unit, the release is D^2/(2 s^2)-zCDP (Canonne, Kamath and Steinke, arXiv 2004.00010, Theorem 14). It is
    **not** exactly (D/s)-GDP, but differs from a (D/s)-GDP mechanism by a likelihood ratio of e^``slack``
    and a tail of e^-125 per draw (docs/theory.md#lattice-lemma); the ledger charges D/s and holds the slack
    within a reserve.

    Examples
    --------
    >>> from tacit.privacy import DiscreteGaussianRelease
    >>> DiscreteGaussianRelease("sum of clicks", sensitivity=1.0, noise_sd=4.0, draws=3).mu
    0.25
    """

    draws: int = 0
    grid: float = 2.0**-20
    weight: float | None = None
    """Sum over the draws of (noise_sd / s)^2, s the parameter of the draw: what they count for in the slack.

    ``draws`` unless stated: all have the parameter ``noise_sd``.
    """

    kind: ClassVar[str] = "discrete"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "draws", integer_at_least("draws", self.draws, 1))
        object.__setattr__(self, "grid", positive("grid", self.grid))
        object.__setattr__(
            self, "weight", float(self.draws) if self.weight is None else positive("weight", self.weight)
        )

    @property
    def slack(self) -> float:
        """Logarithm of the likelihood ratio between this noise and rounded continuous noise."""
        return discretisation_slack(self.draws if self.weight is None else self.weight, self.noise_sd / self.grid)


@dataclass(frozen=True)
class RenyiRelease:
    """A release that is known by its Renyi curve, such as the discrete mechanisms of the shuffle model.

    Parameters
    ----------
    name : str
        Name of the release in the report.
    orders : tuple of float
        Renyi orders, increasing and above 1.
    divergences : tuple of float
        Bound on the divergence of each order when one row is replaced; infinity allowed.
    tail_delta : float, default 0
        Bound on the probability, in each release, of events on which the curve does not hold.
    sensitivity : float, default 1
        l2 change of the sum when one row is replaced.
    count : int, default 1
        Number of such releases.
    note : str, optional
        Remark for the report.
    moving_sensitivity : float, optional
        l2 norm of one row's contribution, at least half of ``sensitivity``, which is its default.
    reach : float, optional
        Largest shift that the curve scales to, at least ``sensitivity``, which is its default.
    noise_sd : float, optional
        Standard deviation of the noise, for the report only.
    adjacency : str
        ``"replacement"``, the only one.

    Formal guarantee
    ----------------
    Adjacency: one row replaced, shift at most ``sensitivity``. ``divergences[j]`` bounds
    the Renyi divergence of order ``orders[j]`` in both directions, on events that hold with probability at
    least 1 - ``tail_delta`` (Bun and Steinke, arXiv 1605.02065, Definition 8.1); ``tail_delta`` is added to
    the privacy delta. Stating ``moving_sensitivity`` below ``sensitivity``, or ``reach`` above it, claims
    more: that for every shift s <= ``reach`` the divergence is at most divergences * (s / sensitivity)^2
    (docs/theory.md#domination-theorem, docs/theory.md#k-rows-across-cohorts).

    Between two stated orders the ledger interpolates (alpha - 1) * divergence linearly, an upper bound
    since that function is convex (van Erven and Harremoes, arXiv 1206.2459, Corollary 2); below the first
    order it uses the first divergence (Theorem 3), above the last infinity.

    Examples
    --------
    >>> from tacit.privacy import RenyiRelease
    >>> release = RenyiRelease("shuffled sum", orders=(2.0, 4.0), divergences=(0.1, 0.2))
    >>> round(release.divergence(3.0), 4)
    0.175
    """

    name: str
    orders: tuple[float, ...]
    divergences: tuple[float, ...]
    tail_delta: float = 0.0
    sensitivity: float = 1.0
    count: int = 1
    note: str = ""
    moving_sensitivity: float | None = None
    reach: float | None = None
    noise_sd: float | None = None
    adjacency: str = REPLACEMENT

    kind: ClassVar[str] = "renyi"

    def __post_init__(self) -> None:
        _check_common(self.name, self.note, self.adjacency)
        object.__setattr__(self, "orders", tuple(finite("orders", a) for a in self.orders))
        curve = tuple(nonnegative_or_inf("divergences", tau) for tau in self.divergences)
        object.__setattr__(self, "divergences", curve)
        _check_curve(self.orders, self.divergences)
        object.__setattr__(self, "tail_delta", nonnegative("tail_delta", self.tail_delta))
        object.__setattr__(self, "sensitivity", positive("sensitivity", self.sensitivity))
        object.__setattr__(self, "count", integer_at_least("count", self.count, 1))
        object.__setattr__(self, "moving_sensitivity", _moving(self.moving_sensitivity, self.sensitivity))
        reach = self.sensitivity if self.reach is None else positive_or_inf("reach", self.reach)
        if reach < self.sensitivity:
            raise InvalidInput(f"reach must be >= sensitivity = {self.sensitivity!r}, got {self.reach!r}")
        object.__setattr__(self, "reach", reach)
        if self.noise_sd is not None:  # for the reader of a report; the curve is what counts
            object.__setattr__(self, "noise_sd", nonnegative_or_inf("noise_sd", self.noise_sd))

    def divergence(self, order: float) -> float:
        """Bound the Renyi divergence when a row is replaced.

        Parameters
        ----------
        order : float
            Order alpha, above 1.

        Returns
        -------
        float
            The bound: between two stated orders by convexity, infinite beyond the largest.
        """
        if not order > 1.0:
            raise InvalidInput(f"order must be above 1, got {order!r}")
        if order > self.orders[-1]:
            return math.inf
        if order <= self.orders[0]:
            return self.count * self.divergences[0]
        right = int(np.searchsorted(self.orders, order))
        if self.orders[right] == order:
            return self.count * self.divergences[right]
        a, b = self.orders[right - 1], self.orders[right]
        weight = (order - a) / (b - a)
        low, high = (a - 1.0) * self.divergences[right - 1], (b - 1.0) * self.divergences[right]
        return self.count * (low + weight * (high - low)) / (order - 1.0)

    def moving_divergence(self, order: float) -> float:
        """Bound the Renyi divergence when a row leaves or enters.

        Parameters
        ----------
        order : float
            Order alpha, above 1.

        Returns
        -------
        float
            The bound.
        """
        moving = self.sensitivity if self.moving_sensitivity is None else self.moving_sensitivity
        return self.divergence(order) * (moving / self.sensitivity) ** 2


NoisySum = GaussianRelease | DiscreteGaussianRelease
PrivacyEvent = NoisySum | RenyiRelease


def _check_common(name: object, note: object, adjacency: object) -> None:
    if not (isinstance(name, str) and name):
        raise InvalidInput(f"name must be a non-empty text, got {name!r}")
    if not isinstance(note, str):
        raise InvalidInput(f"note must be a text, got {note!r}")
    if adjacency != REPLACEMENT:
        raise InvalidInput(f"adjacency must be {REPLACEMENT!r}, got {adjacency!r}")


def _check_curve(orders: tuple[float, ...], divergences: tuple[float, ...]) -> None:
    if not orders or len(orders) != len(divergences):
        raise InvalidInput(f"orders and divergences must be equally long, got {orders!r}, {divergences!r}")
    if not (orders[0] > 1.0 and all(a < b for a, b in pairwise(orders))):
        raise InvalidInput(f"orders must be increasing and above 1, got {orders!r}")


def _moving(moving: float | None, sensitivity: float) -> float:
    """The stated moving sensitivity, or the sensitivity; half of the latter is the least possible."""
    if moving is None:
        return sensitivity
    value = nonnegative("moving_sensitivity", moving)
    if 2.0 * value < sensitivity * (1.0 - 1e-12):
        bound = f"at least sensitivity / 2 = {0.5 * sensitivity!r} (to replace is to leave and to enter)"
        raise InvalidInput(f"moving_sensitivity must be {bound}, got {moving!r}")
    return value


def _squared_ratio(sensitivity: float, noise_sd: float) -> float:
    if sensitivity == 0.0:
        return 0.0
    ratio = math.inf if noise_sd == 0.0 else real("ratio", sensitivity / noise_sd)
    return ratio * ratio
