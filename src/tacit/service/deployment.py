"""All policies of one store, as one process serves them: made, found again after a crash, closed."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tacit.errors import InvalidInput, JournalExists, StoreDamaged, UnknownJournal
from tacit.policies.policy import Policy, configuration_of
from tacit.policies.registry import policy_class
from tacit.service.backup import back_up
from tacit.service.events import HASH_KEY, HASH_KEY_SIZE, Hashes
from tacit.service.host import Host, Refusal, SetMode, StoppableClock
from tacit.service.intake import Intake
from tacit.service.journal import PolicyJournal, create_journal, described, refuse_unfinished
from tacit.service.published import MODE_CHANGES, first_mode
from tacit.service.rehearsal import rehearse
from tacit.service.store import Group, Store
from tacit.service.terms import DELETED, TERMS, Mode, Terms, checked_mode

MOST_ARMS: Final = 1_000
_WINDOW: Final = 1_000_000
"""Decisions that may wait for their rewards in a served policy, unless it is told another number."""
_LOOK_EVERY: Final = 1.0
"""Seconds between looks at which policies other processes have made."""


@dataclass(frozen=True)
class Served:
    """A policy that is being served."""

    name: str
    policy: str
    config: Mapping[str, Any]
    """The arguments of `make_policy`, as JSON."""
    terms: Terms
    host: Host
    intake: Intake


class Deployment:
    """The policies of a store, each with its host.

    ``clock`` counts seconds, ``wall`` those since 1970; a test passes its own.
    """

    def __init__(
        self,
        store: Store,
        *,
        most_arms: int = MOST_ARMS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        refuse_unfinished(store)
        self.store, self._most_arms, self.clock, self._wall = store, most_arms, StoppableClock(clock), wall
        self._hashes = Hashes(_hash_key(store))
        self._changing = threading.RLock()
        """Held while policies are made, found or closed."""
        self.policies: dict[str, Served] = {}
        """Policies by name; replaced as a whole when one is added."""
        self._look(self.clock())

    def _look(self, now: float) -> None:
        """Begin to serve what the store has and this process does not know, as of one moment before any is read."""
        self._looked_at = now
        for journal in self.store.journals():
            with self._changing:
                if journal.name not in self.policies:
                    self._serve(journal.name, now, journal.note)

    def get(self, name: str) -> Served:
        """The policy of this name, of those that this process knows."""
        found = self.policies.get(name)
        if found is None:
            raise UnknownJournal(f"there is no policy named {name!r}")
        return found

    def find(self, name: str) -> Served:
        """The policy of this name, which another process may have made a moment ago."""
        if self.store.shared and name not in self.policies:
            self._look(self.clock())
        return self.get(name)

    def refresh(self, name: str | None = None) -> None:
        """Take in what other processes have done to one policy, or to all of them, for those who read."""
        if not self.store.shared:
            return
        if name is not None:
            self.find(name).host.refresh()
            return
        for journal in self.store.journals():
            self.find(journal.name).host.refresh(journal)

    def put(self, name: str, body: Mapping[str, Any]) -> tuple[Served, bool]:
        """Make a policy, or change the mode of one that there is; also says whether it is new.

        ``body`` has the policy's name as ``policy``, the arguments of `make_policy`, those of `Terms` and ``mode``.
        Anything else than the mode of a policy never changes: ``JournalExists``.

        A call that fails may be repeated.  Making a policy is one transaction of the store: before it there is nothing,
        and after it the next call finds the policy there.
        """
        arguments = dict(body)
        mode = checked_mode(arguments.pop("mode", "online"))
        policy, terms = arguments.pop("policy", None), Terms.taken_from(arguments)
        if not isinstance(policy, str):
            raise InvalidInput('policy is missing: say which one, as in "policy": "stream-glm"')
        self._look(self.clock())
        made = None if name in self.policies else self._made(policy, arguments, terms)  # which may take long
        with self._changing:
            new = made is not None and self._write(name, made, terms, mode)
            if name not in self.policies:
                self._look(self.clock())
            served = self.get(name)
            deleted = served.host.published.mode == DELETED
            if not (new or deleted or self._is(served, policy, arguments, terms)):
                raise JournalExists(f"policy {name!r} exists with another configuration, which never changes")
            if deleted or (not new and "mode" in body):
                self._switch(served, mode)
            return served, new

    def set_mode(self, name: str, mode: str) -> Served:
        """Change the mode of a policy, and return it."""
        served, mode = self.find(name), checked_mode(mode)
        self._switch(served, mode)
        return served

    def _switch(self, served: Served, mode: Mode) -> None:
        if Refusal.DELETED in served.host.process([SetMode(mode)]):
            raise JournalExists(f"policy {served.name!r} was deleted, and its name is not used again")

    def delete(self, name: str) -> Served:
        """Erase all of a policy but what is public; its ledger stays in the total, and its name is not used again."""
        served = self.find(name)
        served.host.delete()
        return served

    def _write(self, name: str, made: Policy, terms: Terms, mode: Mode) -> bool:
        """Write a new policy to the store, with its mode; False where there is one of this name."""
        note, changes = first_mode(mode, self._wall())
        try:
            create_journal(self.store, name, made, {TERMS: terms.to_json()}, note, Group(rows={MODE_CHANGES: changes}))
        except JournalExists:  # another process was quicker
            return False
        return True

    def _made(self, policy: str, arguments: dict[str, Any], terms: Terms) -> Policy:
        if arguments.get("reward_age") is not None:
            raise InvalidInput("reward_age counts decisions: a service has hold and reward_wait, which count seconds")
        made = self._rehearsed(policy, {"reward_window": _WINDOW} | arguments)
        if made.guarantee == "local":
            raise InvalidInput(
                f"{policy} learns from reports that devices send with their rewards: the count of its releases would "
                "show whose never came. A service takes policies whose releases follow the clock of decisions"
            )
        if terms.user_level and not made.private:
            raise InvalidInput(f"user_level is for private policies, and {policy} is none")
        if terms.default_reward is not None and not 0.0 <= terms.default_reward <= made.setting.reward_bound:
            raise InvalidInput(
                f"default_reward must be in [0, {made.setting.reward_bound:g}], not {terms.default_reward!r}"
            )
        return made

    def _rehearsed(self, policy: str, arguments: dict[str, Any]) -> Policy:
        """A policy with these arguments, after another one with the same has shown that it can decide and learn.

        Arguments that no sane caller gives may pass every check and fail in arithmetic; a policy that fails after it
        has begun would end the process.
        """
        kind = policy_class(policy)
        config = configuration_of(kind, arguments)
        try:
            rehearse(policy, config.to_json())
            return kind(config)
        except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"no policy can be made of these arguments ({type(error).__name__})") from error

    def _is(self, found: Served, policy: str, arguments: dict[str, Any], terms: Terms) -> bool:
        """Whether a policy is the one that was asked for."""
        asked = configuration_of(policy_class(policy), {"reward_window": _WINDOW} | arguments).to_json()
        return (found.policy, found.config, found.terms) == (policy, asked, terms)

    def _serve(self, name: str, started: float, note: bytes) -> None:
        """Begin to serve a policy of the store.

        At ``started`` its clock was what ``note`` says: however long it takes to find its state again is time in which
        it is up.
        """
        journal = PolicyJournal(self.store, name)
        policy, _, extra = described(journal.config)
        try:
            terms = Terms(**extra.get(TERMS, {}))
        except (TypeError, ValueError) as error:
            raise StoreDamaged(f"the terms of {name!r} cannot be read: {error}") from error
        host = Host(self.store, journal, terms, self._hashes, self.clock, self._wall, started, note)
        config = journal.policy.config.to_json()  # with the defaults of fields that an earlier version did not have
        intake = Intake(journal.policy.arm_form, terms, self._hashes, self._most_arms, self.clock)
        self.policies = self.policies | {name: Served(name, policy, config, terms, host, intake)}

    def backup(self, *, keys: bool = False) -> bytes:
        """A backup of all private policies, which are served meanwhile; with the callers' ``keys``."""
        self.refresh()
        private = {name: each for name, each in self.policies.items() if policy_class(each.policy).private}
        copies = {name: served.host.public_copy() for name, served in private.items()}
        return back_up(self.store, copies, keys=keys)

    def tick(self, stamp: float | None = None) -> None:
        """Settle what is due in all policies at a beat, those included that another process has made.

        ``stamp`` is when it was time for the beat, by ``clock``; now if it is left out.

        A policy's clock begins here or with a decision, a change or a reader, never with a reward that comes first.
        """
        now = self.clock()  # a policy that is found begins by what its note is now, and not when the beat was asked for
        if self.store.shared and now - self._looked_at >= _LOOK_EVERY:
            self._look(now)
        for served in self.policies.values():
            served.host.tick(stamp)

    def close(self) -> None:
        """Write snapshots, which erase the logs of rows, and let go of the store."""
        with self._changing:
            try:
                for served in self.policies.values():
                    served.host.close()
            finally:
                self.store.close()


def _hash_key(store: Store) -> bytes:
    """The key of this store's hashes; the first process that is ever started on the store makes it."""
    store.change_settings({HASH_KEY: secrets.token_bytes(HASH_KEY_SIZE)}, replace=False)
    return store.settings(HASH_KEY)[HASH_KEY]
