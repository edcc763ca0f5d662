"""Epsilon of a shuffled sum from its two exact laws: a second route, which shares nothing with ``shuffle.dominance``.

One user's contribution to a shuffled sum is x in one world and x' in the other, vectors in steps of the grid.  The sum
shows, in each coordinate, ``floor(x + U) + Bin(N, p)`` plus the randomly rounded values of all other users.  These are
independent of the user's own and have the same law in both worlds; adding them is post-processing, so that leaving
them out can only make the worlds easier to tell apart.  What is left are two known discrete laws per coordinate,
mixtures of two shifted binomials, independent across coordinates.

The privacy loss distribution of each coordinate, and of all of them together, is computed by dp-accounting (Koskela et
al., arXiv 1906.03049; Meiser and Mohammadi, CCS 2018), which is in the extra ``audit``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any, Final

import numpy as np
from scipy.stats import binom

from tacit._validate import integer_at_least, probability
from tacit.errors import InvalidInput, TacitError
from tacit.privacy.gaussian import mu_from
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

Pair = tuple[FloatArray, FloatArray]
"""Mass functions of one coordinate in the two worlds, on the same outcomes."""

_HALF_WIDTH: Final = (12.0, 60.0)
"""A binomial is cut off beyond 12 sd + 60: e^-72 lies outside (Bernstein: t^2 >= 144 (sd^2 + t / 3) there)."""

_INTERVAL: Final = 1e-4
"""Losses are rounded to multiples of this: epsilon is overstated by less than this for each coordinate."""

_LOG_MASS: Final = -45.0
"""Log of the mass below which an outcome is counted in full, as if it were impossible in the other world."""


@lru_cache(maxsize=512)
def _binomial(trials: int, success: float, reach: int) -> FloatArray:
    """Mass function of Bin(trials, success) around its mean, wide enough for a shift of ``reach``."""
    sds, least = _HALF_WIDTH
    half = math.ceil(sds * math.sqrt(trials * success * (1.0 - success)) + least) + reach
    center = round(trials * success)
    mass = binom.pmf(np.arange(max(0, center - half), min(trials, center + half) + 1), trials, success)
    return np.asarray(mass, dtype=np.float64)


def coordinate_laws(trials: int, success: float, first: float, second: float) -> Pair:
    """Laws of ``floor(x + U) + Bin(trials, success)``, U uniform on [0, 1), for x = ``first`` and x = ``second``.

    Both are on the same consecutive integers.
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
    return laws[0], laws[1]


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


def loss_epsilon(pairs: Sequence[Pair], delta: float, *, upper: bool = True) -> float:
    """A bound on epsilon, at ``delta``, of telling two worlds apart by all of these independent coordinates.

    Formal guarantee
    ----------------
    Adjacency: the two worlds of ``pairs``, which for a shuffled sum differ in one user's contribution
    (its law: docs/theory.md#domination-theorem).  With ``upper``, outcomes are (result, ``delta``)-DP for these two
    worlds, in both directions; nothing is said about other pairs of worlds.  Otherwise, some test of the outcomes
    refutes every epsilon below the result.  The result is infinite when outcomes that are possible in one world only
    exceed ``delta``.
    """
    probability("delta", delta)
    if not pairs:
        return 0.0
    library = accounting()
    parts = (
        library.from_two_probability_mass_functions(
            *(_log_masses(law) for law in pair),
            pessimistic_estimate=upper,
            value_discretization_interval=_INTERVAL,
            log_mass_truncation_bound=_LOG_MASS,
            symmetric=False,
        )
        for pair in pairs
    )
    return float(reduce(lambda first, second: first.compose(second), parts).get_epsilon_for_delta(delta))


def loss_mu(pairs: Sequence[Pair], delta: float) -> float:
    """The Gaussian-DP parameter that has the same epsilon at ``delta`` as ``loss_epsilon``.

    For comparison with a claimed mu at this delta only.  To judge several releases together, hand all of their pairs
    to ``loss_epsilon``; squares of this function's values add up only approximately.
    """
    epsilon = loss_epsilon(pairs, delta)
    return mu_from(epsilon, delta) if epsilon > 0.0 else 0.0


def accounting() -> Any:
    """dp-accounting's module of privacy loss distributions; an error that names the extra where it is missing."""
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ModuleNotFoundError as error:
        raise TacitError("an audit of shuffled sums needs dp-accounting: pip install 'tacit-bandits[audit]'") from error
    return privacy_loss_distribution


def _log_masses(law: FloatArray) -> dict[int, float]:
    """Logarithms of the masses of all outcomes that are possible."""
    possible = np.flatnonzero(law)
    return dict(zip(possible.tolist(), np.log(law[possible]).tolist(), strict=True))
