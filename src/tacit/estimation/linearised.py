"""The row that a linearised regression sums up, and how far a replaced user can move it.

At a public theta a user with features x and reward r contributes v = (w x x', s y x): a weight w = w(z) of the score
z = <x, theta>, and the pseudo response y = r - mu(z) + w z.  Summed over users, H theta = b is then one step of
Newton's method (w = mu', the tangent) or of the secant method (w = (mu(z) - mu(0)) / z).  In between,
w = (1 - blend) mu' + blend secant: the secant keeps y bounded by |r - mu(0)| and so needs less noise, the tangent
converges faster.

**Sensitivity.**  theta is the estimate that was public when the user's decision was made, so it is the same in both
worlds.  Let x, x' be the two feature vectors, q = <x, x'>:

    |v - v'|^2 = w^2 + w'^2 - 2 w w' q^2 + s^2 (y^2 + y'^2 - 2 y y' q)      for unit vectors.

Shorter vectors are no worse: adding components orthogonal to theta, x and x' makes both of length 1, leaves z, z' and q
as they are and only adds to the squared norms.  With |theta| <= S the scores are z = S cos a, z' = S cos a' after
lengthening theta likewise, and q ranges over [cos(a + a'), cos(a - a')]; in q the expression is a concave parabola,
so its maximum there is known in closed form.  It is convex in each reward, so rewards are 0 or R.  What is left is
a maximum over two angles, bounded from above by branch and bound with a Lipschitz constant.

A row that moves to another leaf, or whose reward never comes, costs at most |v|^2 + |v'|^2 <= 2 max |v|^2
(docs/theory.md, "The clock").  ``row_bound`` is the larger of the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit._compile import kernel
from tacit.estimation._bounds_table import known_row
from tacit.estimation.search import Best, Positions, distinct, largest_value, mapped, middles
from tacit.glm.links import Link, LinkForm, derivative, mean
from tacit.glm.shifted import ShiftedLink
from tacit.typing import FloatArray

_TOLERANCES = (0.002, 0.01, 0.04)
"""Tried in turn: where the maximum is flat, a tight tolerance would need too many boxes."""
_MAX_BOXES = 1_500_000
_CELLS = 20_000
"""Of the grid of angles on which the longest row is looked for."""
_SMALLEST_SCORE = 1e-5
"""Below it the secant is replaced by its limit mu'(0)."""


@kernel
def blended_weight(link: LinkForm, blend: float, z: float) -> float:
    """(1 - blend) mu'(z) + blend (mu(z) - mu(0)) / z."""
    tangent = derivative(link, z)
    if blend == 0.0:
        return tangent
    # At small scores the difference of the means is mostly rounding; the secant's limit is off by c |z| / 2 at most.
    secant = derivative(link, 0.0) if abs(z) < _SMALLEST_SCORE else (mean(link, z) - mean(link, 0.0)) / z
    return (1.0 - blend) * tangent + blend * secant


class _Rows(NamedTuple):
    """w and y of rows at some scores; of y a line for a reward of 0, and one for R."""

    weight: FloatArray
    response: FloatArray


def _rows_at(link: Link, reward_bound: float, blend: float, z: FloatArray) -> _Rows:
    means, weight = link.mean(z), link.derivative(z)
    if blend != 0.0:  # as in `blended_weight`
        small = np.abs(z) < _SMALLEST_SCORE
        secant = np.where(small, link.derivative(0.0), (means - link.mean(0.0)) / np.where(small, 1.0, z))
        weight = np.asarray((1.0 - blend) * weight + blend * secant)
    return _Rows(weight, np.array([reward - means + weight * z for reward in (0.0, reward_bound)]))


@dataclass(frozen=True)
class _Shifts:
    """|v - v'|, the largest over rewards and over q, as a function of the angles of x and x' to theta."""

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
        (a, first), (b, second) = (self._rows(level, line) for line in boxes)
        low, high = mapped(math.cos, a + b), mapped(math.cos, a - b)
        return np.asarray(np.sqrt(self._largest_square(first, second, low, high)))

    def _rows(self, level: int, line: Positions) -> tuple[FloatArray, _Rows]:
        """Angles of boxes, and the rows there; many boxes share an angle."""
        positions, places = distinct(line)
        angles = middles(level, positions, math.pi)
        z = self.theta_bound * mapped(math.cos, angles)
        weight, response = _rows_at(self.link, self.reward_bound, self.blend, z)
        return angles[places], _Rows(weight[places], response[:, places])

    def _largest_square(self, first: _Rows, second: _Rows, low: FloatArray, high: FloatArray) -> FloatArray:
        """In q a parabola, whose top is cut to [``low``, ``high``]; where it is a line, the better end."""
        squared_scale, w, w2 = self.scale * self.scale, first.weight, second.weight
        best = np.zeros(w.size)
        matrices, bend, bends = w * w + w2 * w2, 2.0 * w * w2, w * w2 > 0.0
        for y, y2 in product(first.response, second.response):
            cross = squared_scale * y * y2
            top = np.minimum(np.maximum(-cross / np.where(bends, bend, 1.0), low), high)
            q = np.where(bends, top, np.where(cross > 0.0, low, high))
            shift = matrices - bend * q * q + squared_scale * (y * y + y2 * y2) - 2.0 * cross * q
            np.maximum(best, shift, out=best)
        return best

    def room(self, level: int) -> float:
        return 2.0 * self.rate * (0.5 * math.pi * 0.5**level)

    def enough(self, best: Best) -> Best:
        return best * (1.0 + self.tolerance)

    def repeated(self, level: int, boxes: Positions) -> npt.NDArray[np.bool_]:
        return np.zeros(boxes.shape[1], dtype=np.bool_)

    def split(self, level: int, boxes: Positions) -> Positions:
        halves = np.array([[[1, 0, 1, 0]], [[1, 1, 0, 0]]])
        return np.asarray((2 * boxes[:, :, np.newaxis] + halves).reshape(2, -1))


def _largest_shift(shifts: _Shifts) -> float:
    """Upper bound on |v - v'|, at most a factor 1 + ``tolerance`` above it; NaN when the boxes run out."""
    return largest_value(shifts, 2, _MAX_BOXES) * (1.0 + shifts.tolerance)


def _longest_row(link: Link, reward_bound: float, blend: float, scale: float, theta_bound: float, rate: float) -> float:
    """Upper bound on |v| by a fine grid of angles and the Lipschitz constant."""
    weight, response = _rows_on_grid(link, reward_bound, blend, theta_bound)
    squares = weight * weight + scale * scale * response * response
    return math.sqrt(float(np.max(squares))) + 0.5 * rate * math.pi / _CELLS


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


def _rate(link: Link, theta_bound: float, reward_bound: float, scale: float) -> float:
    """Lipschitz constant of v in the angle of x to theta: |dz| <= S, |d(x x')| <= sqrt(2), |dx| <= 1.

    With c >= |mu''|: |w'| <= c for every blend, as the secant is an average of mu'; |y'| = |w - mu' + w' z| <= 2 c S.
    """
    curvature = link.curvature_bound(theta_bound)
    weight = link.derivative_bounds(theta_bound)[1]
    response = link.residual_bound(theta_bound, reward_bound) + weight * theta_bound
    matrix = curvature * theta_bound + math.sqrt(2.0) * weight
    return math.hypot(matrix, scale * (2.0 * curvature * theta_bound**2 + response))


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
    """The row for a given ``scale``; falls back to the triangle inequality where branch and bound runs out."""
    rate = _rate(link, theta_bound, reward_bound, scale)
    step = _step(link, theta_bound, blend, scale)
    longest = _longest_row(link, reward_bound, blend, scale, theta_bound, rate) + step
    shift = 2.0 * longest
    for tolerance in tolerances:
        found = _largest_shift(_Shifts(link, theta_bound, reward_bound, blend, scale, rate, tolerance))
        if math.isfinite(found):
            shift = min(shift, found + 2.0 * step)
            break
    bound = max(shift, math.sqrt(2.0) * longest)
    return LinearisedRow(link, theta_bound, reward_bound, blend, scale, longest, bound)


@lru_cache(maxsize=256)
def best_row(link: Link, theta_bound: float, reward_bound: float, blend: float) -> LinearisedRow:
    """The row whose ``scale`` least disturbs directions across theta.

    Noise of variance D^2 on the stream moves b by D^2 / s^2 and H theta by D^2 |theta|^2 / 2 in a direction
    orthogonal to theta; shrinkage takes half of the latter away.  Minimise their sum, with |theta| = S.
    """
    known = known_row(link, theta_bound, reward_bound, blend)
    if known is None:
        return searched_row(link, theta_bound, reward_bound, blend)
    return LinearisedRow(link, theta_bound, reward_bound, blend, *known)


def searched_row(link: Link, theta_bound: float, reward_bound: float, blend: float) -> LinearisedRow:
    """`best_row` without the table of common settings."""
    unit = link.derivative_bounds(theta_bound)[1] / link.pseudo_response_bound(theta_bound, reward_bound)

    def disturbance(log_scale: float) -> float:
        scale = unit * math.exp(log_scale)
        row = row_with_scale(link, theta_bound, reward_bound, blend, scale, (0.05,))
        return row.row_bound**2 * (1.0 / scale**2 + 0.25 * theta_bound**2)

    best = min(np.linspace(-1.5, 1.5, 13), key=disturbance)
    return row_with_scale(link, theta_bound, reward_bound, blend, unit * math.exp(float(best)))
