"""Decisions under their callers' ids, and which of them wait for their rewards: rows of tables of a journal.

Ids, contents and rewards are kept as keyed hashes, so that no row names a person; a reward itself only as long as it is
held.  The row that the decision will contribute is kept by the policy, not here.

A decision waits from the moment at which it was made until it is *due*.  An id is known until its memory is over.  Both
are times of the clock that `tacit.service.host` keeps; nothing here reads a clock or moves one.  Rows are read in every
turn, since rewards change them without one.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import takewhile
from typing import Final, NamedTuple

from tacit.errors import StoreDamaged
from tacit.service.journal import PolicyJournal
from tacit.service.store import Group, Row, Store
from tacit.service.terms import Mode

EVENTS, INBOX = "events", "inbox"
"""Tables of a journal: decisions by their ids, and without ``hold`` rewards that have not contributed."""
_PACKED: Final = struct.Struct("<BBIqd16sd16sd")
_UNKNOWN: Final = struct.pack("<d", math.nan)
"""An unknown propensity; 0.2.0 wrote none."""
_LENGTH: Final = struct.Struct("<Q")
_ARRIVED: Final = struct.Struct("<d")
"""Part of a row of the inbox: when a reward came, in seconds that the service was up."""
NOTHING: Final = bytes(16)
HASH_KEY: Final = "secret.hashes"
"""The setting of a store that holds the key of its hashes."""
HASH_KEY_SIZE: Final = 32
_FEW: Final = 32
"""Rows that are read at once where some may be due, or over; twice as many each time that all of them are."""
_FORGOTTEN_AT_ONCE: Final = 1_024
"""Rows that are deleted in one commit; whether an id is known does not depend on it."""


class Status(IntEnum):
    """Where a decision is on its way."""

    WAITING = 0
    """The decision waits for its reward."""
    HELD = 1
    """The reward has come, and contributes when the waiting time is over."""
    DONE = 2
    """The decision has contributed, was abandoned, or never counts."""
    EXPIRED = 3
    """The waiting time was over before a reward came."""


class Event(NamedTuple):
    """A decision under its caller's id."""

    status: Status
    counts: bool
    """Whether it contributes; later decisions of a user may not."""
    arm: int
    decision: int
    """The policy's number for it."""
    due: float
    """When its waiting time is over, in seconds that the service was up."""
    content: bytes
    """Hash of what was asked."""
    reward: float = math.nan
    """NaN unless it is held."""
    answer: bytes = NOTHING
    """Hash of the reward, or of its being abandoned; ``NOTHING`` before."""
    propensity: float | None = None
    """Probability with which the arm was to be chosen; None where it is unknown, as in rows of 0.2.0."""

    def pack(self) -> bytes:
        """The value of the event's row."""
        return _PACKED.pack(*self[:-1], math.nan if self.propensity is None else self.propensity)

    @classmethod
    def unpack(cls, data: bytes) -> Event:
        """The event that gave these bytes."""
        try:
            data += _UNKNOWN if len(data) == _PACKED.size - len(_UNKNOWN) else b""
            status, counts, arm, decision, due, content, reward, answer, chance = _PACKED.unpack(data)
            propensity = None if math.isnan(chance) else chance
            return cls(Status(status), bool(counts), arm, decision, due, content, reward, answer, propensity)
        except (struct.error, ValueError) as error:
            raise StoreDamaged(f"a row of the table of events cannot be read: {error}") from error

    def settled(self) -> Event:
        """After its waiting time: the reward itself is forgotten."""
        over = Status.EXPIRED if self.status is Status.WAITING else Status.DONE
        return self._replace(status=over, reward=math.nan)


class Hashes:
    """Keyed hashes of what callers send; without the key a guess cannot be checked."""

    def __init__(self, key: bytes) -> None:
        if len(key) != HASH_KEY_SIZE:
            raise StoreDamaged(f"the key of hashes has {len(key)} bytes, not {HASH_KEY_SIZE}")
        self._begun = {
            purpose: hashlib.blake2b(digest_size=16, key=key, person=purpose)
            for purpose in (b"event", b"user", b"content", b"reward")
        }

    def of(self, purpose: bytes, *parts: bytes) -> bytes:
        """Hash parts, told apart by their lengths, for one purpose and no other."""
        found = self._begun[purpose].copy()  # the key is taken in once
        for part in parts:
            found.update(_LENGTH.pack(len(part)))
            found.update(part)
        return found.digest()

    def event(self, namespace: str, identity: str) -> bytes:
        """Hash the caller's id of a decision."""
        return self.of(b"event", namespace.encode(), identity.encode())

    def user(self, identity: str) -> bytes:
        """Hash the id of a user."""
        return self.of(b"user", identity.encode())

    def reward(self, event: bytes, reward: float | None) -> bytes:
        """Hash the reward of an event, None for one that is abandoned; 0.0 and -0.0 are one reward."""
        return self.of(b"reward", event, b"abandoned" if reward is None else struct.pack("<d", reward + 0.0))


@dataclass
class Progress:
    """What changes as a policy is served, kept as its journal's note."""

    uptime: float = 0.0
    """The clock: seconds that the service was up, at the newest decision or beat."""
    position: int = 0
    """Position of the newest decision."""
    settled: int = 0
    """All decisions up to this position have contributed, or never will."""
    forgotten: int = 0
    """All decisions up to this position are deleted."""
    mode: Mode = "online"
    modes: int = 0
    """Number of the newest change of the mode."""
    releases: int = 0
    """How often anything was released."""
    users: int = 0
    """How many users came, where they are counted."""
    lives: int = 1
    """In how many lives their decisions may have counted: changed by a restore alone."""
    until: float = 0.0
    """When the memory of the newest decision is over, by the clock: until then some id is known."""

    @classmethod
    def of_note(cls, note: bytes, memory: float) -> Progress:
        """Read a journal's note; ``memory`` is for how many seconds after its decision an id is known."""
        found = cls(**json.loads(note or b"{}"))
        if not found.until and found.position > found.forgotten:
            found.until = found.uptime + memory  # 0.2.0 wrote none
        return found

    def drop_waiting(self, group: Group) -> None:
        """Forget all decisions that wait, and their ids, with a group of changes."""
        self.settled, self.forgotten, self.until = self.position, self.position, 0.0
        group.forget |= {EVENTS: self.position, INBOX: self.position}


class WaitingEvents:
    """The table of events of one journal; changes go into the journal's open group.

    ``memory`` is for how many seconds after its due time an id is known.
    """

    def __init__(self, store: Store, journal: PolicyJournal, progress: Progress, memory: float) -> None:
        self._store, self._journal, self._memory = store, journal, memory
        self._found: dict[bytes, Row] = {}
        """What the store, or the open group, has of the events that are asked for."""
        self._inbox: dict[bytes, float] = {}
        """Rewards that have come and not contributed, without ``hold``: when they came."""
        self.follow(progress)

    def follow(self, progress: Progress) -> None:
        """Go on from what another process has done, or this one before."""
        self._progress = progress
        self._settled_before = progress.settled
        """``settled`` at the last commit: rows that the open group changes must not be deleted by it."""
        self._next_due = -math.inf
        """When the oldest unsettled event is due, at the earliest."""
        self._next_over = -math.inf

    def look_up(self, keys: set[bytes], *, inbox: bool) -> None:
        """Begin a turn: read the events of a group of requests, at once, and the inbox, if there is one."""
        waiting = self._store.rows(self._journal.name, INBOX) if inbox else ()
        self._inbox = {row.key: _ARRIVED.unpack(row.value)[0] for row in waiting}
        keys = keys | self._inbox.keys()
        self._found = self._store.find(self._journal.name, EVENTS, keys) if keys else {}

    def known(self, key: bytes, now: float) -> tuple[Row, Event] | None:
        """The event under this key, of those that were looked up, if it is remembered."""
        return self.remembered(self._found.get(key), now)

    def remembered(self, row: Row | None, now: float) -> tuple[Row, Event] | None:
        """The event of a row; None when its memory is over, deleted or not."""
        if row is None:
            return None
        event = Event.unpack(row.value)
        return (row, event) if now < event.due + self._memory else None

    def add(self, key: bytes, event: Event) -> None:
        """Remember a new decision, in place of an earlier one under an id whose memory was over."""
        self._progress.position += 1
        self._next_due = min(self._next_due, event.due)
        self._progress.until = event.due + self._memory
        self._next_over = min(self._next_over, self._progress.until)
        self._found[key] = row = Row(key, self._progress.position, event.pack())
        self._put(row)

    def change(self, row: Row, event: Event) -> None:
        """Replace what is known of a decision."""
        self._put(row._replace(value=event.pack()))

    def _put(self, row: Row) -> None:
        if row.key in self._found:
            self._found[row.key] = row
        self._journal.group.rows.setdefault(EVENTS, {})[row.key] = row

    def await_turn(self, row: Row, arrived: float) -> None:
        """Without ``hold``: a reward has come, and contributes before a later decision."""
        self._inbox[row.key] = arrived
        self._journal.group.rows.setdefault(INBOX, {})[row.key] = inbox_row(row, arrived)

    def arrived(self, now: float) -> Iterator[tuple[Row, Event]]:
        """Events whose rewards have come by now, in the order of their decisions; they leave the inbox."""
        come = {key for key, arrived in self._inbox.items() if arrived <= now}
        for key in come:
            del self._inbox[key]
            self._journal.group.rows.get(INBOX, {}).pop(key, None)
            self._journal.group.drop.setdefault(INBOX, set()).add(key)
        for row in sorted((self._found[key] for key in come & self._found.keys()), key=lambda row: row.position):
            yield row, Event.unpack(row.value)

    def over(self, now: float) -> bool:
        """Whether there may be ids to delete.  The clock must not follow it: groups decide what was deleted before."""
        return now >= self._next_over

    def oldest_due(self) -> float:
        """When the oldest unsettled event is due; read where it is unknown, and infinite where there is none."""
        if self._next_due == -math.inf:
            rows = self._rows(self._progress.settled, 1)
            self._next_due = Event.unpack(rows[0].value).due if rows else math.inf
        return self._next_due

    def settle(self, now: float) -> Iterator[tuple[Row, Event]]:
        """All events that are due and not settled, in the order of their decisions; they count as settled then."""
        some = _FEW
        while now >= self._next_due:
            rows = self._rows(self._progress.settled, some)
            for row in rows:
                event = Event.unpack(row.value)
                if event.due > now:
                    self._next_due = event.due
                    return
                self._progress.settled = row.position
                yield row, event
            if len(rows) < some:
                self._next_due = math.inf
                return
            some *= 2

    def _rows(self, after: int, limit: int) -> list[Row]:
        """The oldest rows after a position, as the open group has them; its own new ones follow those of the store."""
        put = self._journal.group.rows.get(EVENTS, {})
        rows = self._store.scan(self._journal.name, EVENTS, after, limit)
        last = rows[-1].position if rows else after
        # An id that is used again has a new place, behind these.
        rows = [put.get(row.key, row) for row in rows if put.get(row.key, row).position == row.position]
        if len(rows) < limit:
            rows += sorted((row for row in put.values() if row.position > last), key=lambda row: row.position)
        return rows

    def forget(self, now: float) -> None:
        """Delete some of the events whose memory is over, of those that were settled by an earlier commit."""
        if now < self._next_over:
            return
        for _ in range(_FORGOTTEN_AT_ONCE // _FEW):
            rows = self._rows(self._progress.forgotten, _FEW)
            over = list(takewhile(lambda row: row.position <= self._settled_before and self._over_at(row) <= now, rows))
            if over:
                self._progress.forgotten = self._journal.group.forget[EVENTS] = over[-1].position
            kept = rows[len(over) :]
            if kept or len(rows) < _FEW:
                self._next_over = self._over_at(kept[0]) if kept else math.inf
                return

    def _over_at(self, row: Row) -> float:
        return Event.unpack(row.value).due + self._memory

    def committed(self) -> None:
        """The open group was committed."""
        self._settled_before = self._progress.settled


def inbox_row(row: Row, arrived: float) -> Row:
    """What the inbox has of an event whose reward came at this time."""
    return Row(row.key, row.position, _ARRIVED.pack(arrived))
