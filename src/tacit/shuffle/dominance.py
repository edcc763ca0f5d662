"""How well binomial noise hides a shift: a Gaussian that is easier to tell apart, found numerically.

Setting. B ~ Bin(N, p) with distribution function F and mass function f, and q = Phi^-1 o F. For real x
let P_x be the law of ``floor(x + U) + B``, U uniform on [0, 1): the value x rounded at random, plus
noise. Its distribution function is linear in x between integers, so q_x(y) = Phi^-1(P_x(Y <= y)) equals
q(y - j) at x = j and is smooth in between.

Claim. If q_x(y) - q_x'(y) <= h for x < x' and every y of a window, then P_x and P_x', with all mass
outside the window moved to its ends, are at least as hard to tell apart as N(0, 1) and N(h, 1).

Proof. Raising a success probability of a sum of independent Bernoulli variables raises it in the
likelihood ratio order (f is log-concave), so by Neyman and Pearson the best tests are thresholds "Y > y".
Such a test has errors alpha = 1 - Phi(q_x(y)) and beta = Phi(q_x'(y)) >= Phi(Phi^-1(1 - alpha) - h) =
G_h(alpha), the trade-off function of the Gaussian pair (Dong, Roth and Su, arXiv 1905.02383, equation 6).
Randomised tests lie on the chords between these points, and a chord between points above a convex
function stays above it. G_h is its own inverse, which covers the other direction.

Slope and offset. Between the integers let L be the linear interpolation of q. L falls by at most c =
max_y q(y) - q(y - 1) per unit of x. The slope of q_x(y) in x is -f(y - j) / phi(q_x(y)); where its size
stays in [s_min, s_max] with mean s, tangents bound the distance from the chord by (s - s_min)(s_max - s)
/ (s_max - s_min). Phi^-1 is concave below the median and convex above, so q_x - L is >= 0 below and <= 0
above; since y - j >= y - j' for x < x', the two distances never add up, except in the one interval that
holds the median. With e the largest distance plus the one at the median,

    q_x(y) - q_x'(y) <= c (x' - x) + e.

c is close to 1 / sd(B) and e to a few hundredths of c. Coordinates are independent, so that a vector
shifted by a is mu-GDP with mu <= c ||a|| + e sqrt(#coordinates) (arXiv 1905.02383, Corollary 3.3, and the
triangle inequality). Randomised rounding is part of P_x and costs no more than e; the bound with coupled
rounding, ||shift|| <= ||a|| + sqrt(#coordinates), is what it replaces. Mass outside the window is charged
to delta, once per coordinate.

The same, complete, is in docs/theory.md#domination-theorem, with the reason why the tail is charged to delta without
a factor e^epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import ndtri, ndtri_exp

from tacit.typing import FloatArray

_ROUNDING: Final = 1.0 + 1e-7
"""Covers the floating-point errors of q, about 1e-13 of values that differ by 1 / sd."""

_BEYOND: Final = 12.0
"""Standard deviations summed past the window; what lies further out is below 1e-30 of the tails used."""

_NORMAL_PEAK: Final = 1.0 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class Dominance:
    """Each coordinate shifted by a is (slope |a| + offset)-GDP, outside an event of the stated tail."""

    slope: float
    offset: float

    def mu(self, shift_norm: float, coordinates: int) -> float:
        """Gaussian-DP parameter of a vector shifted by at most ``shift_norm``; infinite when unknown."""
        return self.slope * shift_norm + self.offset * math.sqrt(coordinates)


NO_GUARANTEE: Final = Dominance(math.inf, math.inf)


@lru_cache(maxsize=4096)
def binomial_dominance(trials: int, probability: float, reach: int, tail: float) -> Dominance:
    """Dominating Gaussian for shifts of at most ``reach``, with ``tail`` mass per coordinate left out.

    ``NO_GUARANTEE`` when the support ends inside the window: the noise is too small for the shift.
    """
    mode = int((trials + 1) * probability)
    sd = math.sqrt(trials * probability * (1.0 - probability))
    half = int((_BEYOND - float(ndtri(0.5 * tail))) * sd) + reach + 64
    first, last = max(0, mode - half), min(trials, mode + half)
    log_mass = _log_mass(trials, probability, first, last)
    below = np.logaddexp.accumulate(log_mass)
    above = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    low = int(np.searchsorted(below, math.log(0.5 * tail))) - reach - 1
    high = log_mass.size - int(np.searchsorted(above[::-1], math.log(0.5 * tail))) + reach + 1
    if low < 1 or high > log_mass.size - 1:
        return NO_GUARANTEE
    q = np.where(below[:-1] < math.log(0.5), ndtri_exp(below[:-1]), -ndtri_exp(above[1:]))
    return _slope_and_offset(q[low - 1 : high], np.exp(log_mass[low:high]))


def _log_mass(trials: int, probability: float, first: int, last: int) -> FloatArray:
    """log f on [first, last], from exact ratios of neighbours: log-gamma would lose 8 digits at 10^7 trials."""
    y = np.arange(first, last, dtype=np.float64)
    ratios = np.log((trials - y) / (y + 1.0)) + math.log(probability / (1.0 - probability))
    log_mass = np.concatenate(([0.0], np.cumsum(ratios)))
    log_mass -= log_mass.max()
    return np.asarray(log_mass - math.log(math.fsum(np.exp(log_mass).tolist())), dtype=np.float64)


def _slope_and_offset(q: FloatArray, mass: FloatArray) -> Dominance:
    """c and e from q on the window and the mass of each of its intervals."""
    mean_slope = np.diff(q)
    left, right = _NORMAL_PEAK * np.exp(-0.5 * q[:-1] ** 2), _NORMAL_PEAK * np.exp(-0.5 * q[1:] ** 2)
    median = (q[:-1] <= 0.0) & (q[1:] >= 0.0)
    steepest = mass / np.minimum(left, right)  # phi(Phi^-1(u)) is concave in u: smallest at an end
    flattest = mass / np.where(median, _NORMAL_PEAK, np.maximum(left, right))
    spread = np.maximum(steepest - flattest, np.finfo(np.float64).tiny)
    distance = np.maximum(mean_slope - flattest, 0.0) * np.maximum(steepest - mean_slope, 0.0) / spread
    at_median = float(np.max(distance[median], initial=0.0))
    return Dominance(_ROUNDING * float(mean_slope.max()), _ROUNDING * (float(distance.max()) + at_median))
