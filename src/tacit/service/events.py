"""What a service remembers of a decision under the caller's id: a row of a store's table, and nothing that tells of
arms.

Ids, contents and rewards are kept as keyed hashes, so that the table names nobody; a reward itself only as long as it
is held.  The row that the decision will contribute is the policy's to keep, not this table's.
"""

from __future__ import annotations

import hashlib
import math
import struct
from enum import IntEnum
from typing import Final, NamedTuple

from tacit.errors import StoreDamaged

EVENTS, INBOX, RELEASES = "events", "inbox", "releases"
"""Tables of a journal."""
_PACKED: Final = struct.Struct("<BBIqd16sd16s")
_LENGTH: Final = struct.Struct("<Q")
ARRIVED: Final = struct.Struct("<d")
"""Of a row of the inbox: when a reward came, in seconds that the service was up."""
NOTHING: Final = bytes(16)
HASH_KEY: Final = "secret.hashes"
"""The setting of a store that holds the key of its hashes."""
HASH_KEY_SIZE: Final = 32


class Status(IntEnum):
    """Where a decision is on its way."""

    WAITING = 0
    """For its reward."""
    HELD = 1
    """Its reward has come, and contributes when the waiting time is over."""
    DONE = 2
    """It has contributed, was abandoned, or never counts."""
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
    """As long as it is held."""
    answer: bytes = NOTHING
    """Hash of the reward, or of its being abandoned; ``NOTHING`` before."""

    def pack(self) -> bytes:
        """As the value of a row."""
        return _PACKED.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Event:
        """The event that gave these bytes."""
        try:
            status, counts, arm, decision, due, content, reward, answer = _PACKED.unpack(data)
            return cls(Status(status), bool(counts), arm, decision, due, content, reward, answer)
        except (struct.error, ValueError) as error:
            raise StoreDamaged(f"a row of the table of events cannot be read: {error}") from error

    def settled(self) -> Event:
        """After its waiting time: the reward itself is forgotten."""
        over = Status.EXPIRED if self.status is Status.WAITING else Status.DONE
        return self._replace(status=over, reward=math.nan)


class Hashes:
    """Keyed hashes of what callers send; without the key nobody can tell whether a guess is right."""

    def __init__(self, key: bytes) -> None:
        if len(key) != HASH_KEY_SIZE:
            raise StoreDamaged(f"the key of hashes has {len(key)} bytes, not {HASH_KEY_SIZE}")
        self._begun = {
            purpose: hashlib.blake2b(digest_size=16, key=key, person=purpose)
            for purpose in (b"event", b"user", b"content", b"reward")
        }

    def of(self, purpose: bytes, *parts: bytes) -> bytes:
        """Of these parts, told apart by their lengths, for this purpose and no other."""
        found = self._begun[purpose].copy()  # the key is taken in once
        for part in parts:
            found.update(_LENGTH.pack(len(part)))
            found.update(part)
        return found.digest()

    def event(self, namespace: str, identity: str) -> bytes:
        """Of the caller's id of a decision."""
        return self.of(b"event", namespace.encode(), identity.encode())

    def user(self, identity: str) -> bytes:
        """Of a user."""
        return self.of(b"user", identity.encode())

    def reward(self, event: bytes, reward: float | None) -> bytes:
        """Of the reward of an event; None for one that is abandoned.  Either zero is the same."""
        return self.of(b"reward", event, b"abandoned" if reward is None else struct.pack("<d", reward + 0.0))
