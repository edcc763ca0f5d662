"""Decisions that wait for their rewards, by the callers' ids and by the clock of decisions.

A decision waits from the moment at which it was made until it is *due*.  An id is known until its memory is over.  Both
are times of the clock that `tacit.service.host` keeps; nothing here reads a clock or moves one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from tacit.service.events import EVENTS, Event
from tacit.service.journal import PolicyJournal
from tacit.service.store import Row, Store
from tacit.service.terms import Mode

_CHUNK: Final = 256
"""Decisions that are read ahead of their due time."""
_FEW: Final = 32
"""Rows that are read at once where old ones are deleted."""
_FORGOTTEN_AT_ONCE: Final = 1_024
"""Rows that are deleted in one commit; whether an id is known does not depend on it."""


@dataclass
class Progress:
    """What changes as a policy is served, kept as its journal's note."""

    uptime: float = 0.0
    """The clock: seconds that the service was up, at the newest decision or beat."""
    position: int = 0
    """Of the newest decision."""
    settled: int = 0
    """All decisions up to this position have contributed, or never will."""
    forgotten: int = 0
    """All decisions up to this position are deleted."""
    mode: Mode = "online"
    releases: int = 0
    """How often anything was released."""
    users: int = 0
    """How many users came, where they are counted."""
    lives: int = 1
    """In how many lives their decisions may have counted: changed by a restore alone."""


class WaitingEvents:
    """The table of events of one journal; changes go into the journal's open group.

    ``memory`` is for how many seconds after its due time an id is known.
    """

    def __init__(self, store: Store, journal: PolicyJournal, progress: Progress, memory: float) -> None:
        self._store, self._journal, self._progress, self._memory = store, journal, progress, memory
        self._found: dict[bytes, Row] = {}
        """What the store, or the open group, has of the events that are asked for."""
        self._ahead: dict[bytes, tuple[Row, Event]] = {}
        """The oldest unsettled events, by position."""
        self._settled_before = progress.settled
        """As of the last commit: rows that the open group changes must not be deleted by it."""
        self.next_due = -math.inf
        """When the oldest unsettled event is due, at the earliest."""
        self._next_over = -math.inf

    def look_up(self, keys: set[bytes]) -> None:
        """Read the events of a group of requests, at once."""
        self._found = self._store.find(self._journal.lease, EVENTS, keys) if keys else {}

    def known(self, key: bytes, now: float) -> tuple[Row, Event] | None:
        """The event under this key, of those that were looked up; None when its memory is over, deleted or not."""
        row = self._found.get(key)
        if row is None:
            return None
        event = Event.unpack(row.value)
        return (row, event) if now < event.due + self._memory else None

    def add(self, key: bytes, event: Event) -> None:
        """Remember a new decision, in place of an earlier one under an id whose memory was over."""
        self._progress.position += 1
        self.next_due = min(self.next_due, event.due)
        self._next_over = min(self._next_over, event.due + self._memory)
        self._found[key] = row = Row(key, self._progress.position, event.pack())
        self._put(row)

    def change(self, row: Row, event: Event) -> Row:
        """Replace what is known of a decision; returns its row."""
        changed = row._replace(value=event.pack())
        if row.key in self._ahead:
            self._ahead[row.key] = changed, event
        if row.key in self._found:
            self._found[row.key] = changed
        self._put(changed)
        return changed

    def _put(self, row: Row) -> None:
        self._journal.group.rows.setdefault(EVENTS, {})[row.key] = row

    @property
    def next_change(self) -> float:
        """When an event is due, or its memory over, at the earliest."""
        return min(self.next_due, self._next_over)

    def settle(self, now: float) -> Iterator[tuple[Row, Event]]:
        """All events that are due and not settled, in the order of their decisions; they count as settled then."""
        while now >= self.next_due:
            if not self._ahead:
                rows = self._rows(self._progress.settled, _CHUNK)
                self._ahead = {row.key: (row, Event.unpack(row.value)) for row in rows}
            key = next(iter(self._ahead), None)
            if key is None:
                self.next_due = math.inf
                return
            row, event = self._ahead[key]
            if event.due > now:
                self.next_due = event.due
                return
            del self._ahead[key]
            self._progress.settled = row.position
            yield row, event

    def _rows(self, after: int, limit: int) -> list[Row]:
        """The oldest rows after a position, as the open group has them; its own new ones follow those of the store."""
        put = self._journal.group.rows.get(EVENTS, {})
        rows = self._store.scan(self._journal.lease, EVENTS, after, limit)
        last = rows[-1].position if rows else after
        rows = [put.get(row.key, row) for row in rows]
        if len(rows) < limit:
            rows += sorted((row for row in put.values() if row.position > last), key=lambda row: row.position)
        return rows

    def unsettled(self) -> Iterator[tuple[Row, Event]]:
        """All events that are not settled, as the store has them."""
        rows = self._store.rows(self._journal.lease, EVENTS, self._progress.settled)
        return ((row, Event.unpack(row.value)) for row in rows)

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
