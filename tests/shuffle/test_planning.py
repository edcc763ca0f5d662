"""Several releases about the same users: one budget, one ledger."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import BudgetExceeded, InvalidInput
from tacit.privacy.gaussian import mu_from
from tacit.shuffle.domains import Ball, OuterProducts
from tacit.shuffle.messages import report_bytes
from tacit.shuffle.planning import BatchAccounting, BatchPlan, SumRequest, plan_batch

REQUESTS = [
    SumRequest("matrix", OuterProducts(5, 0.25), share=1.0),
    SumRequest("gradient", Ball(5), rounds=3, share=2.0),
]


def make(accounting: BatchAccounting) -> BatchPlan:
    return plan_batch(3_000, 1.0, 0.02, REQUESTS, accounting=accounting, label="batch-2")


@pytest.mark.parametrize("accounting", ["gaussian", "renyi"])
def test_the_ledger_accepts_the_plan_and_nothing_more(accounting: BatchAccounting) -> None:
    plan = make(accounting)
    ledger = plan.ledger()
    for event in plan.events():
        ledger.charge(event)
    assert 0.98 <= ledger.epsilon_spent <= 1.0
    assert ledger.epsilon_spent == pytest.approx(plan.epsilon_at(), rel=1e-6)
    with pytest.raises(BudgetExceeded):
        ledger.charge(plan.events()[0])


@pytest.mark.parametrize("accounting", ["gaussian", "renyi"])
def test_disjoint_batches_are_free(accounting: BatchAccounting) -> None:
    plan = make(accounting)
    ledger = plan.ledger()
    for batch in range(5 if accounting == "gaussian" else 1):
        for event in plan.events():
            ledger.charge(event, cohort=f"batch-{batch}")
    assert ledger.epsilon_spent <= 1.0


def test_exact_composition_needs_less_noise_than_renyi_curves() -> None:
    exact, renyi = make("gaussian"), make("renyi")
    assert exact.guarantee.mu <= mu_from(1.0, 0.02)
    assert renyi.guarantee.mu < 0.9 * exact.guarantee.mu


def test_shares_rounds_and_bytes() -> None:
    plan = make("gaussian")
    matrix, gradient = plan["matrix"], plan["gradient"]
    ratio = 3.0 * gradient.part.mu**2 / matrix.part.mu**2
    assert ratio == pytest.approx(2.0, rel=0.02)
    assert plan.rounds == 4
    assert plan.bytes_per_user == report_bytes(matrix.protocol) + 3 * report_bytes(gradient.protocol)
    assert plan.epsilon_at(0.8) > plan.epsilon_at()


def test_every_round_has_its_own_label() -> None:
    gradient = make("gaussian")["gradient"]
    digests = {gradient.round(i).digest for i in range(3)}
    assert len(digests) == 3
    with pytest.raises(InvalidInput, match="round"):
        gradient.round(3)


def test_a_batch_of_requests_needs_names() -> None:
    with pytest.raises(InvalidInput, match="different names"):
        plan_batch(1_000, 1.0, 1e-6, [SumRequest("a", Ball(2)), SumRequest("a", Ball(2))])
    with pytest.raises(InvalidInput, match="no release"):
        make("gaussian")["hessian"]


def test_plans_are_values() -> None:
    first, second = make("gaussian"), make("gaussian")
    assert first == second
    assert np.array_equal(first["matrix"].protocol.levels, second["matrix"].protocol.levels)
