"""Private optimizers: budget in, estimate and ledger entry out."""

from __future__ import annotations

from tacit.estimation.descent import NoisyGradientDescent
from tacit.estimation.newton import NoisyNewton
from tacit.estimation.plan import Estimate, PrivateOptimizer, Problem, PublicView, Release, estimate

__all__ = [
    "Estimate",
    "NoisyGradientDescent",
    "NoisyNewton",
    "PrivateOptimizer",
    "Problem",
    "PublicView",
    "Release",
    "estimate",
]
