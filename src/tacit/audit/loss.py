"""Epsilon of a shuffled sum from its two exact laws: a second route, which shares nothing with ``shuffle.dominance``.

Setting. One user's contribution to a shuffled sum is x in one world and x' in the other, vectors in steps of the grid.
Whoever sees the sum sees, in each coordinate, ``floor(x + U) + Bin(N, p)`` plus the randomly rounded values of all
other users. These are independent of the user's own and have the same law in both worlds; adding them is
post-processing, so that leaving them out can only make the worlds easier to tell apart. What is left are two known
discrete laws per coordinate, mixtures of two shifted binomials, independent across coordinates.

Privacy loss. For laws P and Q, delta(epsilon) = sum of max(P(k) - e^epsilon Q(k), 0) is the smallest delta at this
epsilon, and the losses log P(k)/Q(k) of independent coordinates add up (Dwork and Rothblum, arXiv 1603.01887; Koskela
et al., arXiv 1906.03049). Losses are put on a grid of multiples of h, where sums of them are convolutions:

* *Upper bounds.* An outcome with masses (p, q) and a loss between two multiples of h is split into two outcomes
  with just these losses, whose masses add up to p and to q. Merging them again is post-processing, so the split pair
  is at least as easy to tell apart, coordinate by coordinate and therefore in all. This is "connect the dots"
  (Doroshenko et al., arXiv 2207.04380) outcome by outcome. It adds at most h^2 / 4 to the variance of a loss and
  nothing to the masses, an error of second order.
* *Lower bounds.* The sum of the losses, each rounded to the nearest multiple of h, is a function of the outcome. Its
  laws under P and Q are convolutions too, and by the data processing inequality they are at least as hard to
  tell apart.

Outcomes that are impossible in the other world count in full. Outcomes that are dropped because they hardly ever
occur are charged to delta in an upper bound, and are never counted in a lower one: "was dropped" is then one more
outcome that the test does not use. Both directions are computed and the larger delta or epsilon is returned. All
masses are sums of terms of one sign and no transform is used, so that small ones keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.stats import binom

from tacit._validate import integer_at_least, nonnegative, probability
from tacit.errors import InvalidInput
from tacit.privacy.gaussian import mu_from
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

Pair = tuple[FloatArray, FloatArray]
"""Mass functions of one coordinate in the two worlds, on the same outcomes."""

_Law = tuple[FloatArray, FloatArray, FloatArray]
"""Masses of a coordinate's outcomes in both worlds, and their losses."""

_HALF_WIDTH: Final = (12.0, 60.0)
"""A binomial is cut off beyond 12 sd + 60: e^-72 lies outside (Bernstein: t^2 >= 144 (sd^2 + t / 3) there)."""

_DROPPED: Final = 1e-17
"""Mass dropped at either end of a law, once per coordinate and once per convolution; charged to delta."""

_INFLATION: Final = 5e-4
"""Share of the loss's variance that splitting may add: epsilon is overstated by about half of it."""

_MOST_POINTS: Final = 1 << 14
"""Points of the grid; only reached by laws with rare and very large losses."""

_FLOATS: Final = 1e-9
"""Covers floating-point errors: of mass functions, below 2e-11 at 10^7 trials, and of convolutions, below 1e-12."""

_FAR: Final = 1e-30
"""Mass of a binomial outside the window in which its law is computed."""

_LARGEST_LOSS: Final = 500.0
"""Larger losses count as infinite; e^500 is still a float."""


@lru_cache(maxsize=512)
def _binomial(trials: int, success: float, reach: int) -> FloatArray:
    """Mass function of Bin(trials, success) around its mean, wide enough for a shift of ``reach``."""
    sds, least = _HALF_WIDTH
    half = math.ceil(sds * math.sqrt(trials * success * (1.0 - success)) + least) + reach
    center = round(trials * success)
    mass = binom.pmf(np.arange(max(0, center - half), min(trials, center + half) + 1), trials, success)
    return np.asarray(mass, dtype=np.float64)


@lru_cache(maxsize=4096)
def coordinate_laws(trials: int, success: float, first: float, second: float) -> Pair:
    """Laws of ``floor(x + U) + Bin(trials, success)``, U uniform on [0, 1), for x = ``first`` and x = ``second``.

    Both on the same consecutive integers. The arrays are shared between callers and cannot be written to.
    """
    integer_at_least("trials", trials, 1)
    probability("success", success)
    base = math.floor(min(first, second))
    reach = math.floor(max(first, second)) - base + 1
    mass = _binomial(trials, success, 1 << reach.bit_length())
    laws = np.zeros((2, mass.size + reach))
    for law, x in zip(laws, (first, second), strict=True):
        whole = math.floor(x)
        part, start = x - whole, whole - base
        law[start : start + mass.size] += (1.0 - part) * mass
        law[start + 1 : start + 1 + mass.size] += part * mass[: law.size - start - 1]
    laws.setflags(write=False)
    return laws[0], laws[1]


@dataclass(frozen=True)
class Composed:
    """Masses of all summed losses on the grid in either world, and what lies outside of it."""

    first: FloatArray
    second: FloatArray
    outside: tuple[float, float]
    """Mass in either world that counts in full: impossible in the other world or, in upper bounds, dropped."""

    def delta(self, epsilon: float) -> float:
        """Larger delta of the two directions at ``epsilon``."""
        factor = math.exp(min(nonnegative("epsilon", epsilon), _LARGEST_LOSS))
        forward = float(np.sum(np.maximum(self.first - factor * self.second, 0.0))) + self.outside[0]
        backward = float(np.sum(np.maximum(self.second - factor * self.first, 0.0))) + self.outside[1]
        return min(1.0, max(forward, backward))

    def epsilon(self, delta: float) -> float:
        """Larger of the two smallest epsilons at ``delta``."""
        forward = _smallest_epsilon(self.first, self.second, delta - self.outside[0])
        return max(forward, _smallest_epsilon(self.second, self.first, delta - self.outside[1]))


def loss_delta(pairs: Sequence[Pair], epsilon: float) -> float:
    """An upper bound on delta of telling the two worlds apart by all coordinates, at ``epsilon``."""
    return min(1.0, (1.0 + _FLOATS) * composed(pairs, upper=True).delta(epsilon))


def loss_epsilon(pairs: Sequence[Pair], delta: float) -> float:
    """An upper bound on epsilon at ``delta``; infinite when impossible outcomes alone exceed ``delta``."""
    return (1.0 + _FLOATS) * composed(pairs, upper=True).epsilon(probability("delta", delta) * (1.0 - _FLOATS))


def loss_epsilon_below(pairs: Sequence[Pair], delta: float) -> float:
    """A lower bound on epsilon at ``delta``, to see how tight ``loss_epsilon`` is; no confidence needed."""
    return (1.0 - _FLOATS) * composed(pairs, upper=False).epsilon(probability("delta", delta) * (1.0 + _FLOATS))


def loss_mu(pairs: Sequence[Pair], delta: float) -> float:
    """The Gaussian-DP parameter that has the same epsilon at ``delta`` as ``loss_epsilon``.

    For comparison with a claimed mu at this delta only.  To judge several releases together, hand all of their pairs
    to ``loss_epsilon``; squares of this function's values add up only approximately.
    """
    epsilon = loss_epsilon(pairs, delta)
    return mu_from(epsilon, delta) if epsilon > 0.0 else 0.0


def protocol_pairs(protocol: SumProtocol, users: int, first: FloatArray, second: FloatArray) -> list[Pair]:
    """Laws of all coordinates that differ when the contribution of one of ``users`` honest reports is replaced.

    ``first`` and ``second`` are one user's contribution in steps of the grid, before rounding: one line of
    ``protocol.scaled(protocol.domain.embed(rows))``.
    """
    shape = (protocol.domain.size,)
    if first.shape != shape or second.shape != shape:
        raise InvalidInput(f"contributions must have shape {shape}, got {first.shape} and {second.shape}")
    trials, success = protocol.noise_trials(users), protocol.noise_probability
    both = zip(first.tolist(), second.tolist(), strict=True)
    return [coordinate_laws(trials, success, x, y) for x, y in both if x != y]


def protocol_epsilon(
    protocol: SumProtocol, users: int, first: FloatArray, second: FloatArray, delta: float, *, upper: bool = True
) -> float:
    """A bound on epsilon, at ``delta``, of replacing one contribution to a shuffled sum by another.

    Formal guarantee
    ----------------
    Adjacency: one user's contribution, in steps of the grid, is ``first`` or ``second``.  The attacker sees the
    released sum of ``users`` honest reports (its law: docs/theory.md#domination-theorem).  With ``upper``, the sum is
    (result, ``delta``)-DP for this pair of contributions; nothing is said about other pairs.  Otherwise, an attacker
    who also knows what the other users' values were rounded to refutes every epsilon below the result.
    """
    pairs = protocol_pairs(protocol, users, first, second)
    return loss_epsilon(pairs, delta) if upper else loss_epsilon_below(pairs, delta)


def composed(pairs: Sequence[Pair], *, upper: bool) -> Composed:
    """Laws of the summed losses of independent coordinates: easier to tell apart (``upper``), or harder."""
    laws, outside = _finite_losses(pairs, upper=upper)
    step = _grid_step(laws)
    total = Composed(np.ones(1), np.ones(1), outside)
    for p, q, loss in sorted(laws, key=lambda law: float(np.ptp(law[2])) if law[2].size else 0.0):
        if step == 0.0 or loss.size == 0:  # one loss only, which needs no grid
            first, second = np.sum(p, keepdims=True), np.sum(q, keepdims=True)
        else:
            first, second = _split(p, loss, step) if upper else _rounded(p, q, loss, step)
        joined = Composed(np.convolve(total.first, first), np.convolve(total.second, second), total.outside)
        total = _trimmed(joined, upper=upper)
    return total


def _finite_losses(pairs: Sequence[Pair], *, upper: bool) -> tuple[list[_Law], tuple[float, float]]:
    """Outcomes that are possible in both worlds, with their losses; and the mass of all others in either world."""
    laws, possible, dropped = [], np.ones(2), np.zeros(2)
    for pair in pairs:
        first, last = _bulk(*pair)
        dropped += [_FAR + float(np.sum(law[:first]) + np.sum(law[last:])) for law in pair]
        p, q = (law[first:last] for law in pair)
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.log(p) - np.log(q)
        finite = np.abs(loss) <= _LARGEST_LOSS  # false for NaN: an outcome of mass 0 in both worlds
        possible *= [1.0 - float(np.sum(p[loss > _LARGEST_LOSS])), 1.0 - float(np.sum(q[loss < -_LARGEST_LOSS]))]
        laws.append((p[finite], q[finite], loss[finite]))
    outside = (1.0 - possible) + (dropped if upper else 0.0)
    return laws, (float(outside[0]), float(outside[1]))


def _grid_step(laws: Sequence[_Law]) -> float:
    """h: splitting adds about h^2 / 6 to the variance of each coordinate's loss; 0 when every loss is constant."""
    variance = width = 0.0
    for p, _, loss in laws:
        if loss.size:
            mean = float(p @ loss) / float(np.sum(p))
            variance += float(p @ (loss - mean) ** 2)
            width += float(np.ptp(loss))
    return max(math.sqrt(6.0 * _INFLATION * variance / max(len(laws), 1)), width / _MOST_POINTS)


def _bulk(p: FloatArray, q: FloatArray) -> tuple[int, int]:
    """Range of outcomes outside of which both laws have less than ``_DROPPED`` on either side; never empty."""
    first = min(int(np.searchsorted(np.cumsum(law), _DROPPED)) for law in (p, q))
    last = p.size - min(int(np.searchsorted(np.cumsum(law[::-1]), _DROPPED)) for law in (p, q))
    return (first, last) if first < last else (0, 1)


def _trimmed(total: Composed, *, upper: bool) -> Composed:
    """Without its rarest outcomes at both ends."""
    first, last = _bulk(total.first, total.second)
    lost = [float(np.sum(law[:first]) + np.sum(law[last:])) if upper else 0.0 for law in (total.first, total.second)]
    outside = total.outside[0] + lost[0], total.outside[1] + lost[1]
    return Composed(total.first[first:last], total.second[first:last], outside)


def _split(p: FloatArray, loss: FloatArray, step: float) -> Pair:
    """Each outcome as two on the grid with the same masses: p = a + b and q = a e^-low + b e^-(low + h)."""
    position = np.floor(loss / step)
    part = np.clip(np.expm1(position * step - loss) / math.expm1(-step), 0.0, 1.0)
    start = int(position.min())
    index = (position - start).astype(np.int64)
    first = np.zeros(int(index.max()) + 2)
    first[:-1] += np.bincount(index, (1.0 - part) * p)
    first[1:] += np.bincount(index, part * p)
    return first, first * np.exp(-step * (start + np.arange(first.size)))


def _rounded(p: FloatArray, q: FloatArray, loss: FloatArray, step: float) -> Pair:
    """Laws of the loss rounded to the nearest multiple of the step."""
    position = np.rint(loss / step)
    index = (position - position.min()).astype(np.int64)
    first, second = (np.asarray(np.bincount(index, law), dtype=np.float64) for law in (p, q))
    return first, second


def _smallest_epsilon(p: FloatArray, q: FloatArray, delta: float) -> float:
    """Root of delta(epsilon) in one direction, which is linear in e^epsilon between two losses."""
    if delta <= 0.0:
        return math.inf
    p, q = p[p > 0.0], np.maximum(q[p > 0.0], np.finfo(np.float64).tiny)
    loss = np.minimum(np.log(p) - np.log(q), _LARGEST_LOSS)
    order = np.argsort(-loss)
    loss, above, below = loss[order], np.cumsum(p[order]), np.cumsum(q[order])
    exceeding = np.flatnonzero(above - np.exp(loss) * below > delta)  # delta(loss), rising along the order
    last = int(exceeding[0]) - 1 if exceeding.size else loss.size - 1
    if last < 0 or above[last] <= delta:
        return 0.0
    return max(0.0, math.log((above[last] - delta) / below[last]))
