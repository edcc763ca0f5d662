"""The row that a linearised regression sums up, and how far a replaced user can move it.

At a public theta a user with features x and reward r contributes v = (w x x', s y x) / |x|: a weight w = w(z) of the
score z = <x, theta>, and the pseudo response y = r - mu(z) + w z.  Summed over users, H theta = b is then one
step of Newton's method (w = mu', the tangent) or of the secant method (w = (mu(z) - mu(0)) / z).  In between,
w = (1 - blend) mu' + blend secant: the secant keeps y bounded by |r - mu(0)| and so needs less noise, the tangent
converges faster.  Noise is for features of length 1; shorter ones would use a part of it, so that rows are divided by
their length.  Features shorter than c = 0.7 say less of theta, and their rows are not divided.

**Sensitivity.**  theta is the estimate that was public when the user's decision was made, so it is the same in both
worlds.  Let x = l e and x' = l' e' be the two feature vectors, e and e' of length 1, at the angle f:

    |v - v'|^2 = m^2 + m'^2 - 2 m m' cos^2 f + s^2 (y^2 + y'^2 - 2 y y' cos f),   m = l w,   for l and l' in [c, 1].

A component of theta that is orthogonal to x and x' makes |theta| = S and changes nothing.  Write |z| = S cos a.  The
angle of e to the axis of theta on its side is then at most a (l = 1) and at least `_least_angle`, a lower bound of that
for l = c; so f is in [gap, a + a'] if z and z' have the same sign, and in [pi - a - a', pi - gap] if not.  The
expression is convex in m, which is w or max(c, cos a) w at its ends; a concave parabola in cos f; and convex in each
reward, so that these are 0 or R.  What is left is a maximum over two angles in [0, pi / 2], bounded from above by
branch and bound with a Lipschitz constant.  Features shorter than c are no worse: a component orthogonal to theta, x
and x' makes them of length 1, keeps z and <v, v'> and only lengthens v.  docs/theory.md, "The supremum", has the steps.

A row that moves to another leaf, or whose reward never comes, costs at most |v|^2 + |v'|^2 <= 2 max |v|^2
(docs/theory.md, "The clock").  ``row_bound`` is the largest of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, product
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.estimation._bounds_table import known_row
from tacit.estimation.search import Best, Positions, distinct, largest_value, mapped, middles
from tacit.glm.links import Link
from tacit.glm.shifted import ShiftedLink
from tacit.typing import FloatArray

SHORTEST: Final = 0.7
"""c: rows are divided by the length of their features, unless that is shorter."""
_HALF_TURN = 0.5 * math.pi
_WIDEST_OF_SHORTEST = math.acos(SHORTEST)
"""Angle below which features of length c can have the score S cos a and point along theta."""
_OPENING = _HALF_TURN / (_HALF_TURN - _WIDEST_OF_SHORTEST)
_TOLERANCES = (0.05, 0.04, 0.01, 0.002)
"""Tried in turn until the boxes run out: where the maximum is flat, a tight tolerance would need too many."""
_MAX_BOXES = 1_500_000
_CELLS = 20_000
"""Size of the grid of angles on which the longest row is looked for."""
_SMALLEST_SCORE = 1e-5
"""Below it the secant is replaced by its limit mu'(0)."""


def blended_weights(link: Link, blend: float, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means mu(z) and weights (1 - blend) mu'(z) + blend (mu(z) - mu(0)) / z of rows with the scores z."""
    mean, weight = link.mean(z), link.derivative(z)
    if blend == 0.0:
        return mean, weight
    # At small scores the difference of the means is mostly rounding; the secant's limit is off by c |z| / 2 at most.
    secant = np.full(np.shape(z), link.derivative_at(0.0))
    np.divide(mean - link.mean_at(0.0), z, out=secant, where=np.abs(z) >= _SMALLEST_SCORE)
    return mean, np.asarray((1.0 - blend) * weight + blend * secant)


def length_shares(rows: FloatArray) -> FloatArray:
    """1 / |x| of each row, by which it is multiplied, or 1 below c; rounding never makes a row longer than 1."""
    length = np.sqrt(np.vecdot(rows, rows))
    share: FloatArray = (1.0 - 1e-15) / np.maximum(length, SHORTEST)
    share[length < SHORTEST] = 1.0
    return share


class _Rows(NamedTuple):
    """w and y of rows at some scores; of y a line for a reward of 0, and one for R."""

    weight: FloatArray
    response: FloatArray


def _rows_at(link: Link, reward_bound: float, blend: float, z: FloatArray) -> _Rows:
    means, weight = blended_weights(link, blend, z)
    return _Rows(weight, np.array([reward - means + weight * z for reward in (0.0, reward_bound)]))


class _Side(NamedTuple):
    """Rows whose scores have one sign, as a function of a."""

    weights: tuple[FloatArray, FloatArray]
    """m, for l = 1 and for the shortest."""
    response: FloatArray


@dataclass(frozen=True)
class _Shifts:
    """|v - v'|, the largest over lengths, rewards, signs and f, as a function of a and a'."""

    link: Link
    theta_bound: float
    reward_bound: float
    blend: float
    scale: float
    rate: float
    """Bounds how fast the distance changes with either angle."""
    tolerance: float
    parts: ClassVar[int] = 4

    def values(self, level: int, boxes: Positions) -> FloatArray:
        (a, first), (b, second) = (self._sides(level, line) for line in boxes)
        gap = np.maximum(np.maximum(_least_angle(a) - b, _least_angle(b) - a), 0.0)
        nearest, farthest = mapped(math.cos, gap), mapped(math.cos, a + b)
        best = np.zeros(a.size)
        for i, j in combinations_with_replacement(range(2), 2):  # the other pair of signs is this with a and a' swapped
            low, high = (farthest, nearest) if i == j else (-nearest, -farthest)
            np.maximum(best, self._largest_square(first[i], second[j], low, high), out=best)
        return np.asarray(np.sqrt(best))

    def _sides(self, level: int, line: Positions) -> tuple[FloatArray, tuple[_Side, _Side]]:
        """Angles of boxes, and the rows there, for positive and negative scores; many boxes share an angle."""
        positions, places = distinct(line)
        angles = middles(level, positions, _HALF_TURN)
        cosines = mapped(math.cos, angles)
        length = np.maximum(cosines, SHORTEST)[places]
        found = []
        for z in (self.theta_bound * cosines, -self.theta_bound * cosines):
            weight, response = _rows_at(self.link, self.reward_bound, self.blend, z)
            found.append(_Side((weight[places], length * weight[places]), response[:, places]))
        return angles[places], (found[0], found[1])

    def _largest_square(self, first: _Side, second: _Side, low: FloatArray, high: FloatArray) -> FloatArray:
        """In cos f a parabola, whose top is cut to [``low``, ``high``]; where it is a line, the better end."""
        squared_scale, best = self.scale * self.scale, np.zeros(low.size)
        for w, w2 in product(first.weights, second.weights):
            matrices, bend, bends = w * w + w2 * w2, 2.0 * w * w2, w * w2 > 0.0
            for y, y2 in product(first.response, second.response):
                cross = squared_scale * y * y2
                top = np.minimum(np.maximum(-cross / np.where(bends, bend, 1.0), low), high)
                q = np.where(bends, top, np.where(cross > 0.0, low, high))
                shift = matrices - bend * q * q + squared_scale * (y * y + y2 * y2) - 2.0 * cross * q
                np.maximum(best, shift, out=best)
        return best

    def room(self, level: int) -> float:
        return 2.0 * self.rate * (0.5 * _HALF_TURN * 0.5**level)

    def enough(self, best: Best) -> Best:
        return best * (1.0 + self.tolerance)

    def repeated(self, level: int, boxes: Positions) -> npt.NDArray[np.bool_]:
        return np.zeros(boxes.shape[1], dtype=np.bool_)

    def split(self, level: int, boxes: Positions) -> Positions:
        halves = np.array([[[1, 0, 1, 0]], [[1, 1, 0, 0]]])
        return np.asarray((2 * boxes[:, :, np.newaxis] + halves).reshape(2, -1))


def _least_angle(a: FloatArray) -> FloatArray:
    """Below arccos(cos a / c), and of a bounded slope: the chord of that function, which is concave."""
    return np.asarray(_OPENING * np.maximum(a - _WIDEST_OF_SHORTEST, 0.0))


@lru_cache(maxsize=64)
def _largest_shift(shifts: _Shifts) -> float:
    """Upper bound on |v - v'|, at most a factor 1 + ``tolerance`` above it; NaN when the boxes run out."""
    return largest_value(shifts, 2, _MAX_BOXES) * (1.0 + shifts.tolerance)


def _longest_row(link: Link, reward_bound: float, blend: float, scale: float, theta_bound: float, rate: float) -> float:
    """Upper bound on |v| by a fine grid of angles and the Lipschitz constant."""
    weight, response = _rows_on_grid(link, reward_bound, blend, theta_bound)
    squares = weight * weight + scale * scale * response * response
    return math.sqrt(float(np.max(squares))) + 0.5 * rate * math.pi / _CELLS


def _secant_shift(link: Link, reward_bound: float, scale: float, theta_bound: float, rate: float) -> float:
    """Upper bound on |v - v'| for secants: y = r - mu(0) at every score, so that m and cos f are unconstrained."""
    weight = _rows_on_grid(link, reward_bound, 1.0, theta_bound).weight
    slack, middle = 0.5 * rate * math.pi / _CELLS, float(link.mean(0.0))
    ends = float(np.max(weight)) + slack, SHORTEST * max(float(np.min(weight)) - slack, 0.0)
    responses, best = (-scale * middle, scale * (reward_bound - middle)), 0.0
    for (w, w2), (y, y2) in product(combinations_with_replacement(ends, 2), product(responses, repeat=2)):
        q = min(max(-y * y2 / (2.0 * w * w2), -1.0), 1.0) if w * w2 > 0.0 else -math.copysign(1.0, y * y2)
        best = max(best, w * w + w2 * w2 - 2.0 * w * w2 * q * q + y * y + y2 * y2 - 2.0 * y * y2 * q)
    return math.sqrt(best)


@lru_cache(maxsize=16)
def _rows_on_grid(link: Link, reward_bound: float, blend: float, theta_bound: float) -> _Rows:
    """Rows on the grid of angles, the same for every scale."""
    z = theta_bound * mapped(math.cos, math.pi * (np.arange(_CELLS) + 0.5) / _CELLS)
    return _rows_at(link, reward_bound, blend, z)


@dataclass(frozen=True)
class LinearisedRow:
    """Public constants of the row (w x x', s y x): how it is formed and what it can change."""

    link: Link
    theta_bound: float
    reward_bound: float
    blend: float
    scale: float
    """s: how large the score is next to the matrix."""
    row_norm: float
    """Bound on |v|."""
    row_bound: float
    """Bound on the change when a row is replaced, moves to another leaf, or vanishes."""
    ran_out: bool = False
    """Whether the search ran out of boxes at every tolerance, so that the bound is that of the triangle inequality."""


def _rate(link: Link, theta_bound: float, reward_bound: float, blend: float, scale: float) -> float:
    """Lipschitz constant of |v - v'| in a: |dz| <= S, |dl| <= 1, the ends of f move by at most k = `_OPENING` >= 1.

    A turn of e by df moves e e' by sqrt(2) df.  With c >= |mu''| the secant, an average of mu', is off mu' by at most
    c |z| / 2 and has the slope c / 2 at most: |w'| <= (1 - b / 2) c, |y'| = |w - mu' + w' z| <= c S, and |y| is at most
    |r - mu(0)| + (1 - b) c S^2 / 2.
    """
    curvature, blunt = link.curvature_bound(theta_bound), 1.0 - 0.5 * blend
    weight, middle = link.derivative_bounds(theta_bound)[1], float(link.mean(0.0))
    response = max(abs(middle), abs(reward_bound - middle)) + 0.5 * (1.0 - blend) * curvature * theta_bound**2
    matrix = blunt * curvature * theta_bound + (1.0 + math.sqrt(2.0) * _OPENING) * weight
    return math.hypot(matrix, scale * (curvature * theta_bound**2 + _OPENING * response))


def _step(link: Link, theta_bound: float, blend: float, scale: float) -> float:
    """How far v jumps where the secant gives way to its limit, which no rate bounds.

    w moves by at most b c 1e-5 / 2.  Left out unless the link is shifted: mu''(0) = 0 for logistic and probit, so that
    it is 1e-11 there (docs/theory.md#the-supremum).
    """
    if not isinstance(link, ShiftedLink):
        return 0.0
    weight = 0.5 * blend * link.curvature_bound(theta_bound) * _SMALLEST_SCORE
    return weight * math.hypot(1.0, scale * _SMALLEST_SCORE)


@lru_cache(maxsize=256)
def row_with_scale(
    link: Link,
    theta_bound: float,
    reward_bound: float,
    blend: float,
    scale: float,
    tolerances: tuple[float, ...] = _TOLERANCES,
) -> LinearisedRow:
    """The row for a given ``scale``; falls back to the triangle inequality where branch and bound runs out.

    Secants need no search.
    """
    rate = _rate(link, theta_bound, reward_bound, blend, scale)
    step = _step(link, theta_bound, blend, scale)
    longest = _row_norm(link, theta_bound, reward_bound, blend, scale)
    shift = 2.0 * longest if blend < 1.0 else _secant_shift(link, reward_bound, scale, theta_bound, rate) + 2.0 * step
    tightest, searched = math.inf, blend < 1.0
    for tolerance in tolerances if searched else ():
        found = _largest_shift(_Shifts(link, theta_bound, reward_bound, blend, scale, rate, tolerance))
        if not math.isfinite(found):
            break
        tightest = found
    bound = max(min(shift, tightest + 2.0 * step), math.sqrt(2.0) * longest)
    ran_out = searched and not math.isfinite(tightest)
    return LinearisedRow(link, theta_bound, reward_bound, blend, scale, longest, bound, ran_out)


@lru_cache(maxsize=256)
def best_row(link: Link, theta_bound: float, reward_bound: float, blend: float, share: float = 1.0) -> LinearisedRow:
    """The row whose ``scale`` least disturbs directions across theta.

    Noise of variance D^2 on the stream moves b by D^2 / s^2 and H theta by D^2 |theta|^2 / 2 in a direction
    orthogonal to theta; shrinkage leaves about a quarter of the latter.  Minimise their sum, with |theta|^2 = S^2, or
    the ``share`` of it that a row can meet.
    """
    known = known_row(link, theta_bound, reward_bound, blend) if share == 1.0 else None
    if known is None:
        return searched_row(link, theta_bound, reward_bound, blend, share)
    scale, row_norm, row_bound = known
    return LinearisedRow(link, theta_bound, reward_bound, blend, scale, row_norm, row_bound)


def searched_row(
    link: Link, theta_bound: float, reward_bound: float, blend: float, share: float = 1.0
) -> LinearisedRow:
    """`best_row` without the table of common settings."""
    unit = link.derivative_bounds(theta_bound)[1] / link.pseudo_response_bound(theta_bound, reward_bound)

    def disturbance(scale: float, bound: float) -> float:
        return bound**2 * (1.0 / scale**2 + 0.125 * share * theta_bound**2)

    def least(scale: float) -> float:
        """Lower bound on the disturbance: a row that moves costs sqrt(2) |v|, which takes no search."""
        return disturbance(scale, math.sqrt(2.0) * _row_norm(link, theta_bound, reward_bound, blend, scale))

    best, smallest = unit, math.inf
    for scale in sorted((unit * math.exp(float(exponent)) for exponent in np.linspace(-1.5, 1.5, 13)), key=least):
        if least(scale) >= smallest:
            break
        found = row_with_scale(link, theta_bound, reward_bound, blend, scale, _TOLERANCES[:1])
        if disturbance(scale, found.row_bound) < smallest:
            best, smallest = scale, disturbance(scale, found.row_bound)
        if found.ran_out:  # after seconds, at an extreme theta_bound: other scales would take as long
            break
    return row_with_scale(link, theta_bound, reward_bound, blend, best)


def _row_norm(link: Link, theta_bound: float, reward_bound: float, blend: float, scale: float) -> float:
    """Upper bound on |v|."""
    rate = _rate(link, theta_bound, reward_bound, blend, scale)
    longest = _longest_row(link, reward_bound, blend, scale, theta_bound, rate)
    return longest + _step(link, theta_bound, blend, scale)
