"""How a batch becomes an estimate: what its users send, and what is made of the sums.

A learner asks for sums and gets them released; whether through bits, drawn directly, or without noise, it cannot
tell.  All else that it uses is public: earlier estimates and constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit.glm.links import Link
from tacit.linalg.ball import into_ball_by_metric
from tacit.policies.batch_policy import Sums
from tacit.policies.batches import BatchRows
from tacit.policies.beliefs import GaussianBelief
from tacit.policies.setting import PrivateSetting, Setting
from tacit.policies.shuffle.profiles import ShuffleProfile
from tacit.policies.shuffle.releases import ScoreBall, score_ball
from tacit.policies.shuffle.steps import (
    ShuffleState,
    arm_weights,
    averaged_derivative,
    averaged_mean,
    estimate,
    estimate_count,
    score_and_sd,
)
from tacit.shuffle.calibration import paper_rounds
from tacit.shuffle.domains import Ball, OuterProducts
from tacit.shuffle.optimizer import definite_metric, gradient_descent
from tacit.shuffle.planning import SumRequest
from tacit.threads import one_blas_thread
from tacit.typing import FloatArray


class Learner(Protocol):
    """Which sums a batch releases, and what estimate is made of them."""

    def requests(self, state: ShuffleState, users: int) -> Sequence[SumRequest]:
        """Sums that a batch of ``users`` will release, from public quantities."""

    def estimate(self, state: ShuffleState, rows: BatchRows, sums: Sums) -> GaussianBelief:
        """Release the sums of a batch, and return the estimate after it."""


def newest(state: ShuffleState) -> GaussianBelief:
    """The newest estimate, or the prior before the first batch."""
    return estimate(state, estimate_count(state))


@dataclass(frozen=True)
class OneNewtonStep:
    """`tuned`: curvature and score at the last estimate, which is public before the batch: users send once."""

    setting: Setting
    profile: ShuffleProfile

    def requests(self, state: ShuffleState, users: int) -> Sequence[SumRequest]:
        share, dim = self.profile.matrix_share, self.setting.dim
        return (
            SumRequest("curvature", OuterProducts(dim, self.setting.max_derivative), share=share),
            SumRequest("score", Ball(dim, self._ball(newest(state)).radius), share=1.0 - share),
        )

    def estimate(self, state: ShuffleState, rows: BatchRows, sums: Sums) -> GaussianBelief:
        belief = newest(state)
        link, most = self.setting.link, self.setting.max_derivative
        roots, scores = contributions(link, rows.features, rows.rewards, belief, most)
        center = self._ball(belief).point(belief.theta)
        curvature = sums("curvature", 0, rows.padded(roots))
        # Relative to the ball's center: a user without a reward sends -center, which is a score of 0.
        score = sums("score", 0, rows.padded(scores) - center)
        total = score.values + rows.users * center
        return updated(belief, curvature.values, total, curvature.noise_sd, score.noise_sd, self.setting.theta_bound)

    def _ball(self, belief: GaussianBelief) -> ScoreBall:
        length = round(float(np.linalg.norm(belief.theta)), 2)
        return score_ball(self.setting.link, length, self.setting.reward_bound)


@dataclass(frozen=True)
class PaperDescent:
    """`theory`: V or H_k, then the paper's P_GD, whose rounds are cut at ``max_rounds``."""

    setting: PrivateSetting
    profile: ShuffleProfile
    max_rounds: int

    def requests(self, state: ShuffleState, users: int) -> Sequence[SumRequest]:
        bound = 1.0 if estimate_count(state) == 0 else self.setting.max_derivative
        return (
            SumRequest("matrix", OuterProducts(self.setting.dim, bound)),
            SumRequest("gradient", Ball(self.setting.dim, self._lipschitz), rounds=self._rounds(users)),
        )

    def estimate(self, state: ShuffleState, rows: BatchRows, sums: Sums) -> GaussianBelief:
        setting, profile = self.setting, self.profile
        features, rewards = rows.features, rows.rewards
        scales = np.sqrt(arm_weights(state, features))
        matrix = sums("matrix", 0, rows.padded(scales[:, None] * features)).values
        metric = definite_metric(matrix, profile.ridge)
        step = iter(range(self._rounds(rows.users)))

        def gradient(theta: FloatArray) -> FloatArray:
            residuals = setting.link.mean(features @ theta) - rewards
            gradients = residuals[:, np.newaxis] * features
            return sums("gradient", next(step), rows.padded(gradients)).values

        found = gradient_descent(
            gradient, np.zeros(setting.dim), users=rows.users, radius=setting.theta_bound,
            lipschitz=self._lipschitz, rounds=self._rounds(rows.users), ridge=profile.descent_ridge,
        )  # fmt: skip
        # Correction 7: sqrt(kappa) belongs to V alone.
        factor = setting.kappa if estimate_count(state) == 0 else 1.0
        return GaussianBelief(found.theta, np.asarray(factor * np.linalg.inv(metric), dtype=np.float64))

    @property
    def _lipschitz(self) -> float:
        return self.setting.link.residual_bound(self.setting.theta_bound, self.setting.reward_bound)

    def _rounds(self, users: int) -> int:
        budget = self.setting.budget
        if budget.unlimited:
            return self.max_rounds
        return min(self.max_rounds, paper_rounds(users, self.setting.dim, budget.epsilon, budget.delta))


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
    """Prior belief N(0, S^2 / d I), spread over the ball."""
    return GaussianBelief(np.zeros(dim), theta_bound**2 / dim * np.eye(dim))


def updated(
    belief: GaussianBelief,
    curvature: FloatArray,
    score: FloatArray,
    curvature_sd: float,
    score_sd: float,
    theta_bound: float,
) -> GaussianBelief:
    """Update the belief by a batch: one Newton step from ``belief.theta``, weighted by the accuracy of the releases.

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
