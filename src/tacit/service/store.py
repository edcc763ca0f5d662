"""What a store promises: groups that are durable as a whole or not at all, and an owner that can be told apart.

A store keeps *journals*, one for each policy (and later for each batch of a shuffler or analyzer).  A journal has

- a **configuration** that never changes, and a small **note** that changes with every group (a clock, a mode);
- a **log** of entries, numbered from 1 on without a gap; entry number ``seq`` is the last one;
- one **snapshot**, which stands for all entries up to its own number; the first one is given when it is made;
- **rows**: small values under a key, in named tables, each with a position by which old ones are forgotten.

Whoever works on a journal claims it first and gets a ``Lease`` with a fresh epoch.  Every change is a compare-and-set
on the journal's epoch and ``seq``: when somebody else has claimed the journal meanwhile, nothing is changed and
``JournalLost`` is raised.  A group is one transaction.  When ``append`` returns, the group survives the death of the
process and of the machine; when it raises ``StoreFailed``, nobody knows whether it does, and the caller must forget
what it has in memory and begin anew from the store.

Entries, rows and snapshots hold raw data: a store is as secret as what it stores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_CHUNK: Final = 1_000
"""Rows that are read at a time where all of a table are."""


@dataclass(frozen=True)
class Lease:
    """The right to change a journal, as long as nobody has claimed it later."""

    journal: str
    epoch: int


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

    def __bool__(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.entries or self.rows or self.forget) or self.note is not None


@dataclass(frozen=True)
class Journal:
    """What is kept of a journal beside its log, snapshot and rows."""

    name: str
    config: bytes
    note: bytes
    epoch: int
    seq: int
    """Number of the last entry; 0 before the first."""
    snapshot_seq: int
    """Number of the last entry that the snapshot stands for; 0 for the first snapshot."""


@dataclass(frozen=True)
class Recovery:
    """Everything that a new owner begins with."""

    lease: Lease
    journal: Journal
    snapshot: bytes
    entries: Iterator[bytes]
    """All entries after the snapshot, in order; read while they are asked for, before the first ``append``."""


class Store(ABC):
    """A durable store.  Its methods may be called from several threads, one at a time (it has a lock of its own)."""

    @abstractmethod
    def journals(self) -> list[Journal]:
        """All journals, by name."""

    @abstractmethod
    def create(self, name: str, config: bytes, snapshot: bytes, note: bytes = b"") -> None:
        """Make a journal without entries, with its first snapshot: all of it in one transaction, or nothing.

        Raises ``JournalExists`` (nothing was changed) where there is one of this name.
        """

    @abstractmethod
    def claim(self, name: str) -> Recovery:
        """Become the owner of a journal: earlier leases end here.  Raises ``UnknownJournal`` where there is none.

        Everything that is handed out was checked: a damaged entry or snapshot, or a gap in the log, is
        ``StoreDamaged``, which for entries is raised when they are read.
        """

    @abstractmethod
    def append(self, lease: Lease, seq: int, group: Group) -> int:
        """Commit a group to a journal whose last entry is ``seq``; returns the number of the last entry afterwards.

        Raises ``JournalLost`` (nothing was changed) or ``StoreFailed`` (unknown what was).
        """

    @abstractmethod
    def find(self, lease: Lease, table: str, keys: Iterable[bytes]) -> dict[bytes, Row]:
        """The rows of a table under these keys, of those that there are.  ``JournalLost`` when the lease has ended."""

    @abstractmethod
    def scan(self, lease: Lease, table: str, after: int, limit: int) -> list[Row]:
        """The first rows of a table with positions greater than ``after``, by position, at most ``limit``.

        Rows at one position may be cut apart by the limit.  ``JournalLost`` when the lease has ended.
        """

    def rows(self, lease: Lease, table: str, after: int = 0) -> Iterator[Row]:
        """All rows of a table with positions greater than ``after``, of which no two are equal, by position."""
        while found := self.scan(lease, table, after, _CHUNK):
            yield from found
            after = found[-1].position

    @abstractmethod
    def compact(self, lease: Lease, seq: int, snapshot: bytes) -> None:
        """Put a snapshot in place of all entries up to ``seq``, the last one, and erase them.

        Snapshot and erasure are one transaction.  When it returns, no file of the store holds the bytes of the erased
        entries, nor those of rows that were deleted or replaced before.  Takes time with the size of the whole store,
        rows included.  Raises as ``append`` does.
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
    def change_settings(self, put: Mapping[str, bytes], delete: Sequence[str] = ()) -> None:
        """Put and delete settings, together or not at all."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the store; it may be opened again by anybody."""
