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

import numpy as np

from tacit._compile import kernel
from tacit.glm.links import Link, derivative, mean

_TOLERANCES = (0.002, 0.01, 0.04)
"""Tried in turn: where the maximum is flat, a tight tolerance would need too many boxes."""
_MAX_BOXES = 1_500_000
_SMALLEST_SCORE = 1e-5
"""Below it the secant is replaced by its limit mu'(0)."""


@kernel
def blended_weight(link: int, blend: float, z: float) -> float:
    """(1 - blend) mu'(z) + blend (mu(z) - mu(0)) / z."""
    tangent = derivative(link, z)
    if blend == 0.0:
        return tangent
    # At small scores the difference of the means is mostly rounding; the secant's limit is off by c |z| / 2 at most.
    secant = derivative(link, 0.0) if abs(z) < _SMALLEST_SCORE else (mean(link, z) - mean(link, 0.0)) / z
    return (1.0 - blend) * tangent + blend * secant


@kernel
def _squared_shift(
    link: int, reward_bound: float, blend: float, scale: float, theta_bound: float, a: float, b: float
) -> float:
    """The largest |v - v'|^2 over rewards and over q, for the angles ``a`` and ``b`` of x and x' to theta."""
    z, other = theta_bound * math.cos(a), theta_bound * math.cos(b)
    w, w2 = blended_weight(link, blend, z), blended_weight(link, blend, other)
    low, high = math.cos(a + b), math.cos(a - b)
    best = 0.0
    for choice in range(4):
        y = reward_bound * (choice % 2) - mean(link, z) + w * z
        y2 = reward_bound * (choice // 2) - mean(link, other) + w2 * other
        cross = scale * scale * y * y2
        q = min(max(-cross / (2.0 * w * w2), low), high) if w * w2 > 0.0 else (low if cross > 0.0 else high)
        shift = w * w + w2 * w2 - 2.0 * w * w2 * q * q + scale * scale * (y * y + y2 * y2) - 2.0 * cross * q
        best = max(best, shift)
    return best


@kernel
def _largest_shift(
    link: int, reward_bound: float, blend: float, scale: float, theta_bound: float, rate: float, tolerance: float
) -> float:
    """Upper bound on |v - v'|, at most a factor 1 + ``tolerance`` above it; NaN when the boxes run out.

    A box is its middle and its half width; ``rate`` bounds how fast the distance changes with either angle.
    """
    stack = np.empty((4096, 3))
    stack[0, 0] = stack[0, 1] = stack[0, 2] = 0.5 * math.pi
    waiting, best = 1, 0.0
    for _ in range(_MAX_BOXES):
        if waiting == 0:
            return best * (1.0 + tolerance)
        waiting -= 1
        a, b, half = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2]
        here = math.sqrt(_squared_shift(link, reward_bound, blend, scale, theta_bound, a, b))
        best = max(best, here)
        if here + 2.0 * rate * half <= best * (1.0 + tolerance):
            continue
        for corner in range(4):
            stack[waiting, 0] = a + (0.5 if corner % 2 else -0.5) * half
            stack[waiting, 1] = b + (0.5 if corner // 2 else -0.5) * half
            stack[waiting, 2] = 0.5 * half
            waiting += 1
    return math.nan


@kernel
def _longest_row(link: int, reward_bound: float, blend: float, scale: float, theta_bound: float, rate: float) -> float:
    """Upper bound on |v| by a fine grid of angles and the Lipschitz constant."""
    cells, best = 20_000, 0.0
    for i in range(cells):
        z = theta_bound * math.cos(math.pi * (i + 0.5) / cells)
        w = blended_weight(link, blend, z)
        for choice in range(2):
            y = reward_bound * choice - mean(link, z) + w * z
            best = max(best, w * w + scale * scale * y * y)
    return math.sqrt(best) + 0.5 * rate * math.pi / cells


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
    longest = float(_longest_row(link.code, reward_bound, blend, scale, theta_bound, rate))
    shift = 2.0 * longest
    for tolerance in tolerances:
        found = float(_largest_shift(link.code, reward_bound, blend, scale, theta_bound, rate, tolerance))
        if math.isfinite(found):
            shift = min(shift, found)
            break
    bound = max(shift, math.sqrt(2.0) * longest)
    return LinearisedRow(link, theta_bound, reward_bound, blend, scale, longest, bound)


@lru_cache(maxsize=256)
def best_row(link: Link, theta_bound: float, reward_bound: float, blend: float) -> LinearisedRow:
    """The row whose ``scale`` least disturbs directions across theta.

    Noise of variance D^2 on the stream moves b by D^2 / s^2 and H theta by D^2 |theta|^2 / 2 in a direction
    orthogonal to theta: minimise their sum, with |theta| = S.
    """
    unit = link.derivative_bounds(theta_bound)[1] / link.pseudo_response_bound(theta_bound, reward_bound)

    def disturbance(log_scale: float) -> float:
        scale = unit * math.exp(log_scale)
        row = row_with_scale(link, theta_bound, reward_bound, blend, scale, (0.05,))
        return row.row_bound**2 * (1.0 / scale**2 + 0.5 * theta_bound**2)

    best = min(np.linspace(-1.5, 1.5, 13), key=disturbance)
    return row_with_scale(link, theta_bound, reward_bound, blend, unit * math.exp(float(best)))
