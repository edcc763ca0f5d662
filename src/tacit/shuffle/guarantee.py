"""What a shuffled sum guarantees: a Gaussian-DP parameter, a tail, and the ledger entries that follow from them.

**How well binomial noise hides a shift** (`binomial_dominance`): a Gaussian that is easier to tell apart, found
numerically.

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

The complete proof is in docs/theory.md#domination-theorem, with the reason why the tail is charged to delta without
a factor e^epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import ndtri, ndtri_exp

from tacit._validate import probability
from tacit.errors import InvalidInput
from tacit.privacy.composition import epsilon_from_renyi
from tacit.privacy.events import GaussianRelease, RenyiRelease
from tacit.privacy.gaussian import epsilon_from
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

TAIL_SHARE: Final = 1e-3
"""Part of delta that pays for mass outside the window of the dominating Gaussian."""

_FLOATS: Final = 1.0 + 1e-9
"""Scaling a row into the ball and dividing by the step move it by a few units in the last place."""

_ROUNDING: Final = 1.0 + 1e-7
"""Covers the floating-point errors of q, about 1e-13 of values that differ by 1 / sd."""
_BEYOND: Final = 12.0
"""Standard deviations summed past the window; what lies further out is below 1e-30 of the tails used."""
_NORMAL_PEAK: Final = 1.0 / math.sqrt(2.0 * math.pi)
RENYI_ORDERS: Final = tuple(1.0 + float(10.0**x) for x in np.linspace(-2.0, 3.0, 101))


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


@dataclass(frozen=True)
class Guarantee:
    """The guarantee of a shuffled sum: ``mu``-GDP, except on events of probability at most ``tail_delta``.

    Parameters
    ----------
    mu : float
        Gaussian-DP parameter for a replaced row.
    tail_delta : float
        Bound on the probability of the exception.
    moving_mu : float
        Gaussian-DP parameter for a row that stops contributing, or starts to.

    Formal guarantee
    ----------------
    Adjacency: one user's whole row is replaced; the reports that arrive are the same people's.  The
    analyzer's view of the replaced sum is, up to an event of probability ``tail_delta``, a post-
    processing of a Gaussian mechanism with sensitivity over standard deviation ``mu``
    (`binomial_dominance`).  It follows that the release is (epsilon_from(mu, delta - tail_delta), delta)-DP, that
    parameters compose as ``sqrt(sum mu^2)`` and tails as sums, also when a round is chosen from earlier
    ones, and that its Renyi divergences are at most ``alpha mu^2 / 2``, in the approximate sense of Bun
    and Steinke (arXiv 1605.02065, Definition 8.1).  Proof: docs/theory.md#domination-theorem.

    Examples
    --------
    >>> from tacit.shuffle import Ball, calibrate, guarantee
    >>> protocol = calibrate(Ball(2), users=1000, epsilon=1.0, delta=1e-6)
    >>> found = guarantee(protocol, tail_delta=1e-9)
    >>> found.epsilon(delta=1e-6) <= 1.0 < found.renyi_epsilon(delta=1e-6)
    True
    """

    mu: float
    tail_delta: float
    moving_mu: float
    """Gaussian-DP parameter for a row that stops contributing, or starts to: its report has a contribution of 0."""

    def epsilon(self, delta: float) -> float:
        """Compute the smallest epsilon at ``delta``, by the exact curve of the dominating Gaussian.

        Parameters
        ----------
        delta : float
            delta, above ``tail_delta``.

        Returns
        -------
        float
            epsilon.
        """
        return epsilon_from(self.mu, self._net(delta))

    def renyi_epsilon(self, delta: float) -> float:
        """Compute the smallest epsilon at ``delta`` by the Renyi curve, as a ledger of Renyi releases composes it.

        Parameters
        ----------
        delta : float
            delta, above ``tail_delta``.

        Returns
        -------
        float
            epsilon, which is larger than that of `epsilon`.
        """
        curve = [0.5 * a * self.mu**2 for a in RENYI_ORDERS]
        return epsilon_from_renyi(RENYI_ORDERS, curve, self._net(delta))

    def _net(self, delta: float) -> float:
        net = probability("delta", delta) - self.tail_delta
        if not net > 0.0:
            raise InvalidInput(f"delta must exceed this release's tail {self.tail_delta:.3g}, got {delta!r}")
        return net


def guarantee(protocol: SumProtocol, tail_delta: float, honest: float = 1.0) -> Guarantee:
    """Return the guarantee of ``protocol`` at its smallest batch when a share ``honest`` of the reports brings noise.

    Dishonest users may send anything, and tell the attacker what: their noise is not counted, and their
    contributions are constants, so only the number of honest noise bits matters.

    Parameters
    ----------
    protocol : SumProtocol
        Parameters of the sum.
    tail_delta : float
        Probability that is left out, to be paid from delta; strictly between 0 and 1.
    honest : float, default 1
        Share of honest users, in (0, 1].

    Returns
    -------
    Guarantee
        Its ``mu`` is infinite where the noise is too small.

    Examples
    --------
    >>> from tacit.shuffle import Ball, calibrate, guarantee
    >>> protocol = calibrate(Ball(2), users=1000, epsilon=1.0, delta=1e-6)
    >>> guarantee(protocol, tail_delta=1e-9).mu < guarantee(protocol, tail_delta=1e-9, honest=0.5).mu
    True
    """
    if not 0.0 < honest <= 1.0:
        raise InvalidInput(f"honest must lie in (0, 1], got {honest!r}")
    probability("tail_delta", tail_delta)
    users = math.floor(honest * protocol.min_users * (1.0 + 1e-12))
    if users < 1:
        return Guarantee(math.inf, tail_delta, math.inf)
    domain = protocol.domain
    dominance = binomial_dominance(
        protocol.noise_trials(users),
        protocol.noise_probability,
        int(protocol.levels.max()),
        tail_delta / domain.size,
    )
    replaced, moved = (_FLOATS * s / protocol.step for s in (domain.sensitivity, domain.bound))
    return Guarantee(dominance.mu(replaced, domain.size), tail_delta, dominance.mu(moved, domain.size))


def combined(parts: list[Guarantee]) -> Guarantee:
    """Guarantee of several releases about the same users, each possibly chosen from earlier ones."""
    mu = math.sqrt(math.fsum(part.mu**2 for part in parts))
    moving = math.sqrt(math.fsum(part.moving_mu**2 for part in parts))
    return Guarantee(mu, math.fsum(part.tail_delta for part in parts), moving)


def renyi_event(protocol: SumProtocol, part: Guarantee, rounds: int = 1) -> RenyiRelease:
    """Ledger entry by Renyi curve: ``rounds`` sums under ``protocol``, each with guarantee ``part``."""
    return RenyiRelease(
        name=protocol.label,
        orders=RENYI_ORDERS,
        divergences=tuple(0.5 * a * part.mu**2 for a in RENYI_ORDERS),
        tail_delta=part.tail_delta,
        sensitivity=protocol.domain.sensitivity,
        moving_sensitivity=protocol.domain.sensitivity * part.moving_mu / part.mu,
        count=rounds,
        noise_sd=protocol.noise_sd(protocol.min_users),
        note=_note(protocol),
    )


def gaussian_event(protocol: SumProtocol, part: Guarantee, rounds: int = 1) -> GaussianRelease:
    """Ledger entry by the dominating Gaussian; its ledger is opened with delta less all ``tail_delta``."""
    return GaussianRelease(
        name=protocol.label,
        sensitivity=protocol.domain.sensitivity,
        noise_sd=protocol.domain.sensitivity / part.mu,
        moving_sensitivity=protocol.domain.sensitivity * part.moving_mu / part.mu,
        count=rounds,
        note=_note(protocol) + "; noise_sd is that of the dominating Gaussian",
    )


def _note(protocol: SumProtocol) -> str:
    p = protocol.noise_probability
    noise = f"g={protocol.grid}, b={protocol.noise_bits}, p={p:.5g}, at least {protocol.min_users} users"
    return f"shuffled binary sum, {noise}"
