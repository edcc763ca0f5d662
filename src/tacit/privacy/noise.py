"""Sources of Gaussian noise: reproducible, from the operating system, exact, or none.

One object carries the noise and its ledger entry.  A mechanism rounds contributions to the source's ``grid`` if it has
one, asks ``scale_for`` for the standard deviation that a share of the budget buys, charges ``event`` and only then
draws ``gaussian``; it needs no special cases for any source.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np
from scipy.special import ndtri

from tacit._validate import integer_at_least, nonnegative, nonnegative_or_inf, positive, positive_or_inf
from tacit.errors import InvalidInput
from tacit.privacy import system_entropy
from tacit.privacy.budget import Budget
from tacit.privacy.discrete_gaussian import MAX_PARAMETER, discrete_gaussian
from tacit.privacy.events import DiscreteGaussianRelease, GaussianRelease, NoisySum
from tacit.typing import FloatArray

NOISE_NAMES: Final = ("fast", "secure", "exact", "none")
Shape = int | tuple[int, ...]


class NoiseSource(ABC):
    """A source of Gaussian noise, which also makes the ledger entry of a release that uses it.

    Unless a subclass says otherwise, values are ordinary floating point.

    Examples
    --------
    >>> from tacit.privacy import make_noise
    >>> noise = make_noise("fast", seed=0)
    >>> noise_sd = noise.scale_for(sensitivity=2.0, mu=0.5, size=3)
    >>> noise_sd, noise.event("sum of clicks", 2.0, noise_sd, size=3).mu
    (4.0, 0.5)
    >>> noise.gaussian(noise_sd, 3).shape
    (3,)
    """

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
        """Describe the source in one sentence, for the privacy report.

        Returns
        -------
        str
            The sentence.
        """

    @abstractmethod
    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        """Draw independent centred noise.

        Parameters
        ----------
        scale : float
            Standard deviation of each value.
        shape : int or tuple of int
            Shape of the result.

        Returns
        -------
        ndarray
            The noise.
        """

    @abstractmethod
    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        """Draw independent noise that takes whole numbers only, for sums of integers.

        It is a discrete Gaussian, or a continuous one, rounded: added to an integer the latter is the rounded sum.

        Parameters
        ----------
        parameter : float
            Least parameter of each value, which is close to its standard deviation; 0 means no noise.
        shape : int or tuple of int
            Shape of the result.

        Returns
        -------
        ndarray
            The noise.
        """

    @abstractmethod
    def generator(self) -> np.random.Generator:
        """Hand out a generator for noise that is not Gaussian, such as the bits of a shuffled sum.

        Returns
        -------
        numpy.random.Generator
            A generator to be used at once.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Write the source's state for saving.

        Returns
        -------
        dict
            Data for JSON, which ``noise_from_state`` reads; randomness is part of it for seeded runs only.
        """

    def charged_sd(self, noise_sd: float) -> float:
        """Tell which standard deviation the ledger may count on.

        Parameters
        ----------
        noise_sd : float
            Standard deviation that `gaussian` is asked for.

        Returns
        -------
        float
            Standard deviation of what is drawn.
        """
        return noise_sd

    @final
    def rounding_slack(self, size: int) -> float:
        """Bound what rounding to ``grid`` adds to the l2 sensitivity when a row is replaced.

        Parameters
        ----------
        size : int
            Number of coordinates of one row's contribution.

        Returns
        -------
        float
            The bound; 0 without a ``grid``.
        """
        # Each of two contributions moves by at most grid / 2 per coordinate.
        return math.sqrt(integer_at_least("size", size, 0)) * (self.grid or 0.0)

    @final
    def scale_for(self, sensitivity: float, mu: float, *, size: int) -> float:
        """Return the standard deviation at which a release spends ``mu``.

        Parameters
        ----------
        sensitivity : float
            l2 change of the sum when one row is replaced, before contributions are rounded to ``grid``.
        mu : float
            Gaussian-DP parameter of the release; infinity allowed.
        size : int
            Number of coordinates of one row's contribution.

        Returns
        -------
        float
            Standard deviation in the unit of ``sensitivity``; 0 for infinite ``mu``.
        """
        total = nonnegative("sensitivity", sensitivity) + self.rounding_slack(size)
        return total / positive_or_inf("mu", mu)

    @final
    def mu_budget(self, budget: Budget) -> float:
        """Find the largest mu such that events of this source with squares adding up to mu^2 fit ``budget``.

        Parameters
        ----------
        budget : Budget
            What may be spent.

        Returns
        -------
        float
            The largest such mu.
        """
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
        """Return the ledger entry of a release; sensitivities are those before contributions are rounded to ``grid``.

        Parameters
        ----------
        name : str
            Name of the release in the report.
        sensitivity : float
            l2 change of the sum when one row is replaced.
        noise_sd : float
            Standard deviation that `gaussian` is asked for.
        size : int
            Number of coordinates of one row's contribution to one of the ``count`` releases (for a continual
            stream: over all nodes it enters).
        count : int, default 1
            Number of releases.
        draws : int, optional
            Number of noise values drawn in all; ``size * count`` by default.
        moving_sensitivity : float, optional
            l2 norm of one row's contribution; ``sensitivity`` by default.
        note : str, optional
            Remark for the report.

        Returns
        -------
        GaussianRelease or DiscreteGaussianRelease
            The event to charge; discrete when the source has a ``grid``.
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
    """A source of noise that passes everything on to another one; subclasses watch or replace what is drawn.

    Parameters
    ----------
    source : NoiseSource
        The source that draws.

    Examples
    --------
    >>> from tacit.privacy import ForwardingNoise, make_noise
    >>> class Printing(ForwardingNoise):
    ...     def gaussian(self, scale, shape):
    ...         print("noise of scale", scale)
    ...         return super().gaussian(scale, shape)
    >>> Printing(make_noise("fast", seed=0)).gaussian(2.0, 3).shape
    noise of scale 2.0
    (3,)
    """

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


class FastNoise(NoiseSource):
    """Noise of a seeded NumPy generator: reproducible, for simulation and tests.

    Parameters
    ----------
    rng : numpy.random.Generator
        The generator that noise is drawn from.

    Formal guarantee
    ----------------
    Gaussian DP in real arithmetic, against an adversary who knows neither seed nor state.
    Its generator is not cryptographic and its floating-point support can leak (Mironov 2012;
    docs/theory.md#noise): serve people with ``SecureNoise`` or ``ExactNoise``.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.privacy import FastNoise
    >>> FastNoise(np.random.default_rng(0)).gaussian(1.0, 2).round(3).tolist()
    [0.126, -0.132]
    """

    name: Final = "fast"

    def __init__(self, rng: np.random.Generator) -> None:
        if not isinstance(rng, np.random.Generator):
            raise InvalidInput(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
        self.rng = rng

    def describe(self) -> str:
        return "fast: seeded NumPy generator, reproducible, not for serving people"

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        noise: FloatArray = _standard_deviation(scale) * self.rng.standard_normal(shape)
        return noise

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        return _rounded(self, parameter, shape)

    def generator(self) -> np.random.Generator:
        # not a copy: what is drawn from it is not drawn again
        return self.rng

    def state(self) -> dict[str, Any]:
        return {"name": self.name, "generator": generator_state(self.rng)}


class SecureNoise(NoiseSource):
    """Noise from the operating system's cryptographic generator: nothing to seed, save or reproduce.

    Formal guarantee
    ----------------
    Gaussian DP in real arithmetic, if the operating system's generator is secure. Values
    are those of the inverse distribution function at one of 2^64 equally likely points (magnitude from 63
    bits, so tails reach 9.2 standard deviations; a sign bit). The release is still floating point
    (docs/theory.md#noise): use ``ExactNoise`` where its low-order bits could be observed.

    Each call reads what it needs and keeps nothing, so a forked process cannot repeat its parent's noise.

    Examples
    --------
    >>> from tacit.privacy import SecureNoise
    >>> SecureNoise().gaussian(2.0, (3, 2)).shape
    (3, 2)
    """

    name: Final = "secure"

    def describe(self) -> str:
        return "secure: operating-system entropy, floating point, not reproducible"

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        scale = _standard_deviation(scale)
        empty: FloatArray = np.empty(shape, dtype=np.float64)
        words = np.frombuffer(system_entropy.read(8 * empty.size), dtype=np.uint64)
        # (u + 1/2) / 2^64 with u < 2^63 lies in (0, 1/2], where float64 keeps the tail's relative precision
        magnitude = -ndtri(np.ldexp((words >> np.uint64(1)).astype(np.float64) + 0.5, -64))
        noise = np.where(words & np.uint64(1), magnitude, -magnitude)
        return np.asarray(scale * noise, dtype=np.float64).reshape(empty.shape)

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        return _rounded(self, parameter, shape)

    def generator(self) -> np.random.Generator:
        return _fresh_generator()

    def state(self) -> dict[str, Any]:
        return {"name": self.name}


class ExactNoise(NoiseSource):
    """Discrete Gaussian noise on a grid, sampled without rounding from the operating system's entropy.

    Parameters
    ----------
    grid : float, default 2**-20
        Spacing of the values, a power of two.

    Formal guarantee
    ----------------
    Adjacency: one row replaced. Contributions, rounded, and noise are integer multiples of
    ``grid``, a power of two. Integers below 2^53 and their sums are exact in float64,
    whatever the order of summation, so the released float is exactly grid * (integer sum + integer noise):
    no low-order bits, no rounding, no order-dependent sensitivity (docs/theory.md#exact-noise). ``event`` gives a
    ``DiscreteGaussianRelease``, which is charged like a continuous Gaussian; that it is not exactly one is
    paid from a reserve of 1e-4 of the budget (docs/theory.md#lattice-lemma), which ``mu_budget`` leaves out.

    The sum must be of rounded contributions with **integer** coefficients (plain sums, nodes of a binary
    tree, geometric leaves). A factorization with real coefficients leaves the grid and must not be used with this
    source.

    Examples
    --------
    >>> from tacit.privacy import ExactNoise
    >>> steps = ExactNoise(grid=0.25).gaussian(2.0, 100) / 0.25
    >>> bool((steps == steps.round()).all())
    True
    """

    name: Final = "exact"

    def __init__(self, grid: float = 2.0**-20) -> None:
        self._grid = positive("grid", grid)
        if math.frexp(self._grid)[0] != 0.5:
            raise InvalidInput(f"grid must be a power of two, got {grid!r}")

    @property
    def grid(self) -> float | None:
        return self._grid

    def describe(self) -> str:
        return "exact: discrete Gaussian on integers, operating-system entropy, not reproducible"

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        return self.integers(_standard_deviation(scale) / self._grid, shape) * self._grid

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        # Rounded up: the parameter is a whole number.
        steps = math.ceil(nonnegative("parameter", parameter))
        if steps > MAX_PARAMETER:  # up to it values are below 2^53: floats hold them
            raise InvalidInput(f"the scale of exact noise must be at most 2^46 steps of its grid, got {steps:g}")
        empty: FloatArray = np.zeros(shape)
        if steps > 0:
            empty.reshape(-1)[:] = discrete_gaussian(steps, empty.size)
        return empty

    def generator(self) -> np.random.Generator:
        raise InvalidInput(
            "exact noise is made of integers and has no generator to hand out: use noise='fast' or noise='secure'"
        )

    def state(self) -> dict[str, Any]:
        return {"name": self.name, "grid": self._grid}


class NoNoise(NoiseSource):
    """Zeros, for epsilon = inf. Its events state zero noise, which no finite budget accepts.

    Examples
    --------
    >>> from tacit.privacy import NoNoise
    >>> NoNoise().gaussian(1.0, 2).tolist()
    [0.0, 0.0]
    """

    name: Final = "none"

    def describe(self) -> str:
        return "none: noise is off, there is no privacy"

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        nonnegative_or_inf("scale", scale)
        return np.zeros(shape, dtype=np.float64)

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        return self.gaussian(parameter, shape)

    def generator(self) -> np.random.Generator:
        return _fresh_generator()

    def charged_sd(self, noise_sd: float) -> float:
        return 0.0

    def state(self) -> dict[str, Any]:
        return {"name": self.name}


def make_noise(name: str, seed: int | np.random.Generator | None = None) -> NoiseSource:
    """Return a new source of noise.

    Parameters
    ----------
    name : {"fast", "secure", "exact", "none"}
        `FastNoise`, `SecureNoise`, `ExactNoise` or `NoNoise`.
    seed : int or numpy.random.Generator, optional
        Seed of ``"fast"``; the other sources cannot be seeded and do not use it.

    Returns
    -------
    NoiseSource
        The source.

    Raises
    ------
    InvalidInput
        When no source has this name.

    Examples
    --------
    >>> from tacit.privacy import make_noise
    >>> make_noise("exact").describe()
    'exact: discrete Gaussian on integers, operating-system entropy, not reproducible'
    """
    if name == "fast":
        return FastNoise(system_entropy.generator() if seed is None else np.random.default_rng(seed))
    if name == "secure":
        return SecureNoise()
    if name == "exact":
        return ExactNoise()
    if name == "none":
        return NoNoise()
    raise InvalidInput(f"noise must be one of {NOISE_NAMES}, got {name!r}")


def noise_from_state(state: Mapping[str, Any]) -> NoiseSource:
    """Return the source of noise whose ``state`` was saved.

    Parameters
    ----------
    state : mapping
        What `NoiseSource.state` returned.

    Returns
    -------
    NoiseSource
        A source of that kind; a `FastNoise` goes on where the saved one stopped.

    Raises
    ------
    InvalidInput
        When ``state`` is not that of a source.

    Examples
    --------
    >>> from tacit.privacy import make_noise, noise_from_state
    >>> noise = make_noise("fast", seed=0)
    >>> copy = noise_from_state(noise.state())
    >>> bool((copy.gaussian(1.0, 3) == noise.gaussian(1.0, 3)).all())
    True
    """
    name = state.get("name")
    if name == "fast":
        return FastNoise(generator_from_state(state.get("generator")))
    if name == "exact":
        return ExactNoise(state.get("grid", -1.0))
    if name in ("secure", "none"):
        return make_noise(str(name))
    raise InvalidInput(f"noise state must name one of {NOISE_NAMES}, got {name!r}")


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """JSON-able state of a generator, for `generator_from_state`."""
    return {str(key): _plain(value) for key, value in rng.bit_generator.state.items()}


def generator_from_state(state: object) -> np.random.Generator:
    """The generator that gave ``state``, which goes on where that one was."""
    name = state.get("bit_generator") if isinstance(state, dict) else None
    if name not in ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"):
        raise InvalidInput(f"generator state must name a NumPy bit generator, got {name!r}")
    bits = getattr(np.random, name)()
    try:
        bits.state = state
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise InvalidInput(f"generator state of {name} is damaged: {error!r}") from error
    return np.random.Generator(bits)


def _standard_deviation(scale: float) -> float:
    """``scale`` if it is one; the common case first, on the path of every decision."""
    return scale if type(scale) is float and 0.0 < scale < math.inf else positive("scale", scale)


def _rounded(source: NoiseSource, parameter: float, shape: Shape) -> FloatArray:
    """Continuous noise, rounded to whole numbers."""
    return np.rint(source.gaussian(parameter, shape)) if parameter > 0.0 else np.zeros(shape)


def _fresh_generator() -> np.random.Generator:
    """A Philox generator that the operating system's entropy keys anew each time."""
    return np.random.Generator(np.random.Philox(key=system_entropy.key()))


def _plain(value: Any) -> Any:
    """Arrays and NumPy integers as lists and integers, recursively."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
