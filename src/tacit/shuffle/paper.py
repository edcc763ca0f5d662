"""The paper's own constants for vector sums and gradient descent, kept for comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit._validate import integer_at_least, positive, probability


@dataclass(frozen=True)
class PaperParameters:
    """g, b and p of the paper's vector summation (appendix "Shuffled Vector Summation Protocols")."""

    grid: int
    noise_bits: int
    noise_probability: float

    @property
    def bits_per_coordinate(self) -> int:
        """2 g + b: after the shift by Delta an entry lies in [0, 2 Delta], which the paper's g + b leaves out."""
        return 2 * self.grid + self.noise_bits

    def noise_sd(self, users: int) -> float:
        """Standard deviation of a released coordinate in units of Delta, rounding at its worst included."""
        p = self.noise_probability
        return math.sqrt(users * self.noise_bits * p * (1.0 - p) + 0.25 * users) / self.grid


def paper_parameters(users: int, dim: int, epsilon: float, delta: float) -> PaperParameters:
    """b = 24e4 g^2 log(4 (d^2 + 1) / delta)^2 / (epsilon^2 n), p = 1/4, g = max(2 sqrt(n), d, 4)."""
    integer_at_least("users", users, 1)
    integer_at_least("dim", dim, 1)
    positive("epsilon", epsilon)
    probability("delta", delta)
    grid = math.ceil(max(2.0 * math.sqrt(users), dim, 4))
    logarithm = math.log(4.0 * (dim**2 + 1) / delta)
    noise_bits = math.ceil(24e4 * grid**2 * logarithm**2 / (epsilon**2 * users))
    return PaperParameters(grid, noise_bits, 0.25)


def paper_rounds(users: int, dim: int, epsilon: float, delta: float) -> int:
    """Rounds of P_GD: epsilon^2 n^2 / (d log(n d / delta)^3), rounded up."""
    integer_at_least("users", users, 1)
    integer_at_least("dim", dim, 1)
    positive("epsilon", epsilon)
    logarithm = math.log(users * dim / probability("delta", delta))
    return max(1, math.ceil(epsilon**2 * users**2 / (dim * logarithm**3)))
