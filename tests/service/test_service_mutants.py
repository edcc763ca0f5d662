"""Faults of a service's clock, put in from outside: each must be caught by the replay that is about it.

Without them the same replays find nothing (tests/audit/test_services.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tacit.audit.service_cases import SERVICE_CASES
from tacit.audit.services import replay_service
from tacit.service.host import Answer, Decide, Host, Refusal, Request, Reward
from tacit.service.http.in_process import InProcessService
from tests.mutants.faults import Change
from tests.mutants.mutants import changed

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class ServiceMutant:
    """A fault, the case that must find it, and a part of what it says."""

    name: str
    case: str
    because: str
    changes: Callable[[], tuple[Change, ...]]


MOVED = "times the charge"
"""More than one row has moved."""
SENT = "differs between the worlds"
RELEASED = "where the other releases"
"""One world releases something when the other does not."""


def _found(case: str) -> str:
    """What the replay of a case has to say; nothing where it finds nothing wrong."""
    outcome = replay_service(InProcessService, SERVICE_CASES[case].script())
    moved = f"measured mu is {outcome.worst:.3g} {MOVED}" if outcome.worst > 1.0 else ""
    return "; ".join([*outcome.divergences, moved]).strip("; ")


def _settles_on_rewards() -> tuple[Change, ...]:
    original = Host._reward

    def reward(self: Any, request: Reward) -> Answer | Refusal:
        self._advance(self._progress.uptime)  # as it should be
        for row, event in self._events.settle(request.stamp - self._since):
            self._settle_one(row, event)
        return original(self, request)

    return ((Host, "_reward", reward),)


def _settles_a_few() -> tuple[Change, ...]:
    original = Host._advance

    def advance(self: Any, now: float) -> None:
        settle, left = self._events.settle, 512

        def capped(until: float) -> Any:
            nonlocal left
            for row, event in settle(until):
                yield row, event
                left -= 1
                if not left:
                    return

        if self._moved:  # another decision of this group has done it
            self._events.settle = lambda until: iter(())
        else:
            self._events.settle = capped
        try:
            original(self, now)
        finally:
            del self._events.settle

    return ((Host, "_advance", advance),)


def _keeps_the_time_of_rewards() -> tuple[Change, ...]:
    original = Host._reward

    def reward(self: Any, request: Reward) -> Answer | Refusal:
        self._progress.uptime = max(self._progress.uptime, request.stamp - self._since)
        self._moved = True
        return original(self, request)

    return ((Host, "_reward", reward),)


def _stamps_by_groups() -> tuple[Change, ...]:
    original = Host.process

    def process(self: Any, requests: Sequence[Request], *, tending: bool = True) -> Any:
        stamp = self._clock()
        moved = [each._replace(stamp=stamp) if isinstance(each, Decide) else each for each in requests]
        return original(self, moved, tending=tending)

    return ((Host, "process", process),)


def _groups_are_batches() -> tuple[Change, ...]:
    original = Host.process

    def process(self: Any, requests: Sequence[Request], *, tending: bool = True) -> Any:
        blocks = [request.arms for request in requests if isinstance(request, Decide)]
        if len(blocks) < 2:
            return original(self, requests, tending=tending)
        policy = self.journal.policy
        made: list[Any] = []

        def select(block: Any) -> Any:
            if not made:
                made.extend(policy._decisions(np.concatenate(blocks)))
            return made.pop(0)

        policy.select_admitted = select
        try:
            return original(self, requests, tending=tending)
        finally:
            del policy.select_admitted

    return ((Host, "process", process),)


def _forgets_on_rewards() -> tuple[Change, ...]:
    original = Host._reward

    def reward(self: Any, request: Reward) -> Answer | Refusal:
        self._events.forget(request.stamp - self._since)
        return original(self, request)

    return ((Host, "_reward", reward),)


def _beats_need_rewards() -> tuple[Change, ...]:
    tick, reward = Host.tick, Host._reward

    def told(self: Any, request: Reward) -> Answer | Refusal:
        self.told = True
        return reward(self, request)

    def beat(self: Any) -> None:
        if getattr(self, "told", False):
            tick(self)

    return ((Host, "_reward", told), (Host, "tick", beat))


MUTANTS = (
    ServiceMutant("rewards settle others", "crash when others are due", MOVED, _settles_on_rewards),
    ServiceMutant("a cap on what a group settles", "a batch falls due, groups", MOVED, _settles_a_few),
    ServiceMutant("rewards keep their time", "crash after a reward", MOVED, _keeps_the_time_of_rewards),
    ServiceMutant("a group's start is its decisions' time", "a group that waits", MOVED, _stamps_by_groups),
    ServiceMutant("a group is a batch", "a group that waits", RELEASED, _groups_are_batches),
    ServiceMutant("a reward's visit forgets an id", "an id is asked for again", SENT, _forgets_on_rewards),
    ServiceMutant("beats come with rewards", "crash, with beats", MOVED, _beats_need_rewards),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_of_the_clock_is_caught_by_the_case_that_is_about_it(mutant: ServiceMutant) -> None:
    with changed(*mutant.changes()):
        found = _found(mutant.case)
    assert mutant.because in found, found
