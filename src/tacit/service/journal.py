"""A policy in memory as a cache of its log in a store: what it does is logged and committed in groups.

The policy is worked on in *turns* (`tacit.service.store`): a turn begins with what other processes have appended, and
ends with the commit of a group.  Between a call and its commit the policy runs ahead of the store.  Nothing of it may
be seen, and no answer given, before the commit has succeeded.  When it does not, or when a call is interrupted in the
middle, memory is worth nothing any more: the journal is dead, and is begun anew from the store.  A release that was
never committed was never seen, and may be drawn anew; one that was committed is applied again as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tacit._version import __version__
from tacit.errors import CorruptState, InvalidInput, StoreBusy, StoreDamaged, StoreFailed, TacitError
from tacit.policies.log import LogEntry, Released
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import make_policy, restore
from tacit.policies.state import Snapshot
from tacit.service.packing import pack_entry, pack_snapshot, unpack_entry, unpack_snapshot
from tacit.service.store import NOTHING, Behind, Group, Store, Tail

SNAPSHOT_EVERY: Final = 50_000
"""Entries after which a snapshot takes the place of the log, unless there is much to be carried along."""
LONGEST_LOG: Final = 500_000
"""Entries after which it does in any case; replaying them takes about six seconds with geometric leaves."""
_NAMES: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
UNFINISHED: Final = "unfinished"
"""A setting of a store that is being filled, and must not be used if that was interrupted."""


class PolicyJournal:
    """A policy whose log is in a store."""

    policy: Policy
    """Replaced where so much has happened in other processes that it begins anew from a snapshot of theirs.

    There is none while the journal rests.
    """

    def __init__(self, store: Store, name: str, *, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        """Go on from what the store has."""
        self.name, self._store, self._every = name, store, snapshot_every
        self.seq = NOTHING
        """Number of the last entry that the policy knows."""
        self.group = Group()
        """What has been done and is not committed."""
        self.carried = 0
        """Rows that a snapshot carries along, which is what it costs: it waits until as many entries have come."""
        self.released_in_group = 0
        """How often anything was released by it."""
        self.note = b""
        """The journal's note, at the last look or commit."""
        self.snapshot_seq = self._no_snapshot_before = 0
        self.resting = True
        """Whether the policy is in the store alone, from which the next who needs it takes it."""
        self._dead: str | None = None
        self.catch_up()

    @classmethod
    def begin(
        cls, store: Store, name: str, policy: str, arguments: dict[str, Any], *, snapshot_every: int = SNAPSHOT_EVERY
    ) -> PolicyJournal:
        """Make a new policy and its journal; the arguments are those of `tacit.make_policy`."""
        create_journal(store, name, make_policy(policy, **arguments))
        return cls(store, name, snapshot_every=snapshot_every)

    # What others have done

    def catch_up(self) -> None:
        """Take in what is in the store, without a turn; nothing may wait for its commit."""
        while True:
            tail = self._store.read(self.name, NOTHING if self.resting else self.seq)
            self.config = tail.journal.config
            try:
                self._take_in(tail)
                return
            except Behind:  # another process has erased what was about to be read
                continue

    def _take_in(self, tail: Tail) -> None:
        """Bring the policy to what the store has; an interruption ends this journal."""
        try:
            if tail.snapshot is not None:
                self.policy, self.seq = restore(unpack_snapshot(tail.snapshot)), tail.journal.snapshot_seq
                self.policy.keep_log(self._log)
                self.resting = False
            self.policy.replay(self._counted(tail.entries))
        except Behind:
            raise
        except (CorruptState, InvalidInput) as error:
            self._die("its log cannot be applied")
            raise StoreDamaged(f"the journal of {self.name!r} cannot be applied: {error}") from error
        except BaseException as error:
            self._die(f"a replay was interrupted: {error!r}")
            raise
        self.note, self.snapshot_seq = tail.journal.note, tail.journal.snapshot_seq

    def _counted(self, entries: Iterator[bytes]) -> Iterator[LogEntry]:
        for number, entry in enumerate(entries, self.seq + 1):
            yield unpack_entry(entry)
            self.seq = number

    # Work

    def _log(self, entry: LogEntry) -> None:
        self.check()  # a policy whose journal has ended cannot go on
        self.released_in_group += isinstance(entry, Released) and bool(entry.values)
        self.group.entries.append(pack_entry(entry))

    @contextmanager
    def working(self) -> Iterator[Policy]:
        """Take a turn and work on the policy; an interruption in the middle ends this journal.

        Bad input is refused by policies before they change anything, and may be asked for again.  Commit inside: it
        ends the turn, and a signal between the work and its commit would otherwise leave what is not durable for
        others to see.
        """
        self.check()
        if self.resting:
            self.catch_up()
        while True:
            try:
                with self._store.turn(self.name, self.seq) as tail:
                    if tail is not None:
                        self._take_in(tail)
                    yield from self._guarded()
                    return
            except Behind:
                self.catch_up()

    def _guarded(self) -> Iterator[Policy]:
        before = self._extent()
        try:
            yield self.policy
        except BaseException as error:
            if not isinstance(error, InvalidInput) or before != self._extent():
                self._die(f"a call was interrupted: {error!r}")
            raise

    def _extent(self) -> tuple[int, ...]:
        """What changes with everything that is done."""
        rows = sum(len(table) for table in self.group.rows.values())
        deleted = len(self.group.forget) + len(self.group.drop)
        return self.seq, len(self.group.entries), rows, deleted, self.policy.decisions

    @property
    def alive(self) -> bool:
        """Whether it can go on."""
        return self._dead is None

    def check(self) -> None:
        """Raise if this journal is dead."""
        if self._dead is not None:
            raise StoreFailed(
                f"policy {self.name!r} cannot go on, since {self._dead}. Open it anew: what was answered is kept"
            )

    def commit(self) -> None:
        """Make everything that was done durable; what it was may be answered, and seen, when this returns."""
        self.check()
        if self.group:
            with self._fatal():
                self.seq = self._store.append(self.name, self.seq, self.group)
                self._forget_group()

    def _forget_group(self) -> None:
        """The group is durable."""
        self.note = self.note if self.group.note is None else self.group.note
        self.group, self.released_in_group = Group(), 0

    @property
    def upkeep_due(self) -> bool:
        """Whether the log has become long enough for a snapshot to take its place, or the store wants to be tended."""
        return self._snapshot_due or self._store.upkeep_due

    @property
    def _snapshot_due(self) -> bool:
        due = self.snapshot_seq + max(self._every, min(self.carried, LONGEST_LOG))
        return self.seq >= max(due, self._no_snapshot_before)

    def tend(self) -> None:
        """Do what is due and takes longer than a group, in a turn of its own."""
        if self._snapshot_due:
            self.compact()
        if self._store.upkeep_due:
            self.check()
            with self._fatal():
                self._store.tend()

    def compact(self) -> None:
        """Put a snapshot in place of the log, or leave it for later; nothing may wait for its commit."""
        self.check()
        if self.group:
            raise TacitError("a snapshot holds what is committed: commit first")
        with self.working() as policy:
            self._put_snapshot(policy)

    def rest(self) -> None:
        """Let go of the policy until it is needed again."""
        del self.policy
        self.resting = True

    def refuse_readers(self) -> None:
        """In a turn, before anything is changed: raise ``StoreBusy`` if `replace` would have to wait for others."""
        if not self._store.erasable(self.name):
            raise StoreBusy(f"the log of {self.name!r} is being read, by a dump perhaps: try again when that is over")

    def replace(self, policy: Policy) -> None:
        """In a turn: go on with another policy; its snapshot takes the place of the log, and the group is committed.

        That has a number in the log, by which other processes find that theirs is another policy.
        """
        self.group.entries.append(b"")
        if not self._put_snapshot(policy):
            self._die("others read what was about to be erased")
            self.check()
        policy.keep_log(self._log)
        self.policy = policy

    def _put_snapshot(self, policy: Policy) -> bool:
        """Put a snapshot in place of the log, with the group; False, and later, where others read the log."""
        with self._fatal():
            snapshot, put = pack_snapshot(policy.snapshot()), self._store.compact
            if not (self._store.erasable(self.name) and put(self.name, self.seq, snapshot, self.group)):
                self._no_snapshot_before = self.seq + self._every // 10
                return False
            self.seq += len(self.group.entries)
            self.snapshot_seq = self.seq
            self._forget_group()
            return True

    def public_snapshot(self) -> Snapshot:
        """What is public of the policy's state; a policy without privacy is refused."""
        self.check()
        if not isinstance(self.policy, PrivatePolicy):
            kind = self.policy.name
            raise InvalidInput(f"{self.name!r} is {kind}, which learns from raw data: nothing of it is public")
        return self.policy.public_snapshot()

    def end(self) -> None:
        """Let go of the policy; what was not committed is forgotten."""
        self._die("it was closed")

    @contextmanager
    def _fatal(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._die(f"a write to its store did not succeed: {error}")
            raise

    def _die(self, why: str) -> None:
        self._dead, self.group = self._dead or why, Group()


def create_journal(
    store: Store,
    name: str,
    policy: Policy,
    extra: Mapping[str, Any] | None = None,
    note: bytes = b"",
    rows: Group | None = None,
) -> None:
    """Write a policy to a store as a new journal: all of it in one transaction, or nothing.

    The state is written with the configuration, since the ids of decisions begin at random: a policy that is made of
    the configuration once more would not know them.  ``extra`` is kept with the configuration.
    """
    if not _NAMES.fullmatch(name):
        raise InvalidInput(f"name must be 1 to 64 letters, digits, dots, dashes or underscores, not {name!r}")
    _refuse_what_nobody_may_serve(policy)
    whole = {"policy": policy.name, "config": policy.config.to_json(), "version": __version__, **(extra or {})}
    store.create(name, json.dumps(whole, sort_keys=True).encode(), pack_snapshot(policy.snapshot()), note, rows)


def public_part(policy: Policy) -> Policy:
    """A policy that knows what is public of this one, and no row; of a policy without privacy, its configuration."""
    if isinstance(policy, PrivatePolicy):
        return type(policy).from_public_snapshot(policy.public_snapshot())
    return type(policy)(policy.config)


def refuse_unfinished(store: Store) -> None:
    """Refuse a store that a restore was interrupted in: users would count anew."""
    if store.settings(UNFINISHED):
        raise StoreDamaged("a restore into this store was interrupted: remove its folder, and restore the backup again")


def described(config: bytes) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Name and configuration of the policy of a journal, and what is kept with them."""
    try:
        found = json.loads(config)
        policy, own, _ = str(found.pop("policy")), dict(found.pop("config")), found.pop("version", None)
        return policy, own, found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreDamaged(f"a journal has a configuration that cannot be read: {error!r}") from error


def _refuse_what_nobody_may_serve(policy: Policy) -> None:
    """Refuse policies whose noise is not secret, or that leak.

    Noise of a seeded policy follows from the seed, that of a fast generator from enough of its earlier numbers; `paper`
    repeats a leak for comparisons.
    """
    if not isinstance(policy, PrivatePolicy):
        return
    if policy.config.seed is not None:
        raise InvalidInput("seed must be left out: the noise of a policy that is kept comes from the operating system")
    if policy.config.noise == "fast":
        raise InvalidInput(
            "noise='fast' is for simulations: its generator is not made to keep its next numbers secret. Leave noise "
            "out (exact wherever there is such noise), or say 'exact' or 'secure', which draw from the operating system"
        )
    if getattr(policy.config, "profile", None) == "paper":
        raise InvalidInput("profile='paper' leaks, and is for comparisons in simulations only")
