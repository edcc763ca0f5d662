"""Budgets: validation, the unlimited one, users who return."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tacit.errors import InvalidInput, TacitError
from tacit.privacy import Budget, mu_from


def test_mu_is_per_row() -> None:
    assert Budget(1.0, 1e-5).mu == mu_from(1.0, 1e-5)
    assert Budget(1.0, 1e-5, rounds_per_user=4).mu == pytest.approx(mu_from(1.0, 1e-5) / 4)


def test_unlimited() -> None:
    budget = Budget(math.inf, 1e-5)
    assert budget.unlimited
    assert budget.mu == math.inf
    assert not Budget(50.0, 1e-5).unlimited


def test_is_a_value() -> None:
    budget = Budget(1, 1e-5)
    assert budget == Budget(1.0, 1e-5)
    assert hash(budget) == hash(Budget(1.0, 1e-5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        budget.epsilon = 2.0  # type: ignore[misc]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, -math.inf, math.nan, "1", None, True])
def test_bad_epsilon_is_refused(epsilon: object) -> None:
    with pytest.raises(InvalidInput, match="epsilon must be"):
        Budget(epsilon, 1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.5, math.nan, math.inf])
def test_bad_delta_is_refused(delta: float) -> None:
    with pytest.raises(InvalidInput, match=r"delta must lie strictly between 0 and 1, got"):
        Budget(1.0, delta)


@pytest.mark.parametrize("rounds", [0, -1, 1.5, True])
def test_bad_rounds_are_refused(rounds: object) -> None:
    with pytest.raises(InvalidInput, match="rounds_per_user must be"):
        Budget(1.0, 1e-5, rounds)  # type: ignore[arg-type]


def test_errors_are_value_errors_and_ours() -> None:
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(InvalidInput, TacitError)
