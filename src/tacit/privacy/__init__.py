"""Budgets, exact accounting and noise; adjacency is replacement throughout."""

from __future__ import annotations

from tacit.errors import BudgetExceeded
from tacit.privacy.budget import Budget
from tacit.privacy.events import DiscreteGaussianRelease, GaussianRelease, PrivacyEvent, RenyiRelease
from tacit.privacy.gaussian import delta_from, epsilon_from, group_mu, mu_from
from tacit.privacy.ledger import Entry, Ledger
from tacit.privacy.noise import (
    ExactNoise,
    FastNoise,
    NoiseSource,
    NoNoise,
    SecureNoise,
    make_noise,
    noise_from_state,
)
from tacit.privacy.renyi import (
    delta_from_renyi,
    epsilon_from_renyi,
    renyi_budget,
)
from tacit.privacy.report import PrivacyReport

__all__ = [
    "Budget",
    "BudgetExceeded",
    "DiscreteGaussianRelease",
    "Entry",
    "ExactNoise",
    "FastNoise",
    "GaussianRelease",
    "Ledger",
    "NoNoise",
    "NoiseSource",
    "PrivacyEvent",
    "PrivacyReport",
    "RenyiRelease",
    "SecureNoise",
    "delta_from",
    "delta_from_renyi",
    "epsilon_from",
    "epsilon_from_renyi",
    "group_mu",
    "make_noise",
    "mu_from",
    "noise_from_state",
    "renyi_budget",
]
