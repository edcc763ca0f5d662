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

The same, complete, is in docs/theory.md#gradient-diameter.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tacit._compile import kernel
from tacit.glm.links import Link, mean

_TOLERANCES = (0.005, 0.01, 0.02, 0.05)
_MAX_BOXES = 2_000_000


@kernel
def _distance(link: int, reward_bound: float, s: float, a: float, b: float) -> float:
    """The largest D over the rewards, for one length of theta and two angles."""
    best = 0.0
    for choice in range(4):
        first = mean(link, s * math.cos(a)) - reward_bound * (choice % 2)
        second = mean(link, s * math.cos(b)) - reward_bound * (choice // 2)
        along = first * math.cos(a) - second * math.cos(b)
        across = abs(first) * math.sin(a) + abs(second) * math.sin(b)
        best = max(best, along * along + across * across)
    return math.sqrt(best)


@kernel
def _diameter(
    link: int, theta_bound: float, reward_bound: float, slope: float, residual: float, tolerance: float
) -> float:
    """Upper bound on D, above the maximum by at most ``tolerance``; NaN when the boxes run out.

    Depth first: a box is its middle (s, a_1, a_2) and three half widths.
    """
    rate = (2.0 * slope, theta_bound * slope + residual, theta_bound * slope + residual)
    middle, half = np.empty((512, 3)), np.empty((512, 3))
    for k in range(3):
        middle[0, k] = half[0, k] = 0.5 * (theta_bound if k == 0 else math.pi)
    waiting, best = 1, 0.0
    for _ in range(_MAX_BOXES):
        if waiting == 0:
            return best + tolerance
        top = waiting - 1
        value = _distance(link, reward_bound, middle[top, 0], middle[top, 1], middle[top, 2])
        best = max(best, value)
        room, axis = 0.0, 0
        for k in range(3):
            room += rate[k] * half[top, k]
            if rate[k] * half[top, k] > rate[axis] * half[top, axis]:
                axis = k
        # D is symmetric in the two rows, so that boxes above the diagonal repeat those below.
        mirrored = middle[top, 1] - half[top, 1] >= middle[top, 2] + half[top, 2]
        if mirrored or value + room <= best + tolerance:
            waiting -= 1
            continue
        if waiting == middle.shape[0]:
            break
        half[top, axis] *= 0.5
        for k in range(3):
            middle[top + 1, k], half[top + 1, k] = middle[top, k], half[top, k]
        middle[top, axis] -= half[top, axis]
        middle[top + 1, axis] += half[top, axis]
        waiting += 1
    return math.nan


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
    residual = largest_residual(link, theta_bound, reward_bound)
    slope = link.derivative_bounds(theta_bound)[1]
    for tolerance in _TOLERANCES:
        found = _diameter(link.code, theta_bound, reward_bound, slope, residual, tolerance * residual)
        if not math.isnan(found):
            return min(found, 2.0 * residual)
    return 2.0 * residual
