"""When a policy's mode changed: public events, kept in a table of their own beside the releases."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from tacit.errors import StoreDamaged
from tacit.service.store import Group, Row, Store
from tacit.service.terms import Mode, checked_mode

MODE_CHANGES: Final = "modes"
"""The table of a journal that has a row for each change."""
MOST_KEPT: Final = 1_000


class ModeChange(NamedTuple):
    """A change of mode, as everybody may see it."""

    number: int
    """From 1 on, also where older ones are forgotten."""
    time: float
    """Seconds since 1970."""
    decisions: int
    """How many decisions had been made."""
    mode: Mode

    def row(self) -> Row:
        """As it is kept."""
        return Row(self.number.to_bytes(8, "big"), self.number, json.dumps(self[1:]).encode())

    @classmethod
    def from_row(cls, row: Row) -> ModeChange:
        """The change that was kept as this row."""
        try:
            time, decisions, mode = json.loads(row.value)
            return cls(row.position, float(time), int(decisions), checked_mode(mode))
        except (TypeError, ValueError) as error:
            raise StoreDamaged(f"a row of the table of modes cannot be read: {error}") from error


class ModeChanges:
    """The newest changes of one policy's mode, oldest first."""

    def __init__(self, store: Store, journal: str) -> None:
        self._store, self._journal = store, journal
        self.known: tuple[ModeChange, ...] = ()
        """Never changed, only replaced."""
        self.look()

    def look(self) -> None:
        """Read the changes that follow those that are known."""
        rows = self._store.rows(self._journal, MODE_CHANGES, self.known[-1].number if self.known else 0)
        if found := tuple(ModeChange.from_row(row) for row in rows):
            self.known = (*self.known, *found)[-MOST_KEPT:]

    def record(self, group: Group, time: float, decisions: int, mode: Mode) -> None:
        """Remember a change with the group that makes it; the oldest one is forgotten if there are too many."""
        number = self.known[-1].number + 1 if self.known else 1
        change = ModeChange(number, time, decisions, mode)
        self.known = (*self.known, change)[-MOST_KEPT:]
        row = change.row()
        group.rows.setdefault(MODE_CHANGES, {})[row.key] = row
        group.forget[MODE_CHANGES] = number - MOST_KEPT


def first_mode(mode: Mode, time: float) -> tuple[bytes, Group]:
    """The note and the rows that a policy begins with: one that does not begin online has changed its mode at once."""
    if mode == "online":
        return b"", Group()
    row = ModeChange(1, time, 0, mode).row()
    return json.dumps({"mode": mode, "modes": 1}).encode(), Group(rows={MODE_CHANGES: {row.key: row}})
