"""A served policy: decisions under the callers' ids, rewards that are waited for, users who return.

One host owns one policy.  Requests come in groups; a group is applied to the policy in memory, committed to the store
as one transaction, and only then published and answered.  Whatever ends the process in between, nobody has seen
anything that the store does not hold.

**What others may see** is the published copy: it is made of releases, the ledger and the clock of decisions.  Answers
to rewards tell their own caller whether the same reward came before, and nobody else anything.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile
from typing import Final, NamedTuple

from tacit.service.events import EVENTS, RELEASES, Event, Hashes, Status
from tacit.service.journal import PolicyJournal
from tacit.service.modes import ModeChanges
from tacit.service.published import Point, Published, newest_point, publish
from tacit.service.store import Row, Store
from tacit.service.terms import Mode, Terms
from tacit.service.users import UserCounts
from tacit.typing import FloatArray

_CHUNK: Final = 32
"""Rows that are looked at together where decisions are settled or forgotten."""
_MOST_SETTLED: Final = 512
"""Decisions that are settled, or forgotten, in one group; the rest waits for the next."""
_SHOWN_RELEASES: Final = 2_000
"""Releases whose time is remembered."""
_FRESH_FOR: Final = 1.0
"""Seconds after which the published copy is made anew though nothing was released."""


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
    user: bytes | None = None
    """Hash of the user, where the policy counts them."""


class Reward(NamedTuple):
    """The reward of a decision; None where the arm was never shown."""

    event: bytes
    reward: float | None
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


@dataclass
class _Progress:
    """What changes with every group, kept as the journal's note."""

    uptime: float = 0.0
    """Seconds that the service was up."""
    position: int = 0
    """Of the newest event."""
    settled: int = 0
    """All events up to this position have contributed, or never will."""
    forgotten: int = 0
    """All events up to this position are forgotten."""
    mode: Mode = "online"
    releases: int = 0
    """How often anything was released."""
    users: int = 0
    """How many users came, where they are counted."""
    lives: int = 1
    """In how many lives their decisions may have counted: changed by a restore alone."""


class Host:
    """The owner of one served policy.  ``process`` may be called from several threads."""

    def __init__(
        self, store: Store, journal: PolicyJournal, terms: Terms, hashes: Hashes, clock: Callable[[], float]
    ) -> None:
        self.journal, self.terms, self.hashes = journal, terms, hashes
        self._store, self._clock, self._lock = store, clock, threading.Lock()
        self._progress = _Progress(**json.loads(journal.note or b"{}"))
        self._since = clock() - self._progress.uptime
        self._next_due = self._next_forgotten = 0.0
        rounds = journal.policy.config.rounds_per_user if terms.user_level else None
        self._users = UserCounts(store, journal.lease, rounds, self._progress.users)
        self._known: dict[bytes, Row] = {}
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
        """Carry out a group of requests; all of it is durable when this returns.

        Without ``tending`` upkeep that is due, such as a snapshot, and takes long is left to the next call.
        """
        with self._lock, self.journal.working():
            self._progress.uptime = self._clock() - self._since
            self._forget()
            self._settle()
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
        """Settle what is due, if anything is; for times when nobody asks."""
        if self._clock() - self._since >= min(self._next_due, self._next_forgotten):
            self.process(())

    def close(self) -> None:
        """Commit the clock and write a snapshot; the host is not used any more."""
        with self._lock:
            if self.journal.alive:
                self._progress.uptime = self._clock() - self._since
                self._commit()
                self.journal.compact()
                self.journal.end()

    # Requests

    def _look_up(self, requests: Sequence[Request]) -> None:
        """Read what the store knows of the events and users of these requests, at once."""
        events = {request.event for request in requests if not isinstance(request, SetMode)}
        users = {request.user for request in requests if isinstance(request, Decide) and request.user is not None}
        put = self.journal.group.rows.get(EVENTS, {})
        self._known = self._store.find(self.journal.lease, EVENTS, events) | {
            key: put[key] for key in events if key in put
        }
        self._users.look_up(users)

    def _carry_out(self, request: Request) -> Answer | Refusal:
        if isinstance(request, Decide):
            return self._decide(request)
        if isinstance(request, Reward):
            return self._reward(request)
        changed = request.mode != self._progress.mode
        if changed:
            self._progress.mode = request.mode
            self._modes.record(self.journal.group, time.time(), self.journal.policy.decisions, request.mode)
        return Answer(0, changed)

    def _decide(self, request: Decide) -> Answer | Refusal:
        row = self._known.get(request.event)
        if row is not None:
            event = Event.unpack(row.value)
            return Answer(event.arm, False) if event.content == request.content else Refusal.OTHER_CONTENT
        if self._progress.mode == "off":
            return Refusal.SWITCHED_OFF
        if self.unsettled >= self.journal.policy.config.reward_window:
            return Refusal.TOO_MANY_WAIT  # by the clock; else the oldest reward, acknowledged and held, would be lost
        arms = request.arms[:, :1] if self._progress.mode == "apprentice" else request.arms
        decision = self.journal.policy.select_admitted(arms)
        counts = self._users.counts(request.user, self.journal.group)
        if not counts:
            self.journal.policy.abandon(decision)
        due = self._progress.uptime + self.terms.reward_wait
        self._progress.position += 1
        self._next_due = min(self._next_due, due)
        self._next_forgotten = min(self._next_forgotten, due)
        event = Event(Status.WAITING, counts, decision.arm, decision.id, due, request.content)
        self._put(Row(request.event, self._progress.position, event.pack()))
        return Answer(decision.arm, True)

    def _reward(self, request: Reward) -> Answer | Refusal:
        row = self._known.get(request.event)
        if row is None:
            return Refusal.UNKNOWN_EVENT
        event = Event.unpack(row.value)
        if request.arm is not None and request.arm != event.arm:
            return Refusal.OTHER_ARM
        answer = self.hashes.reward(request.event, request.reward)
        if event.status is Status.EXPIRED:
            return Refusal.EXPIRED
        if event.status is not Status.WAITING:
            return Answer(event.arm, False) if event.answer == answer else Refusal.OTHER_REWARD
        changed = event._replace(answer=answer, status=Status.DONE)
        if request.reward is None:
            self._contribute(event, None)
        elif self.terms.hold:
            changed = changed._replace(status=Status.HELD, reward=request.reward)
        else:
            self._contribute(event, request.reward)
        self._put(Row(row.key, row.position, changed.pack()))
        return Answer(event.arm, True)

    def _contribute(self, event: Event, reward: float | None) -> None:
        """Let a decision teach what its reward was, or nothing."""
        if not event.counts:
            return
        if reward is None:
            self.journal.policy.abandon(event.decision)
        else:
            self.journal.policy.update(event.decision, reward)

    def _put(self, row: Row) -> None:
        self.journal.group.rows.setdefault(EVENTS, {})[row.key] = row
        self._known[row.key] = row

    # Time

    def _settle(self) -> None:
        """Let decisions whose waiting time is over contribute, in the order in which they were made."""
        for _ in range(_MOST_SETTLED // _CHUNK):
            if self._progress.uptime < self._next_due:
                return
            rows = self._store.scan(self.journal.lease, EVENTS, self._progress.settled, _CHUNK)
            for row in rows:
                event = Event.unpack(row.value)
                if event.due > self._progress.uptime:
                    self._next_due = event.due
                    return
                self._settle_one(row, event)
                self._progress.settled = row.position
            if len(rows) < _CHUNK:
                self._next_due = math.inf
                return

    def _settle_one(self, row: Row, event: Event) -> None:
        if event.status is Status.HELD:
            self._contribute(event, event.reward)
        elif event.status is Status.WAITING:
            self._contribute(event, self.terms.default_reward)
        else:
            return
        self._put(Row(row.key, row.position, event.settled().pack()))

    def _forget(self) -> None:
        """Delete events whose ids need not be known any more, of those that were settled in an earlier group."""
        if self._progress.uptime < self._next_forgotten:
            return
        last, self._next_forgotten = self._progress.forgotten, self._progress.uptime
        for _ in range(_MOST_SETTLED // _CHUNK):
            rows = self._store.scan(self.journal.lease, EVENTS, last, _CHUNK)
            over = list(takewhile(self._is_over, rows))
            last = over[-1].position if over else last
            if len(over) < _CHUNK:
                kept = rows[len(over) :]
                self._next_forgotten = max(self._over_at(kept[0]), self._progress.uptime) if kept else math.inf
                break
        if last > self._progress.forgotten:
            self._progress.forgotten = self.journal.group.forget[EVENTS] = last

    def _is_over(self, row: Row) -> bool:
        """Whether an event may be forgotten; later ones are over later."""
        return row.position <= self._progress.settled and self._over_at(row) <= self._progress.uptime

    def _over_at(self, row: Row) -> float:
        return Event.unpack(row.value).due + self.terms.memory - self.terms.reward_wait

    # After the work

    def _recorded(self) -> Iterator[tuple[int, Point]]:
        """The releases that the store remembers, oldest first, by number."""
        rows = self._store.rows(self.journal.lease, RELEASES, self._progress.releases - _SHOWN_RELEASES)
        yield from ((row.position, Point.unpack(row.value)) for row in rows)

    def _points(self) -> tuple[Point, ...]:
        return tuple(point for _, point in self._history)

    def _record(self, released: int) -> None:
        """Remember the newest release, of which a group may have several; the oldest ones are forgotten."""
        self._progress.releases += released
        number, point = self._progress.releases, newest_point(self.journal.policy, time.time())
        last = self.journal.group.forget[RELEASES] = number - _SHOWN_RELEASES
        while self._history and self._history[0][0] <= last:
            self._history.popleft()
        self._history.append((number, point))
        key = number.to_bytes(8, "big")
        self.journal.group.rows[RELEASES] = {key: Row(key, number, point.pack())}

    def _commit(self) -> None:
        """Make everything durable, then let others see it."""
        released = self.journal.released_in_group
        if released:
            self._record(released)
        self._progress.users = self._users.known
        self.journal.carried = self._progress.position - self._progress.forgotten + self._progress.users
        self.journal.group.note = json.dumps(vars(self._progress)).encode()
        self.journal.commit()
        seen = self.published
        policy, progress = self.journal.policy, self._progress
        modes = self._modes.known
        if released or modes is not seen.modes or progress.uptime - seen.made_at >= _FRESH_FOR:
            history = self._points() if released else seen.history
            self.published = publish(
                policy, progress.mode, progress.releases, history, modes, progress.uptime, seen, lives=progress.lives
            )
        else:
            self.published = replace(seen, decisions=policy.decisions)
