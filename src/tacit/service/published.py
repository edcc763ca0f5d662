"""What others may see of a served policy: releases, changes of its mode, the ledger and the clock of decisions."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

import numpy as np

from tacit.errors import StoreDamaged
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.privacy.person import Loss, loss_of, mu_across
from tacit.service.lives import report_across
from tacit.service.store import Group, Row, Store
from tacit.service.terms import DELETED, MODES, Mode, checked_mode

_POINT: Final = struct.Struct("<qdd")
RELEASES, MODE_CHANGES = "releases", "modes"
"""Tables of a journal."""
MOST_RELEASES, MOST_MODES = 2_000, 1_000
"""Releases and changes of mode that are remembered; older ones are forgotten."""


class Point(NamedTuple):
    """A release, as the page draws it."""

    decisions: int
    """How many decisions had been made."""
    time: float
    """Seconds since 1970."""
    best_reward: float
    """Estimated mean reward of the best arm that there can be, mu(|theta|); NaN for a policy that estimates none."""

    def row(self, number: int) -> Row:
        """The row of release ``number``."""
        return Row(number.to_bytes(8, "big"), number, _POINT.pack(*self))

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """The release that was kept as this row."""
        try:
            return cls(*_POINT.unpack(row.value))
        except struct.error as error:
            raise StoreDamaged(f"a row of the table of releases cannot be read: {error}") from error


class ModeChange(NamedTuple):
    """A change of mode."""

    number: int
    """Number of the change, from 1 on, also where older ones are forgotten."""
    time: float
    """Seconds since 1970."""
    decisions: int
    """How many decisions had been made."""
    mode: Mode

    def row(self, number: int) -> Row:
        """The row of change ``number``, which is its own."""
        return Row(number.to_bytes(8, "big"), number, json.dumps(self[1:]).encode())

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """The change that was kept as this row."""
        try:
            time, decisions, mode = json.loads(row.value)
            return cls(row.position, float(time), int(decisions), checked_mode(mode, (*MODES, DELETED)))
        except (TypeError, ValueError) as error:
            raise StoreDamaged(f"a row of the table of modes cannot be read: {error}") from error


Kind = TypeVar("Kind", bound=Point | ModeChange)


class Timeline(Generic[Kind]):
    """The newest ``most`` public events of one kind, oldest first, each a row of a table of the policy's journal."""

    def __init__(self, read: Callable[[Row], Kind], store: Store, journal: str, table: str, most: int) -> None:
        self._read, self._store, self._journal, self._table, self._most = read, store, journal, table, most
        self.number = 0
        """Number of the newest event; the first one has number 1."""
        self.known: tuple[Kind, ...] = ()
        """Replaced by every change."""
        self.follow(1)  # and all that come after it

    def follow(self, number: int) -> None:
        """Read the events that another process has recorded, where the one of this number is not known yet."""
        if number <= self.number:
            return
        if rows := list(self._store.rows(self._journal, self._table, self.number))[-self._most :]:
            found = tuple(self._read(row) for row in rows)
            self.known, self.number = (*self.known, *found)[-self._most :], rows[-1].position

    def record(self, group: Group, event: Kind, number: int) -> None:
        """Add an event to a group of changes; events that are too old are forgotten by the same group."""
        row = event.row(number)
        group.rows.setdefault(self._table, {})[row.key] = row
        group.forget[self._table] = number - self._most
        self.known, self.number = (*self.known, event)[-self._most :], number


def releases_of(store: Store, journal: str) -> Timeline[Point]:
    """The newest releases of a policy."""
    return Timeline(Point.from_row, store, journal, RELEASES, MOST_RELEASES)


def modes_of(store: Store, journal: str) -> Timeline[ModeChange]:
    """The newest changes of a policy's mode."""
    return Timeline(ModeChange.from_row, store, journal, MODE_CHANGES, MOST_MODES)


def newest_point(policy: Policy, now: float) -> Point:
    """The newest release of a policy, as the page draws it."""
    belief = policy.belief if isinstance(policy, PrivatePolicy) else None
    best = math.nan if belief is None else float(policy.setting.link.mean(float(np.linalg.norm(belief.theta))))
    return Point(policy.decisions, now, best)


def first_mode(mode: Mode, time: float) -> tuple[bytes, dict[bytes, Row]]:
    """The note and the rows of `ModeChange` that a policy begins with; one that begins online has changed nothing."""
    if mode == "online":
        return b"", {}
    row = ModeChange(1, time, 0, mode).row(1)
    return json.dumps({"mode": mode, "modes": 1}).encode(), {row.key: row}


@dataclass(frozen=True)
class Published:
    """A policy as others see it."""

    mode: Mode
    decisions: int
    releases: int
    """How often anything was released."""
    estimate: tuple[float, ...] | None
    """The newest estimate of theta; None for a policy without privacy, whose estimate is raw data."""
    privacy: Mapping[str, Any]
    """The privacy report as JSON, with what all lives together have spent."""
    spent_mu: float
    """Spent on one person in all lives, as the parameter of Gaussian differential privacy; infinite without privacy.

    Of a shuffled policy it is the parameter of the Gaussian that stands for it; ``loss`` says what holds.
    """
    loss: Loss
    """Spent on one person in all lives, so that it can be put together with what other policies spend."""
    history: tuple[Point, ...]
    """The newest releases, oldest first."""
    modes: tuple[ModeChange, ...]
    """The newest changes of mode, oldest first."""
    explanation: Mapping[str, Any] | None
    """Every feature with its released weight; None for a policy that estimates none, or without privacy."""


def publish(
    policy: Policy,
    mode: Mode,
    releases: int,
    history: tuple[Point, ...],
    modes: tuple[ModeChange, ...] = (),
    earlier: Published | None = None,
    *,
    lives: int = 1,
) -> Published:
    """The copy that others see from now on; everything in the policy must be committed.

    What follows from releases alone is taken from an ``earlier`` copy when nothing was released since.  ``lives`` says
    in how many of them a person's decisions may count (`tacit.service.lives`).
    """
    report = policy.privacy
    loss = loss_of(report, lives)
    return Published(
        mode=mode,
        decisions=policy.decisions,
        releases=releases,
        estimate=tuple(policy.estimate.tolist()) if isinstance(policy, PrivatePolicy) else None,
        privacy=report_across(report, loss, lives),
        spent_mu=mu_across(report, lives),
        loss=loss,
        history=history,
        modes=modes,
        explanation=earlier.explanation if earlier and earlier.releases == releases else _explained(policy),
    )


def _explained(policy: Policy) -> Mapping[str, Any] | None:
    """The features that a private policy believes to matter: a function of its releases."""
    if not isinstance(policy, PrivatePolicy) or policy.belief is None:
        return None
    return policy.explain().to_json()
