"""A batch's releases: budgets for one row or several of a user, plans, and the sums themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import ndtr, ndtri

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
"""Rows of one user at most."""


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
    """The target of `plan_batch`; for k = 1 the budget itself."""
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
    """A_k of `RowBudget`, or the first A_j above ``most``: they grow."""
    total = tail
    for _ in range(rows - 1):
        if total > most:
            break
        total = float(ndtr(mu + ndtri(min(total, 1.0)))) + tail
    return total


def batch_plan(target: RowBudget, users: int, requests: Sequence[SumRequest], label: str) -> BatchPlan:
    """All sums of one batch, calibrated together at its number of users."""
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
    """The plan's ledger entries.

    A user's batch is a function of the clock alone, and whoever has no reward reports a contribution of 0: rows do
    not move between batches, so that the room which the ledger keeps for moving rows never exceeds a replacement's.
    """
    return tuple(
        replace(event, moving_sensitivity=min(event.moving, event.sensitivity / math.sqrt(2.0)))
        for event in plan.gaussian_events()
    )


def release_sum(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator, path: str) -> Aggregate:
    """One sum over the users whose rows these are, on one of ``PATHS``."""
    if path == "sums":
        return sample_sum(protocol, rows, rng)
    shuffler = Shuffler(protocol)
    for reports in randomize_in_chunks(protocol, rows, rng):
        shuffler.collect(reports)
    return analyze(protocol, shuffler.release(rng))
