"""Two policies in lockstep: what one releases is forced on the other, and what that takes is measured.

World 0 runs as it is.  World 1 has one other row, the same noise, and is made to release the same values: where its
sums differ, its noise is changed by just that difference.  The size of the change, in units of the noise's standard
deviation, is what the replaced row costs; everything that is not a release must then be the same in both worlds by
itself.  Nothing of the code under audit is changed: noise sources, gradient sums and shuffled sums are watched where
they are called.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tacit.audit.worlds import copied
from tacit.estimation import descent, newton
from tacit.policies.base import Policy
from tacit.privacy import continual
from tacit.shuffle.dominance import binomial_dominance
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.shuffle.sums import sample_sum
from tacit.typing import FloatArray

_TAIL: Final = 1e-9


class Diverged(Exception):  # noqa: N818 - reads as a statement at the call site
    """The worlds differ in something that is not the value of a release."""


@dataclass
class Cost:
    """What the replaced row cost in all releases of one kind."""

    squared: float = 0.0
    """Sum of squared shifts in units of the noise's standard deviation."""
    shift: float = 0.0
    """Root of the sum of squared shifts of the largest release, or of the whole stream."""
    llr: float = 0.0
    """Log of how much likelier the releases are in world 1 than in world 0, which made them."""
    count: int = 0

    def add(self, difference: FloatArray, noise: FloatArray, sd: float, *, stream: bool = False) -> None:
        """A release whose exact value is larger by ``difference`` in world 1 than in world 0."""
        square = float(difference @ difference)
        self.squared += square / sd**2
        self.shift = math.hypot(self.shift, math.sqrt(square)) if stream else max(self.shift, math.sqrt(square))
        self.llr += float(noise @ difference - 0.5 * square) / sd**2
        self.count += square > 0.0


@dataclass
class Session:
    """Tape of what world 0 did, for world 1 to follow."""

    policies: list[Policy]
    costs: dict[str, Cost] = field(default_factory=dict)
    draws: list[FloatArray] = field(default_factory=list)
    """All noise of world 0 in units of what the release was planned with, in order."""
    world: int = 0
    _tape: deque[tuple[str, Any]] = field(default_factory=deque)
    _event_noise: tuple[float, deque[FloatArray]] = (0.0, deque())

    def cost(self, kind: str) -> Cost:
        """The costs of one kind of release."""
        return self.costs.setdefault(kind, Cost())

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter of everything measured so far."""
        return math.sqrt(math.fsum(cost.squared for cost in self.costs.values()))

    @property
    def llr(self) -> float:
        """Log-likelihood ratio of everything released so far, world 1 against world 0."""
        return math.fsum(cost.llr for cost in self.costs.values())

    def both(self, action: Callable[[int, Policy], Any]) -> list[Any]:
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

    def follow(self, kind: str) -> Any:
        """World 1 does the same, or the worlds diverge."""
        if not self._tape or self._tape[0][0] != kind:
            expected = self._tape[0][0] if self._tape else "nothing"
            raise Diverged(f"one world releases {kind!r} where the other releases {expected!r}")
        return self._tape.popleft()[1]

    # Noise sources

    def watch(self, world: int) -> None:
        """Put the policy's noise sources under watch; again after it was loaded."""
        policy = self.policies[world]
        for source, hook in ((policy.noise, self._tick_noise), (policy.event_noise, self._call_noise)):
            source.gaussian = self._watched(source.gaussian, hook)  # type: ignore[method-assign]

    def _watched(self, original: Callable[..., FloatArray], hook: Callable[..., FloatArray]) -> Callable[..., Any]:
        def gaussian(scale: float, shape: Any) -> FloatArray:
            drawn = original(scale, shape)
            if self.world == 0:
                self.record("noise", (scale, drawn))
                self.draws.append(np.ravel(drawn) / scale)
            else:
                planned, theirs = self.follow("noise")
                if planned != scale or theirs.shape != drawn.shape:
                    raise Diverged(f"noise of scale {planned!r} in one world and {scale!r} in the other")
                drawn = theirs
            return hook(scale, drawn)

        return gaussian

    def _tick_noise(self, scale: float, drawn: FloatArray) -> FloatArray:
        if self.world == 0 or not hasattr(self.policies[1].state, "stream"):
            return drawn
        # The release is the exact sum plus this draw: what is missing after a rehearsal is what the noise must supply.
        rehearsal, noise = copied(self.policies[1].state.stream), np.ravel(drawn)
        continual.close_leaf(rehearsal, noise)
        needed = self.policies[0].state.stream.released - rehearsal.released
        self.cost("stream").add(-needed, noise, scale, stream=True)
        return np.asarray(drawn + needed)

    def _call_noise(self, scale: float, drawn: FloatArray) -> FloatArray:
        self._event_noise = scale, deque(np.atleast_2d(drawn))
        return drawn

    # Gradient sums and shuffled sums

    def gradient(self, compute: Callable[..., None]) -> Callable[..., None]:
        """A gradient sum whose value world 1 takes from world 0."""

        def watched(*arguments: Any) -> None:
            compute(*arguments)
            out, (scale, draws) = arguments[-1], self._event_noise
            if self.world == 0:
                self.record("gradient", (scale, draws.popleft(), out.copy()))
            else:
                planned, noise, value = self.follow("gradient")
                self.cost("optimizer").add(out - value, noise, planned)
                out[:] = value

        return watched

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> Aggregate:
        """A shuffled sum whose value world 1 takes from world 0."""
        exact = protocol.scaled(protocol.domain.embed(rows))
        if self.world == 0:
            released = sample_sum(protocol, rows, rng)
            self.record("shuffled sum", (protocol, rows.shape[0], exact.sum(axis=0), released))
            return released
        planned, users, value, released = self.follow("shuffled sum")
        if planned != protocol or users != rows.shape[0]:
            raise Diverged(f"a sum of {users} reports in one world and of {rows.shape[0]} in the other")
        self._measure_sum(protocol, released, exact, value)
        return Aggregate(released.protocol, released.values, released.reports)

    def _measure_sum(self, protocol: SumProtocol, released: Aggregate, exact: FloatArray, value: FloatArray) -> None:
        difference = exact.sum(axis=0) - value
        if float(np.max(np.abs(difference))) < 1e-9:
            return
        trials, p = protocol.noise_trials(released.reports), protocol.noise_probability
        dominance = binomial_dominance(trials, p, int(protocol.levels.max()), _TAIL)
        mu = dominance.mu(float(np.linalg.norm(difference)), protocol.domain.size)
        rounding = np.sum((exact - np.floor(exact)) * (np.ceil(exact) - exact), axis=0)
        noise = (released.values - released.reports * protocol.lower) / protocol.step - value
        variance = trials * p * (1.0 - p) + rounding
        cost = self.cost("shuffled sums")
        cost.squared += mu**2
        cost.shift = max(cost.shift, protocol.step * float(np.linalg.norm(difference)))
        cost.llr += float(np.sum((noise * difference - 0.5 * difference**2) / variance))
        cost.count += 1


@contextmanager
def watching(session: Session) -> Iterator[None]:
    """Gradient sums and shuffled sums go through the session; optimizers run uncompiled, so that they can."""
    replaced: list[tuple[Any, str, Any]] = []

    def put(module: Any, name: str, value: Any) -> None:
        replaced.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    try:
        for module, core in ((newton, "newton_core"), (descent, "descent_core")):
            put(module, core, getattr(getattr(module, core), "py_func", getattr(module, core)))
            put(module, "clipped_gradient_sum", session.gradient(module.clipped_gradient_sum))
        for name, module in list(sys.modules.items()):
            if name.startswith("tacit.policies") and getattr(module, "sample_sum", None) is sample_sum:
                put(module, "sample_sum", session.shuffled)
        yield
    finally:
        for module, name, value in reversed(replaced):
            setattr(module, name, value)
