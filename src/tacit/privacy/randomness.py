"""All randomness of a policy in one object: passed in, saved and restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy import system_entropy
from tacit.privacy.noise import ExactNoise, FastNoise, NoiseSource, Shape, make_noise, noise_from_state
from tacit.typing import FloatArray

_LABELS: Final = ("ticks", "events", "coins")


class Coins(Protocol):
    """A source of independent numbers, uniform on [0, 1), such as a NumPy generator."""

    def random(self, size: Shape, /) -> FloatArray:
        """Return an array of such numbers, of shape ``size``."""


@dataclass(frozen=True)
class Randomness:
    """The three random sources of a policy, independent of each other; none is used for anything else.

    Parameters
    ----------
    ticks : NoiseSource
        Noise of the releases of the clock.
    events : NoiseSource
        Noise of the releases in between.
    coins : numpy.random.Generator
        Random choices of arms.
    seeded : bool
        Whether a run can be repeated.

    Examples
    --------
    >>> from tacit.privacy import Randomness
    >>> Randomness.make(seed=0, noise=None, private=True).ticks.name
    'fast'
    >>> Randomness.make(seed=None, noise=None, private=True).ticks.name
    'exact'
    """

    ticks: NoiseSource
    """Noise of what the clock releases.  A simulator draws it ahead for many ticks."""
    events: NoiseSource
    """Noise of what is released in between; a source of its own, so that drawing ahead changes nothing."""
    coins: Coins
    """Random choices of arms: no privacy rests on them."""
    seeded: bool
    """Whether a run can be repeated.  Only then are coins saved."""

    @classmethod
    def make(cls, seed: int | None, noise: str | None, *, private: bool) -> Randomness:
        """Return the sources of a new policy.

        Parameters
        ----------
        seed : int or None
            Seed of a run that can be repeated; None for the operating system's entropy.
        noise : {"fast", "secure", "exact", "none"} or None
            Source of noise; None for ``"exact"`` without a seed and ``"fast"``, which can be repeated, with one.
        private : bool
            Whether the budget is finite; otherwise there is no noise.

        Returns
        -------
        Randomness
            The three sources.
        """
        root = np.random.SeedSequence(system_entropy.key() if seed is None else seed)
        tick_seed, coin_seed, event_seed = root.spawn(3)
        name = (noise or ("exact" if seed is None else "fast")) if private else "none"
        return cls(
            ticks=make_noise(name, np.random.default_rng(tick_seed)),
            events=make_noise(name, np.random.default_rng(event_seed)),
            coins=np.random.default_rng(coin_seed),
            seeded=seed is not None,
        )

    def fresh(self) -> Randomness:
        """Make sources of the same kind that share nothing with these.

        For a policy that goes on from an old state: these may have made draws since, for other rows.

        Returns
        -------
        Randomness
            The new sources.
        """
        return replace(self, ticks=_fresh(self.ticks), events=_fresh(self.events), coins=system_entropy.generator())

    def to_json(self) -> dict[str, Any]:
        """Write the sources for saving.

        Returns
        -------
        dict
            Data for JSON; generators are part of it for seeded runs only.
        """
        coins = FastNoise(_generator_of(self.coins)).state() if self.seeded else None
        return {"ticks": self.ticks.state(), "events": self.events.state(), "coins": coins}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Randomness:
        """Read saved sources.

        Parameters
        ----------
        data : mapping
            What `to_json` gave.

        Returns
        -------
        Randomness
            Sources that go on where those that were saved stopped.
        """
        if data.keys() != set(_LABELS):
            raise InvalidInput(f"saved randomness must have {', '.join(_LABELS)}, got {', '.join(sorted(data))}")
        coins = None if data["coins"] is None else noise_from_state(data["coins"])
        if not (coins is None or isinstance(coins, FastNoise)):
            raise InvalidInput("the saved coins are not those of a seeded generator")
        return cls(
            ticks=noise_from_state(data["ticks"]),
            events=noise_from_state(data["events"]),
            coins=system_entropy.generator() if coins is None else coins.rng,
            seeded=coins is not None,
        )


def _generator_of(coins: Coins) -> np.random.Generator:
    """The coins as a generator, whose state can be saved."""
    if not isinstance(coins, np.random.Generator):
        raise InvalidInput(f"coins of type {type(coins).__name__} cannot be saved: use a numpy.random.Generator")
    return coins


def _fresh(source: NoiseSource) -> NoiseSource:
    return make_noise(source.name) if source.grid is None else ExactNoise(source.grid)
