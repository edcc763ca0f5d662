"""What all stores share: who may use one and until when, and checks of what is read from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn

from tacit.errors import JournalLost, StoreError, StoreFailed, StoreInUse
from tacit.service.seals import damaged, place_of, unseal
from tacit.service.store import Journal

CHUNK = 1000
"""Entries that are read at a time."""

Entries = Sequence[tuple[int, bytes]]
"""Numbers and sealed entries."""


class Guard:
    """Lets one thread at a time use a store, of the process that opened it, as long as nothing has failed.

    ``where`` says which store it is, ``look_at`` what an operator should check after a failure, and ``abandon`` ends
    its connections without another write.
    """

    def __init__(self, where: str, look_at: str, abandon: Callable[[], None]) -> None:
        self.where, self._look_at, self._abandon = where, look_at, abandon
        self.mutex = threading.RLock()
        self.failure: str | None = None
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that opened the store, and never had it."""
        return os.getpid() != self._pid

    @contextmanager
    def entered(self, mutex: AbstractContextManager[object] | None = None) -> Iterator[None]:
        """Use the store; where it has several connections, each has a mutex."""
        if self.forked:  # before the mutex, which another thread may have held when the process forked
            raise StoreInUse(f"process {self._pid} has {self.where}, and this one is a fork of it: open none")
        with mutex or self.mutex:
            if self.failure is not None:
                raise StoreFailed(self.failure)
            yield

    def fail(self, error: BaseException, kind: type[StoreError] = StoreFailed) -> NoReturn:
        """Answer nothing more.  A commit is never tried again: a second sync may succeed without having written."""
        if self.failure is None:
            self.failure = (
                f"{self.where} failed ({error}), and nobody knows how far it came: end this process, check "
                f"{self._look_at}, and start again, which goes on from all that was acknowledged"
            )
            self._abandon()
        raise kind(self.failure) from error

    def end(self) -> bool:
        """Close the store; False where it had failed, or was closed, before."""
        if self.failure is not None:
            return False
        self.failure = f"{self.where} was closed"
        return True


def lost(name: str, seq: int) -> NoReturn:
    """Refuse a change whose compare-and-set found nothing to change."""
    raise JournalLost(
        f"journal {name!r} does not have {seq} entries any more: another process has appended to it, and this one was "
        "not in a turn; nothing was changed, and it must not go on"
    )


def journal_from(name: str, config: bytes, note: bytes, seq: int, snapshot_seq: int) -> Journal:
    """A journal as it was given, of what is stored."""
    return Journal(
        name,
        unseal(name.encode(), config, "the configuration of {!r}", name),
        unseal(name.encode(), note, "the note of {!r}", name),
        seq,
        snapshot_seq,
    )


def snapshot_from(number: int, journal: Journal, sealed: bytes | None) -> bytes:
    """The snapshot that a journal says it has."""
    if sealed is None:
        damaged(f"the snapshot of {journal.name!r} is missing")
    return unseal(place_of(number, journal.snapshot_seq), sealed, "the snapshot of {!r}", journal.name)


def check_ends(journal: Journal, first: int | None, last: int | None) -> None:
    """The log begins after the snapshot and ends where the journal does; gaps in between show when it is read."""
    expected = (journal.snapshot_seq + 1, journal.seq) if journal.seq > journal.snapshot_seq else (None, None)
    if (first, last) != expected:
        damaged(f"the log of {journal.name!r} has entries {(first, last)} (first and last) in place of {expected}")


def checked_entries(number: int, journal: Journal, after: int, read: Callable[[int], Entries]) -> Iterator[bytes]:
    """Entries after number ``after`` up to the journal's last one, each checked.

    ``read`` gives some of those after a number, in order; also some that were appended since the journal was read.
    """
    while after < journal.seq:
        for seq, sealed in (read(after) or [(0, b"")])[: journal.seq - after]:
            after += 1
            if seq != after:
                damaged(f"entry {after} of {journal.name!r} is missing")
            yield unseal(place_of(number, seq), sealed, "entry {} of {!r}", seq, journal.name)
