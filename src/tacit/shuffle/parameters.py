"""The public parameters of one shuffled sum: frozen, and all that the three roles agree on in advance."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from tacit._validate import integer_at_least
from tacit.errors import InvalidInput
from tacit.shuffle.domains import Domain
from tacit.typing import FloatArray, IntArray

PROBABILITY_UNITS: Final = 1 << 16
"""Noise probabilities are multiples of 2^-16, so that a device draws them exactly from 16 random bits."""


@dataclass(frozen=True)
class SumProtocol:
    """The public parameters of a binary-sum protocol for vectors (Cheu et al., arXiv 2106.09805, Theorem 4.2).

    A coordinate in [lower, upper] is shifted by its lower end, divided by the step ``bound / grid``,
    rounded at random to a neighbouring integer, increased by Bin(noise_bits, p), and sent as that many
    ones among ``levels + noise_bits`` bits. Ranges differ by coordinate, the step does not, so that the
    noise is isotropic and the Euclidean sensitivity of the domain is what counts.  `calibrate` makes one.

    Parameters
    ----------
    label : str
        Names the sum; reports for another label are refused.
    domain : Domain
        What one user may contribute.
    grid : int
        g, steps per unit of the domain's bound.
    noise_bits : int
        b, noise bits per coordinate and user.
    noise_numerator : int
        p times 2^16.
    min_users : int
        Smallest batch.

    Examples
    --------
    >>> from tacit.shuffle import Ball, SumProtocol
    >>> protocol = SumProtocol("sum", Ball(2), grid=4, noise_bits=5, noise_numerator=1 << 15, min_users=1000)
    >>> protocol.noise_probability, protocol.bits_per_coordinate, round(protocol.noise_sd(users=1000), 2)
    (0.5, 13, 9.68)
    """

    label: str
    domain: Domain
    grid: int
    """g: steps per unit of the domain's bound."""
    noise_bits: int
    """b: noise bits per coordinate and user."""
    noise_numerator: int
    """p times 2^16."""
    min_users: int
    """Smallest batch that may be opened."""

    def __post_init__(self) -> None:
        integer_at_least("grid", self.grid, 1)
        integer_at_least("noise_bits", self.noise_bits, 1)
        integer_at_least("noise_numerator", self.noise_numerator, 1)
        integer_at_least("min_users", self.min_users, 1)
        if self.noise_numerator >= PROBABILITY_UNITS:
            raise InvalidInput(f"noise_numerator must be below {PROBABILITY_UNITS}, got {self.noise_numerator}")

    @property
    def noise_probability(self) -> float:
        """p: probability that a noise bit is 1."""
        return self.noise_numerator / PROBABILITY_UNITS

    @property
    def step(self) -> float:
        """Value of one unit of the grid."""
        return self.domain.bound / self.grid

    @cached_property
    def lower(self) -> FloatArray:
        """Value of the grid's zero in each coordinate."""
        return self.domain.lower

    @cached_property
    def levels(self) -> IntArray:
        """Largest rounded value of each coordinate: its range in steps, rounded up."""
        return grid_levels(self.domain, self.grid)

    @cached_property
    def widths(self) -> IntArray:
        """Bits sent for each coordinate."""
        return self.levels + self.noise_bits

    @property
    def bits_per_coordinate(self) -> int:
        """Bits of the widest coordinate."""
        return int(self.widths.max())

    @property
    def payload_bits(self) -> int:
        """Bits of one report before padding."""
        return int(self.widths.sum())

    @property
    def payload_bytes(self) -> int:
        """Packed size of one report without its header."""
        return (self.payload_bits + 7) // 8

    @cached_property
    def digest(self) -> bytes:
        """Eight bytes that name the parameters; a report made for other ones is refused."""
        fields = (self.label, self.domain, self.grid, self.noise_bits, self.noise_numerator, self.min_users)
        return hashlib.sha256(repr(fields).encode()).digest()[:8]

    def noise_trials(self, users: int) -> int:
        """Count the noise bits per coordinate that honest reports bring.

        Parameters
        ----------
        users : int
            Number of honest reports.

        Returns
        -------
        int
            Noise bits.
        """
        return users * self.noise_bits

    def noise_sd(self, users: int) -> float:
        """Compute the standard deviation of a released coordinate around the true sum.

        It is that of binomial noise, plus the rounding of every user, whose variance is at most 1/4 of a squared step.

        Parameters
        ----------
        users : int
            Reports in the sum.

        Returns
        -------
        float
            The standard deviation, at worst.
        """
        p = self.noise_probability
        binomial = self.noise_trials(users) * p * (1.0 - p)
        return self.step * math.sqrt(binomial + 0.25 * users)

    def scaled(self, contributions: FloatArray) -> FloatArray:
        """Measure contributions in steps above the lower end.

        Parameters
        ----------
        contributions : ndarray, shape (users, size)
            What the domain's ``embed`` gave.

        Returns
        -------
        ndarray
            Steps, inside [0, levels] also after rounding of floats.
        """
        steps = contributions - self.lower
        steps /= self.step
        return np.clip(steps, 0.0, self.levels, out=steps)

    def rounded(self, contributions: FloatArray, rng: np.random.Generator) -> IntArray:
        """Round contributions at random to a neighbouring whole number of steps, each to itself on average.

        Parameters
        ----------
        contributions : ndarray, shape (users, size)
            What the domain's ``embed`` gave.
        rng : numpy.random.Generator
            Source of the rounding.

        Returns
        -------
        ndarray
            Whole numbers of steps above the lower end.
        """
        steps = self.scaled(contributions)
        steps += rng.random(steps.shape)
        np.floor(steps, out=steps)
        return np.minimum(steps, self.levels, out=steps).astype(np.int64)  # a float just below 1 may carry beyond

    def debiased(self, ones: IntArray, reports: int) -> FloatArray:
        """Estimate the sum without bias from the number of ones.

        Parameters
        ----------
        ones : ndarray, shape (size,)
            Number of ones among the bits of each coordinate.
        reports : int
            Reports that arrived.

        Returns
        -------
        ndarray
            The estimate, shape (size,).
        """
        expected = self.noise_trials(reports) * self.noise_probability
        return self.step * (ones - expected) + reports * self.lower

    def relabelled(self, label: str) -> SumProtocol:
        """Copy the parameters under another label.

        Parameters
        ----------
        label : str
            Name of another round or batch.

        Returns
        -------
        SumProtocol
            The parameters with this label.
        """
        return replace(self, label=label)


def grid_levels(domain: Domain, grid: int) -> IntArray:
    """Range of each coordinate in steps, rounded up; a hair of tolerance keeps 2 g from becoming 2 g + 1."""
    ranges = (domain.upper - domain.lower) * (grid / domain.bound)
    return np.ceil(ranges * (1.0 - 1e-12)).astype(np.int64)
