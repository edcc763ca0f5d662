"""What a store promises: the log is the truth, and groups are durable as a whole or not at all.

A store keeps *journals*, one for each policy (and later for each batch of a shuffler or analyzer).  A journal has

- a **configuration** that never changes, and a small **note** that changes with groups (a clock, a mode);
- a **log** of entries, numbered from 1 on without a gap; entry number ``seq`` is the last one;
- one **snapshot**, which stands for all entries up to its own number; the first one is given when it is made;
- **rows**: small values under a key, in named tables, each with a position by which old ones are forgotten.

What a process has in memory is a cache of that.  To change a journal a process takes a **turn**: it locks the journal,
reads what others have appended since it looked last, and appends a group of its own, which ends the turn.  ``swap``
alone changes rows without a turn.  When ``append`` returns, the group survives the death of the process and of the
machine; when it raises ``StoreFailed``, nobody knows whether it does, and the caller must forget what it has in memory
and begin anew from the store.

Entries, rows and snapshots hold raw data: a store is as secret as what it stores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_CHUNK: Final = 1_000
"""Rows that are read at a time where all of a table are."""


NOTHING: Final = -1
"""In place of the number of an entry: not even the first snapshot is known."""


class Row(NamedTuple):
    """A small value under a key; rows of a table are forgotten in the order of their positions."""

    key: bytes
    position: int
    value: bytes


@dataclass
class Group:
    """Changes that are made together or not at all."""

    entries: list[bytes] = field(default_factory=list)
    """To be appended to the log, in this order."""
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
        somebody has erased meanwhile are ``Behind``.
        """

    @abstractmethod
    def turn(self, name: str, after: int) -> AbstractContextManager[Tail | None]:
        """Lock a journal, and read what follows entry ``after``; None where nothing can have changed.

        The configuration, which never does, is not read.  The lock ends with ``append``, ``compact``, or the block.
        Whoever holds one must come to its end soon.  Raises ``Behind`` where much follows, or some of it was erased.
        """

    @abstractmethod
    def append(self, name: str, seq: int, group: Group) -> int:
        """In a turn: commit a group to a journal whose last entry is ``seq``; returns the number of the last one then.

        Raises ``JournalLost`` (nothing was changed) or ``StoreFailed`` (unknown what was).
        """

    @abstractmethod
    def compact(self, name: str, seq: int, snapshot: bytes) -> None:
        """In a turn: put a snapshot in place of all entries up to ``seq``, the last one, and erase them.

        Snapshot and erasure are one transaction.  When it returns, no file of the store holds the bytes of the erased
        entries, nor those of rows that were deleted or replaced before.  Takes time with the size of the whole store,
        rows included.  Raises as ``append`` does.
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
        while found := self.scan(name, table, after, _CHUNK):
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
    def close(self) -> None:
        """Let go of the store; it may be opened again by anybody."""
