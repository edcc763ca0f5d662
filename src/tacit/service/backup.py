"""Backups: what is public of every policy of a store, in one file that may be copied and started as often as one likes.

A store itself must not be copied: two copies would release the same rows with different noise.  A backup has no rows.
A policy that is restored from it goes on from what had been released, draws noise of its own and counts as a new
cohort; waiting decisions, and what was learned after the last release, are lost (docs/theory.md, "Recovery after a
crash").  Each policy is written as it was at one moment, whether or not it is served meanwhile.

Where users are counted, their counters and the key of their hashes are in the file too, since a person's decisions
would count anew otherwise.  They name no person, but tell who has the file whether a given person came: such a backup
is secret.  Decisions made after it was written count again all the same: the operator who restores it says whether an
earlier life released any of them, and accepts what that costs a person (`tacit.service.lives`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from tacit._version import __version__
from tacit.errors import CorruptState, InvalidInput, TacitError
from tacit.policies.persistence import sync_folder, write_beside
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import policy_class
from tacit.policies.state import Snapshot
from tacit.service.events import HASH_KEY, Progress
from tacit.service.journal import UNFINISHED, PolicyJournal, create_journal, described, public_part, refuse_unfinished
from tacit.service.lives import LIVES, cost_of_lives, lives_of
from tacit.service.packing import Array, pack, unpack
from tacit.service.published import MODE_CHANGES, RELEASES, ModeChange, Point
from tacit.service.store import KEYS, Group, Row, Store
from tacit.service.terms import TERMS, Terms
from tacit.service.users import USERS

_MAGIC: Final = b"tacit backup 1\n"
_DIGEST: Final = hashlib.sha256().digest_size
_KEPT_NOTES: Final = ("users", "mode", "modes", "releases", LIVES)


@dataclass(frozen=True)
class Kept:
    """A policy of a backup."""

    snapshot: Snapshot
    """What is public of its state."""
    extra: Mapping[str, Any]
    """What the service keeps with its configuration."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """What changes as a policy is served: how many users came, its mode, and its lives."""
    users: tuple[Row, ...] = ()
    """Counters of the policy's users: secret."""
    modes: tuple[Row, ...] = ()
    """When the policy's mode changed: rows of `ModeChange`."""
    releases: tuple[Row, ...] = ()
    """Newest releases of the policy, oldest first: rows of `Point`."""

    @cached_property
    def policy(self) -> PrivatePolicy:
        """The policy that goes on from it, as a new life."""
        kind = policy_class(self.snapshot.header["policy"])
        if not issubclass(kind, PrivatePolicy):
            raise InvalidInput(f"{kind.name} has no public part")
        return kind.from_public_snapshot(self.snapshot)

    @property
    def counts_users(self) -> bool:
        """Whether its epsilon is that of a person whose decisions are counted."""
        return Terms(**self.extra.get(TERMS, {})).user_level

    def cost(self, lives: int) -> str:
        """What a person may lose in so many lives."""
        return cost_of_lives(self.policy.privacy, lives)


def packed_backup(policies: Mapping[str, Kept], settings: Mapping[str, bytes]) -> bytes:
    """The public part of these policies, by name, as a file; with it counters of users, and ``settings``.

    Those are callers' keys, and the key of users' hashes, which is left out where no user was counted.
    """
    header: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for name, kept in policies.items():
        header[name] = {
            "snapshot": kept.snapshot.header,
            "extra": dict(kept.extra),
            "note": dict(kept.note),
            "modes": [ModeChange.from_row(row) for row in kept.modes],
            "releases": [Point.from_row(row) for row in kept.releases],
        }
        own = kept.snapshot.arrays | _packed_users(kept.users)
        arrays |= {f"{name}/{key}": array for key, array in own.items()}
    keys = {name: value.hex() for name, value in settings.items() if name != HASH_KEY}
    secret = settings.get(HASH_KEY, b"").hex() if any(kept.users for kept in policies.values()) else ""
    body = pack({"version": __version__, "policies": header, "hash_key": secret, "keys": keys}, arrays)
    return _MAGIC + hashlib.sha256(body).digest() + body


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


def write_new(path: Path, data: bytes) -> None:
    """Write all of a file or none, readable by its owner alone, on the disk when this returns; an older one is kept."""
    name = write_beside(path, lambda stream: stream.write(data))
    try:
        os.link(name, path)  # refuses to replace, unlike rename
        sync_folder(path.parent)
    except FileExistsError as error:
        raise InvalidInput(f"{path} exists already: give a backup a name of its own") from error
    finally:
        Path(name).unlink(missing_ok=True)


def read_backup(path: str | Path) -> tuple[dict[str, Kept], dict[str, bytes]]:
    """The policies of a backup, each a new life; and settings: the key of their users' hashes, and callers' keys."""
    data = Path(path).read_bytes()
    start = len(_MAGIC) + _DIGEST
    if not data.startswith(_MAGIC) or hashlib.sha256(data[start:]).digest() != data[len(_MAGIC) : start]:
        raise CorruptState(f"{path} is not a backup of this version, or is damaged")
    header, arrays = unpack(data[start:])
    try:
        kept = {name: _unpacked(name, parts, arrays) for name, parts in header["policies"].items()}
        settings = header.get("keys", {}) | ({HASH_KEY: header["hash_key"]} if header["hash_key"] else {})
        return kept, {name: bytes.fromhex(value) for name, value in settings.items()}
    except (KeyError, TypeError, ValueError, OverflowError, struct.error, TacitError) as error:
        raise CorruptState(f"{path} does not hold complete policies: {error}") from error


def _unpacked(name: str, parts: Mapping[str, Any], arrays: Mapping[str, Array]) -> Kept:
    start = f"{name}/"
    own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
    note, snapshot, points = parts["note"], Snapshot(parts["snapshot"], own), parts.get("releases", ())
    modes = tuple(ModeChange(*change).row(change[0]) for change in parts.get("modes", ()))  # older backups have none
    first = int(note.get("releases", 0)) - len(points) + 1
    releases = tuple(Point(*point).row(number) for number, point in enumerate(points, first))
    kept = Kept(snapshot, parts["extra"], note, _unpacked_users(own), modes, releases)
    _ = kept.policy  # an incomplete one is found out here
    return kept


def back_up_store(store: Store, path: str | Path, *, keys: bool = False) -> None:
    """Write a backup of all private policies of a store to a new file; other processes may go on meanwhile."""
    refuse_unfinished(store)
    journals = [PolicyJournal(store, each.name) for each in store.journals()]
    write_new(Path(path), back_up(store, _read(journals), keys=keys))


def _read(journals: Iterable[PolicyJournal]) -> dict[str, tuple[bytes, Snapshot, bytes]]:
    """Configuration, public snapshot and note of the private policies among these, by name."""
    return {each.name: (each.config, each.public_snapshot(), each.note) for each in journals if each.policy.private}


def back_up(store: Store, policies: Mapping[str, tuple[bytes, Snapshot, bytes]], *, keys: bool) -> bytes:
    """A backup of policies whose configuration, public snapshot and note are given, with the callers' ``keys``."""
    kept = {name: _kept(store, name, *read) for name, read in policies.items()}
    return packed_backup(kept, {**store.settings(HASH_KEY), **(store.settings(KEYS) if keys else {})})


def _kept(store: Store, name: str, config: bytes, snapshot: Snapshot, note: bytes) -> Kept:
    """A policy of which the snapshot and the note were read before its tables.

    Decisions, releases and changes of mode that were made since may be in the tables.  Counters of users keep them,
    which costs contributions and no privacy; the others are left out.
    """
    progress = {key: value for key, value in json.loads(note or b"{}").items() if key in _KEPT_NOTES}
    users = tuple(store.rows(name, USERS))
    if len(users) < progress.get("users", 0):
        raise InvalidInput(f"policy {name!r} was deleted meanwhile: try again")
    progress |= {"users": len(users)}
    tables = ((MODE_CHANGES, progress.get("modes", math.inf)), (RELEASES, progress.get("releases", 0)))
    events = (tuple(row for row in store.rows(name, table) if row.position <= last) for table, last in tables)
    return Kept(snapshot, described(config)[-1], progress, users, *events)


def restore_store(
    path: str | Path, store: Store, *, accept_user_cost: bool = False, nothing_released_since: bool = False
) -> dict[str, Kept]:
    """Begin the policies of a backup in a store that is empty; returns what was begun.

    Where a policy counts users, one of two things is said.  ``accept_user_cost``: decisions made since the backup may
    be in releases of an earlier life, and count again; this life is counted as one more.  ``nothing_released_since``:
    no life has released anything since the state that the backup holds, and none of them will be started again; a
    person's first k decisions are then the only ones in any release.
    """
    if store.journals():
        raise InvalidInput("policies are restored into a new folder, and this one holds some already")
    policies, settings = read_backup(path)
    policies = _as_told(policies, accept_user_cost=accept_user_cost, nothing_released_since=nothing_released_since)
    store.change_settings({UNFINISHED: b"restore"} | settings)
    for name, kept in policies.items():
        tables = {USERS: kept.users, MODE_CHANGES: kept.modes, RELEASES: kept.releases}
        rows = Group(rows={table: {row.key: row for row in found} for table, found in tables.items()})
        create_journal(store, name, kept.policy, kept.extra, json.dumps(dict(kept.note)).encode(), rows)
    store.change_settings({}, [UNFINISHED])
    return policies


def adopt_store(
    store: Store, *, accept_user_cost: bool = False, nothing_released_since: bool = False
) -> dict[str, Kept]:
    """Let the policies of a copy, such as a standby that was promoted, go on from what is public; returns them.

    As after a restore, waiting decisions and what was learned after the last release are erased, and each policy is a
    new cohort.  A call that fails may be repeated (where users are counted, as one more life): the copy is refused by
    `tacit serve` until all of it is done.
    """
    refuse_unfinished(store)
    journals = [PolicyJournal(store, each.name) for each in store.journals()]
    kept = {name: _kept(store, name, *read) for name, read in _read(journals).items()}
    kept = _as_told(kept, accept_user_cost=accept_user_cost, nothing_released_since=nothing_released_since)
    for journal in journals:
        with journal.working() as policy:
            journal.refuse_readers()
            progress = Progress(**json.loads(journal.note or b"{}"))
            progress.drop_waiting(journal.group)
            progress.lives = lives_of(kept[journal.name].note) if journal.name in kept else progress.lives
            journal.group.note = json.dumps(vars(progress)).encode()
            journal.replace(public_part(policy))
    store.adopt()
    return kept


def _as_told(policies: Mapping[str, Kept], *, accept_user_cost: bool, nothing_released_since: bool) -> dict[str, Kept]:
    """The policies with the lives that they now have; refused where that costs users something, and is not accepted."""
    if accept_user_cost and nothing_released_since:
        raise InvalidInput(
            "accept_user_cost and nothing_released_since exclude each other: where nothing was released "
            "since the backup there is no cost to accept"
        )
    if nothing_released_since:
        return dict(policies)
    _refuse_silent_cost(policies, accepted=accept_user_cost)
    return {name: _another_life(kept) for name, kept in policies.items()}


def _refuse_silent_cost(policies: Mapping[str, Kept], *, accepted: bool) -> None:
    """Refuse to put counters of users back unless what that costs was accepted."""
    costs = [
        f"{name}, {kept.cost(1 + lives_of(kept.note))} in place of {kept.policy.privacy.target_epsilon:g}"
        for name, kept in policies.items()
        if kept.counts_users
    ]
    if costs and not accepted:
        raise InvalidInput(
            "counters of users are put back (user_level): a person who decided since they were written counts again, "
            f"and would lose {'; '.join(costs)}. Either accept that, with --accept-user-cost "
            "(accept_user_cost=True); or, if no service has released anything since they were written and none of "
            "them will be started again, say so with --nothing-released-since (nothing_released_since=True), which "
            "costs nothing"
        )


def _another_life(kept: Kept) -> Kept:
    """A policy with one life more; one that counts no users has rows in one life only."""
    if not kept.counts_users:
        return kept
    return replace(kept, note={**kept.note, LIVES: 1 + lives_of(kept.note)})
