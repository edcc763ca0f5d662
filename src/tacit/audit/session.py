"""Two policies in lockstep: what one releases is forced on the other, and what that takes is measured.

World 0 runs as it is.  World 1 has one other row and is played with world 0's releases: its publisher hands out the
very bytes that world 0 released.  Where its exact sums differ, the noise would have had to make up for it; the size of
that, in units of the noise's standard deviation, is what the replaced row costs.  Everything that is not a release must
then be the same in both worlds by itself, byte for byte.

Nothing of the code under audit is changed: a policy's publisher and its sources of noise are passed in, and these here
write down what they see (`Recorder`) or follow it (`Follower`).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit.audit.joint_draws import Record
from tacit.audit.privacy_loss import Pair, loss_mu, protocol_pairs
from tacit.audit.worlds import copied
from tacit.errors import TacitError
from tacit.policies.log import Publisher
from tacit.policies.private_policy import PrivatePolicy
from tacit.privacy.continual import (
    Stream,
    close_leaf,
    leaf_is_due,
    leaf_noise_scale,
    published,
    replay_leaf,
)
from tacit.privacy.noise import FastNoise, ForwardingNoise, NoiseSource, Shape
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

STREAM, NO_LEAF = "stream", "no leaf"
SHUFFLED = "shuffled sum "


class Diverged(Exception):  # noqa: N818 - reads as a statement at the call site
    """The worlds differ in something that is not the value of a release."""


@dataclass
class Cost:
    """What the replaced row cost in all releases of one kind."""

    squared: float = 0.0
    """Sum of squared shifts in units of the noise's standard deviation."""
    llr: float = 0.0
    """Log of how much likelier the releases are in world 1 than in world 0, which made them."""
    pairs: list[Pair] = field(default_factory=list)
    """Shuffled sums: laws of the coordinates that the replaced row changes, in the two worlds."""

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter of these releases."""
        return math.sqrt(self.squared)

    def add(self, difference: FloatArray, noise: FloatArray, sd: float) -> None:
        """A release whose exact value is larger by ``difference`` in world 1 than in world 0."""
        square = float(difference @ difference)
        if square == 0.0:
            return
        self.squared += square / sd**2
        self.llr += float(noise @ difference - 0.5 * square) / sd**2


@dataclass
class Session:
    """Tape of what world 0 did, for world 1 to follow."""

    policies: list[PrivatePolicy]
    costs: dict[str, Cost] = field(default_factory=dict)
    draws: list[Record] = field(default_factory=list)
    """All noise of world 0 in units of what the release was planned with, in order, by kind."""
    steps: float = math.inf
    """Smallest standard deviation of exact noise in steps of its grid."""
    world: int = 0
    sds: dict[str, set[float]] = field(default_factory=dict)
    """Standard deviations of the noise that world 0 released with, by kind."""
    _unused: dict[bytes, float] = field(default_factory=dict)
    """Draws of world 0 that were not released with yet, and their scale: each may be used once, as it is."""
    _tape: deque[tuple[str, Any]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        for world in (0, 1):
            self.watch(world)

    def watch(self, world: int) -> None:
        """Put a policy's publisher and sources under watch; again after it was loaded."""
        policy = self.policies[world]
        policy.publisher = Recorder(self) if world == 0 else Follower(self)
        if policy.guarantee != "shuffle":  # whose bits are no Gaussian draws, and come through the publisher whole
            sources = policy.randomness
            policy.randomness = replace(
                sources,
                ticks=WatchedNoise(sources.ticks, self, "ticks"),
                events=WatchedNoise(sources.events, self, "events"),
            )

    def cost(self, kind: str) -> Cost:
        """The costs of one kind of release."""
        return self.costs.setdefault(kind, Cost())

    def mu(self, delta: float) -> float:
        """Gaussian-DP parameter of everything measured so far; that of shuffled sums at ``delta``."""
        squared = math.fsum(cost.squared for cost in self.costs.values())
        pairs = [pair for cost in self.costs.values() for pair in cost.pairs]
        return math.hypot(math.sqrt(squared), loss_mu(pairs, delta) if pairs else 0.0)

    @property
    def llr(self) -> float:
        """Log-likelihood ratio of everything released so far, world 1 against world 0."""
        return math.fsum(cost.llr for cost in self.costs.values())

    def both(self, action: Callable[[int, PrivatePolicy], Any]) -> list[Any]:
        """Do the same in both worlds, one after the other."""
        results = []
        for self.world in (0, 1):
            results.append(action(self.world, self.policies[self.world]))
        self.settle()
        return results

    def settle(self) -> None:
        """Between steps world 1 must have done all that world 0 did."""
        if self._tape:
            kinds = ", ".join(kind for kind, _ in self._tape)
            raise Diverged(f"released in one world only: {kinds}")

    def record(self, kind: str, value: Any) -> None:
        """World 0 did something."""
        self._tape.append((kind, value))

    def used(self, kind: str, noise: FloatArray, sd: float, planned: float | None = None) -> None:
        """World 0 released something with this noise, charged as noise of standard deviation ``sd``.

        ``planned`` is the scale that it must have been drawn with, where that is not ``sd`` itself.
        """
        self.sds.setdefault(kind, set()).add(sd)
        if sd == 0.0:
            return
        planned = sd if planned is None else planned
        scale = self._unused.pop(noise.tobytes(), None)
        if scale is None:
            raise Diverged(f"{kind}: its noise is not a draw of the source, or was used before")
        if not math.isclose(scale, planned, rel_tol=1e-12):
            raise Diverged(f"{kind}: noise was drawn with scale {scale!r} and is charged as {planned!r}")
        self.draws.append((f"{kind.split(', ')[-1]}, {noise.size} entries", noise / planned))

    def follow(self, kind: str) -> Any:
        """World 1 does the same, or the worlds diverge."""
        if not self._tape or self._tape[0][0] != kind:
            expected = self._tape[0][0] if self._tape else "nothing"
            raise Diverged(f"one world releases {kind!r} where the other releases {expected!r}")
        return self._tape.popleft()[1]

    def drawn(self, source: NoiseSource, label: str, scale: float, noise: FloatArray, grid: float | None) -> FloatArray:
        """World 0 drew noise; world 1 is given the same, since its releases are to be the same."""
        if self.world == 0:
            self.record(f"noise of {label}", (scale, noise))
            self._unused.update({line.tobytes(): scale for line in np.atleast_2d(noise)})
            if grid is not None:
                self.steps = min(self.steps, scale / grid)
            return noise
        planned, theirs = self.follow(f"noise of {label}")
        if planned != scale or theirs.shape != noise.shape:
            raise Diverged(f"noise of scale {planned!r} in one world and {scale!r} in the other")
        if isinstance(source, FastNoise) and not _same(theirs, noise):
            raise Diverged(f"the noise of {label} depends on one user's row")
        return np.array(theirs)


class WatchedNoise(ForwardingNoise):
    """A source of noise whose draws a session sees; everything else is the source's own."""

    def __init__(self, source: NoiseSource, session: Session, label: str) -> None:
        super().__init__(source)
        self._session = session
        self._label = label

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        """A draw of the source, or world 0's."""
        noise = super().gaussian(scale, shape)
        return self._seen(scale, noise, self.grid)

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        """The same in whole numbers."""
        return self._seen(parameter, super().integers(parameter, shape), 1.0)

    def _seen(self, scale: float, noise: FloatArray, grid: float | None) -> FloatArray:
        return self._session.drawn(self.source, self._label, scale, noise, grid) if scale > 0.0 else noise


class Recorder(Publisher):
    """World 0: releases as planned, and writes down what it released."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        if not leaf_is_due(stream):
            self._session.record(NO_LEAF, None)
            return close_leaf(stream, noise, users)
        scale = leaf_noise_scale(stream)
        fresh = close_leaf(stream, noise, users)
        if fresh:
            self._session.used(STREAM, noise.copy(), float(stream.noise_sd[()]), scale)
        self._session.record(STREAM, (fresh, published(stream)))
        return fresh

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        released = super().vector(kind, exact, noise, sd)
        self._session.used(kind, noise.copy(), sd)
        self._session.record(kind, (exact.copy(), released.copy()))
        return released

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        released = release()
        if released.protocol != protocol or released.reports != rows.shape[0]:
            raise Diverged("a shuffled sum was released by another protocol than the one charged")
        self._session.record("shuffled sum", (protocol, _contributions(protocol, rows), released))
        return released


class Follower(Publisher):
    """World 1: measures how far its exact values are off, and releases world 0's bytes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        if not leaf_is_due(stream):
            self._session.follow(NO_LEAF)
            return close_leaf(stream, noise, users)
        fresh, released = self._session.follow(STREAM)
        rehearsal, scale = copied(stream), leaf_noise_scale(stream)
        if close_leaf(rehearsal, noise, users) != fresh:
            raise Diverged("a leaf is closed in one world only")
        difference = np.asarray(published(rehearsal) - released, dtype=np.float64)
        if not np.any(difference):
            return close_leaf(stream, noise, users)
        self._session.cost(STREAM).add(difference, noise, scale)
        try:
            needed = replay_leaf(stream, released, users)
        except TacitError as error:
            raise Diverged(f"the other world cannot release the same value: {error}") from error
        if not np.allclose(needed, noise - difference, rtol=1e-9, atol=1e-6 * scale):
            raise Diverged("the noise that the neighbour would need is not what is added")
        return True

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        theirs, released = self._session.follow(kind)
        self._session.cost(kind).add(exact - theirs, noise, sd)
        grid = self._session.policies[1].randomness.ticks.grid
        if grid is not None and not _same(exact + (noise + (theirs - exact)), released):
            raise Diverged(f"exact noise: {kind} cannot be released with the same value, bit for bit")
        return np.array(released)

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        planned, theirs, released = self._session.follow("shuffled sum")
        if planned != protocol or theirs.shape[0] != rows.shape[0]:
            raise Diverged(f"a sum of {theirs.shape[0]} reports in one world and of {rows.shape[0]} in the other")
        self._measure(protocol, theirs, _contributions(protocol, rows), released)
        return Aggregate(released.protocol, released.values, released.reports)

    def _measure(self, protocol: SumProtocol, first: FloatArray, second: FloatArray, released: Aggregate) -> None:
        left, right = _unmatched(first, second), _unmatched(second, first)
        if len(left) > 1 or len(left) != len(right):
            raise Diverged(f"{len(left)} and {len(right)} users report something else in the other world")
        if not left:
            return
        trials, p = protocol.noise_trials(released.reports), protocol.noise_probability
        rounding = np.sum((first - np.floor(first)) * (np.ceil(first) - first), axis=0)
        noise = (released.values - released.reports * protocol.lower) / protocol.step - first.sum(axis=0)
        difference, variance = right[0] - left[0], trials * p * (1.0 - p) + rounding
        cost = self._session.cost(f"{SHUFFLED}{protocol.label}")
        cost.pairs += protocol_pairs(protocol, released.reports, left[0], right[0])
        cost.llr += float(np.sum((noise * difference - 0.5 * difference**2) / variance))


def _contributions(protocol: SumProtocol, rows: FloatArray) -> FloatArray:
    """One line per user, in steps of the grid, before rounding."""
    return np.asarray(protocol.scaled(protocol.domain.embed(rows)), dtype=np.float64)


def _unmatched(ours: FloatArray, theirs: FloatArray) -> list[FloatArray]:
    """Lines of ``ours`` that ``theirs`` lacks, whatever the order."""
    missing = Counter(line.tobytes() for line in ours) - Counter(line.tobytes() for line in theirs)
    return [np.frombuffer(line, dtype=np.float64) for line in missing.elements()]


def _same(first: FloatArray, second: FloatArray) -> bool:
    """Equal as bytes, zeros of either sign aside."""
    return bool(np.array_equal(first, second))
