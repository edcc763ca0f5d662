"""Renyi differential privacy turned into (epsilon, delta).

Formal guarantee. If the Renyi divergence of order alpha > 1 between the outputs on any two neighbours is at
most tau, the mechanism is (epsilon, delta)-DP for

    epsilon = tau + log(1 - 1/alpha) - (log delta + log alpha) / (alpha - 1)

(Canonne, Kamath and Steinke, arXiv 2004.00010, Proposition 12; the same as Balle et al., arXiv 1905.09982,
Theorem 21). It holds for each order, hence for the best one of any set that was fixed in advance
(docs/theory.md#renyi-accounting).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from tacit._validate import nonnegative_or_inf, probability
from tacit.errors import InvalidInput
from tacit.typing import FloatArray


def epsilon_from_renyi(orders: ArrayLike, divergences: ArrayLike, delta: float) -> float:
    """Smallest epsilon >= 0 that the curve implies at ``delta``; infinite when no order is finite."""
    alpha, tau = _curve(orders, divergences)
    candidates = tau + _correction(alpha, math.log(probability("delta", delta)))
    return max(0.0, float(np.min(candidates)))


def renyi_budget(orders: ArrayLike, epsilon: float, delta: float) -> FloatArray:
    """Largest divergence of each order that still implies (epsilon, delta)-DP; negative where none does."""
    alpha, _ = _curve(orders, np.zeros(np.size(orders)))
    epsilon = nonnegative_or_inf("epsilon", epsilon)
    budget: FloatArray = epsilon - _correction(alpha, math.log(probability("delta", delta)))
    return budget


def _correction(alpha: FloatArray, log_delta: float) -> FloatArray:
    """What Proposition 12 adds to the divergence of each order."""
    correction: FloatArray = np.log1p(-1.0 / alpha) - (log_delta + np.log(alpha)) / (alpha - 1.0)
    return correction


def _curve(orders: ArrayLike, divergences: ArrayLike) -> tuple[FloatArray, FloatArray]:
    alpha = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    tau = np.atleast_1d(np.asarray(divergences, dtype=np.float64))
    if alpha.ndim != 1 or alpha.shape != tau.shape or alpha.size == 0:
        raise InvalidInput(f"orders and divergences must be equally long, got {alpha.shape}, {tau.shape}")
    if not (np.all(alpha > 1.0) and np.all(np.isfinite(alpha))):
        raise InvalidInput(f"orders must be finite and above 1, got {alpha.tolist()!r}")
    if not np.all(tau >= 0.0):
        raise InvalidInput(f"divergences must be nonnegative, got {tau.tolist()!r}")
    return alpha, tau
