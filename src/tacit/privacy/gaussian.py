"""Exact Gaussian differential privacy: mu, epsilon and delta turned into each other.

A mechanism is mu-GDP when telling two neighbours apart is at least as hard as telling N(0, 1) from N(mu, 1)
(Dong, Roth and Su, arXiv 1905.02383, Definition 2.6). It is then (epsilon, delta(epsilon))-DP for every
epsilon (their Corollary 2.13; Balle and Wang, arXiv 1805.06530, Theorem 8) with

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

Both terms carry the same factor: e^epsilon phi(v) = phi(u) for u = epsilon/mu - mu/2 and v = u + mu. Hence
delta = phi(u) [M(u) - M(v)] with the Mills ratio M(x) = (1 - Phi(x)) / phi(x), which neither overflows nor
underflows, and M(u) - M(v) = integral of 1 - x M(x) over [u, v], which does not cancel when mu is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import erfcx, log_ndtr

from tacit._validate import nonnegative_or_inf, probability
from tacit.typing import FloatArray

_LOG_SQRT_2PI: Final = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF_PI: Final = math.sqrt(0.5 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_TOLERANCE: Final = 4.0 * float(np.finfo(np.float64).eps)


def delta_from(mu: float, epsilon: float) -> float:
    """Return the smallest delta for which mu-GDP implies (epsilon, delta)-DP.

    Parameters
    ----------
    mu : float
        Gaussian-DP parameter, not negative; infinity allowed.
    epsilon : float
        Not negative; infinity allowed.

    Returns
    -------
    float
        Delta, from 0 to 1.

    Examples
    --------
    >>> from tacit.privacy import delta_from
    >>> round(delta_from(mu=1.0, epsilon=1.0), 4)
    0.1269
    """
    mu = nonnegative_or_inf("mu", mu)
    epsilon = nonnegative_or_inf("epsilon", epsilon)
    if mu == 0.0 or math.isinf(epsilon):
        return 0.0
    if math.isinf(mu):
        return 1.0
    return math.exp(_log_delta(mu, epsilon))


def epsilon_from(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 for which mu-GDP implies (epsilon, delta)-DP.

    Parameters
    ----------
    mu : float
        Gaussian-DP parameter, not negative; infinity allowed.
    delta : float
        Strictly between 0 and 1.

    Returns
    -------
    float
        Epsilon; infinite when ``mu`` is.

    Examples
    --------
    >>> from tacit.privacy import epsilon_from
    >>> round(epsilon_from(mu=1.0, delta=1e-6), 4)
    4.8866
    """
    mu = nonnegative_or_inf("mu", mu)
    log_target = math.log(probability("delta", delta))
    if math.isinf(mu):
        return math.inf
    if mu == 0.0 or _log_delta(mu, 0.0) <= log_target:
        return 0.0
    high = 1.0
    while _log_delta(mu, high) > log_target:
        high *= 2.0
    return _root(lambda epsilon: log_target - _log_delta(mu, epsilon), 0.0, high)


def mu_from(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP implies (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        Not negative; infinity allowed.
    delta : float
        Strictly between 0 and 1.

    Returns
    -------
    float
        Gaussian-DP parameter; infinite when ``epsilon`` is.

    Examples
    --------
    >>> from tacit.privacy import mu_from
    >>> round(mu_from(epsilon=1.0, delta=1e-6), 4)
    0.2367
    """
    epsilon, delta = nonnegative_or_inf("epsilon", epsilon), probability("delta", delta)
    return math.inf if math.isinf(epsilon) else _largest_mu(epsilon, delta)


@lru_cache(maxsize=256)
def _largest_mu(epsilon: float, delta: float) -> float:
    """`mu_from` for arguments that were checked, and a finite epsilon."""
    log_target = math.log(delta)
    low = high = 0.0  # logarithms of mu, so that the root has a relative tolerance
    while _log_delta(math.exp(low), epsilon) > log_target:
        low -= 2.0
    while _log_delta(math.exp(high), epsilon) < log_target:
        high += 2.0
    return math.exp(_root(lambda log_mu: _log_delta(math.exp(log_mu), epsilon) - log_target, low, high))


def _log_delta(mu: float, epsilon: float) -> float:
    """log delta(epsilon) for finite mu > 0 and epsilon >= 0; increasing in mu, decreasing in epsilon."""
    u = epsilon / mu - 0.5 * mu
    v = u + mu
    log_density = -0.5 * u * u - _LOG_SQRT_2PI
    if u < -0.5:  # delta is Phi(-u) less a smaller term; M(u) would overflow
        log_first = float(log_ndtr(-u))
        return log_first + math.log1p(-math.exp(log_density - log_first) * _mills(v))
    difference = _mills_difference(u, mu) if mu < 1.0 else _mills(u) - _mills(v)
    return log_density + math.log(difference) if difference > 0.0 else -math.inf


def _mills(x: float) -> float:
    """Mills ratio (1 - Phi(x)) / phi(x)."""
    return _SQRT_HALF_PI * float(erfcx(x / math.sqrt(2.0)))


def _mills_difference(u: float, width: float) -> float:
    """M(u) - M(u + width) by quadrature of -M'(x) = 1 - x M(x), analytic, positive, decreasing."""
    x = u + 0.5 * width * (1.0 + _NODES)
    return float(0.5 * width * np.dot(_WEIGHTS, _mills_slope(x)))


def _mills_slope(x: FloatArray) -> FloatArray:
    """1 - x M(x); far out, where this cancels, its asymptotic series x^-2 - 3 x^-4 + 15 x^-6 - ..."""
    near = 1.0 - x * _SQRT_HALF_PI * np.asarray(erfcx(x / math.sqrt(2.0)))
    r = 1.0 / np.maximum(x * x, 900.0)
    far = r * (1.0 - r * (3.0 - r * (15.0 - r * (105.0 - r * (945.0 - r * 10395.0)))))
    slope: FloatArray = np.where(x > 30.0, far, near)
    return slope


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Root of an increasing function between ``low`` and ``high``; an end is taken where the root lies beyond it."""
    from scipy.optimize import brentq  # loaded when needed: it takes a part of a second

    if function(low) >= 0.0:
        return low
    if function(high) <= 0.0:
        return high
    return float(brentq(function, low, high, xtol=1e-16, rtol=_TOLERANCE, maxiter=500))
