"""Plans all releases about the users of one batch so that together they meet one budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from tacit._validate import integer_at_least, positive, probability
from tacit.errors import InvalidInput
from tacit.privacy.budget import Budget
from tacit.privacy.composition import renyi_budget
from tacit.privacy.events import GaussianRelease, RenyiRelease
from tacit.privacy.gaussian import mu_from
from tacit.privacy.ledger import Ledger
from tacit.shuffle.calibration import MAX_BITS, NOISE_RATIO, MessageLimits, calibrate_mu
from tacit.shuffle.domains import Domain
from tacit.shuffle.guarantee import (
    RENYI_ORDERS,
    TAIL_SHARE,
    Guarantee,
    combined,
    gaussian_event,
    guarantee,
    renyi_event,
)
from tacit.shuffle.messages import report_bytes
from tacit.shuffle.parameters import SumProtocol

BatchAccounting = Literal["gaussian", "renyi"]


@dataclass(frozen=True)
class SumRequest:
    """A sum that every user of the batch contributes to ``rounds`` times.

    ``share`` is relative to the other requests: the part of the squared Gaussian-DP parameter that all of its
    rounds together may spend.

    Parameters
    ----------
    name : str
        Name of the sum in its plan.
    domain : Domain
        What one user may contribute.
    rounds : int, default 1
        How often the sum is released.
    share : float, default 1
        Positive share of the budget.

    Examples
    --------
    >>> from tacit.shuffle import Ball, SumRequest
    >>> SumRequest("gradient", Ball(2), rounds=3, share=2.0).rounds
    3
    """

    name: str
    domain: Domain
    rounds: int = 1
    share: float = 1.0

    def __post_init__(self) -> None:
        integer_at_least("rounds", self.rounds, 1)
        positive("share", self.share)


@dataclass(frozen=True)
class PlannedRelease:
    """A request of a `BatchPlan` with the parameters found for it.

    Parameters
    ----------
    request : SumRequest
        What was asked for.
    protocol : SumProtocol
        Parameters of its rounds (`round`).
    part : Guarantee
        What one of its rounds costs.
    """

    request: SumRequest
    protocol: SumProtocol
    part: Guarantee

    def round(self, index: int) -> SumProtocol:
        """Make the parameters of one round.

        Parameters
        ----------
        index : int
            Number of the round, from 0.

        Returns
        -------
        SumProtocol
            Its parameters, with a label that keeps reports of different rounds apart.
        """
        if not 0 <= index < self.request.rounds:
            raise InvalidInput(f"round must lie in [0, {self.request.rounds}), got {index!r}")
        return self.protocol.relabelled(f"{self.protocol.label}/{index}")


@dataclass(frozen=True)
class BatchPlan:
    """All planned releases about the users of one batch, as `plan_batch` makes them.

    Parameters
    ----------
    users : int
        Smallest number of reports of the batch.
    epsilon, delta : float
        Privacy target of one user.
    accounting : {"gaussian", "renyi"}
        How costs are added up.
    releases : tuple of PlannedRelease
        One for each request; ``plan[name]`` finds it by name.

    Formal guarantee
    ----------------
    Adjacency: one user's whole row is replaced.  All planned rounds together, each possibly chosen from
    what earlier ones released, are (epsilon, delta)-shuffle DP: Gaussian-DP parameters add in squares and
    tails add (docs/theory.md#domination-theorem).  Batches hold disjoint users, so the plan of one batch is
    the guarantee of all (docs/theory.md#algorithm-1).

    Examples
    --------
    >>> from tacit.shuffle import Ball, OuterProducts, SumRequest, plan_batch
    >>> plan = plan_batch(
    ...     1000, 1.0, 1e-6, [SumRequest("matrix", OuterProducts(2)), SumRequest("gradient", Ball(2), rounds=3)]
    ... )
    >>> plan.rounds, plan["gradient"].round(2).label
    (4, 'batch/gradient/2')
    >>> ledger = plan.ledger()
    >>> for event in plan.events():
    ...     _ = ledger.charge(event)
    >>> ledger.epsilon_spent <= 1.0
    True
    """

    users: int
    epsilon: float
    delta: float
    accounting: BatchAccounting
    releases: tuple[PlannedRelease, ...]

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee of all rounds together."""
        return self._combined(1.0)

    @property
    def bytes_per_user(self) -> int:
        """Bytes that a user sends over all rounds."""
        return sum(planned.request.rounds * report_bytes(planned.protocol) for planned in self.releases)

    @property
    def rounds(self) -> int:
        """How often a user sends a report."""
        return sum(planned.request.rounds for planned in self.releases)

    def __getitem__(self, name: str) -> PlannedRelease:
        for planned in self.releases:
            if planned.request.name == name:
                return planned
        known = ", ".join(planned.request.name for planned in self.releases)
        raise InvalidInput(f"no release is called {name!r}, the plan has {known}")

    def epsilon_at(self, honest: float = 1.0) -> float:
        """Compute epsilon of the whole plan when only some of the reports bring noise.

        Parameters
        ----------
        honest : float, default 1
            Share of the smallest batch whose reports bring noise.

        Returns
        -------
        float
            epsilon at the plan's ``delta``.
        """
        together = self._combined(honest)
        exact = self.accounting == "gaussian"
        return together.epsilon(self.delta) if exact else together.renyi_epsilon(self.delta)

    def events(self) -> tuple[GaussianRelease | RenyiRelease, ...]:
        """Make the entries that ``ledger`` is charged with, before the first report is asked for.

        Returns
        -------
        tuple of events
            One entry for each release.
        """
        if self.accounting == "gaussian":
            return self.gaussian_events()
        return tuple(renyi_event(r.protocol, r.part, r.request.rounds) for r in self.releases)

    def gaussian_events(self) -> tuple[GaussianRelease, ...]:
        """Make ledger entries by the dominating Gaussians, for a ledger with Gaussian accounting.

        Returns
        -------
        tuple of GaussianRelease
            One entry for each release.
        """
        return tuple(gaussian_event(r.protocol, r.part, r.request.rounds) for r in self.releases)

    def ledger(self) -> Ledger:
        """Open an empty ledger for this plan.

        Returns
        -------
        Ledger
            A ledger without entries; with Gaussian accounting the tails are taken off its delta.
        """
        tails = self.guarantee.tail_delta if self.accounting == "gaussian" else 0.0
        return Ledger(Budget(self.epsilon, self.delta - tails), accounting=self.accounting)

    def _combined(self, honest: float) -> Guarantee:
        parts: list[Guarantee] = []
        for planned in self.releases:
            part = guarantee(planned.protocol, planned.part.tail_delta, honest)
            parts += [part] * planned.request.rounds
        return combined(parts)


def plan_batch(
    users: int,
    epsilon: float,
    delta: float,
    requests: Sequence[SumRequest],
    *,
    accounting: BatchAccounting = "gaussian",
    label: str = "batch",
    noise_ratio: float = NOISE_RATIO,
    max_bits: int = MAX_BITS,
) -> BatchPlan:
    """Parameters for every request such that all rounds together are (epsilon, delta)-DP at ``users`` reports.

    ``accounting="gaussian"`` composes the dominating Gaussians exactly; ``"renyi"`` composes their Renyi
    curves, for a ledger that holds other Renyi releases too, and needs more noise.

    Parameters
    ----------
    users : int
        Smallest number of reports of the batch.
    epsilon, delta : float
        Privacy target of one user over all requests.
    requests : sequence of SumRequest
        Sums to release, each with its share of the budget.
    accounting : {"gaussian", "renyi"}
        How costs are added up.
    label : str
        Names the batch; each request's label begins with it.
    noise_ratio, max_bits
        Limits of each calibration (`calibrate`).

    Returns
    -------
    BatchPlan
        Parameters and cost of each request, and the ledger entries.

    Raises
    ------
    InvalidInput
        When an argument is out of range, or two requests have one name.
    CalibrationError
        When no message of at most ``max_bits`` per coordinate meets the budget.

    Examples
    --------
    >>> from tacit.shuffle import Ball, SumRequest, plan_batch
    >>> plan = plan_batch(1000, 1.0, 1e-6, [SumRequest("gradient", Ball(2), rounds=3)])
    >>> plan.rounds, plan.epsilon_at() <= 1.0
    (3, True)
    """
    names = [request.name for request in requests]
    if not names or len(set(names)) < len(names):
        raise InvalidInput(f"requests must be a non-empty list with different names, got {names}")
    integer_at_least("users", users, 1)
    positive("epsilon", epsilon)
    tail = TAIL_SHARE * probability("delta", delta)
    budget = _mu_budget(accounting, epsilon, delta - tail)
    limits = MessageLimits(noise_ratio, max_bits)
    shares = math.fsum(request.share for request in requests)
    tail_per_round = tail / sum(request.rounds for request in requests)
    releases = []
    for request in requests:
        mu = budget * math.sqrt(request.share / (shares * request.rounds))
        protocol = calibrate_mu(request.domain, users, mu, tail_per_round, limits).relabelled(f"{label}/{request.name}")
        releases.append(PlannedRelease(request, protocol, guarantee(protocol, tail_per_round)))
    return BatchPlan(users, epsilon, delta, accounting, tuple(releases))


def _mu_budget(accounting: BatchAccounting, epsilon: float, delta: float) -> float:
    """Largest parameter that all rounds together may spend."""
    if accounting == "gaussian":
        return mu_from(epsilon, delta)
    if accounting != "renyi":
        raise InvalidInput(f"accounting must be 'gaussian' or 'renyi', got {accounting!r}")
    rooms = 2.0 * renyi_budget(RENYI_ORDERS, epsilon, delta) / np.asarray(RENYI_ORDERS)
    if not np.max(rooms) > 0.0:
        raise InvalidInput(f"no Renyi order admits epsilon = {epsilon}, delta = {delta}: use 'gaussian'")
    return math.sqrt(float(np.max(rooms)))
