"""What a shuffled sum guarantees: a Gaussian-DP parameter, a tail, and the ledger entries that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tacit._validate import probability
from tacit.errors import InvalidInput
from tacit.privacy.composition import epsilon_from_renyi
from tacit.privacy.events import GaussianRelease, RenyiRelease
from tacit.privacy.gaussian import epsilon_from
from tacit.shuffle.dominance import binomial_dominance
from tacit.shuffle.parameters import SumProtocol

TAIL_SHARE: Final = 1e-3
"""Part of delta that pays for mass outside the window of the dominating Gaussian."""

_FLOATS: Final = 1.0 + 1e-9
"""Scaling a row into the ball and dividing by the step move it by a few units in the last place."""

RENYI_ORDERS: Final = tuple(1.0 + float(10.0**x) for x in np.linspace(-2.0, 3.0, 101))


@dataclass(frozen=True)
class Guarantee:
    """``mu``-GDP, except on events of probability at most ``tail_delta``.

    Formal guarantee
    ----------------
    Adjacency: one user's whole row is replaced; the reports that arrive are the same people's.  The
    analyzer's view of the replaced sum is, up to an event of probability ``tail_delta``, a post-
    processing of a Gaussian mechanism with sensitivity over standard deviation ``mu`` (see
    ``dominance``).  It follows that the release is (epsilon_from(mu, delta - tail_delta), delta)-DP, that
    parameters compose as ``sqrt(sum mu^2)`` and tails as sums, also when a round is chosen from earlier
    ones, and that its Renyi divergences are at most ``alpha mu^2 / 2``, in the approximate sense of Bun
    and Steinke (arXiv 1605.02065, Definition 8.1).  Proof: docs/theory.md#domination-theorem.
    """

    mu: float
    tail_delta: float
    moving_mu: float
    """The same for a row that stops contributing, or starts to: its report is sent, with a contribution of 0."""

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon at ``delta``, by the exact curve of the dominating Gaussian."""
        return epsilon_from(self.mu, self._net(delta))

    def renyi_epsilon(self, delta: float) -> float:
        """The same through the Renyi curve, as a ledger of Renyi releases composes it: larger."""
        curve = [0.5 * a * self.mu**2 for a in RENYI_ORDERS]
        return epsilon_from_renyi(RENYI_ORDERS, curve, self._net(delta))

    def _net(self, delta: float) -> float:
        net = probability("delta", delta) - self.tail_delta
        if not net > 0.0:
            raise InvalidInput(f"delta must exceed this release's tail {self.tail_delta:.3g}, got {delta!r}")
        return net


def guarantee(protocol: SumProtocol, tail_delta: float, honest: float = 1.0) -> Guarantee:
    """Guarantee of ``protocol`` at its smallest batch when a share ``honest`` of the reports brings noise.

    Dishonest users may send anything, and tell the attacker what: their noise is not counted, and their
    contributions are constants, so only the number of honest noise bits matters.
    """
    if not 0.0 < honest <= 1.0:
        raise InvalidInput(f"honest must lie in (0, 1], got {honest!r}")
    users = math.floor(honest * protocol.min_users * (1.0 + 1e-12))
    if users < 1:
        return Guarantee(math.inf, tail_delta, math.inf)
    domain = protocol.domain
    dominance = binomial_dominance(
        protocol.noise_trials(users),
        protocol.noise_probability,
        int(protocol.levels.max()),
        tail_delta / domain.size,
    )
    replaced, moved = (_FLOATS * s / protocol.step for s in (domain.sensitivity, domain.bound))
    return Guarantee(dominance.mu(replaced, domain.size), tail_delta, dominance.mu(moved, domain.size))


def combined(parts: list[Guarantee]) -> Guarantee:
    """Guarantee of several releases about the same users, each possibly chosen from earlier ones."""
    mu = math.sqrt(math.fsum(part.mu**2 for part in parts))
    moving = math.sqrt(math.fsum(part.moving_mu**2 for part in parts))
    return Guarantee(mu, math.fsum(part.tail_delta for part in parts), moving)


def renyi_event(protocol: SumProtocol, part: Guarantee, rounds: int = 1) -> RenyiRelease:
    """Ledger entry by Renyi curve: ``rounds`` sums under ``protocol``, each with guarantee ``part``."""
    return RenyiRelease(
        name=protocol.label,
        orders=RENYI_ORDERS,
        divergences=tuple(0.5 * a * part.mu**2 for a in RENYI_ORDERS),
        tail_delta=part.tail_delta,
        sensitivity=protocol.domain.sensitivity,
        moving_sensitivity=protocol.domain.sensitivity * part.moving_mu / part.mu,
        count=rounds,
        noise_sd=protocol.noise_sd(protocol.min_users),
        note=_note(protocol),
    )


def gaussian_event(protocol: SumProtocol, part: Guarantee, rounds: int = 1) -> GaussianRelease:
    """Ledger entry by the dominating Gaussian; its ledger is opened with delta less all ``tail_delta``."""
    return GaussianRelease(
        name=protocol.label,
        sensitivity=protocol.domain.sensitivity,
        noise_sd=protocol.domain.sensitivity / part.mu,
        moving_sensitivity=protocol.domain.sensitivity * part.moving_mu / part.mu,
        count=rounds,
        note=_note(protocol) + "; noise_sd is that of the dominating Gaussian",
    )


def _note(protocol: SumProtocol) -> str:
    p = protocol.noise_probability
    noise = f"g={protocol.grid}, b={protocol.noise_bits}, p={p:.5g}, at least {protocol.min_users} users"
    return f"shuffled binary sum, {noise}"
