"""A store that lets a campaign keep the whole log, and be killed in the middle of a commit or a snapshot.

Everything goes through `Store`: what is appended is copied into an archive before it is committed, and what a new
process reads back is copied again.  Of entries with the same number the last copy is the one that was committed.
"""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from tacit.errors import CorruptState
from tacit.policies.log import LogEntry
from tacit.service.journal import PolicyJournal
from tacit.service.packing import unpack_entry
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import NOTHING, Group, Swap, Tail

Place = Literal["commit", "snapshot"]
SNAPSHOT_EVERY: Final = 120
"""Entries between snapshots of a process that is going to be killed."""
_FRAME: Final = struct.Struct("<QI")
_STRUCK: Final = "struck"


def write(path: Path, data: bytes) -> None:
    """Append to a file in one call."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Aim:
    """Where a process is to die: so many seconds after it has come to a place for the n-th time."""

    place: Place
    times: int
    after: float


class Tap:
    """Where the copies of one life of the process go; each life has files of its own, whose end a kill may tear."""

    def __init__(self, folder: Path, life: int, aim: Aim | None = None) -> None:
        if list(folder.glob(f"*.{life:06}.log")):
            raise ValueError(f"life {life} has kept a log already: copies of a later one would hide what follows")
        self._folder, self._life, self._aim = folder, life, aim
        self._come, self._at = 0, ""

    def keep(self, journal: str, after: int, entries: Sequence[bytes]) -> None:
        """Copy entries that follow the one with the number ``after``."""
        frames = [_FRAME.pack(number, len(entry)) + entry for number, entry in enumerate(entries, after + 1)]
        if frames:
            write(self._folder / f"{journal}.{self._life:06}.log", b"".join(frames))

    def keep_first(self, journal: str, snapshot: bytes) -> None:
        """Copy the first snapshot of a journal, from which a replay begins."""
        first = _first(self._folder, journal)
        if not first.exists():
            part = first.with_suffix(".part")
            part.write_bytes(snapshot)
            part.rename(first)

    @contextmanager
    def at(self, place: Place) -> Iterator[None]:
        """Work at a place, at which the process may be aimed to die."""
        self._at = place
        if self._aim is not None and self._aim.place == place:
            self._come += 1
            if self._come == self._aim.times:
                threading.Thread(target=self._strike, args=(self._aim,), daemon=True).start()
        try:
            yield
        finally:
            self._at = ""

    def _strike(self, aim: Aim) -> None:
        time.sleep(aim.after)
        write(self._folder / _STRUCK, f"{self._at or 'load'}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)


class TappedStore(SQLiteStore):
    """A store whose log is archived; ``tap`` is that of this life."""

    tap: ClassVar[Tap]

    def read(self, name: str, after: int = NOTHING) -> Tail:
        found = super().read(name, after)
        entries = list(found.entries)
        if found.snapshot is not None and found.journal.snapshot_seq == 0:
            self.tap.keep_first(name, found.snapshot)
        self.tap.keep(name, max(after, found.journal.snapshot_seq), entries)
        return replace(found, entries=iter(entries))

    def create(self, name: str, config: bytes, snapshot: bytes, note: bytes = b"", rows: Group | None = None) -> None:
        with self.tap.at("snapshot"):
            super().create(name, config, snapshot, note, rows)

    def append(self, name: str, seq: int, group: Group) -> int:
        self.tap.keep(name, seq, group.entries)
        with self.tap.at("commit"):
            return super().append(name, seq, group)

    def swap(self, name: str, table: str, swaps: Sequence[Swap], beside: str = "") -> set[bytes]:
        with self.tap.at("commit"):
            return super().swap(name, table, swaps, beside)

    def compact(self, name: str, seq: int, snapshot: bytes, group: Group | None = None) -> bool:
        with self.tap.at("snapshot"):
            return super().compact(name, seq, snapshot, group)


def tapped(tap: Tap, kind: type[TappedStore] = TappedStore) -> type[TappedStore]:
    """The kind of store that a life opens."""
    return type(kind.__name__, (kind,), {"tap": tap})


def take_snapshots_often() -> None:
    """Let all policies of this process take a snapshot every few entries."""
    usual = PolicyJournal.__init__

    def often(self: PolicyJournal, *given: Any, **named: Any) -> None:
        usual(self, *given, **named | {"snapshot_every": SNAPSHOT_EVERY})

    PolicyJournal.__init__ = often  # type: ignore[method-assign]


# What was kept


def _first(folder: Path, journal: str) -> Path:
    return folder / f"{journal}.first"


def first_snapshot(folder: Path, journal: str) -> bytes:
    """The state before the first entry."""
    return _first(folder, journal).read_bytes()


def archived(folder: Path, journal: str, last: int) -> list[LogEntry]:
    """All entries of the log up to the number ``last``."""
    entries: dict[int, bytes] = {}
    for path in sorted(folder.glob(f"{journal}.*.log")):
        entries.update(_frames(path.read_bytes()))
    missing = set(range(1, last + 1)) - set(entries)
    if missing:
        raise CorruptState(f"entry {min(missing)} of {journal} was never appended")
    return [unpack_entry(entries[number]) for number in range(1, last + 1)]


def _frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and entries in one file; what is torn at its end was never committed."""
    position = 0
    while position + _FRAME.size <= len(data):
        number, length = _FRAME.unpack_from(data, position)
        position += _FRAME.size
        if position + length <= len(data):
            yield number, data[position : position + length]
        position += length


def struck(folder: Path) -> list[str]:
    """Where processes were when they had come to die where they were aimed to, in order."""
    path = folder / _STRUCK
    return path.read_text().split() if path.exists() else []
