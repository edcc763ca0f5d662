"""Sources of Gaussian noise: reproducible, from the operating system, exact, or none.

One object carries the noise and its ledger entry: a mechanism quantizes contributions, asks ``scale_for``
for the standard deviation that a share of the budget buys, charges ``event`` and only then draws
``gaussian``; it needs no special cases for any source.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from scipy.special import ndtri

from tacit._validate import integer_at_least, nonnegative, nonnegative_or_inf, positive, positive_or_inf
from tacit.errors import InvalidInput, TacitError
from tacit.privacy.events import DiscreteGaussianRelease, GaussianRelease, NoisySum
from tacit.privacy.gaussian import mu_from
from tacit.privacy.lattice import lattice_mu
from tacit.typing import FloatArray

Shape = int | tuple[int, ...]
NOISE_NAMES: Final = ("fast", "secure", "exact", "none")
_EXACT_LIMIT: Final = 2.0**53  # integers below it, and their sums, are exact in float64


@runtime_checkable
class NoiseSource(Protocol):
    """What every source of noise offers."""

    @property
    def name(self) -> str:
        """Short name: one of ``NOISE_NAMES``."""

    @property
    def grid(self) -> float | None:
        """Spacing of the values that may be released, or None for ordinary floating point."""

    def describe(self) -> str:
        """One sentence for the privacy report."""

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        """Independent centred noise of standard deviation ``scale``."""

    def quantize(self, values: FloatArray) -> FloatArray:
        """Contributions as they may enter a sum that this noise protects."""

    def rounding_slack(self, size: int) -> float:
        """What ``quantize`` may add to the l2 sensitivity of ``size`` coordinates under replacement."""

    def scale_for(self, sensitivity: float, mu: float, *, size: int) -> float:
        """Standard deviation at which a release of ``size`` coordinates spends ``mu``; 0 for infinite mu."""

    def mu_budget(self, epsilon: float, delta: float, rounds_per_user: int = 1) -> float:
        """Largest mu such that events of this source with squares adding up to mu^2 fit (epsilon, delta)."""

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
        """Ledger entry of a release; sensitivities are those before ``quantize``.

        ``size`` is the number of coordinates of one row's contribution to one of the ``count`` releases
        (for a continual stream: over all nodes it enters); ``draws`` the number of noise values drawn in
        all, size * count by default.
        """

    def state(self) -> dict[str, Any]:
        """JSON-able state for ``noise_from_state``; randomness is saved for seeded runs only."""


class _Continuous:
    """Ordinary floating point: nothing is rounded, releases are charged as exact Gaussians."""

    @property
    def grid(self) -> float | None:
        return None

    def quantize(self, values: FloatArray) -> FloatArray:
        return np.asarray(values, dtype=np.float64)

    def rounding_slack(self, size: int) -> float:
        integer_at_least("size", size, 0)
        return 0.0

    def scale_for(self, sensitivity: float, mu: float, *, size: int) -> float:
        total = nonnegative("sensitivity", sensitivity) + self.rounding_slack(size)
        return total / positive_or_inf("mu", mu)

    def mu_budget(self, epsilon: float, delta: float, rounds_per_user: int = 1) -> float:
        return mu_from(epsilon, delta) / integer_at_least("rounds_per_user", rounds_per_user, 1)

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
        integer_at_least("size", size, 0)
        return GaussianRelease(name, sensitivity, noise_sd, count, note, moving_sensitivity)


class FastNoise(_Continuous):
    """Noise of a seeded NumPy generator: reproducible, for simulation and tests.

    Formal guarantee. Gaussian DP in real arithmetic, against an adversary who knows neither seed nor state.
    Its generator is not cryptographic and its floating-point support can leak (Mironov 2012;
    docs/theory.md#noise): serve people with ``SecureNoise`` or ``ExactNoise``.
    """

    name: Final = "fast"

    def __init__(self, rng: np.random.Generator) -> None:
        if not isinstance(rng, np.random.Generator):
            raise InvalidInput(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
        self.rng = rng

    def describe(self) -> str:
        return "fast: seeded NumPy generator, reproducible, not for serving people"

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        noise: FloatArray = positive("scale", scale) * self.rng.standard_normal(shape)
        return noise

    def state(self) -> dict[str, Any]:
        return {"name": self.name, "generator": _plain(self.rng.bit_generator.state)}


class SecureNoise(_Continuous):
    """Noise from the operating system's cryptographic generator: nothing to seed, save or reproduce.

    Formal guarantee. Gaussian DP in real arithmetic, if the operating system's generator is secure. Values
    are those of the inverse distribution function at one of 2^64 equally likely points (magnitude from 63
    bits, so tails reach 9.2 standard deviations; a sign bit). The release is still floating point
    (docs/theory.md#noise): use ``ExactNoise`` where its low-order bits could be observed.

    Each call reads what it needs and keeps nothing, so a forked process cannot repeat its parent's noise.
    """

    name: Final = "secure"

    def describe(self) -> str:
        return "secure: operating-system entropy, floating point, not reproducible"

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        scale = positive("scale", scale)
        empty: FloatArray = np.empty(shape, dtype=np.float64)
        words = np.frombuffer(os.urandom(8 * empty.size), dtype=np.uint64)
        # (u + 1/2) / 2^64 with u < 2^63 lies in (0, 1/2], where float64 keeps the tail's relative precision
        magnitude = -ndtri(np.ldexp((words >> np.uint64(1)).astype(np.float64) + 0.5, -64))
        noise = np.where(words & np.uint64(1), magnitude, -magnitude)
        return np.asarray(scale * noise, dtype=np.float64).reshape(empty.shape)

    def state(self) -> dict[str, Any]:
        return {"name": self.name}


class ExactNoise:
    """Discrete Gaussian noise on a grid, sampled without rounding by OpenDP (extra ``tacit[secure]``).

    Formal guarantee. Adjacency: one row replaced. Contributions rounded by ``quantize`` and noise are
    integer multiples of ``grid``, a power of two. Integers below 2^53 and their sums are exact in float64,
    whatever the order of summation, so the released float is exactly grid * (integer sum + integer noise):
    no low-order bits, no rounding, no order-dependent sensitivity (docs/theory.md#exact-noise). ``event`` gives a
    ``DiscreteGaussianRelease``, which is charged like a continuous Gaussian; that it is not exactly one is
    paid from a reserve of 1e-4 of the budget (docs/theory.md#lattice-lemma), which ``mu_budget`` leaves out.

    The sum must be of quantized contributions with **integer** coefficients (plain sums, nodes of a binary
    tree). A factorization with real coefficients leaves the grid and must not be used with this source.
    """

    name: Final = "exact"

    def __init__(self, grid: float = 2.0**-20) -> None:
        self._grid = positive("grid", grid)
        if math.frexp(self._grid)[0] != 0.5:
            raise InvalidInput(f"grid must be a power of two, got {grid!r}")
        self._measurements: dict[float, Any] = {}
        _opendp()

    @property
    def grid(self) -> float | None:
        return self._grid

    def describe(self) -> str:
        return f"exact: discrete Gaussian on multiples of {self._grid:.3g} (OpenDP), not reproducible"

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        steps = positive("scale", scale) / self._grid
        if steps > 2.0**44:  # then 2^53 steps are 512 standard deviations: probability below e^-131000
            raise InvalidInput(f"scale must be at most {2.0**44 * self._grid:g} for this grid, got {scale!r}")
        empty: FloatArray = np.empty(shape, dtype=np.float64)
        drawn = self._measurement(steps)([0] * empty.size) if empty.size else []
        return np.asarray(drawn, dtype=np.int64).astype(np.float64).reshape(empty.shape) * self._grid

    def quantize(self, values: FloatArray) -> FloatArray:
        steps = np.rint(np.asarray(values, dtype=np.float64) / self._grid)
        if not np.all(np.abs(steps) < _EXACT_LIMIT):
            raise InvalidInput(f"values must be finite and below {_EXACT_LIMIT * self._grid:g} in size")
        rounded: FloatArray = steps * self._grid
        return rounded

    def rounding_slack(self, size: int) -> float:
        # each of two contributions moves by at most grid / 2 per coordinate
        return math.sqrt(integer_at_least("size", size, 0)) * self._grid

    def scale_for(self, sensitivity: float, mu: float, *, size: int) -> float:
        total = nonnegative("sensitivity", sensitivity) + self.rounding_slack(size)
        return total / positive_or_inf("mu", mu)

    def mu_budget(self, epsilon: float, delta: float, rounds_per_user: int = 1) -> float:
        return lattice_mu(epsilon, delta) / integer_at_least("rounds_per_user", rounds_per_user, 1)

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
        slack = self.rounding_slack(size)
        moving = None
        if moving_sensitivity is not None:
            moving = nonnegative("moving_sensitivity", moving_sensitivity) + 0.5 * slack
        total = nonnegative("sensitivity", sensitivity) + slack
        draws = size * integer_at_least("count", count, 1) if draws is None else draws
        return DiscreteGaussianRelease(name, total, noise_sd, count, note, moving, draws=draws, grid=self._grid)

    def state(self) -> dict[str, Any]:
        return {"name": self.name, "grid": self._grid}

    def _measurement(self, steps: float) -> Any:
        if steps not in self._measurements:
            if len(self._measurements) >= 64:
                self._measurements.clear()
            self._measurements[steps] = _discrete_gaussian(steps)
        return self._measurements[steps]


class NoNoise(_Continuous):
    """Zeros, for epsilon = inf. Its events state zero noise, which no finite budget accepts."""

    name: Final = "none"

    def describe(self) -> str:
        return "none: noise is off, there is no privacy"

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        nonnegative_or_inf("scale", scale)
        return np.zeros(shape, dtype=np.float64)

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
        return super().event(
            name,
            sensitivity,
            0.0,
            size=size,
            count=count,
            draws=draws,
            moving_sensitivity=moving_sensitivity,
            note=note,
        )

    def state(self) -> dict[str, Any]:
        return {"name": self.name}


def make_noise(name: str, seed: int | np.random.Generator | None = None) -> NoiseSource:
    """The source called ``name``; only ``fast`` uses ``seed``, the others cannot be seeded."""
    if name == "fast":
        return FastNoise(np.random.default_rng(seed))
    if name == "secure":
        return SecureNoise()
    if name == "exact":
        return ExactNoise()
    if name == "none":
        return NoNoise()
    raise InvalidInput(f"noise must be one of {NOISE_NAMES}, got {name!r}")


def noise_from_state(state: Mapping[str, Any]) -> NoiseSource:
    """The source that gave ``state``; a fast one goes on where it stopped."""
    name = state.get("name")
    if name == "fast":
        return FastNoise(_generator(state.get("generator")))
    if name == "exact":
        return ExactNoise(state.get("grid", -1.0))
    if name in ("secure", "none"):
        return make_noise(str(name))
    raise InvalidInput(f"noise state must name one of {NOISE_NAMES}, got {name!r}")


def _generator(state: object) -> np.random.Generator:
    name = state.get("bit_generator") if isinstance(state, dict) else None
    if name not in ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"):
        raise InvalidInput(f"generator state must name a NumPy bit generator, got {name!r}")
    bits = getattr(np.random, name)()
    try:
        bits.state = state
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise InvalidInput(f"generator state of {name} is damaged: {error!r}") from error
    return np.random.Generator(bits)


def _plain(value: Any) -> Any:
    """Arrays and NumPy integers as lists and integers, recursively."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise TacitError("exact noise needs OpenDP: pip install 'tacit[secure]'") from error
    return dp


def _discrete_gaussian(steps: float) -> Any:
    """OpenDP measurement that adds discrete Gaussian noise of parameter ``steps`` to a list of integers."""
    dp = _opendp()
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=steps)
