"""Few leaves on a geometric schedule, integer weights, fresh noise: what is kept, released, and made of the releases.

Leaf k closes after n_k decisions, n_1 = 1, n_{k+1} = n_k + max(1, floor(n_k / 100)).  Its weight is the integer A_k =
floor(sqrt(n_k^2 + a^2)), with a public head start a >= 0; boundaries that do not raise the weight are left out.  With
X_j the sum of the rows of leaf j, released is the running sum of weighted leaves with noise of its own,

    y_k = W_k + z_k / b_k,   W_k = sum_{j<=k} A_j X_j,   b_k^2 = 1 / A_k^2 - 1 / A_{k+1}^2,   z_k ~ N(0, sigma^2 I).

A row of leaf j is in every release from y_j on, and A_j^2 sum_{k>=j} b_k^2 <= 1 telescopes: noise of sigma = D / mu
makes all releases together mu-GDP for rows that change by at most D, for any number of decisions, and no horizon
is asked for (docs/theory.md#geometric-leaves).

**Integers.**  Rows are rounded on arrival to multiples of a ``grid``, once.  W is a sum of int64, noise is a whole
number of steps of the grid, and so is what is released: nothing is rounded ever after.

**What the releases say of the sum.** Rows of one problem resemble each other: model the leaf of m decisions as m h + e,
Var e = m v.  A Kalman filter of two numbers (h, W) gives the mean row h and, t h, an estimate of the plain sum whose
noise stays below 2.0 sigma for ever if a = 0.  With a head start it is more before t = a and less after, by 12% at 2 a:
what the first releases would tell, which noise hides anyway, is told later.  All coordinates share the same gains, so
that matrix and score of a row get the same weight: H theta = b stays a weighted regression whether or not rows are
alike.  It is post-processing with public gains; the part of the error that privacy noise makes is tracked beside all of
it, since estimators need to know both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tacit.privacy.discrete_gaussian import MAX_PARAMETER
from tacit.privacy.streaming import Published
from tacit.typing import Count, FloatArray, IntArray, Secret, count

PACE = 100
"""A leaf holds one part in so many of all decisions so far."""
DIFFUSE = 100.0
"""Prior variance of a coordinate of the mean row, in units of its largest square: says nothing."""
MOST_HEAD_START = 1_000_000
"""Beyond it a stream would be silent for longer than most live; weights stay far from their end."""
LARGEST_SUM = 1 << 62
"""What the weighted sum of an epoch's own rows stays below, in steps.  Rows that it found in the open leaf may add half
as much, and what is left of 64 bits is for noise."""


class GeometricConstants(NamedTuple):
    """What stays as it is for the life of a stream."""

    grid: float
    """A step: rows are whole multiples of it."""
    row_steps: int
    """The most steps that a row can have in one coordinate."""
    waiting: int
    """How many rows of earlier epochs may still come."""
    fluctuation: float
    """v: assumed variance of one coordinate of a row around the mean row."""
    head_start: int
    """a: the weight of a leaf is sqrt(n^2 + a^2) after n decisions."""


class GeometricLeaves(NamedTuple):
    """State of geometric leaves, and the steps on it (`tacit.privacy.streaming.Mechanism`)."""

    decisions: Count
    """The clock: decisions of this epoch."""
    boundary: Count
    """n_k: the open leaf closes when the clock has come to it."""
    open_rows: Count
    """Decisions since the last leaf was closed."""
    closed_rows: Count
    """t: decisions before that, of all epochs."""
    weighted: Secret[IntArray]
    """W, in steps."""
    observed: IntArray
    """The newest release, in steps."""
    mean: FloatArray
    """h: estimated contribution of one decision."""
    expected: FloatArray
    """Estimate of W."""
    total: FloatArray
    """Variance of h, covariance with W, variance of W: of the whole error."""
    privacy: FloatArray
    """The part of it that privacy noise makes."""
    newest: FloatArray
    """What is known of the leaf that was closed last: A m, and the gains of h and W."""
    constants: GeometricConstants

    @property
    def open_weight(self) -> int:
        """A_k of the open leaf."""
        return leaf_weight(self.boundary.item(), self.constants.head_start)

    @property
    def boundary_after(self) -> int:
        """The boundary of the leaf that is opened when the open one is closed now."""
        return next_boundary(self.boundary.item(), self.decisions.item(), self.constants.head_start)

    @property
    def is_due(self) -> bool:
        """Whether the open leaf is to be closed before the next decision."""
        return self.decisions.item() >= self.boundary.item()

    def terms(self, sd: float) -> tuple[int, int, float]:
        """What closing the open leaf now means (`leaf_terms`)."""
        return leaf_terms(self.boundary.item(), self.decisions.item(), sd, self.constants)

    def noise_scale(self, sd: float) -> float:
        """Parameter of the noise of the open leaf, in steps, were it closed now."""
        return self.terms(sd)[2]

    def is_full(self, noise_sd: float) -> bool:
        """Whether W, or its noise, could leave their integers if the open leaf were closed in this epoch: by the clock.

        Rows of earlier decisions are those that waited when the last leaf of the epoch before was closed, and those of
        the decisions since then.  The latter are in this epoch's first leaf, or come later in place of one that
        waited: they are looked at when that leaf is closed, and count with its weight ever after.
        """
        constants, decisions, (weight, _, noise) = self.constants, self.decisions.item(), self.terms(noise_sd)
        heaviest = weight * constants.row_steps
        found = max(0, self.open_rows.item() - decisions)  # by the first leaf of an epoch; none by others
        if heaviest * (decisions + constants.waiting) >= LARGEST_SUM or heaviest * found >= LARGEST_SUM // 2:
            return True
        return noise > MAX_PARAMETER

    def count_decisions(self, users: int) -> None:
        """Move the clock on by ``users`` decisions."""
        self.decisions[()] = self.decisions.item() + users
        self.open_rows[()] = self.open_rows.item() + users

    def release(self, closed: Count, leaf: FloatArray, noise: FloatArray, sd: float, released: FloatArray) -> None:
        """Add the leaf to W with its weight, publish W and noise, and bring ``released``, t h, up to date."""
        (weight, following, steps), rows, grid = self.terms(sd), self.open_rows.item(), self.constants.grid
        self.boundary[()] = following
        self.closed_rows[()] = total = self.closed_rows.item() + rows
        self.open_rows[()] = 0
        np.add(self.weighted, weight * self._steps_of(leaf), self.weighted)
        closed[()] += 1
        self._update_gains(float(weight), float(rows), steps * grid)
        np.add(self.weighted, noise.astype(np.int64), self.observed)
        self._filter(self.mean, self.expected, np.multiply(self.observed, grid))
        np.multiply(self.mean, float(total), released)

    def _steps_of(self, leaf: FloatArray) -> IntArray:
        return (leaf / self.constants.grid).astype(np.int64)

    def _update_gains(self, weight: float, rows: float, sd: float) -> None:
        """Riccati recursion for (h, W): W' = W + A m h + A e, Var e = m v, seen with noise of this deviation."""
        step, variance = weight * rows, sd * sd
        total = _predicted(self.total.tolist(), step, weight * weight * rows * self.constants.fluctuation)
        privacy = _predicted(self.privacy.tolist(), step, 0.0)
        _, cross, weighted = total
        seen = weighted + variance
        gain, gain_weighted = cross / seen, weighted / seen
        self.total[:] = _corrected(total, gain, gain_weighted, variance)
        self.privacy[:] = _corrected(privacy, gain, gain_weighted, variance)
        self.newest[:] = step, gain, gain_weighted

    def _filter(self, mean: FloatArray, expected: FloatArray, weighted: FloatArray) -> None:
        """Bring ``mean``, h, and ``expected``, of W, up to date with what was seen of W after the newest leaf."""
        step, gain, gain_weighted = self.newest.tolist()
        expected += step * mean
        surprise = weighted - expected
        mean += gain * surprise
        expected += gain_weighted * surprise

    def variance(self, closed: int, sd: float) -> float:
        """Variance of each entry of t h that privacy noise makes."""
        rows = float(self.closed_rows.item())
        return rows * rows * self.privacy.item(0)

    @property
    def unevenness(self) -> float:
        """t sum_i a_i^2 for the weights a_i, of sum 1, that rows have in h: 1 for a plain mean, more for others."""
        rows = float(self.closed_rows.item())
        return rows * max(self.total.item(0) - self.privacy.item(0), 0.0) / self.constants.fluctuation

    def follow_public(self, closed: int, released: int, public: PublicMean, row: FloatArray) -> None:
        """Take in the public ``row`` that each decision of the leaf just closed, number ``closed``, is known to add."""
        if closed <= 1:  # a new epoch: W is 0 again and known to be
            public.weighted[:] = 0.0
            public.expected[:] = 0.0
        np.add(public.weighted, self.newest.item(0) * row, public.weighted)
        self._filter(public.mean, public.expected, public.weighted)

    def restart(self, closed: int, sd: float, released: FloatArray, decay: FloatArray, weight: FloatArray) -> None:
        """Begin a new epoch: W is 0 again and known to be; what is known of the mean row stays known."""
        self.weighted[:] = 0  # first: rows of an earlier epoch must not meet the small weights of a new one
        self.expected[:] = 0.0
        self.total[1:] = 0.0
        self.privacy[1:] = 0.0
        self.decisions[()] = 0
        self.boundary[()] = 1

    def exact(self, closed: int, leaf: FloatArray, released: FloatArray) -> Published:
        """The weighted sum that closing ``leaf`` would publish without noise, in steps."""
        return np.asarray(self.weighted + self.open_weight * self._steps_of(leaf))

    def newest_release(self, closed: int, released: FloatArray) -> Published:
        """The weighted sum that the last leaf made public, in steps."""
        return self.observed.copy()

    def overwrite(self, closed: int, published: Published, released: FloatArray) -> None:
        """Do nothing: whole numbers are equal to the bit already."""

    def drop_secrets(self) -> None:
        """Empty the weighted sum; decisions whose rows are lost with it are no longer counted on."""
        self.weighted[:] = 0
        self.open_rows[()] = 0


class PublicMean(NamedTuple):
    """What the filter makes of rows that everybody knows: their mean, each weighted as the unknown rows of its time."""

    weighted: FloatArray
    """Sum of weighted leaves, as W and known."""
    expected: FloatArray
    mean: FloatArray


def no_public_rows(size: int) -> PublicMean:
    """Before the first leaf."""
    return PublicMean(np.zeros(size), np.zeros(size), np.zeros(size))


def empty_leaves(size: int, constants: GeometricConstants, row_norm: float) -> GeometricLeaves:
    """Before the first epoch: nothing is known."""
    return GeometricLeaves(
        decisions=count(),
        boundary=count(1),
        open_rows=count(),
        closed_rows=count(),
        weighted=np.zeros(size, dtype=np.int64),
        observed=np.zeros(size, dtype=np.int64),
        mean=np.zeros(size),
        expected=np.zeros(size),
        total=np.array([DIFFUSE * row_norm * row_norm, 0.0, 0.0]),
        privacy=np.zeros(3),
        newest=np.zeros(3),
        constants=constants,
    )


def leaf_weight(boundary: int, head_start: int) -> int:
    """A of the leaf that closes at this boundary: whole, and never less for a later one; n itself without a head start.

    The square root is correctly rounded, so that every machine has the same.
    """
    return int(math.sqrt(float(boundary) * float(boundary) + float(head_start) * float(head_start)))


def next_boundary(boundary: int, decisions: int, head_start: int) -> int:
    """The first boundary of the schedule that is later than ``decisions`` and weighs more than ``boundary``."""
    weight, following = leaf_weight(boundary, head_start), boundary
    while following <= decisions or leaf_weight(following, head_start) <= weight:
        following += max(1, following // PACE)
    return following


def noise_steps(noise_sd: float, grid: float, weight: int, following: int) -> float:
    """Parameter of a leaf's noise in steps, sigma / (grid b), rounded up; b follows from its weight and the next one's.

    1 / b = A A' / sqrt((A' - A) (A' + A)) takes five roundings, which the last factor makes up for.
    """
    inverse = float(weight) * float(following) / math.sqrt(float(following - weight) * float(following + weight))
    return float(math.ceil(noise_sd / grid * inverse * (1.0 + 1e-12)))


@lru_cache(maxsize=4096)
def leaf_terms(boundary: int, decisions: int, noise_sd: float, constants: GeometricConstants) -> tuple[int, int, float]:
    """What closing the leaf of this boundary after so many decisions means; kept, since all runs of a setting share it.

    That is its weight A, the boundary of the leaf that is opened, and the parameter of its noise, in steps.  What is
    drawn, summed and told to the filter all comes from here.
    """
    following = next_boundary(boundary, decisions, constants.head_start)
    weight, heavier = (leaf_weight(end, constants.head_start) for end in (boundary, following))
    return weight, following, noise_steps(noise_sd, constants.grid, weight, heavier)


def longest_head_start(noise: float) -> int:
    """The largest a for which noise of the first leaves stays below a quarter of what can be drawn.

    There 1 / b <= (a + 2)^1.5.  ``noise`` is what a release without a weight would take, in steps.
    """
    return max(0, int(min((0.25 * MAX_PARAMETER / noise) ** (2.0 / 3.0), float(MOST_HEAD_START))) - 2)


def _predicted(covariance: Sequence[float], step: float, fluctuation: float) -> tuple[float, float, float]:
    """Covariance of (h, W) after W has grown by ``step`` times h."""
    mean, cross, weighted = covariance
    return mean, cross + step * mean, weighted + (step * (2.0 * cross + step * mean) + fluctuation)


def _corrected(
    covariance: tuple[float, float, float], gain: float, gain_weighted: float, variance: float
) -> tuple[float, float, float]:
    """Covariance of (h, W) after a release, by Joseph's form, which holds for the gains of another covariance too."""
    mean, cross, weighted = covariance
    kept = 1.0 - gain_weighted
    return (
        mean - gain * (2.0 * cross - gain * weighted) + gain * gain * variance,
        kept * (cross - gain * weighted) + gain * gain_weighted * variance,
        kept * kept * weighted + gain_weighted * gain_weighted * variance,
    )
