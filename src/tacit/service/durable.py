"""`tacit.open_policy`: a policy whose decisions and rewards are on the disk before they are answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy.typing as npt

from tacit.errors import InvalidInput, JournalExists, UnknownJournal
from tacit.policies.policy import Policy, configuration_of
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import policy_class
from tacit.service.backup import Kept, packed_backup, write_new
from tacit.service.journal import PolicyJournal, described, refuse_unfinished
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Journal, Store
from tacit.service.terms import TERMS

if TYPE_CHECKING:
    from tacit.features.encoding import Arms
    from tacit.policies.admission import Record
    from tacit.policies.config import Config
    from tacit.policies.decision import Decision
    from tacit.policies.explanation import ChoiceExplanation, Explanation
    from tacit.privacy.report import PrivacyReport
    from tacit.typing import FloatArray

Result = TypeVar("Result")


def open_policy(
    path: str | Path, policy: str | None = None, *, name: str = "policy", **arguments: Any
) -> DurablePolicy:
    """Open the policy that is kept in a folder, or begin one there.

    Every call is committed before it returns: however the process ends, what was answered is there when the folder is
    opened again, and nothing that was released is ever drawn a second time.

    Parameters
    ----------
    path : str or Path
        The folder, which is made where it is missing; it belongs to one process at a time.
    policy : str, optional
        Name of the policy, as for `tacit.make_policy`.  Where the folder holds the policy already, it may be left out.
    name : str, default "policy"
        What the policy is called in the folder, which may hold several.
    **arguments : Any
        Arguments of `tacit.make_policy`; those of a policy that is there already may be left out, or must be what it
        was begun with.

    Returns
    -------
    DurablePolicy
        The policy; closed by ``close`` or at the end of a ``with`` block.

    Raises
    ------
    StoreInUse
        When another process has the folder open.
    UnknownJournal
        When the folder holds no policy of that name, and none was named to begin.
    JournalExists
        When it was begun as another policy, or with other arguments.

    Examples
    --------
    >>> import tempfile, numpy as np, tacit
    >>> folder = tempfile.mkdtemp()
    >>> with tacit.open_policy(folder, "stream-glm", dim=2, epsilon=1.0, delta=1e-6) as policy:
    ...     decision = policy.select(np.eye(2))
    >>> with tacit.open_policy(folder) as policy:
    ...     policy.update(decision, 1.0)
    ...     policy.decisions
    1
    """
    store = SQLiteStore(Path(path))
    try:
        refuse_unfinished(store)
        return DurablePolicy(store, name, policy, arguments)
    except BaseException:
        store.close()
        raise


class DurablePolicy:
    """A policy in a store of its own; made by `tacit.open_policy`.

    Its methods are those of `tacit.Policy`.  It may be used from several threads, and not in a forked process.  After
    an error of the store it refuses every call: open the folder anew.

    Parameters
    ----------
    store : Store
        Where the policy is kept; closed with it.
    name : str
        What the policy is called in the store.
    policy : str or None
        Name of the policy to begin, as for `tacit.make_policy`; None for one that is there.
    arguments : dict
        Arguments of `tacit.make_policy`.

    Examples
    --------
    >>> import tempfile, tacit
    >>> policy = tacit.open_policy(tempfile.mkdtemp(), "random", dim=2)
    >>> policy.update(policy.select([[1.0, 0.0], [0.0, 1.0]]), 1.0)
    >>> policy.close()
    """

    def __init__(self, store: Store, name: str, policy: str | None, arguments: dict[str, Any]) -> None:
        self._store, self._lock = store, threading.Lock()
        if policy is None and arguments:
            raise InvalidInput(f"say which policy these arguments are for: {', '.join(arguments)}")
        kept = {journal.name: journal for journal in store.journals()}
        if name in kept:
            _refuse_uncounted(kept[name])
            if policy is not None:
                _compare(kept[name], policy, arguments)
            self._journal = PolicyJournal(store, name)
        elif policy is not None:
            self._journal = PolicyJournal.begin(store, name, policy, arguments)
        else:
            others = f"; it holds {', '.join(kept)}" if kept else ""
            raise UnknownJournal(f"there is no policy named {name!r}{others}: say which policy to begin")

    def select(
        self, contexts: npt.ArrayLike | None = None, *, user: Record | None = None, arms: Arms | None = None
    ) -> Decision:
        """Choose an arm for one user, and commit the decision.

        Parameters
        ----------
        contexts : array_like, shape (K, d), optional
            The user's arms as rows of features, of norm at most 1.
        user : mapping, optional
            Record of the user, for a policy with a schema (``features``).
        arms : sequence of mappings or columns, optional
            Records of the arms, for a policy with a schema.

        Returns
        -------
        Decision
            The arm to play, and the id by which its reward is reported.
        """
        return self._carried_out(lambda policy: policy.select(contexts, user=user, arms=arms))

    def select_batch(
        self,
        contexts: npt.ArrayLike | None = None,
        *,
        users: Sequence[Record] | None = None,
        arms: Arms | None = None,
    ) -> list[Decision | InvalidInput]:
        """Choose for many users at once, in one commit.

        Parameters
        ----------
        contexts : array_like, shape (N, K, d), optional
            Each user's arms as rows of features, of norm at most 1.
        users : sequence of mappings, optional
            Records of the users, for a policy with a schema (``features``).
        arms : sequence of mappings or columns, optional
            Records of the arms, one list for all users or a list for each.

        Returns
        -------
        list of Decision or InvalidInput
            For each user a decision, or the error for one whose arms are not valid.
        """
        return self._carried_out(lambda policy: policy.select_batch(contexts, users=users, arms=arms))

    def update(self, decision: Decision | int, reward: float) -> None:
        """Report the reward of a decision, at most once, and commit it.

        Parameters
        ----------
        decision : Decision or int
            What ``select`` gave, or its ``id``.
        reward : float
            Between 0 and the policy's ``reward_bound``.
        """
        self._carried_out(lambda policy: policy.update(decision, reward))

    def abandon(self, decision: Decision | int) -> None:
        """Give a decision up whose arm was never shown: no reward of it is taken any more.

        Parameters
        ----------
        decision : Decision or int
            What ``select`` gave, or its ``id``.
        """
        self._carried_out(lambda policy: policy.abandon(decision))

    def explain(self, *arguments: Any, **keywords: Any) -> Explanation | ChoiceExplanation:
        """Explain what was learned, or with a user's arms why one of them is better than the others.

        Parameters
        ----------
        *arguments, **keywords : Any
            Arguments of `tacit.Policy.explain`: ``contexts``, or ``user`` and ``arms``; ``arm``.

        Returns
        -------
        Explanation or ChoiceExplanation
            Every feature with its weight, or with what it contributes to the difference; prints as a table.
        """
        with self._lock:
            return self._seen().explain(*arguments, **keywords)

    @property
    def privacy(self) -> PrivacyReport:
        """Target, spent and remaining budget; prints as a table."""
        with self._lock:
            return self._seen().privacy

    @property
    def estimate(self) -> FloatArray:
        """The newest estimate of theta, made of releases."""
        with self._lock:
            policy = self._seen()
            if not isinstance(policy, PrivatePolicy):
                raise InvalidInput(f"{policy.name} learns from raw data: it has no estimate that is made of releases")
            return policy.estimate

    @property
    def decisions(self) -> int:
        """Number of decisions made so far."""
        with self._lock:
            return self._seen().decisions

    @property
    def config(self) -> Config:
        """What the policy was begun with."""
        found: Config = self._journal.policy.config
        return found

    def public_fingerprint(self) -> str:
        """Return a hash of all that others may see: public fields of the state, ledger and clock.

        Returns
        -------
        str
            Hexadecimal digits; equal public states have equal ones.
        """
        with self._lock:
            return self._seen().public_fingerprint()

    def backup(self, path: str | Path) -> None:
        """Write what is public of the policy to a new file, which may be copied; ``tacit restore`` begins from it.

        Parameters
        ----------
        path : str or Path
            The file, which must not be there yet.
        """
        with self._lock:
            kept = Kept(self._journal.public_snapshot(), {})
        write_new(Path(path), packed_backup({self._journal.name: kept}, {}))

    def _carried_out(self, call: Callable[[Policy], Result]) -> Result:
        """Make a call durable before it returns, with the upkeep that is due."""
        with self._lock, self._journal.working() as policy:
            result = call(policy)
            self._journal.commit()
            self._journal.tend()
            return result

    def _seen(self) -> Policy:
        """The policy between two calls, as long as the lock is held: all of it is committed."""
        self._journal.check()
        return self._journal.policy

    def close(self) -> None:
        """Write a snapshot, which erases the log of rows, and let go of the folder; further calls are refused."""
        with self._lock:
            try:
                if self._journal.alive:
                    self._journal.compact()
            finally:
                self._journal.end()
                self._store.close()

    def __enter__(self) -> DurablePolicy:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _refuse_uncounted(kept: Journal) -> None:
    """Refuse a policy of a service that counts users: decisions made here name none, and would not be counted."""
    if described(kept.config)[-1].get(TERMS, {}).get("user_level"):
        raise InvalidInput(
            f"policy {kept.name!r} counts its users (user_level), which tacit.open_policy does not know: use it "
            "through tacit serve"
        )


def _compare(kept: Journal, policy: str, arguments: dict[str, Any]) -> None:
    """Refuse arguments that are not those of the policy that there is."""
    found, config, _ = described(kept.config)
    asked = configuration_of(policy_class(policy), arguments).to_json()
    if policy != found:
        what = f"is {found}, not {policy}"
    elif asked != config:
        differing = [f"{key}={config.get(key)!r}, not {asked[key]!r}" for key in asked if asked[key] != config.get(key)]
        what = "was begun with " + "; ".join(differing)
    else:
        return
    raise JournalExists(
        f"policy {kept.name!r} {what}: a policy never changes. Open it without arguments, or begin another one under "
        "another name"
    )
