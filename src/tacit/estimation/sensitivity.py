"""How far two gradients at the same theta can be apart: less than twice the largest gradient.

The gradient of a row is rho x with rho = mu(<x, theta>) - r.  For x along theta the residual can
be large only if positive, for x against it only if negative, and both gradients then point along theta: two
opposite gradients of full length do not exist.  The diameter of the set of gradients is therefore below
2 max abs(rho): against 2R by 36% at S = 2 and 29% at S = 3 for logistic, by 27% and 18% for probit.

It is a maximum over three numbers.  With s = ||theta|| and a the angle between x and theta, a gradient is
rho (cos a, sin a u), u a unit vector orthogonal to theta.  The distance is convex in each reward, so that
rewards are 0 or R, and convex in the part of x orthogonal to theta, so that x has norm 1 and the u are
opposite:

    D^2 = (rho_1 cos a_1 - rho_2 cos a_2)^2 + (abs(rho_1) sin a_1 + abs(rho_2) sin a_2)^2,
    rho_i = mu(s cos a_i) - r_i,  0 <= s <= S,  0 <= a_i <= pi,  r_i in {0, R}.

Each gradient moves by at most (S max mu' + max abs(rho)) per unit of its angle and max mu' per unit of s,
which bounds D on a box from its value in the middle; boxes are split until the bound is within tolerance.

The complete derivation is in docs/theory.md#gradient-diameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tacit.estimation._bounds_table import known_diameter
from tacit.estimation.search import Best, Positions, distinct, largest_value, mapped, middles
from tacit.glm.links import Link
from tacit.typing import FloatArray

_TOLERANCES = (0.005, 0.01, 0.02, 0.05)
_MAX_BOXES = 2_000_000


@dataclass(frozen=True)
class _Distances:
    """D, the largest over the rewards, as a function of the length of theta and of two angles to it."""

    link: Link
    theta_bound: float
    reward_bound: float
    rates: tuple[float, float, float]
    """Bounds how fast D changes with the length, and with either angle."""
    tolerance: float
    parts: ClassVar[int] = 2
    _halvings: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, 0)])
    """How often each axis was halved, for every level so far."""

    def values(self, level: int, boxes: Positions) -> FloatArray:
        lengths, *angles = boxes
        rows = [self._gradients(level, lengths, line, axis) for axis, line in enumerate(angles, start=1)]
        best = np.zeros(lengths.size)
        for (first, cosine, sine), (second, cosine2, sine2) in product(*rows):
            along = first * cosine - second * cosine2
            across = np.abs(first) * sine + np.abs(second) * sine2
            np.maximum(best, along * along + across * across, out=best)
        return np.asarray(np.sqrt(best))

    def _gradients(
        self, level: int, lengths: Positions, line: Positions, axis: int
    ) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        """rho, cos a and sin a, for both rewards; many boxes share length and angle."""
        halvings = self._halved(level)
        pairs, places = distinct((lengths << halvings[axis]) + line)
        s = middles(halvings[0], pairs >> halvings[axis], self.theta_bound)
        a = _every_angle(halvings[axis])[pairs & ((1 << halvings[axis]) - 1)]
        cosine, sine = mapped(math.cos, a), mapped(math.sin, a)
        means = self.link.mean(s * cosine)
        return [((means - reward)[places], cosine[places], sine[places]) for reward in (0.0, self.reward_bound)]

    def room(self, level: int) -> float:
        (length, first, second), half = self.rates, self._half(level)
        return length * half[0] + first * half[1] + second * half[2]

    def enough(self, best: Best) -> Best:
        return best + self.tolerance

    def repeated(self, level: int, boxes: Positions) -> npt.NDArray[np.bool_]:
        """D is symmetric in the two rows, so that boxes above the diagonal repeat those below."""
        (_, first, second), halves = self._halved(level), self._half(level)
        low, high = _every_angle(first) - halves[1], _every_angle(second) + halves[2]
        return np.asarray(low[boxes[1]] >= high[boxes[2]])

    def split(self, level: int, boxes: Positions) -> Positions:
        parts = np.repeat(boxes, 2, axis=1)
        parts[self._widest(level)] = 2 * parts[self._widest(level)] + np.tile([1, 0], boxes.shape[1])
        return parts

    def _half(self, level: int) -> tuple[float, ...]:
        widths = (self.theta_bound, math.pi, math.pi)
        return tuple(0.5 * width * 0.5**times for width, times in zip(widths, self._halved(level), strict=True))

    def _widest(self, level: int) -> int:
        """The axis along which D can change most within a box; the first of several."""
        reach = [rate * half for rate, half in zip(self.rates, self._half(level), strict=True)]
        return reach.index(max(reach))

    def _halved(self, level: int) -> tuple[int, int, int]:
        while len(self._halvings) <= level:
            counts = list(self._halvings[-1])
            counts[self._widest(len(self._halvings) - 1)] += 1
            self._halvings.append((counts[0], counts[1], counts[2]))
        return self._halvings[level]


@lru_cache(maxsize=64)
def _every_angle(halvings: int) -> FloatArray:
    """Middles of all parts of [0, pi] after ``halvings`` halvings, of which there are never more than 20."""
    return middles(halvings, np.arange(1 << halvings), math.pi)


def _diameter(
    link: Link, theta_bound: float, reward_bound: float, slope: float, residual: float, tolerance: float
) -> float:
    """Upper bound on D, above the maximum by at most ``tolerance``; NaN when the boxes run out."""
    turn = theta_bound * slope + residual
    distances = _Distances(link, theta_bound, reward_bound, (2.0 * slope, turn, turn), tolerance)
    return largest_value(distances, 3, _MAX_BOXES) + tolerance


def largest_residual(link: Link, theta_bound: float, reward_bound: float) -> float:
    """max abs(mu(z) - r) over scores in [-S, S] and rewards in [0, R]."""
    low, high = link.mean_range(theta_bound)
    return max(abs(low), abs(high), abs(reward_bound - low), abs(reward_bound - high))


@lru_cache(maxsize=256)
def gradient_diameter(link: Link, theta_bound: float, reward_bound: float) -> float:
    """Bound on the distance of two gradients (mu - r) x at one theta of norm at most ``theta_bound``.

    Features in the unit ball, rewards in [0, R].  Above the maximum by half a percent of the largest residual
    in ordinary cases, by more where the search would take long, and never above twice the largest residual.
    """
    known = known_diameter(link, theta_bound, reward_bound)
    return searched_diameter(link, theta_bound, reward_bound) if known is None else known


def searched_diameter(link: Link, theta_bound: float, reward_bound: float) -> float:
    """`gradient_diameter` without the table of common settings."""
    residual = largest_residual(link, theta_bound, reward_bound)
    slope = link.derivative_bounds(theta_bound)[1]
    for tolerance in _TOLERANCES:
        found = _diameter(link, theta_bound, reward_bound, slope, residual, tolerance * residual)
        if not math.isnan(found):
            return min(found, 2.0 * residual)
    return 2.0 * residual
