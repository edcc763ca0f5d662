"""Faults of a service's clock, put in from outside: each must be caught by the replay that is about it.

Without them the same replays find nothing (tests/audit/test_services.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tacit.audit.service_cases import SERVICE_CASES
from tacit.audit.services import OpenService, replay_service
from tacit.service.events import WaitingEvents
from tacit.service.host import Decide, Host, Request, Reward
from tacit.testing.services import InProcessService, SharedInProcessService
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
    service: OpenService = InProcessService


MOVED = "times the charge"
"""More than one row has moved."""
SENT = "differs between the worlds"
RELEASED = "where the other releases"
"""One world releases something when the other does not."""


def _found(case: str, service: OpenService) -> str:
    """What the replay of a case has to say; nothing where it finds nothing wrong."""
    outcome = replay_service(service, SERVICE_CASES[case].script())
    moved = f"measured mu is {outcome.worst:.3g} {MOVED}" if outcome.worst > 1.0 else ""
    return "; ".join([*outcome.divergences, moved]).strip("; ")


def _turn_of_rewards(work: Callable[[Any, Reward], object]) -> tuple[Change, ...]:
    """Rewards take a turn, in which something is done for each of them."""
    original = Host.process

    def process(self: Any, requests: Sequence[Request], *, tending: bool = True) -> Any:
        rewards = [request for request in requests if isinstance(request, Reward)]
        if rewards:
            with self._lock, self.journal.working():
                self._take_over()
                self._look_up(())
                for request in rewards:
                    work(self, request)
                self._commit()
        return original(self, requests, tending=tending)

    return ((Host, "process", process),)


def _settles_on_rewards() -> tuple[Change, ...]:
    def work(host: Any, request: Reward) -> None:
        host._advance(host._progress.uptime)  # as it should be
        for row, event in host._events.settle(request.stamp - host._since):
            host._settle_one(row, event)

    return _turn_of_rewards(work)


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
    def work(host: Any, request: Reward) -> None:
        host._progress.uptime = max(host._progress.uptime, request.stamp - host._since)
        host._moved = True

    return _turn_of_rewards(work)


def _anchors_by_rewards() -> tuple[Change, ...]:
    """A process begins its clock anew, from what is committed, when a reward comes."""
    original = Host._keep_rewards

    def keep_rewards(self: Any, requests: Sequence[Reward]) -> Any:
        self._since = self._clock() - self._progress.uptime
        return original(self, requests)

    return ((Host, "_keep_rewards", keep_rewards),)


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
    return _turn_of_rewards(lambda host, request: host._events.forget(request.stamp - host._since))


def _beats_need_rewards() -> tuple[Change, ...]:
    tick = Host.tick

    def beat(self: Any, stamp: float) -> None:
        if getattr(self, "told", False):
            tick(self, stamp)

    return (*_turn_of_rewards(lambda host, request: setattr(host, "told", True)), (Host, "tick", beat))


def _beats_follow_deletion() -> tuple[Change, ...]:
    """A beat is written when ids are left to be deleted, of which groups decide."""
    original = Host._next_beat

    def next_beat(self: Any, now: float) -> float:
        left = now > self._progress.uptime and self._events.over(now)
        return now if left else original(self, now)

    return ((Host, "_next_beat", next_beat),)


def _drains_what_has_come() -> tuple[Change, ...]:
    original = WaitingEvents.arrived
    return ((WaitingEvents, "arrived", lambda self, now: original(self, math.inf)),)


MUTANTS = (
    ServiceMutant("rewards settle others", "crash when others are due", MOVED, _settles_on_rewards),
    ServiceMutant("a cap on what a group settles", "a batch falls due, groups", MOVED, _settles_a_few),
    ServiceMutant("rewards keep their time", "crash after a reward", MOVED, _keeps_the_time_of_rewards),
    ServiceMutant("rewards anchor the clock", "a batch is due, one reward or none", MOVED, _anchors_by_rewards),
    ServiceMutant("a group's start is its decisions' time", "a group that waits", MOVED, _stamps_by_groups),
    ServiceMutant("a group is a batch", "a group that waits", RELEASED, _groups_are_batches),
    ServiceMutant("a reward's visit forgets an id", "an id is asked for again", SENT, _forgets_on_rewards),
    ServiceMutant("beats come with rewards", "crash, with beats", MOVED, _beats_need_rewards),
    ServiceMutant("beats follow what was deleted", "ids are to be deleted", MOVED, _beats_follow_deletion),
    ServiceMutant(
        "decisions see later rewards",
        "delay of all, without hold",
        MOVED,
        _drains_what_has_come,
        SharedInProcessService,
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_of_the_clock_is_caught_by_the_case_that_is_about_it(mutant: ServiceMutant) -> None:
    with changed(*mutant.changes()):
        found = _found(mutant.case, mutant.service)
    assert mutant.because in found, found
