"""What one person loses to several policies, and to several lives of one: an (epsilon, delta) that holds for all of it.

Formal guarantee. Adjacency: all rows of one person are replaced together, in every policy at most as many as its budget
counts (``rounds_per_user``), and in every life at most so many.  A life is what begins with a policy or with a restored
backup; a row is in the sums of one life of one policy.

* Parts with Gaussian noise: on every path the shifts of different policies, and of different lives, are in different
  releases, so that squares of mu add (docs/theory.md#composition-of-a-deployment).
* Their exact noise is not quite Gaussian: the slacks eta and the draws of all parts add, and the lattice lemma is
  applied once to the whole (`tacit.privacy.lattice`).
* Parts that are known by (epsilon, delta) alone, those of the shuffle model: epsilons and deltas add (concurrent
  composition: Vadhan and Zhang, arXiv 2207.08335; Henzinger, Safavi and Vadhan, arXiv 2411.03299).

An earlier life went on after the backup was written, and what it spent then is not in the ledger of this one: it counts
with its whole budget and the whole reserve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from tacit.privacy.gaussian import mu_from
from tacit.privacy.lattice import largest_slack, lattice_epsilon, lattice_mu
from tacit.privacy.report import PrivacyReport

_MOST_DRAWS: Final = 2.0**64
"""Noise values of a life that is not known: more than a machine draws in five hundred years."""


@dataclass(frozen=True)
class Loss:
    """What was lost by one person: to one policy, or by `together` to several."""

    mu: float = 0.0
    """Gaussian-DP parameter of the parts with Gaussian noise; infinite without privacy."""
    delta: float = 0.0
    """Delta at which the parts with Gaussian noise are turned into epsilon; 0 where there are none."""
    slack: float = 0.0
    """Eta of the lattice lemma, for the exact noise among these parts."""
    draws: float = 0.0
    """Number of exact noise values that were drawn."""
    epsilon_apart: float = 0.0
    """Epsilon of the parts that are known by epsilon and delta alone."""
    delta_apart: float = 0.0

    @property
    def total_delta(self) -> float:
        """The delta of ``epsilon``."""
        return self.delta + self.delta_apart

    @property
    def epsilon(self) -> float:
        """All of it, at ``total_delta``; infinite where there is no bound."""
        if self.mu in (0.0, math.inf):
            return self.mu + self.epsilon_apart
        return lattice_epsilon(self.mu, self.slack, self.draws, self.delta) + self.epsilon_apart

    def to_json(self) -> dict[str, float | None]:
        """Plain data; infinite numbers become null."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Loss:
        """The loss that gave this."""
        return cls(**{name: math.inf if value is None else float(value) for name, value in data.items()})


def together(losses: Iterable[Loss]) -> Loss:
    """What a person loses who is in all of these."""
    parts = list(losses)
    return Loss(
        mu=math.sqrt(math.fsum(part.mu**2 for part in parts)),
        delta=max((part.delta for part in parts), default=0.0),
        slack=math.fsum(part.slack for part in parts),
        draws=math.fsum(part.draws for part in parts),
        epsilon_apart=math.fsum(part.epsilon_apart for part in parts),
        delta_apart=math.fsum(part.delta_apart for part in parts),
    )


def loss_of(report: PrivacyReport, lives: int = 1) -> Loss:
    """What a person loses to one policy, with rows in so many lives, by the report of the newest."""
    others = [_other_life(report)] * (lives - 1) if lives > 1 else []
    return together([_this_life(report), *others])


def most_lost(report: PrivacyReport, lives: int = 1) -> Loss:
    """What a person loses to one policy when every one of so many lives has spent all that it may."""
    return together([_other_life(report)] * lives)


def mu_across(report: PrivacyReport, lives: int = 1) -> float:
    """The Gaussian parameter of it; for parts that are known by (epsilon, delta) that of a Gaussian which stands in."""
    others = (lives - 1) * _whole_mu(report) ** 2 if lives > 1 else 0.0
    return math.sqrt((report.rounds_per_user * report.spent_mu) ** 2 + others)


def _this_life(report: PrivacyReport) -> Loss:
    if _apart(report):
        return Loss(epsilon_apart=report.spent_epsilon, delta_apart=report.delta)
    return Loss(report.rounds_per_user * report.spent_mu, report.delta, report.slack, report.draws)


def _other_life(report: PrivacyReport) -> Loss:
    """All that a life may spend: its ledger refuses more."""
    if _apart(report):
        return Loss(epsilon_apart=report.target_epsilon, delta_apart=report.delta)
    if report.accounting == "gaussian" and report.entries:
        return Loss(_whole_mu(report), report.delta)
    return Loss(_whole_mu(report), report.delta, largest_slack(report.target_epsilon), _MOST_DRAWS)


def _whole_mu(report: PrivacyReport) -> float:
    """What the budget allows for all rows of a person."""
    limit = lattice_mu if report.accounting == "lattice" else mu_from
    return limit(report.target_epsilon, report.delta)


def _apart(report: PrivacyReport) -> bool:
    """Whether its parameter is that of a Gaussian only up to tails, or only at one delta."""
    return report.model == "shuffle" or report.accounting.startswith("renyi")
