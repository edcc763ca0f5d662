"""Releases of a batch: the budget of one row or several of a user, bounds on what is summed, plans, and sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import ndtr, ndtri

from tacit.glm.links import Link
from tacit.privacy.budget import Budget
from tacit.privacy.events import GaussianRelease
from tacit.privacy.gaussian import epsilon_from, mu_from
from tacit.shuffle.analyzer import analyze
from tacit.shuffle.guarantee import TAIL_SHARE
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.shuffle.planning import BatchPlan, SumRequest, plan_batch
from tacit.shuffle.randomizer import randomize_in_chunks
from tacit.shuffle.shuffler import Shuffler
from tacit.shuffle.sums import sample_sum
from tacit.typing import FloatArray

PATHS: Final = ("sums", "bits")
"""How a sum is released: drawn directly, or as bits through the three roles."""
BATCH_NOISE_RATIO: Final = 1.05
"""Standard deviation, rounding included, that is accepted over the central Gaussian's: bytes are cheap here."""
BATCH_MAX_BITS: Final = 256
MOST_ROUNDS: Final = 100_000
"""Most rows that one user may have."""
_RADIUS_STEPS: Final = 64
"""Radii are rounded up to multiples of R / 64, so that few different messages have to be calibrated."""


@dataclass(frozen=True)
class RowBudget:
    """What the releases of one batch may spend on one row, so that a user's k rows stay within the budget.

    Formal guarantee
    ----------------
    A batch's plan is mu-GDP up to an event of probability tau (`tacit.shuffle.guarantee`): the power of a test at
    level a is at most F(a) + tau, F(a) = Phi(mu + Phi^-1(a)).  For k rows, replaced one after the other, powers
    chain: F is concave with F(0) = 0, so that F(a + b) <= F(a) + F(b) and k rows have power at most F_k(a) + A_k,
    F_k the power of k mu (arXiv 1905.02383, Theorem 2.14), A_1 = tau, A_{j+1} = F(A_j) + tau.  The ledger holds
    k mu within (epsilon, delta - reserve), and tau is chosen such that A_k <= reserve
    (docs/theory.md#k-rows-across-cohorts).
    """

    epsilon: float
    delta: float
    mu: float
    reserve: float


def row_budget(budget: Budget) -> RowBudget:
    """Compute what a batch may spend on one row; for k = 1 the budget itself."""
    rows = budget.rounds_per_user
    if rows == 1:
        reserve = TAIL_SHARE * budget.delta
        return RowBudget(budget.epsilon, budget.delta, mu_from(budget.epsilon, budget.delta - reserve), reserve)
    reserve = 2.0 * TAIL_SHARE * budget.delta
    mu = budget.per_row((1.0 - 1e-9) * mu_from(budget.epsilon, budget.delta - reserve))
    tail = reserve / rows
    while chained_tail(mu, tail, rows, most=reserve) > reserve:
        tail *= 0.1
    delta = tail / TAIL_SHARE
    return RowBudget(epsilon_from(mu, delta - tail), delta, mu, reserve)


def chained_tail(mu: float, tail: float, rows: int, most: float = math.inf) -> float:
    """Compute A_k of `RowBudget`, or the first A_j above ``most``: they grow."""
    total = tail
    for _ in range(rows - 1):
        if total > most:
            break
        total = float(ndtr(mu + ndtri(min(total, 1.0)))) + tail
    return total


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
    """Find the smallest ball that holds all scores for a theta of this norm, up to a grid.

    Residuals are large and positive only against theta, large and negative only along it: all long scores point
    against theta, and a ball around a point there is smaller than one around 0, by up to a half; with a base rate near
    0 or R it hardly is.  Privacy does not rest on this search: every user's score is scaled into the ball.
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


def batch_plan(target: RowBudget, users: int, requests: Sequence[SumRequest], label: str) -> BatchPlan:
    """Calibrate all sums of one batch together, at its number of users."""
    return plan_batch(
        users,
        target.epsilon,
        target.delta,
        requests,
        label=label,
        noise_ratio=BATCH_NOISE_RATIO,
        max_bits=BATCH_MAX_BITS,
    )


def charged_events(plan: BatchPlan) -> tuple[GaussianRelease, ...]:
    """Ledger entries of a plan.

    A user's batch is a function of the clock alone, and a user without a reward reports a contribution of 0: rows do
    not move between batches, so that the room which the ledger keeps for moving rows never exceeds a replacement's.
    """
    return tuple(
        replace(event, moving_sensitivity=min(event.moving, event.sensitivity / math.sqrt(2.0)))
        for event in plan.gaussian_events()
    )


def release_sum(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator, path: str) -> Aggregate:
    """Release the sum over these users' rows, on one of ``PATHS``."""
    if path == "sums":
        return sample_sum(protocol, rows, rng)
    shuffler = Shuffler(protocol)
    for reports in randomize_in_chunks(protocol, rows, rng):
        shuffler.collect(reports)
    return analyze(protocol, shuffler.release(rng))
