"""What a store promises: the log is the truth, and groups are durable as a whole or not at all.

A store keeps *journals*, one for each policy (and later for each batch of a shuffler or analyzer).  A journal has

- a **configuration** that never changes, and a small **note** that changes with groups (a clock, a mode);
- a **log** of entries, numbered from 1 on without a gap; entry number ``seq`` is the last one;
- one **snapshot**, which stands for all entries up to its own number; the first one is given when it is made;
- **rows**: small values under a key, in named tables, each with a position by which old ones are forgotten.

What a process has in memory is a cache of that.  To change a journal a process takes a **turn**: it locks the journal,
reads what others have appended since it looked last, and appends a group of its own, which ends the turn.  ``swap``
alone changes rows without a turn.  When ``append`` returns, the group survives the death of the process and of the
machine; when it raises ``StoreFailed``, that is not known, and the caller must forget what it has in memory and begin
anew from the store.

Entries, rows and snapshots hold raw data: a store is as secret as what it stores.

Beside the contract, this is what all stores share: checks of all that is read, and ``GuardedStore``, which decides who
may use a store and until when.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, NoReturn

from tacit import errors
from tacit.service.packing import damaged, place_of, seal, unseal

CHUNK: Final = 1_000
"""Entries or rows that are read at a time."""
KEYS: Final = "key"
"""How settings begin that hold the keys of callers."""
REPLAY: Final = 1
"""Version of log entries and of their replay; a process ends where a later version has written to a journal."""
NOTHING: Final = -1
"""In place of the number of an entry: not even the first snapshot is known."""
Entries = Sequence[tuple[int, bytes]]
"""Numbers of entries, and the entries as they are stored."""


class Row(NamedTuple):
    """A small value under a key; rows of a table are forgotten in the order of their positions."""

    key: bytes
    position: int
    value: bytes

    def sealed(self, journal: int, table: str) -> Row:
        """This row as it is stored, its value sealed."""
        return Row(self.key, self.position, seal(self._place(journal, table), self.value))

    def unsealed(self, journal: int, table: str) -> Row:
        """The row that was given, for one that was read; ``StoreDamaged`` if it is not what was stored there."""
        value = unseal(self._place(journal, table), self.value, "a row of table {!r} at {}", table, self.position)
        return Row(self.key, self.position, value)

    def _place(self, journal: int, table: str) -> bytes:
        return place_of(journal, self.position) + table.encode() + b"\0" + self.key


@dataclass
class Group:
    """Changes that are made together or not at all."""

    entries: list[bytes] = field(default_factory=list)
    """Entries to be appended to the log, in this order."""
    rows: dict[str, dict[bytes, Row]] = field(default_factory=dict)
    """By table and key: rows to be put in place of those with the same key, or anew."""
    forget: dict[str, int] = field(default_factory=dict)
    """By table: rows up to this position, itself included, are deleted; before ``rows`` are put."""
    note: bytes | None = None
    """Takes the place of the journal's note, if given."""
    drop: dict[str, set[bytes]] = field(default_factory=dict)
    """By table: keys of rows that are deleted, none of which is in ``rows``."""

    def __bool__(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.entries or self.rows or self.forget or self.drop) or self.note is not None

    def sealed_entries(self, journal: int, seq: int) -> list[tuple[int, bytes]]:
        """The entries with their numbers, as they are stored behind entry ``seq``."""
        return [(number, seal(place_of(journal, number), entry)) for number, entry in enumerate(self.entries, seq + 1)]

    def sealed_rows(self, journal: int) -> list[tuple[str, bytes, int, bytes]]:
        """The rows with their tables, as they are stored."""
        return [(table, *row.sealed(journal, table)) for table, rows in self.rows.items() for row in rows.values()]

    def sealed_note(self, name: str) -> bytes | None:
        """The note as it is stored, if there is one."""
        return None if self.note is None else seal(name.encode(), self.note)

    def dropped(self) -> list[tuple[str, bytes]]:
        """Tables and keys of the rows that are dropped."""
        return [(table, key) for table, keys in self.drop.items() for key in keys]


@dataclass(frozen=True)
class Journal:
    """What is kept of a journal beside its log, snapshot and rows."""

    name: str
    config: bytes
    note: bytes
    seq: int
    """Number of the last entry; 0 before the first."""
    snapshot_seq: int
    """Number of the last entry that the snapshot stands for; 0 for the first snapshot."""

    def unsealed(self) -> Journal:
        """The journal that was given, for one that was read; ``StoreDamaged`` if it is not what was stored."""
        place = self.name.encode()
        config = unseal(place, self.config, "the configuration of {!r}", self.name)
        return replace(self, config=config, note=unseal(place, self.note, "the note of {!r}", self.name))

    def tail(self, number: int, after: int, start: Callable[[], Sequence[Any]], read: Callable[[int], Entries]) -> Tail:
        """What follows entry ``after`` of this journal, whose number in the store is ``number``.

        ``start`` reads the snapshot and the numbers of the first and the last entry behind it; ``read`` is that of
        ``checked_entries``, which finds gaps between the two.
        """
        if after >= self.snapshot_seq:
            return Tail(self, None, self.checked_entries(number, after, read))
        ((snapshot, *found),) = start()
        if snapshot is None:
            damaged(f"the snapshot of {self.name!r} is missing")
        opened = unseal(place_of(number, self.snapshot_seq), snapshot, "the snapshot of {!r}", self.name)
        expected = (self.snapshot_seq + 1, self.seq) if self.seq > self.snapshot_seq else (None, None)
        if tuple(found) != expected:
            damaged(f"the log of {self.name!r} has entries {tuple(found)} (first and last) in place of {expected}")
        return Tail(self, opened, self.checked_entries(number, self.snapshot_seq, read))

    def checked_entries(self, number: int, after: int, read: Callable[[int], Entries]) -> Iterator[bytes]:
        """Entries after number ``after`` up to the last one of this journal, each checked.

        ``read`` gives some of those after a number, in order; also some that were appended since the journal was read.
        """
        while after < self.seq:
            for seq, sealed in (read(after) or [(0, b"")])[: self.seq - after]:
                after += 1
                if seq != after:
                    damaged(f"entry {after} of {self.name!r} is missing")
                yield unseal(place_of(number, seq), sealed, "entry {} of {!r}", seq, self.name)


@dataclass(frozen=True)
class Tail:
    """What a process needs to know all that is in a journal."""

    journal: Journal
    snapshot: bytes | None
    """Given where the process knows nothing yet, or the next entry for it was erased: it begins anew from this."""
    entries: Iterator[bytes]
    """All entries after the snapshot, or after those that the process has; read while they are asked for."""


class Behind(Exception):  # noqa: N818 - the caller goes on after it
    """More has happened to a journal than is read under its lock, or while its entries were: ``read`` it first."""


class Swap(NamedTuple):
    """A row to be put in place of another one, if that is still there; with it ``beside``, in another table.

    All three have the same key, and ``old`` and ``new`` the same position.
    """

    old: Row
    new: Row
    beside: Row | None = None


class Store(ABC):
    """A durable store.  Its methods may be called from several threads."""

    shared: bool = False
    """Whether other processes may change what is in it meanwhile."""

    @abstractmethod
    def journals(self) -> list[Journal]:
        """All journals, by name."""

    @abstractmethod
    def create(self, name: str, config: bytes, snapshot: bytes, note: bytes = b"", rows: Group | None = None) -> None:
        """Make a journal without entries, with its first snapshot and ``rows``: in one transaction, or nothing.

        Raises ``JournalExists`` (nothing was changed) where there is one of this name.
        """

    @abstractmethod
    def read(self, name: str, after: int = NOTHING) -> Tail:
        """What follows entry ``after``, without a turn; everything for a process that knows nothing yet.

        Raises ``UnknownJournal`` where there is none.  Everything that is handed out was checked: a damaged entry or
        snapshot, or a gap in the log, is ``StoreDamaged``, which for entries is raised when they are read; those that
        another process has erased meanwhile are ``Behind``.
        """

    @abstractmethod
    def turn(self, name: str, after: int) -> AbstractContextManager[Tail | None]:
        """Lock a journal, and read what follows entry ``after``; None where nothing can have changed.

        The configuration, which never changes, is not read.  The lock ends with ``append``, ``compact``, or the block,
        which must be short.  Raises ``Behind`` where much follows, or some of it was erased.
        """

    def erasable(self, name: str) -> bool:
        """In a turn: whether `compact` can erase now what it replaces; a dump, say, may be reading it."""
        return True

    @abstractmethod
    def append(self, name: str, seq: int, group: Group) -> int:
        """In a turn: commit a group to a journal whose last entry is ``seq``; returns the number of the last one then.

        Raises ``JournalLost`` (nothing was changed) or ``StoreFailed`` (unknown what was).
        """

    @abstractmethod
    def compact(self, name: str, seq: int, snapshot: bytes, group: Group | None = None) -> bool:
        """In a turn: put a snapshot in place of all entries up to ``seq``, the last one, and erase them.

        Snapshot, erasure and the changes of ``group`` are one transaction, and the snapshot stands for the entries of
        the group, too.  When it returns, no file of the store holds the bytes of the erased entries, nor those of rows
        that were deleted or replaced.  Takes time with the size of the whole store, rows included.  Returns False, with
        the turn over and nothing changed, where others have begun to read what would be erased.  Raises as ``append``
        does.
        """

    @abstractmethod
    def find(self, name: str, table: str, keys: Iterable[bytes]) -> dict[bytes, Row]:
        """The rows of a table under these keys, of those that there are; in a turn they stay so until its end."""

    @abstractmethod
    def scan(self, name: str, table: str, after: int, limit: int) -> list[Row]:
        """The first rows of a table with positions greater than ``after``, by position, at most ``limit``.

        Rows at one position may be cut apart by the limit.  In a turn they stay as they are until its end.
        """

    def rows(self, name: str, table: str, after: int = 0) -> Iterator[Row]:
        """All rows of a table with positions greater than ``after``, of which no two are equal, by position."""
        while found := self.scan(name, table, after, CHUNK):
            yield from found
            after = found[-1].position

    @abstractmethod
    def swap(self, name: str, table: str, swaps: Sequence[Swap], beside: str = "") -> set[bytes]:
        """Replace rows without a turn, each of them if it is what it was thought to be; the keys of those that were.

        A row that is locked or was changed is left as it is.  Rows ``beside`` are put into that table, unless there is
        one under their key.  No two of the swaps have the same key.
        """

    @property
    def upkeep_due(self) -> bool:
        """Whether the store wants to be tended: later changes would become slow, or its files large."""
        return False

    def tend(self) -> None:  # noqa: B027 - a store may have nothing to do
        """Do upkeep that takes too long to be done with a group.  Raises as ``append`` does."""

    @abstractmethod
    def settings(self, prefix: str) -> Mapping[str, bytes]:
        """All settings of the deployment whose names begin so: keys of its clients, secrets."""

    @abstractmethod
    def change_settings(self, put: Mapping[str, bytes], delete: Sequence[str] = (), *, replace: bool = True) -> None:
        """Put and delete settings, together or not at all; without ``replace`` those that are there stay."""

    @abstractmethod
    def adopt(self) -> None:
        """Be the original from now on."""

    @abstractmethod
    def close(self) -> None:
        """Close the store; it may be opened again, here or by another process."""


class GuardedStore(Store):
    """A store that one thread at a time uses, of the process that opened it, as long as nothing has failed.

    ``where`` says which store it is, and ``look_at`` what an operator should check after a failure.
    """

    def __init__(self, where: str, look_at: str) -> None:
        self._where, self._look_at = where, look_at
        self._mutex = threading.RLock()
        self._failure: str | None = None
        self._pid = os.getpid()

    @abstractmethod
    def _abandon(self) -> None:
        """End the connections of the store without another write."""

    @property
    def _forked(self) -> bool:
        """Whether this process is a fork of the one that opened the store, and never had it."""
        return os.getpid() != self._pid

    @contextmanager
    def _entered(self, mutex: AbstractContextManager[object] | None = None) -> Iterator[None]:
        """Use the store; where it has several connections, each has a mutex."""
        if self._forked:  # before the mutex, which another thread may have held when the process forked
            raise errors.StoreInUse(f"process {self._pid} has {self._where}, and this one is a fork of it: open none")
        with mutex or self._mutex:
            if self._failure is not None:
                raise errors.StoreFailed(self._failure)
            yield

    def _fail(self, error: BaseException, kind: type[errors.StoreError] = errors.StoreFailed) -> NoReturn:
        """End the use of the store.

        A commit is never tried again: a second sync may succeed without having written.
        """
        if self._failure is None:
            self._failure = (
                f"{self._where} failed ({error}), and nobody knows how far it came: end this process, check "
                f"{self._look_at}, and start again, which goes on from all that was acknowledged"
            )
            self._abandon()
        raise kind(self._failure) from error

    def _end(self) -> bool:
        """Let nothing more be asked; False where the store had failed, or was closed, before."""
        if self._failure is not None:
            return False
        self._failure = f"{self._where} was closed"
        return True

    def _exists(self, name: str) -> NoReturn:
        raise errors.JournalExists(f"{self._where} has a journal {name!r} already")

    def _unknown(self, name: str) -> NoReturn:
        raise errors.UnknownJournal(f"{self._where} has no journal {name!r}")

    def _check_version(self, name: str, version: int) -> None:
        """Refuse a journal that a later version has written to."""
        check_format(f"the log of {name!r}", version, REPLAY)

    def _lost(self, name: str, seq: int) -> NoReturn:
        """Refuse a change whose compare-and-set found nothing to change."""
        raise errors.JournalLost(
            f"journal {name!r} does not have {seq} entries any more: another process has appended to it, and this one "
            "was not in a turn; nothing was changed, and it must not go on"
        )


def check_format(where: object, found: int, known: int) -> None:
    """Refuse a store of a later version."""
    if found > known:
        raise errors.StoreTooNew(
            f"{where} has format {found}, and this version of Tacit knows {known}: use the version that wrote it, or a "
            "later one"
        )


def check_identity(where: object, made: str, found: str, why: str, start: str, new: str) -> None:
    """Refuse a copy.

    The words say ``why`` it may be one, where to ``start`` the original, and what ``new`` place is made from the copy.
    """
    if made != found:
        raise errors.StoreMoved(
            f"{where} was made as {made} and is now {found}: it is a copy, {why}, and the original may still go on; "
            f"both would release the same rows. Start the original{start}, or take the public part of this one to a "
            f"new {new}: `tacit backup`, then `tacit restore`. If the original will never go on, `tacit adopt` lets "
            "this one take over"
        )
