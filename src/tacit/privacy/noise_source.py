"""What a source of noise offers: one object carries the noise and its ledger entry.

A mechanism rounds contributions to the source's ``grid`` if it has one, asks ``scale_for`` for the standard deviation
that a share of the budget buys, charges ``event`` and only then draws ``gaussian``; it needs no special cases for any
source.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Final, final

import numpy as np

from tacit._validate import integer_at_least, nonnegative, positive_or_inf
from tacit.privacy.budget import Budget
from tacit.privacy.events import DiscreteGaussianRelease, GaussianRelease, NoisySum
from tacit.typing import FloatArray

Shape = int | tuple[int, ...]


class NoiseSource(ABC):
    """What every source of noise offers.  Unless a subclass says otherwise, values are ordinary floating point."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name: ``fast``, ``secure``, ``exact`` or ``none``."""

    @property
    def grid(self) -> float | None:
        """Spacing of the values that may be released, or None for ordinary floating point."""
        return None

    @abstractmethod
    def describe(self) -> str:
        """One sentence for the privacy report."""

    @abstractmethod
    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        """Independent centred noise of standard deviation ``scale``."""

    @abstractmethod
    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        """Independent noise that takes whole numbers only, for integers, of at least this parameter; 0 means none.

        A discrete Gaussian, or a continuous one, rounded: added to an integer the latter is the rounded sum.
        """

    @abstractmethod
    def generator(self) -> np.random.Generator:
        """A generator for noise that is not Gaussian, such as the bits of a shuffled sum; to be used at once."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """JSON-able state for ``noise_from_state``; randomness is saved for seeded runs only."""

    def charged_sd(self, noise_sd: float) -> float:
        """Standard deviation that the ledger may count on when ``noise_sd`` is asked for."""
        return noise_sd

    @final
    def rounding_slack(self, size: int) -> float:
        """What rounding to ``grid`` may add to the l2 sensitivity of ``size`` coordinates under replacement."""
        # Each of two contributions moves by at most grid / 2 per coordinate.
        return math.sqrt(integer_at_least("size", size, 0)) * (self.grid or 0.0)

    @final
    def scale_for(self, sensitivity: float, mu: float, *, size: int) -> float:
        """Standard deviation at which a release of ``size`` coordinates spends ``mu``; 0 for infinite mu."""
        total = nonnegative("sensitivity", sensitivity) + self.rounding_slack(size)
        return total / positive_or_inf("mu", mu)

    @final
    def mu_budget(self, budget: Budget) -> float:
        """Largest mu such that events of this source with squares adding up to mu^2 fit ``budget``."""
        return budget.mu if self.grid is None else budget.lattice_mu

    @final
    def event(
        self,
        name: str,
        sensitivity: float,
        noise_sd: float,
        *,
        size: int,
        count: int = 1,
        draws: int | None = None,
        moving_sensitivity: float | None = None,
        note: str = "",
    ) -> NoisySum:
        """Ledger entry of a release; sensitivities are those before contributions are rounded to ``grid``.

        ``size`` is the number of coordinates of one row's contribution to one of the ``count`` releases
        (for a continual stream: over all nodes it enters); ``draws`` the number of noise values drawn in
        all, size * count by default.
        """
        slack, charged = self.rounding_slack(size), self.charged_sd(noise_sd)
        total = nonnegative("sensitivity", sensitivity) + slack
        moving = None
        if moving_sensitivity is not None:
            moving = nonnegative("moving_sensitivity", moving_sensitivity) + 0.5 * slack
        if self.grid is None:
            return GaussianRelease(name, total, charged, count, note, moving)
        draws = size * integer_at_least("count", count, 1) if draws is None else draws
        return DiscreteGaussianRelease(name, total, charged, count, note, moving, draws=draws, grid=self.grid)


class ForwardingNoise(NoiseSource):
    """A source around another one: everything is passed on; subclasses watch or replace what is drawn."""

    def __init__(self, source: NoiseSource) -> None:
        self.source: Final = source

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def grid(self) -> float | None:
        return self.source.grid

    def describe(self) -> str:
        return self.source.describe()

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        return self.source.gaussian(scale, shape)

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        return self.source.integers(parameter, shape)

    def generator(self) -> np.random.Generator:
        return self.source.generator()

    def state(self) -> dict[str, Any]:
        return self.source.state()

    def charged_sd(self, noise_sd: float) -> float:
        return self.source.charged_sd(noise_sd)
