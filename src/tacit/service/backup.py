"""Backups: what is public of every policy of a store, in one file that may be copied and started as often as one likes.

A store itself must not be copied: two copies would release the same rows with different noise.  A backup has no rows.
A policy that is restored from it goes on from what had been released, draws noise of its own and counts as a new
cohort; waiting decisions, and what was learned after the last release, are lost (docs/theory.md, "Recovery after a
crash").

Where users are counted, their counters and the key of their hashes are in the file too, since a person's decisions
would count anew otherwise.  They name nobody, but tell whoever has the file whether somebody came: such a backup is
secret.  Decisions made after it was written count again all the same: whoever restores it says whether an earlier life
released any of them, and accepts what that costs a person (`tacit.service.lives`).
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tacit._version import __version__
from tacit.errors import CorruptState, InvalidInput, TacitError
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import policy_class
from tacit.policies.state import Snapshot
from tacit.service.events import HASH_KEY
from tacit.service.journal import UNFINISHED, PolicyJournal, create_journal, extra_of
from tacit.service.lives import LIVES, cost_of_lives, lives_of
from tacit.service.modes import MODE_CHANGES, ModeChange
from tacit.service.packing import Array, pack, unpack
from tacit.service.sqlite_files import sync_folder
from tacit.service.store import Group, Row, Store
from tacit.service.terms import TERMS, Terms
from tacit.service.users import USERS

_MAGIC: Final = b"tacit backup 1\n"
_DIGEST: Final = hashlib.sha256().digest_size
_KEPT_NOTES: Final = ("users", "mode", "modes", LIVES)


@dataclass(frozen=True)
class Kept:
    """A policy of a backup."""

    policy: Policy
    extra: Mapping[str, Any]
    """What the service keeps with its configuration."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """Of what changes in a service: how many users came, its mode, and its lives."""
    users: tuple[Row, ...] = ()
    """Counters of its users: secret."""
    modes: tuple[ModeChange, ...] = ()
    """When its mode changed."""

    @property
    def counts_users(self) -> bool:
        """Whether its epsilon is that of a person whose decisions are counted."""
        return Terms.given(self.extra.get(TERMS, {})).user_level

    def cost(self, lives: int) -> str:
        """What a person may lose in so many lives."""
        return cost_of_lives(self.policy.privacy, lives)


def write_backup(path: str | Path, policies: Mapping[str, Kept], hash_key: bytes = b"") -> None:
    """Write the public part of these policies, by name, to a new file; and, where users are counted, their counters."""
    header: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for name, kept in policies.items():
        if not isinstance(kept.policy, PrivatePolicy):
            raise InvalidInput(
                f"{name!r} is {kept.policy.name}, which learns from raw data: nothing of it could be written"
            )
        snapshot = kept.policy.public_snapshot()
        public = {"extra": dict(kept.extra), "note": dict(kept.note), "modes": [list(change) for change in kept.modes]}
        header[name] = {"snapshot": snapshot.header, **public}
        own = snapshot.arrays | _packed_users(kept.users)
        arrays |= {f"{name}/{key}": array for key, array in own.items()}
    secret = hash_key.hex() if any(kept.users for kept in policies.values()) else ""
    body = pack({"version": __version__, "policies": header, "hash_key": secret}, arrays)
    _write_new(Path(path), _MAGIC + hashlib.sha256(body).digest() + body)


def _packed_users(rows: tuple[Row, ...]) -> dict[str, Array]:
    if not rows:
        return {}
    keys, values = b"".join(row.key for row in rows), b"".join(row.value for row in rows)
    return {
        "users.keys": np.frombuffer(keys, np.uint8).reshape(len(rows), -1),
        "users.values": np.frombuffer(values, np.uint8).reshape(len(rows), -1),
    }


def _unpacked_users(arrays: Mapping[str, Array]) -> tuple[Row, ...]:
    if "users.keys" not in arrays:
        return ()
    pairs = zip(arrays["users.keys"], arrays["users.values"], strict=True)
    return tuple(Row(key.tobytes(), number, value.tobytes()) for number, (key, value) in enumerate(pairs, start=1))


def _write_new(path: Path, data: bytes) -> None:
    """All of the file or none, readable by its owner alone, on the disk when this returns; an older one is kept."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(name, path)  # refuses to replace, unlike rename
        sync_folder(path.parent)
    except FileExistsError as error:
        raise InvalidInput(f"{path} exists already: give a backup a name of its own") from error
    finally:
        Path(name).unlink(missing_ok=True)


def read_backup(path: str | Path) -> tuple[dict[str, Kept], bytes]:
    """The policies of a backup, each a new life, and the key of their users' hashes, if users are counted."""
    data = Path(path).read_bytes()
    start = len(_MAGIC) + _DIGEST
    if not data.startswith(_MAGIC) or hashlib.sha256(data[start:]).digest() != data[len(_MAGIC) : start]:
        raise CorruptState(f"{path} is not a backup of this version, or is damaged")
    header, arrays = unpack(data[start:])
    try:
        kept = {name: _revived(name, parts, arrays) for name, parts in header["policies"].items()}
        return kept, bytes.fromhex(header["hash_key"])
    except (KeyError, TypeError, ValueError, TacitError) as error:
        raise CorruptState(f"{path} does not hold complete policies: {error}") from error


def _revived(name: str, parts: Mapping[str, Any], arrays: Mapping[str, Array]) -> Kept:
    header, start = parts["snapshot"], f"{name}/"
    kind = policy_class(header["policy"])
    if not issubclass(kind, PrivatePolicy):
        raise InvalidInput(f"{header['policy']} has no public part")
    own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
    revived = kind.from_public_snapshot(Snapshot(header, own))
    modes = tuple(ModeChange(*change) for change in parts.get("modes", ()))  # which older backups do not have
    return Kept(revived, parts["extra"], parts["note"], _unpacked_users(own), modes)


def back_up_store(store: Store, path: str | Path) -> dict[str, Kept]:
    """Write a backup of all policies of a store, which others may go on with; returns what was written."""
    kept = {}
    for journal in store.journals():
        policy = PolicyJournal(store, journal.name).policy
        note = {key: value for key, value in json.loads(journal.note or b"{}").items() if key in _KEPT_NOTES}
        users = tuple(store.rows(journal.name, USERS))  # after the policy: no decision of it is missing in them
        if users:
            note["users"] = len(users)
        modes = tuple(ModeChange.from_row(row) for row in store.rows(journal.name, MODE_CHANGES))
        kept[journal.name] = Kept(policy, extra_of(journal.config), note, users, modes)
    write_backup(path, kept, store.settings(HASH_KEY).get(HASH_KEY, b""))
    return kept


def restore_store(
    path: str | Path, store: Store, *, accept_user_cost: bool = False, nothing_released_since: bool = False
) -> dict[str, Kept]:
    """Begin the policies of a backup in a store that is empty; returns what was begun.

    Where a policy counts users, one of two things is said.  ``accept_user_cost``: decisions made since the backup may
    be in releases of an earlier life, and count again; this life is counted as one more.  ``nothing_released_since``:
    no life has released anything since the state that the backup holds, and none of them will be started again; a
    person's first k decisions are then the only ones in any release.
    """
    if accept_user_cost and nothing_released_since:
        raise InvalidInput(
            "accept_user_cost and nothing_released_since exclude each other: where nothing was released "
            "since the backup there is no cost to accept"
        )
    if store.journals():
        raise InvalidInput("policies are restored into a new folder, and this one holds some already")
    policies, hash_key = read_backup(path)
    if not nothing_released_since:
        _refuse_silent_cost(policies, accepted=accept_user_cost)
        policies = {name: _another_life(kept) for name, kept in policies.items()}
    store.change_settings({UNFINISHED: b"restore"} | ({HASH_KEY: hash_key} if hash_key else {}))
    for name, kept in policies.items():
        changes = {row.key: row for row in (change.row() for change in kept.modes)}
        rows = Group(rows={USERS: {row.key: row for row in kept.users}, MODE_CHANGES: changes})
        create_journal(store, name, kept.policy, kept.extra, json.dumps(dict(kept.note)).encode(), rows)
    store.change_settings({}, [UNFINISHED])
    return policies


def _refuse_silent_cost(policies: Mapping[str, Kept], *, accepted: bool) -> None:
    """Refuse to put counters of users back unless somebody has accepted what that costs."""
    costs = [
        f"{name}, {kept.cost(1 + lives_of(kept.note))} in place of {kept.policy.privacy.target_epsilon:g}"
        for name, kept in policies.items()
        if kept.counts_users
    ]
    if costs and not accepted:
        raise InvalidInput(
            "this backup puts counters of users back (user_level): whoever decided after it was written counts again, "
            f"and such a person would lose {'; '.join(costs)}. Either accept that, with --accept-user-cost "
            "(accept_user_cost=True); or, if no service has released anything since the backup was written and none of "
            "them will be started again, say so with --nothing-released-since (nothing_released_since=True), which "
            "costs nothing"
        )


def _another_life(kept: Kept) -> Kept:
    """The same with one life more; a policy that counts no users has rows in one life only."""
    if not kept.counts_users:
        return kept
    return replace(kept, note={**kept.note, LIVES: 1 + lives_of(kept.note)})
