"""Private optimizers: plans whose noise and ledger entry come from the same numbers; `estimate` runs them."""

from __future__ import annotations

from tacit.estimation.optimizers import NoisyGradientDescent, NoisyNewton
from tacit.estimation.plan import PrivateOptimizer, PublicView, Regression, Release, estimate

__all__ = [
    "NoisyGradientDescent",
    "NoisyNewton",
    "PrivateOptimizer",
    "PublicView",
    "Regression",
    "Release",
    "estimate",
]
