"""Ridge regression on noisy sums, for the private linear policies: how far a row moves them, and what they tell."""

from __future__ import annotations

import math
from typing import NamedTuple

from tacit._validate import nonnegative, positive, probability
from tacit.linalg.ball import into_ball
from tacit.linalg.inverse import ridge_inverse
from tacit.policies.config import PrivateConfig, configuration, option
from tacit.policies.setting import Setting
from tacit.threads import one_blas_thread
from tacit.typing import FloatArray


@configuration
class LinearConfig(PrivateConfig):
    """Configuration that both private LinUCBs share."""

    scale: float = option("Multiplies the radius of the confidence set.", default=0.3, check=nonnegative)
    shift: float = option(
        "Multiplies the bound on the noise that is added to the Gram matrix.", default=0.3, check=nonnegative
    )
    ridge: float = option("Added to the Gram matrix with any noise.", default=1.0, check=positive)
    failure_probability: float = option(
        "Probability that the confidence set misses theta; not the privacy delta.", default=0.02, check=probability
    )


class NoisySums(NamedTuple):
    """Released sums of x x' and r x, the standard deviations of their noise, and how many rows they hold."""

    gram: FloatArray
    moment: FloatArray
    gram_sd: float
    moment_sd: float
    rounds: float


def subtracted_rate(config: PrivateConfig) -> float:
    """Number that is subtracted from every reward: the base rate, where there is one."""
    return 0.0 if config.base_rate is None else config.base_rate


def response_bound(setting: Setting, config: PrivateConfig) -> float:
    """Bound on abs(r - base rate) over rewards in [0, R]."""
    return max(subtracted_rate(config), setting.reward_bound - subtracted_rate(config))


def row_bound(weight: float, bound: float) -> float:
    """sup ||(x x' - y y', s (r x - q y))|| over the unit ball and responses r, q in [0, R], or in [-R, R].

    Let b = s R, u = ||x|| ||y|| cos(x, y) with its sign turned. The square is ||x||^4 + ||y||^4 + s^2 (r^2 ||x||^2 +
    q^2 ||y||^2) - 2 u^2 + 2 s^2 r q u. Over all u <= 1 the last two terms are at most b^4 / 2 (at u = b^2 / 2, when
    b^2 <= 2) or 2 b^2 - 2, and the first ones at most 2 + 2 b^2: together (2 + b^2)^2 / 2 or 4 b^2. Unit vectors at
    that angle with rewards R attain it. Where r q is negative, u of the other sign gives the same.
    """
    reach = weight * bound
    return (2.0 + reach * reach) / math.sqrt(2.0) if reach * reach <= 2.0 else 2.0 * reach


def estimate_bound(setting: Setting) -> float:
    """Longest estimate: the best linear fit to means in [0, R] over the unit ball need not lie in the S-ball."""
    return max(setting.theta_bound, setting.reward_bound * setting.dim)


class NoisyFit(NamedTuple):
    """An estimate, and the ellipsoid around it that theta is in, in the metric of the shifted Gram matrix."""

    theta: FloatArray
    inverse: FloatArray
    """Inverse of the shifted Gram matrix."""
    radius: float


def solve_noisy(sums: NoisySums, setting: Setting, config: LinearConfig) -> NoisyFit:
    """Fit a ridge regression to noisy sums, and compute the radius of its confidence set.

    Shariff and Sheffet (arXiv 1810.00068), Proposition 4: with the noisy Gram matrix shifted to lie between low * I
    and high * I above the true one, the radius is deviation * sqrt(d log(1 + t / (d low)) + 2 log(2 / delta)) + S
    sqrt(high) + ||noise||_{low^-1}. Noise in isometric packing is a Gaussian orthogonal ensemble: operator norm sd *
    sqrt(2 d), and a Gaussian tail.  Where noise goes beyond the shift, that is doubled.
    """
    dim, rounds, failure = sums.moment.size, sums.rounds, config.failure_probability
    tail = math.sqrt(2.0 * math.log(4.0 * (1.0 + rounds) / failure))
    gram_noise = sums.gram_sd * (math.sqrt(2.0 * dim) + tail)
    moment_noise = sums.moment_sd * (math.sqrt(dim) + tail)
    with one_blas_thread(dim):
        inverse, low = ridge_inverse(sums.gram, config.ridge + config.shift * gram_noise)
    spread = dim * math.log(1.0 + rounds / (dim * low)) + 2.0 * math.log(2.0 / failure)
    bias = setting.theta_bound * math.sqrt(low + gram_noise)
    deviation = 0.5 * setting.reward_bound  # rewards in [0, R] are R/2-sub-Gaussian (Hoeffding)
    radius = deviation * math.sqrt(spread) + bias + moment_noise / math.sqrt(low)
    return NoisyFit(into_ball(inverse @ sums.moment, estimate_bound(setting)), inverse, config.scale * radius)
