"""A served policy: decisions under the callers' ids, rewards that are waited for, users who return.

One host owns one policy.  Requests come in groups; a group is applied to the policy in memory, committed to the store
as one transaction, and only then published and answered.  Whatever ends the process in between, nobody has seen
anything that the store does not hold.

**The clock** counts the seconds that the service was up.  It is a public input of the mechanism (docs/theory.md, "The
clock of a service"): a decision is stamped when it arrives, before it waits for anything, and moves the clock to its
stamp; so does a *beat* at regular times, whether or not anybody asks.  A reward moves nothing but its own event: it
settles nothing, neither reads nor writes the clock for others, and contributes in the turn of a later decision or
beat.  Before a decision everything that is due by then has contributed, however much it is.

**What others may see** is the published copy: it is made of releases, the ledger and the clock of decisions.  Answers
to rewards tell their own caller whether the same reward came before, and nobody else anything.
"""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from tacit.service.events import RELEASES, Event, Hashes, Status
from tacit.service.journal import PolicyJournal
from tacit.service.modes import ModeChanges
from tacit.service.published import Point, Published, is_current, newest_point, publish
from tacit.service.store import Row, Store
from tacit.service.terms import Mode, Terms
from tacit.service.users import UserCounts
from tacit.service.waiting import Progress, WaitingEvents
from tacit.typing import FloatArray

BEAT: Final = 0.25
"""Seconds between beats; the clock of a beat is a multiple of it."""
KEPT_EVERY: Final = 5.0
"""Seconds after which a beat is written though nothing is due: so much of a waiting time can be lost by a crash."""
_SETTLED_AT_ONCE: Final = 4_096
"""Decisions that are settled in one transaction; what is left over is settled by further ones before anything else."""
_SHOWN_RELEASES: Final = 2_000
"""Releases whose time is remembered."""


class Refusal(Enum):
    """Why a request changes nothing."""

    OTHER_CONTENT = "the event id was used for another request"
    OTHER_REWARD = "the decision has another reward"
    OTHER_ARM = "the decision has another arm"
    UNKNOWN_EVENT = "no decision has this event id"
    EXPIRED = "the waiting time of the decision is over"
    SWITCHED_OFF = "the policy is switched off"
    TOO_MANY_WAIT = "as many decisions wait for their rewards as the policy can keep"


class Decide(NamedTuple):
    """Choose an arm; ``arms`` were admitted by the policy."""

    event: bytes
    """Hash of namespace and event id."""
    content: bytes
    """Hash of what was asked."""
    arms: FloatArray
    stamp: float
    """When it arrived, by the clock that the host was given."""
    user: bytes | None = None
    """Hash of the user, where the policy counts them."""


class Reward(NamedTuple):
    """The reward of a decision; None where the arm was never shown."""

    event: bytes
    reward: float | None
    stamp: float
    """When it arrived, by the clock that the host was given."""
    arm: int | None = None


class SetMode(NamedTuple):
    """Switch a policy on, off, or to watching."""

    mode: Mode


Request = Decide | Reward | SetMode


class Answer(NamedTuple):
    """A request was carried out, now or before."""

    arm: int
    new: bool
    """Whether it changed anything; False when the same was asked for before."""


class Host:
    """The owner of one served policy.  ``process`` may be called from several threads.

    ``clock`` gives seconds, as stamps of requests have them, and ``wall`` seconds since 1970; ``started`` is the
    reading of ``clock`` when this life began.
    """

    def __init__(
        self,
        store: Store,
        journal: PolicyJournal,
        terms: Terms,
        hashes: Hashes,
        clock: Callable[[], float],
        wall: Callable[[], float],
        started: float,
    ) -> None:
        self.journal, self.terms, self.hashes = journal, terms, hashes
        self._store, self._clock, self._lock = store, clock, threading.Lock()
        self._progress = Progress(**json.loads(journal.note or b"{}"))
        self._since, self._kept_at = started - self._progress.uptime, self._progress.uptime
        self._wall, self._wall_at_zero = wall, wall() - clock() + self._since
        self._moved = False
        """Whether the open group holds a decision, a beat or a change of mode: rewards alone keep no clock."""
        self._events = WaitingEvents(store, journal, self._progress, terms.memory - terms.reward_wait)
        self._inbox = {} if terms.hold else {row.key: (row, event) for row, event in self._held()}
        """Without ``hold``: rewards that came since the last decision, by event."""
        rounds = journal.policy.config.rounds_per_user if terms.user_level else None
        self._users = UserCounts(store, journal.lease, rounds, self._progress.users)
        self._history = deque(self._recorded())
        self._modes = ModeChanges(store, journal.lease)
        self.published: Published = publish(
            journal.policy,
            self._progress.mode,
            self._progress.releases,
            self._points(),
            self._modes.known,
            lives=self._progress.lives,
        )
        """What others may see; replaced after each commit, never changed."""

    def process(self, requests: Sequence[Request], *, tending: bool = True) -> list[Answer | Refusal]:
        """Carry out a group of requests, in the order of their arrival; all of it is durable when this returns.

        Without ``tending`` upkeep that is due, such as a snapshot, and takes long is left to ``tend``.
        """
        with self._lock, self.journal.working():
            self._look_up(requests)
            answers = [self._carry_out(request) for request in requests]
            self._commit()
            if tending:
                self.journal.tend()
            return answers

    @property
    def unsettled(self) -> int:
        """Decisions whose waiting time is not over: by the clock, whether or not they have a reward."""
        return self._progress.position - self._progress.settled

    def tick(self) -> None:
        """A beat: settle what is due, and keep the clock now and then, so that a crash loses little of it.

        Whether there is anything to do follows from decisions and the clock, never from rewards.
        """
        now = BEAT * math.floor((self._clock() - self._since) / BEAT)
        with self._lock, self.journal.working():
            waits = self._progress.position > self._progress.forgotten
            if now >= self._events.next_change or (waits and now - self._kept_at >= KEPT_EVERY):
                self._advance(now)
                self._commit()
                self.journal.tend()

    def tend(self) -> None:
        """Do upkeep that is due, such as a snapshot; no time passes by it."""
        with self._lock, self.journal.working():
            self.journal.tend()

    def close(self) -> None:
        """A last beat and a snapshot; the host is not used any more."""
        now = self._clock() - self._since
        with self._lock:
            if self.journal.alive:
                self._advance(now)
                self._commit()
                self.journal.compact()
                self.journal.end()

    # Requests

    def _look_up(self, requests: Sequence[Request]) -> None:
        """Read what the store knows of the events and users of these requests, at once."""
        self._events.look_up({request.event for request in requests if not isinstance(request, SetMode)})
        users = {request.user for request in requests if isinstance(request, Decide) and request.user is not None}
        self._users.look_up(users)

    def _carry_out(self, request: Request) -> Answer | Refusal:
        if isinstance(request, Decide):
            return self._decide(request)
        if isinstance(request, Reward):
            return self._reward(request)
        changed = request.mode != self._progress.mode
        if changed:
            self._progress.mode, self._moved = request.mode, True
            self._modes.record(self.journal.group, self._wall(), self.journal.policy.decisions, request.mode)
        return Answer(0, changed)

    def _decide(self, request: Decide) -> Answer | Refusal:
        self._advance(request.stamp - self._since)
        now = self._progress.uptime
        known = self._events.known(request.event, now)
        if known is not None:
            event = known[1]
            return Answer(event.arm, False) if event.content == request.content else Refusal.OTHER_CONTENT
        if self._progress.mode == "off":
            return Refusal.SWITCHED_OFF
        if self.unsettled >= self.journal.policy.config.reward_window:
            return Refusal.TOO_MANY_WAIT  # by the clock; else the oldest reward, acknowledged and held, would be lost
        arms = request.arms[:, :1] if self._progress.mode == "apprentice" else request.arms
        released = self.journal.released_in_group
        decision = self.journal.policy.select_admitted(arms)
        if self.journal.released_in_group > released:
            self._record(self.journal.released_in_group - released)
        counts = self._users.counts(request.user, self.journal.group)
        if not counts:
            self.journal.policy.abandon(decision)
        due = now + self.terms.reward_wait
        self._events.add(request.event, Event(Status.WAITING, counts, decision.arm, decision.id, due, request.content))
        return Answer(decision.arm, True)

    def _reward(self, request: Reward) -> Answer | Refusal:
        """Keep a reward with its own event, if it came in time; it contributes in the turn of a decision or a beat."""
        arrived = request.stamp - self._since
        known = self._events.known(request.event, max(arrived, self._progress.uptime))
        if known is None:
            return Refusal.UNKNOWN_EVENT
        row, event = known
        if request.arm is not None and request.arm != event.arm:
            return Refusal.OTHER_ARM
        if event.status is Status.EXPIRED or (event.status is Status.WAITING and arrived > event.due):
            return Refusal.EXPIRED
        answer = self.hashes.reward(request.event, request.reward)
        if event.status is not Status.WAITING:
            return Answer(event.arm, False) if event.answer == answer else Refusal.OTHER_REWARD
        reward = math.nan if request.reward is None else request.reward
        held = event._replace(answer=answer, status=Status.HELD, reward=reward)
        row = self._events.change(row, held)
        if not self.terms.hold:
            self._inbox[row.key] = row, held
        return Answer(event.arm, True)

    # Time

    def _advance(self, now: float) -> None:
        """Move the clock to the time of a decision or a beat, and let everything contribute that is due by then."""
        self._progress.uptime, self._moved = max(self._progress.uptime, now), True
        if self._inbox:
            self._empty_inbox()
        if self._progress.uptime < self._events.next_due:
            return
        for number, (row, event) in enumerate(self._events.settle(self._progress.uptime), start=1):
            self._settle_one(row, event)
            if number % _SETTLED_AT_ONCE == 0:
                self._commit()
                self._moved = True

    def _empty_inbox(self) -> None:
        """Let rewards contribute that came since the last decision, in the order of their decisions."""
        arrived, self._inbox = self._inbox, {}
        for row, event in sorted(arrived.values(), key=lambda each: each[0].position):
            self._settle_one(row, event)

    def _settle_one(self, row: Row, event: Event) -> None:
        """Let a decision teach what its reward was, the default, or nothing."""
        if event.status is Status.HELD:
            reward = None if math.isnan(event.reward) else event.reward
        elif event.status is Status.WAITING:
            reward = self.terms.default_reward
        else:
            return
        if event.counts and reward is None:
            self.journal.policy.abandon(event.decision)
        elif event.counts and reward is not None:
            self.journal.policy.update(event.decision, reward)
        self._events.change(row, event.settled())

    def _held(self) -> Iterator[tuple[Row, Event]]:
        """Events whose reward has come and has not contributed, as the store has them."""
        return ((row, event) for row, event in self._events.unsettled() if event.status is Status.HELD)

    # After the work

    def _recorded(self) -> Iterator[tuple[int, Point]]:
        """The releases that the store remembers, oldest first, by number."""
        rows = self._store.rows(self.journal.lease, RELEASES, self._progress.releases - _SHOWN_RELEASES)
        yield from ((row.position, Point.unpack(row.value)) for row in rows)

    def _points(self) -> tuple[Point, ...]:
        return tuple(point for _, point in self._history)

    def _record(self, released: int) -> None:
        """Remember what a decision has released, and when; the oldest releases are forgotten."""
        self._progress.releases += released
        number = self._progress.releases
        point = newest_point(self.journal.policy, self._wall_at_zero + self._progress.uptime)
        last = self.journal.group.forget[RELEASES] = number - _SHOWN_RELEASES
        while self._history and self._history[0][0] <= last:
            self._history.popleft()
        self._history.append((number, point))
        key = number.to_bytes(8, "big")
        rows = self.journal.group.rows.setdefault(RELEASES, {})
        rows[key] = Row(key, number, point.pack())

    def _commit(self) -> None:
        """Make everything durable, then let others see it; rewards alone change neither the clock nor what is seen."""
        if not self._moved:
            self.journal.commit()
            return
        progress, modes = self._progress, self._modes.known
        self._events.forget(progress.uptime)
        progress.users = self._users.known
        self.journal.carried = progress.position - progress.forgotten + progress.users
        self.journal.group.note = json.dumps(vars(progress)).encode()
        self.journal.commit()
        self._events.committed()
        self._kept_at, self._moved = progress.uptime, False
        seen, policy = self.published, self.journal.policy
        if is_current(seen, policy, progress.releases, modes):
            self.published = replace(seen, decisions=policy.decisions)
        else:
            history = self._points() if progress.releases != seen.releases else seen.history
            self.published = publish(
                policy, progress.mode, progress.releases, history, modes, seen, lives=progress.lives
            )
