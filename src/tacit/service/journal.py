"""A policy's life in a store: what it does is logged and committed in groups; snapshots erase the log now and then.

The policy in memory runs ahead of the store between a call and its commit.  Nobody may see anything of it, nor any
answer, before the commit has succeeded.  When it does not, or when a call is interrupted in the middle, memory is worth
nothing any more: the journal is dead, and whoever wants to go on claims it anew.  A release that was never committed
was never seen, and may be drawn anew; one that was committed is applied again as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tacit._version import __version__
from tacit.errors import CorruptState, InvalidInput, StoreDamaged, StoreFailed, TacitError
from tacit.policies.log import LogEntry, Released
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import make_policy, restore
from tacit.service.packing import pack_entry, pack_snapshot, unpack_entry, unpack_snapshot
from tacit.service.store import Group, Recovery, Store

SNAPSHOT_EVERY: Final = 50_000
"""Entries after which a snapshot takes the place of the log, unless there is much to be carried along."""
LONGEST_LOG: Final = 500_000
"""Entries after which it does whatever there is; replaying them takes about six seconds with geometric leaves."""
_NAMES: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
UNFINISHED: Final = "unfinished"
"""A setting of a store that is being filled, and must not be used if that was interrupted."""


class PolicyJournal:
    """The owner of a policy whose log is in a store."""

    def __init__(self, store: Store, recovery: Recovery, *, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        """Go on from what was recovered."""
        self.name = recovery.journal.name
        self.lease, self.seq, self.snapshot_seq = recovery.lease, recovery.journal.seq, recovery.journal.snapshot_seq
        self.note = recovery.journal.note
        """As it was when the journal was claimed."""
        self.group = Group()
        """What has been done and is not committed."""
        self.carried = 0
        """Rows that a snapshot carries along, which is what it costs: it waits until as many entries have come."""
        self.released_in_group = 0
        """How often anything was released by it."""
        self._store, self._every = store, snapshot_every
        self._dead: str | None = None
        self.policy = _recovered(recovery)
        self.policy.keep_log(self._log)

    @classmethod
    def begin(
        cls, store: Store, name: str, policy: str, arguments: dict[str, Any], *, snapshot_every: int = SNAPSHOT_EVERY
    ) -> PolicyJournal:
        """Make a new policy and its journal; the arguments are those of `tacit.make_policy`."""
        return cls.adopt(store, name, make_policy(policy, **arguments), snapshot_every=snapshot_every)

    @classmethod
    def adopt(
        cls,
        store: Store,
        name: str,
        policy: Policy,
        *,
        snapshot_every: int = SNAPSHOT_EVERY,
        extra: Mapping[str, Any] | None = None,
    ) -> PolicyJournal:
        """Make a journal for a policy, as `create_journal` does, and claim it.

        The journal goes on with the state that was stored, in a policy of its own.
        """
        create_journal(store, name, policy, extra)
        return cls(store, store.claim(name), snapshot_every=snapshot_every)

    def _log(self, entry: LogEntry) -> None:
        self.check()  # whoever holds the policy of a journal that has ended cannot go on with it
        self.released_in_group += isinstance(entry, Released) and bool(entry.values)
        self.group.entries.append(pack_entry(entry))

    @contextmanager
    def working(self) -> Iterator[Policy]:
        """Work on the policy; whatever interrupts it in the middle ends this journal.

        Bad input is refused by policies before they change anything, and may be asked for again.  Commit inside: a
        signal between the work and its commit would otherwise leave what is not durable for others to see.
        """
        self.check()
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
        return self.seq, len(self.group.entries), rows, len(self.group.forget), self.policy.decisions

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
                self.seq = self._store.append(self.lease, self.seq, self.group)
                self.group, self.released_in_group = Group(), 0

    @property
    def upkeep_due(self) -> bool:
        """Whether the log has become long enough for a snapshot to take its place, or the store wants to be tended."""
        return self._snapshot_due or self._store.upkeep_due

    @property
    def _snapshot_due(self) -> bool:
        return self.seq - self.snapshot_seq >= max(self._every, min(self.carried, LONGEST_LOG))

    def tend(self) -> None:
        """Do what is due and takes longer than a group; nothing may wait for its commit."""
        if self._snapshot_due:
            self.compact()
        if self._store.upkeep_due:
            self.check()
            with self._fatal():
                self._store.tend()

    def compact(self) -> None:
        """Put a snapshot in place of the log; nothing may wait for its commit."""
        self.check()
        if self.group:
            raise TacitError("a snapshot holds what is committed: commit first")
        with self._fatal():
            self._store.compact(self.lease, self.seq, pack_snapshot(self.policy.snapshot()))
            self.snapshot_seq = self.seq

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


def create_journal(store: Store, name: str, policy: Policy, extra: Mapping[str, Any] | None = None) -> None:
    """Write a policy to a store as a new journal, which anybody may claim: all of it in one transaction, or nothing.

    The state is written with the configuration, since the ids of decisions begin at random: a policy that is made of
    the configuration once more would not know them.  ``extra`` is kept with the configuration.
    """
    if not _NAMES.fullmatch(name):
        raise InvalidInput(f"name must be 1 to 64 letters, digits, dots, dashes or underscores, not {name!r}")
    _refuse_what_nobody_may_serve(policy)
    store.create(name, _config(policy, extra or {}), pack_snapshot(policy.snapshot()))


def _config(policy: Policy, extra: Mapping[str, Any]) -> bytes:
    whole = {"policy": policy.name, "config": policy.config.to_json(), "version": __version__, **extra}
    return json.dumps(whole, sort_keys=True).encode()


def refuse_unfinished(store: Store) -> None:
    """Refuse a store that a restore was interrupted in: users would count anew."""
    if store.settings(UNFINISHED):
        raise StoreDamaged("a restore into this store was interrupted: remove its folder, and restore the backup again")


def described(config: bytes) -> tuple[str, dict[str, Any]]:
    """Name and configuration of the policy of a journal."""
    try:
        found = json.loads(config)
        return str(found["policy"]), dict(found["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamaged(f"a journal has a configuration that cannot be read: {error!r}") from error


def extra_of(config: bytes) -> dict[str, Any]:
    """What is kept with the policy's configuration in a journal."""
    described(config)
    return {name: value for name, value in json.loads(config).items() if name not in ("policy", "config", "version")}


def _refuse_what_nobody_may_serve(policy: Policy) -> None:
    """Noise of a seeded policy is known to whoever knows the seed, that of a fast generator to whoever sees enough of
    it to work out its state; `paper` repeats a leak for comparisons.
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


def _recovered(recovery: Recovery) -> Policy:
    """The policy as it was after the last entry."""
    try:
        policy = restore(unpack_snapshot(recovery.snapshot))
        policy.replay(map(unpack_entry, recovery.entries))
    except StoreDamaged:
        raise
    except (CorruptState, InvalidInput) as error:
        raise StoreDamaged(f"the journal of {recovery.journal.name!r} cannot be applied: {error}") from error
    return policy
