"""Logs of simulated experiments."""

from __future__ import annotations

from typing import Any

import numpy as np

RATES = {False: {"A": 0.2, "B": 0.5, "C": 0.6}, True: {"A": 0.8, "B": 0.5, "C": 0.3}}
"""How often each drug cures, of those who do not smoke and of those who do."""


def log_of(lines: int, shares: dict[str, float], seed: int = 0, smokers: float = 0.5) -> dict[str, Any]:
    """Users who are given a drug by these shares, and are cured or not."""
    rng = np.random.default_rng(seed)
    smoker, drug = rng.random(lines) < smokers, rng.choice(list(shares), size=lines, p=list(shares.values()))
    rates = np.array([RATES[bool(one)][str(arm)] for one, arm in zip(smoker, drug, strict=True)])
    return {
        "age": rng.uniform(20, 80, lines),
        "smoker": smoker,
        "drug": drug.astype(object),
        "cured": (rng.random(lines) < rates).astype(np.float64),
    }
