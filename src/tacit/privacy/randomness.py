"""All randomness of a policy in one object: passed in, saved and restored, and, with a tape, written down and played.

    randomness = Randomness.make(seed=7, noise=None, private=True)
    tape = Tape()
    watched = taped(randomness, tape)       # the same draws, and the tape holds them
    again = played(randomness, tape)        # the draws of the tape, in their order, and no others

A policy with ``again`` in place of ``watched`` makes the same decisions.  A tape holds noise: who has it and the
releases has the raw sums.  It is as secret as the data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

import numpy as np

from tacit.errors import InvalidInput, TapeMismatch
from tacit.privacy import system_entropy
from tacit.privacy.noise import (
    ExactNoise,
    FastNoise,
    ForwardingNoise,
    NoiseSource,
    Shape,
    generator_from_state,
    generator_state,
    make_noise,
    noise_from_state,
)
from tacit.typing import FloatArray

Kind = Literal["gaussian", "integers", "uniform", "generator"]
_KINDS: Final = ("gaussian", "integers", "uniform", "generator")
_LABELS: Final = ("ticks", "events", "coins")


class Coins(Protocol):
    """A source of independent numbers, uniform on [0, 1): a NumPy generator, or one with a tape."""

    def random(self, size: Shape, /) -> FloatArray:
        """That many of them."""


@dataclass(frozen=True)
class Randomness:
    """The three sources of a policy.  They are independent of each other, and none is used for anything else."""

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
        """Sources of a new policy; ``private`` says that its budget is finite, so that noise is needed.

        ``noise`` of None is ``exact`` without a seed, and ``fast``, which can be repeated, with one.
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
        """Sources of the same kind that share nothing with these, and no tape.

        For a policy that goes on from an old state: these may have made draws since, for other rows.
        """
        return replace(self, ticks=_fresh(self.ticks), events=_fresh(self.events), coins=system_entropy.generator())

    def to_json(self) -> dict[str, Any]:
        """What `from_json` needs; generators are saved for seeded runs only."""
        coins = FastNoise(_generator_of(self.coins)).state() if self.seeded else None
        return {"ticks": self.ticks.state(), "events": self.events.state(), "coins": coins}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Randomness:
        """Sources that go on where those that gave ``data`` were."""
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


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw: what was asked for, and what came."""

    source: str
    """Which source: ``ticks``, ``events`` or ``coins``."""
    kind: Kind
    """Gaussian noise, the same in whole numbers, uniform numbers, or a generator that was handed out."""
    scale: float
    """Standard deviation of Gaussian noise, or its parameter; 1 for the others."""
    values: FloatArray
    """The numbers, in their shape; none for a generator."""
    generator: Mapping[str, Any] = field(default_factory=dict)
    """State of the generator when it was handed out; empty for numbers."""

    def __post_init__(self) -> None:
        if self.source not in _LABELS or self.kind not in _KINDS:
            raise InvalidInput(f"a draw must be of {_LABELS} and {_KINDS}, got {self.source!r}, {self.kind!r}")

    def request(self) -> str:
        """What was asked for, in words: two draws with the same words are interchangeable."""
        details = "" if self.kind == "generator" else f" of scale {self.scale!r} and shape {self.values.shape}"
        return f"{self.kind}{details} from {self.source}"

    def to_json(self) -> dict[str, Any]:
        """Plain data; numbers keep every bit."""
        numbers = {"shape": list(self.values.shape), "values": self.values.ravel().tolist()}
        return {"source": self.source, "kind": self.kind, "scale": self.scale, **numbers, "generator": self.generator}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Draw:
        """The draw that gave ``data``."""
        try:
            values = np.array(data["values"], dtype=np.float64).reshape(data["shape"])
            return cls(data["source"], data["kind"], float(data["scale"]), values, data["generator"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"a draw on a tape is damaged: {error!r}") from error


@dataclass(frozen=True)
class Tape:
    """Draws of all sources of a policy, in their order."""

    draws: list[Draw] = field(default_factory=list)

    def to_json(self) -> list[dict[str, Any]]:
        """Plain data for `from_json`."""
        return [draw.to_json() for draw in self.draws]

    @classmethod
    def from_json(cls, data: Iterable[Mapping[str, Any]]) -> Tape:
        """The tape that gave ``data``."""
        return cls([Draw.from_json(item) for item in data])


def taped(randomness: Randomness, tape: Tape) -> Randomness:
    """The same sources; every draw is also written to the end of ``tape``."""
    return replace(
        randomness,
        ticks=_TapedNoise(randomness.ticks, "ticks", tape),
        events=_TapedNoise(randomness.events, "events", tape),
        coins=_TapedCoins(randomness.coins, tape),
    )


def played(randomness: Randomness, tape: Tape) -> Randomness:
    """Sources that hand out the draws of ``tape`` in their order and leave those of ``randomness`` as they are.

    They raise ``TapeMismatch`` where another draw is asked for than the next one on the tape: of another source, kind,
    scale or shape, or beyond its end.
    """
    player = _Player(deque(tape.draws))
    return replace(
        randomness,
        ticks=_PlayedNoise(randomness.ticks, "ticks", player),
        events=_PlayedNoise(randomness.events, "events", player),
        coins=_PlayedCoins(randomness.coins, player),
    )


class _TapedNoise(ForwardingNoise):
    def __init__(self, source: NoiseSource, label: str, tape: Tape) -> None:
        super().__init__(source)
        self._label, self._tape = label, tape

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        noise = super().gaussian(scale, shape)
        self._tape.draws.append(Draw(self._label, "gaussian", float(scale), noise.copy()))
        return noise

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        noise = super().integers(parameter, shape)
        self._tape.draws.append(Draw(self._label, "integers", float(parameter), noise.copy()))
        return noise

    def generator(self) -> np.random.Generator:
        rng = super().generator()
        self._tape.draws.append(Draw(self._label, "generator", 1.0, np.zeros(0), generator_state(rng)))
        return rng


class _TapedCoins:
    def __init__(self, source: Coins, tape: Tape) -> None:
        self.source, self._tape = source, tape

    def random(self, size: Shape, /) -> FloatArray:
        coins = self.source.random(size)
        self._tape.draws.append(Draw("coins", "uniform", 1.0, coins.copy()))
        return coins


@dataclass(frozen=True)
class _Player:
    """What is left of a tape."""

    left: deque[Draw]

    def next(self, wanted: Draw) -> Draw:
        if not self.left:
            raise TapeMismatch(f"the tape is at its end, and a draw is asked for: {wanted.request()}")
        if self.left[0].request() != wanted.request():
            raise TapeMismatch(f"asked for is {wanted.request()}; next on the tape is {self.left[0].request()}")
        return self.left.popleft()


class _PlayedNoise(ForwardingNoise):
    def __init__(self, source: NoiseSource, label: str, player: _Player) -> None:
        super().__init__(source)
        self._label, self._player = label, player

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        return self._player.next(Draw(self._label, "gaussian", float(scale), np.empty(shape))).values.copy()

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        return self._player.next(Draw(self._label, "integers", float(parameter), np.empty(shape))).values.copy()

    def generator(self) -> np.random.Generator:
        return generator_from_state(self._player.next(Draw(self._label, "generator", 1.0, np.zeros(0))).generator)


class _PlayedCoins:
    def __init__(self, source: Coins, player: _Player) -> None:
        self.source, self._player = source, player

    def random(self, size: Shape, /) -> FloatArray:
        return self._player.next(Draw("coins", "uniform", 1.0, np.empty(size))).values.copy()


def _generator_of(coins: Coins) -> np.random.Generator:
    """The generator behind the coins, tape or not."""
    while isinstance(coins, _TapedCoins | _PlayedCoins):
        coins = coins.source
    if not isinstance(coins, np.random.Generator):
        raise InvalidInput(f"coins of type {type(coins).__name__} cannot be saved: use a numpy.random.Generator")
    return coins


def _fresh(source: NoiseSource) -> NoiseSource:
    return make_noise(source.name) if source.grid is None else ExactNoise(source.grid)
