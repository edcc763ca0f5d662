"""What a user contributes and what follows from the released sums: public formulas around noisy numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from tacit.glm.links import Link
from tacit.linalg.ball import into_ball_by_metric
from tacit.policies.beliefs import GaussianBelief
from tacit.policies.shuffle.steps import averaged_derivative, averaged_mean, score_and_sd
from tacit.threads import one_blas_thread
from tacit.typing import FloatArray

_RADIUS_STEPS: Final = 64
"""Radii are rounded up to multiples of R / 64, so that few different messages have to be calibrated."""


@dataclass(frozen=True)
class ScoreBall:
    """A ball that holds the scores (r - m(x)) x of all users: ``center`` along theta, and ``radius``."""

    center: float
    radius: float

    def point(self, theta: FloatArray) -> FloatArray:
        """The center as a vector."""
        length = float(np.linalg.norm(theta))
        return theta * (self.center / length) if length > 0.0 else np.zeros_like(theta)


@lru_cache(maxsize=4096)
def score_ball(link: Link, theta_norm: float, reward_bound: float) -> ScoreBall:
    """The smallest such ball for a theta of this norm, up to a grid.

    Residuals are large and positive only against theta, large and negative only along it: all long scores point
    against theta, and a ball around a point there is smaller than one around 0, by up to a half; with a base rate near
    0 or R it hardly is.  Privacy does not rest on this search: whatever a user's score is, it is scaled into the ball.
    """
    cosines = np.linspace(-1.0, 1.0, 201)
    lengths = np.linspace(0.0, 1.0, 21)[1:, None]
    means = link.mean(theta_norm * lengths * cosines)
    along, across = [np.zeros(1)], [np.zeros(1)]  # 0 is what a user without a reward contributes
    for reward in (0.0, reward_bound):
        residual = (reward - means) * lengths
        along.append((residual * cosines).ravel())
        across.append((np.abs(residual) * np.sqrt(1.0 - cosines**2)).ravel())
    points = np.stack([np.concatenate(along), np.concatenate(across)])
    centers = np.linspace(float(points[0].min()), float(points[0].max()), 201)
    radii = np.max(np.hypot(points[0] - centers[:, None], points[1]), axis=1)
    best = int(np.argmin(radii))
    unit = reward_bound / _RADIUS_STEPS
    return ScoreBall(float(centers[best]), unit * math.ceil(float(radii[best]) / unit + 1e-3))


def contributions(
    link: Link, features: FloatArray, rewards: FloatArray, belief: GaussianBelief, weight_max: float
) -> tuple[FloatArray, FloatArray]:
    """Per user sqrt(w) x and (r - m) x, with w = E mu'(<x, Theta>) and m = E mu(<x, Theta>), Theta ~ the belief.

    Statistical linearisation: by Stein's lemma the best linear predictor of the reward over Theta is
    m + w <x, Theta - theta>, which stays right on average where the spread is wide and mu bends.
    """
    z, sd = score_and_sd(belief, features)
    roots = np.sqrt(np.minimum(averaged_derivative(link, z, sd), weight_max))
    residuals = rewards - averaged_mean(link, z, sd)
    return roots[:, np.newaxis] * features, residuals[:, np.newaxis] * features


def prior(dim: int, theta_bound: float) -> GaussianBelief:
    """N(0, S^2 / d I): spread over the ball."""
    return GaussianBelief(np.zeros(dim), theta_bound**2 / dim * np.eye(dim))


def updated(
    belief: GaussianBelief,
    curvature: FloatArray,
    score: FloatArray,
    curvature_sd: float,
    score_sd: float,
    theta_bound: float,
) -> GaussianBelief:
    """The belief after a batch: one Newton step from ``belief.theta``, weighted by what the releases are worth.

    The released score at theta is M (theta* - theta) with variance M (rewards) + score_sd^2 (privacy) + what the noise
    in M does to the first term, curvature_sd^2 times the spread's trace.  With C the sum of these, the information
    about theta* is M C^-1 M; earlier batches enter through the belief, as post-processing of their releases.
    """
    noise = score_sd**2 + curvature_sd**2 * float(np.trace(belief.covariance))
    with one_blas_thread():
        values, basis = np.linalg.eigh(0.5 * (curvature + curvature.T))
        values = np.maximum(values, 0.0)  # noise may have made them negative
        gain = values / np.maximum(values + noise, 1e-300)
        precision = np.linalg.inv(belief.covariance) + (basis * (values * gain)) @ basis.T
        precision = 0.5 * (precision + precision.T)
        spread = np.linalg.inv(precision)
    theta = belief.theta + spread @ ((basis * gain) @ (basis.T @ score))
    theta = into_ball_by_metric(theta, theta_bound, precision)
    return GaussianBelief(theta, 0.5 * (spread + spread.T))
