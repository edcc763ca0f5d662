"""What processes on one database tell each other there: advisory locks, beats in a table, and that something changed.

A lock has a number of 64 bits, here a hash of what it is for, so that a policy's lock can be held before the policy is
there.  The server's list of locks says who has which; it knows sessions, and the lock of a process tells whose session
it is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from tacit.service.postgres_session import Connection
from tacit.service.sharing import Member, View

LEASE: Final = 3.0
"""Seconds without a beat after which a process is taken to be gone, and after which a new one is taken to stay."""
SERVING: Final = 0x54616370
"""Lock that all processes share which serve the database."""
FIRST: Final = 0x54616366
"""Lock of the process that makes what there must be one of."""
CHANNEL: Final = "tacit_cluster"
JOIN: Final = (
    "INSERT INTO members VALUES (%(id)s, %(address)s, clock_timestamp(), clock_timestamp())"
    " ON CONFLICT (id) DO UPDATE SET seen = excluded.seen"
)
LEAVE: Final = "DELETE FROM members WHERE id = %s"
_MEMBERS: Final = (
    "SELECT id, address, extract(epoch FROM clock_timestamp() - joined)::float8,"
    " extract(epoch FROM clock_timestamp() - seen)::float8 FROM members ORDER BY id"
)
_HEARD_OF: Final = (
    "SELECT address FROM members WHERE seen > clock_timestamp() - %s * interval '1 second' ORDER BY seen DESC LIMIT 1"
)
_NAMES: Final = "SELECT name FROM journals"
_LOCKS: Final = (
    "SELECT classid::bigint << 32 | objid::bigint, pid FROM pg_locks"
    " WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ExclusiveLock' AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_END_SESSIONS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = %s AND datname = current_database() AND pid <> pg_backend_pid()"
)


def member_key(identity: str) -> int:
    """Number of the lock that a process holds while it lives."""
    return _number(f"member {identity}")


def policy_key(name: str) -> int:
    """Number of the lock that the owner of a policy holds."""
    return _number(f"policy {name}")


def _number(what: str) -> int:
    return int.from_bytes(hashlib.sha256(f"tacit {what}".encode()).digest()[:8], "big", signed=True)


def lock(connection: Connection, number: int) -> bool:
    """Whether this session has the lock now; it must not have had it before."""
    found = connection.execute("SELECT pg_try_advisory_lock(%s)", (number,)).fetchone()
    return found is not None and bool(found[0])


def unlock(connection: Connection, number: int) -> None:
    """Give a lock of this session back."""
    connection.execute("SELECT pg_advisory_unlock(%s)", (number,))


def application(identity: str) -> str:
    """How the server's list of sessions calls those of a process."""
    return f"tacit {identity}"


@dataclass(frozen=True)
class Found:
    """What a look at the database has shown."""

    view: View
    gone: tuple[str, ...]
    """Ids of processes that have died, or say nothing any more."""


def look(connection: Connection) -> Found:
    """See who is there, and who owns what.

    A process has its lock before it is in the table, and is taken out of the table before it lets go of anything:
    whoever is in the table without the lock has died.
    """
    names = [name for (name,) in connection.execute(_NAMES).fetchall()]
    listed = connection.execute(_MEMBERS).fetchall()
    sessions: dict[int, int] = dict(connection.execute(_LOCKS).fetchall())
    living = {
        sessions[member_key(identity)]: Member(identity, address, joined > LEASE)
        for identity, address, joined, silent in listed
        if member_key(identity) in sessions and silent < LEASE
    }
    owners = {name: living.get(sessions.get(policy_key(name), 0)) for name in names}
    there = {member.id for member in living.values()}
    return Found(
        View(tuple(living.values()), {name: owner.id if owner else None for name, owner in owners.items()}),
        tuple(identity for identity, *_ in listed if identity not in there),
    )


def heard_of(connection: Connection) -> str | None:
    """The address of a process that was heard of lately."""
    found = connection.execute(_HEARD_OF, (LEASE,)).fetchone()
    return None if found is None else str(found[0])


def bury(connection: Connection, identity: str) -> None:
    """End whatever a process has open in this database, and with it its transactions and locks; then forget it."""
    connection.execute(_END_SESSIONS, (application(identity),))
    connection.execute(LEAVE, (identity,))
