"""What a person loses to several policies and lives: against the ledger, against formulas by hand, and with a fault."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy.stats import norm

from tacit.privacy.budget import Budget
from tacit.privacy.composition import Accounting
from tacit.privacy.events import DiscreteGaussianRelease, GaussianRelease
from tacit.privacy.lattice import RESERVE, largest_slack, lattice_epsilon, lattice_mu
from tacit.privacy.ledger import Ledger
from tacit.privacy.person import Loss, loss_of, most_lost, mu_across, together
from tacit.privacy.report import Model, PrivacyReport, no_privacy

DELTA = 1e-6


def delta_by_hand(mu: float, epsilon: float) -> float:
    """The formula of Gaussian differential privacy, as it stands in docs/theory.md."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def lemma_by_hand(mu: float, eta: float, draws: float, epsilon_0: float) -> tuple[float, float]:
    """The (epsilon, delta) of the lattice lemma, made from the Gaussian epsilon_0."""
    tail = 2.0 * draws * math.exp(-126.0)
    delta = math.exp(eta) * delta_by_hand(mu, epsilon_0) + (1.0 + math.exp(epsilon_0 + eta)) * tail
    return epsilon_0 + 2.0 * eta, delta


def report(
    noise: str = "exact", epsilon: float = 1.0, rounds: int = 1, share: float = 1.0, model: Model = "joint"
) -> PrivacyReport:
    """Of a ledger that has spent this share of its mu, with slack that nearly fills the reserve."""
    budget = Budget(epsilon, DELTA, rounds)
    kind: Accounting = "lattice" if noise == "exact" else "gaussian"
    ledger = Ledger(budget, accounting=kind)
    if noise == "exact":
        sd = 1.0 / (share * budget.lattice_mu)
        grid = sd * math.sqrt(0.9 * largest_slack(epsilon) / (12.0 * 100.0))
        ledger.charge(DiscreteGaussianRelease("a", 1.0, sd, draws=100, grid=grid))
    else:
        ledger.charge(GaussianRelease("a", 1.0, 1.0 / (share * budget.mu)))
    return ledger.report(model=model)


@pytest.mark.parametrize("noise", ["exact", "secure"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("rounds", [1, 3])
def test_one_policy_is_what_its_ledger_says(noise: str, epsilon: float, rounds: int) -> None:
    seen = report(noise, epsilon, rounds, share=0.7)
    lost = together([loss_of(seen)])
    assert (lost.epsilon, lost.total_delta) == (seen.spent_epsilon, seen.delta)
    limit = lattice_mu(epsilon, DELTA) if noise == "exact" else Budget(epsilon, DELTA).mu
    assert lost.mu == pytest.approx(0.7 * limit)
    assert lost.slack == seen.slack
    assert Loss.from_json(lost.to_json()) == lost


@pytest.mark.parametrize("policies", [1, 2, 10, 50])
def test_a_deployment_keeps_what_the_lemma_says(policies: int) -> None:
    """Its epsilon, less the slack, is one at which the lemma gives no more than delta; without the slack it is not."""
    lost = together([loss_of(report())] * policies)
    mu, eta = math.sqrt(policies) * lattice_mu(1.0, DELTA), policies * 0.9 * largest_slack(1.0)
    assert lost.mu == pytest.approx(mu)
    assert lost.slack == pytest.approx(eta)
    epsilon, delta = lemma_by_hand(mu, eta, 100 * policies, lost.epsilon - 2.0 * lost.slack)
    assert epsilon == pytest.approx(lost.epsilon)
    assert delta <= lost.total_delta * (1.0 + 1e-9)
    assert delta >= lost.total_delta * (1.0 - 2.0 * RESERVE)  # and not much less
    dropped = together([replace(loss_of(report()), slack=0.0, draws=0.0)] * policies).epsilon
    assert dropped < lost.epsilon - 2.0 * eta  # the fault: what /v1/privacy said when it composed mu alone
    assert lemma_by_hand(mu, eta, 100 * policies, dropped - 2.0 * eta)[1] > DELTA


def test_noise_of_several_kinds_composes() -> None:
    parts = [report("exact"), report("secure", 2.0), report("exact", 0.5, rounds=4)]
    lost = together(loss_of(part) for part in parts)
    by_hand = math.sqrt(sum((part.rounds_per_user * part.spent_mu) ** 2 for part in parts))
    assert lost.mu == pytest.approx(by_hand)
    assert lemma_by_hand(by_hand, lost.slack, 200, lost.epsilon - 2.0 * lost.slack)[1] <= DELTA


def test_parts_known_by_epsilon_and_delta_add() -> None:
    shuffled = replace(report("secure", 2.0, share=0.5), model="shuffle")
    lost = together([loss_of(shuffled), loss_of(report())])
    assert lost.epsilon == pytest.approx(shuffled.spent_epsilon + loss_of(report()).epsilon)
    assert lost.total_delta == 2.0 * DELTA
    assert together([loss_of(shuffled)]).epsilon == shuffled.spent_epsilon
    twice = loss_of(shuffled, lives=2)
    assert twice.epsilon == pytest.approx(shuffled.spent_epsilon + 2.0)
    assert twice.total_delta == 2.0 * shuffled.delta


@pytest.mark.parametrize(("lives", "epsilon"), [(1, 1.0), (2, 1.4545), (3, 1.8136)])
@pytest.mark.parametrize("noise", ["exact", "secure"])
def test_lives_multiply_mu_by_a_root(lives: int, epsilon: float, noise: str) -> None:
    lost = loss_of(report(noise, rounds=3), lives=lives)
    limit = lattice_mu(1.0, DELTA) if noise == "exact" else Budget(1.0, DELTA).mu
    assert lost.mu == pytest.approx(math.sqrt(lives) * limit)
    assert mu_across(report(noise, rounds=3), lives) == pytest.approx(lost.mu)
    assert lost.epsilon == pytest.approx(epsilon, abs=5e-4)
    assert lemma_by_hand(lost.mu, lost.slack, lost.draws, lost.epsilon - 2.0 * lost.slack)[1] <= DELTA * (1.0 + 1e-9)


def test_another_life_counts_with_its_whole_budget() -> None:
    """It went on after the backup: what it spent then is in no ledger that is at hand."""
    begun = report(share=0.2)
    limit = lattice_mu(1.0, DELTA)
    assert loss_of(begun, lives=3).mu == pytest.approx(limit * math.sqrt(0.04 + 2.0))
    assert most_lost(begun, lives=2).mu == pytest.approx(limit * math.sqrt(2.0))
    assert most_lost(begun).epsilon == pytest.approx(1.0, abs=1e-4)
    empty = loss_of(Ledger(Budget(1.0, DELTA)).report(), lives=2)  # nothing charged yet: it may be of either kind
    assert empty.mu == Budget(1.0, DELTA).mu
    assert empty.slack == largest_slack(1.0)


def test_where_there_is_no_bound() -> None:
    assert loss_of(no_privacy()).epsilon == math.inf
    assert together([loss_of(no_privacy()), loss_of(report())]).epsilon == math.inf
    assert together([]) == Loss()
    assert Loss.from_json(loss_of(no_privacy()).to_json()).mu == math.inf
    assert lattice_epsilon(1.0, math.inf, 1.0, DELTA) == math.inf
    assert lattice_epsilon(1.0, 1e4, 1.0, DELTA) == math.inf  # no delta is left
    assert lattice_epsilon(1.0, 0.0, 1e60, DELTA) == math.inf  # the lemma's tail takes all of it
