"""Tapes of a policy's randomness: every draw written down, and played back to another policy.

    tape = Tape()
    watched = taped(policy.randomness, tape)    # the draws of the policy's own sources, and the tape holds them
    again = played(other.randomness, tape)      # the draws of the tape, in their order, and no others

A policy with ``again`` makes the decisions of a policy with ``watched``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit.privacy.noise import ForwardingNoise, NoiseSource, Shape, generator_from_state, generator_state
from tacit.privacy.randomness import Coins, Randomness
from tacit.typing import FloatArray


class TapeMismatch(Exception):  # noqa: N818 - reads as a statement at the call site
    """A run that is played from a tape asks for another draw than the next one on it: it is not the run of the tape."""


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw: what was asked for, and what came."""

    source: str
    """Which source: ``ticks``, ``events`` or ``coins``."""
    kind: str
    """``gaussian`` noise, ``integers`` of it, ``uniform`` numbers, or a ``generator`` that was handed out."""
    scale: float
    """Standard deviation of Gaussian noise, or its parameter; 1 for the others."""
    values: FloatArray
    """The numbers, in their shape; none for a generator."""
    generator: Mapping[str, Any] = field(default_factory=dict)
    """State of the generator when it was handed out; empty for numbers."""

    def request(self) -> str:
        """What was asked for, in words: two draws with the same words are interchangeable."""
        details = "" if self.kind == "generator" else f" of scale {self.scale!r} and shape {self.values.shape}"
        return f"{self.kind}{details} from {self.source}"


@dataclass(frozen=True)
class Tape:
    """Draws of all sources of a policy, in their order."""

    draws: list[Draw] = field(default_factory=list)


def taped(randomness: Randomness, tape: Tape) -> Randomness:
    """Sources that draw what those of ``randomness`` draw, and write every draw to the end of ``tape``."""
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


class _CoinsBehind(np.random.Generator):
    """A generator on the bits of others' coins, so that it is saved as they are."""

    def __init__(self, source: Coins) -> None:
        assert isinstance(source, np.random.Generator)
        super().__init__(source.bit_generator)


class _TapedCoins(_CoinsBehind):
    def __init__(self, source: Coins, tape: Tape) -> None:
        super().__init__(source)
        self._tape = tape

    def random(self, size: Shape, /) -> FloatArray:  # type: ignore[override]
        coins = super().random(size)
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


class _PlayedCoins(_CoinsBehind):
    def __init__(self, source: Coins, player: _Player) -> None:
        super().__init__(source)
        self._player = player

    def random(self, size: Shape, /) -> FloatArray:  # type: ignore[override]
        return self._player.next(Draw("coins", "uniform", 1.0, np.empty(size))).values.copy()
