"""Budgets, exact accounting and noise; adjacency is replacement throughout."""

from __future__ import annotations

from tacit.errors import BudgetExceeded
from tacit.privacy.budget import Budget
from tacit.privacy.composition import epsilon_from_renyi, renyi_budget
from tacit.privacy.events import DiscreteGaussianRelease, GaussianRelease, PrivacyEvent, RenyiRelease
from tacit.privacy.gaussian import delta_from, epsilon_from, mu_from
from tacit.privacy.ledger import Entry, Ledger
from tacit.privacy.noise import (
    ExactNoise,
    FastNoise,
    ForwardingNoise,
    NoiseSource,
    NoNoise,
    SecureNoise,
    make_noise,
    noise_from_state,
)
from tacit.privacy.randomness import Randomness
from tacit.privacy.report import PrivacyReport

__all__ = [
    "Budget",
    "BudgetExceeded",
    "DiscreteGaussianRelease",
    "Entry",
    "ExactNoise",
    "FastNoise",
    "ForwardingNoise",
    "GaussianRelease",
    "Ledger",
    "NoNoise",
    "NoiseSource",
    "PrivacyEvent",
    "PrivacyReport",
    "Randomness",
    "RenyiRelease",
    "SecureNoise",
    "delta_from",
    "epsilon_from",
    "epsilon_from_renyi",
    "make_noise",
    "mu_from",
    "noise_from_state",
    "renyi_budget",
]
