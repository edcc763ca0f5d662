"""Compiled functions of a link: mean, derivative, antiderivative, and a reward drawn from its distribution.

They take a `LinkForm`, ``link.form``, and dispatch on its code here and nowhere else, so that a kernel of any other
module passes the form on and stays free of branches on links.  Codes that are not of the package's links go to
`tacit.glm.link_table`, where links from outside are registered.  A code that is unknown there too is an error: to go
on with some other link's mean would void every bound that was computed for the right one.

Mean, derivative and antiderivative are finite for every score with ``|z| <= 700``: no overflow, no NaN, and a
derivative that is never negative.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit._compile import entry, kernel
from tacit.glm.link_table import ANTIDERIVATIVE, DERIVATIVE, MEAN, REWARD, registered, two_valued_reward
from tacit.typing import FloatArray

LOGISTIC, PROBIT, IDENTITY, LOG = 0, 1, 2, 3
"""Codes of the package's links."""
MAX_SCORE = 700.0
MAX_RATE = 700.0
"""Largest Poisson rate that can be sampled: above it exp(-rate), where the sum starts, underflows."""

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)


class LinkForm(NamedTuple):
    """A link as kernels take it."""

    code: int
    """Which functions."""
    offset: float
    """What is added to every score: 0, or the score at which a shifted link's mean is the base rate."""


@kernel
def mean(link: LinkForm, z: float) -> float:
    """mu(z)."""
    score = z + link.offset
    if link.code == LOGISTIC:
        tail = math.exp(-abs(score))
        return 1.0 / (1.0 + tail) if score >= 0.0 else tail / (1.0 + tail)
    if link.code == PROBIT:
        return 0.5 * math.erfc(-score * SQRT_HALF)
    if link.code == IDENTITY:
        return score
    if link.code == LOG:
        return math.exp(min(score, MAX_SCORE))
    return registered(MEAN, link.code, (float(score),))


@kernel
def derivative(link: LinkForm, z: float) -> float:
    """mu'(z), never negative."""
    score = z + link.offset
    if link.code == LOGISTIC:
        tail = math.exp(-abs(score))
        return tail / ((1.0 + tail) * (1.0 + tail))
    if link.code == PROBIT:
        return INV_SQRT_2PI * math.exp(-0.5 * score * score)
    if link.code == IDENTITY:
        return 1.0
    if link.code == LOG:
        return math.exp(min(score, MAX_SCORE))
    return registered(DERIVATIVE, link.code, (float(score),))


@kernel
def antiderivative(link: LinkForm, z: float) -> float:
    """The antiderivative of mu that vanishes at minus infinity (at 0 for the identity)."""
    score = z + link.offset
    if link.code == LOGISTIC:
        return max(score, 0.0) + math.log1p(math.exp(-abs(score)))
    if link.code == PROBIT:
        # Far in the left tail the two terms cancel down to rounding, which may not turn the sum negative.
        return max(0.0, score * (0.5 * math.erfc(-score * SQRT_HALF)) + INV_SQRT_2PI * math.exp(-0.5 * score * score))
    if link.code == IDENTITY:
        return 0.5 * score * score
    if link.code == LOG:
        # Beyond the saturated mean: its straight continuation, so that the loss stays convex.
        return math.exp(min(score, MAX_SCORE)) * (1.0 + max(score - MAX_SCORE, 0.0))
    return registered(ANTIDERIVATIVE, link.code, (float(score),))


@kernel
def sample_reward(link: LinkForm, expected: float, reward_bound: float, uniform: float) -> float:
    """A reward in [0, R] of mean ``expected``, cut to what [0, R] allows, as a function of a uniform number.

    For a fixed ``uniform`` it never falls as ``expected`` rises.
    """
    if link.code == LOG:
        return min(reward_bound, _poisson(expected, uniform))
    if link.code in (LOGISTIC, PROBIT, IDENTITY):
        return two_valued_reward(expected, reward_bound, uniform)
    return registered(REWARD, link.code, (float(expected), float(reward_bound), float(uniform)))


@kernel
def _poisson(rate: float, uniform: float) -> float:
    """Poisson quantile by summing the mass function."""
    if rate > MAX_RATE:
        raise ValueError("the mean count is above 700: too large to be sampled")
    mass = math.exp(-rate)
    total, count = mass, 0.0
    while total < uniform and mass > 0.0:
        count += 1.0
        mass *= rate / count
        total += mass
    return count


@entry
def _fill_means(link: LinkForm, scores: FloatArray, out: FloatArray) -> None:
    for i in range(scores.shape[0]):
        out[i] = mean(link, scores[i])


@entry
def _fill_derivatives(link: LinkForm, scores: FloatArray, out: FloatArray) -> None:
    for i in range(scores.shape[0]):
        out[i] = derivative(link, scores[i])


@entry
def _fill_antiderivatives(link: LinkForm, scores: FloatArray, out: FloatArray) -> None:
    for i in range(scores.shape[0]):
        out[i] = antiderivative(link, scores[i])


_FILL = {MEAN: _fill_means, DERIVATIVE: _fill_derivatives, ANTIDERIVATIVE: _fill_antiderivatives}
"""A kernel for each: few policies need all three, and what is not called is not compiled."""


@entry
def _fill_rewards(
    link: LinkForm, reward_bound: float, scores: FloatArray, uniforms: FloatArray, out: FloatArray
) -> None:
    for i in range(scores.shape[0]):
        out[i] = sample_reward(link, mean(link, scores[i]), reward_bound, uniforms[i])


def evaluate_each(what: int, link: LinkForm, scores: npt.ArrayLike) -> FloatArray:
    """``MEAN``, ``DERIVATIVE`` or ``ANTIDERIVATIVE`` at every score."""
    array = np.asarray(scores, dtype=np.float64)
    flat = np.ascontiguousarray(array).reshape(-1)
    out = np.empty_like(flat)
    _FILL[what](link, flat, out)
    return out.reshape(array.shape)


def sample_each(link: LinkForm, scores: npt.ArrayLike, reward_bound: float, uniforms: npt.ArrayLike) -> FloatArray:
    """A reward for every pair of a score and a uniform number; the two are broadcast against each other."""
    z, u = np.broadcast_arrays(np.asarray(scores, dtype=np.float64), np.asarray(uniforms, dtype=np.float64))
    out = np.empty(z.size)
    _fill_rewards(link, float(reward_bound), z.flatten(), u.flatten(), out)
    return out.reshape(z.shape)
