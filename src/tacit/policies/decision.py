"""Decisions that wait for their rewards."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

import numpy as np

from tacit.errors import AlreadyRewarded, CorruptState, ExpiredDecision, InvalidInput, UnknownDecision
from tacit.typing import FloatArray, IntArray

_NO_WINDOW = 1 << 62
_FIRST_RANDOM_ID = 1 << 51
"""Ids of a life begin at a random place from here to 2^52: exact in JSON, and no other life's."""


class Decision(NamedTuple):
    """One user's decision: play ``arm``; report the reward with the decision or with its ``id``.

    All of it follows from what was released before and from the user's own arms: it concerns no other user.

    Parameters
    ----------
    arm : int
        Row of the user's arms that is to be played, from 0.
    id : int
        Number of the decision, by which ``Policy.update`` takes its reward too.
    propensity : float or None
        Probability with which this arm was to be chosen; 1 where nothing is left to chance, None where unknown.
    mean : float or None
        Predicted mean reward of the arm; None for a policy that predicts none.
    sd : float or None
        Standard deviation of that prediction, privacy noise included; None for a policy that knows none.

    Examples
    --------
    >>> import tacit
    >>> decision = tacit.make_policy("random", dim=2, seed=1).select([[1.0, 0.0], [0.0, 1.0]])
    >>> decision.arm in (0, 1), decision.propensity
    (True, 0.5)
    """

    arm: int
    id: int
    propensity: float | None = 1.0
    """Probability with which this arm was to be chosen; 1 where nothing is left to chance, None where unknown."""
    mean: float | None = None
    """Predicted mean reward of the arm; None for a policy that predicts none."""
    sd: float | None = None
    """Standard deviation of that prediction, privacy noise included; None for a policy that knows none."""


class Pending:
    """What learning needs to know of each decision whose reward may still come.

    A decision expires after ``window`` further decisions.  That depends on the clock alone, never on which rewards
    arrived, and keeps memory bounded when rewards get lost.

    With an ``age`` a reward is kept until its decision is so many decisions old (``keep``), and handed out then
    (``matured``), whenever it came; a decision that has none by then expires.
    """

    def __init__(self, memo_size: int, window: int, age: int | None = None) -> None:
        self.memo_size = memo_size
        self.age = age or 0
        """0 where rewards are learned from as they come."""
        self._window = _NO_WINDOW if age else window
        self._memos: dict[int, FloatArray] = {}
        self._kept: dict[int, tuple[FloatArray, float]] = {}
        """Decisions that are too young to be learned from, whose rewards have come."""
        self._first_id = 0
        self._next_id = 0
        self._oldest = 0
        self._earlier = 0

    @property
    def decisions(self) -> int:
        """Number of decisions made so far, those of lives before a recovery included."""
        return self._earlier + self._next_id - self._first_id

    def add(self, memo: FloatArray) -> int:
        """Remember ``memo`` and return the decision's id."""
        identity = self._next_id
        self._memos[identity] = memo
        self._next_id += 1
        while self._oldest < self._next_id - self._window:
            self._memos.pop(self._oldest, None)
            self._oldest += 1
        return identity

    def add_many(self, memos: FloatArray) -> range:
        """Remember each line of ``memos`` and return the ids of the decisions."""
        identities = range(self._next_id, self._next_id + len(memos))
        self._memos.update(zip(identities, memos, strict=True))
        self._next_id = identities.stop
        self._forget(self._next_id - self._window)
        return identities

    def _forget(self, stop: int) -> range:
        """Have the decisions before ``stop`` expire, and return their ids; makes no call for each."""
        old = range(self._oldest, max(self._oldest, stop))
        deque(map(self._memos.pop, old, repeat(None)), maxlen=0)
        self._oldest = old.stop
        return old

    def check_next(self, identity: int, users: int, memos: FloatArray) -> None:
        """Refuse an entry of a log whose first decision is not the next one, or whose memos are not for ``users``."""
        if identity != self._next_id:
            raise CorruptState(f"decision {identity} of the log is not the next one, which is {self._next_id}")
        if memos.shape != (users, self.memo_size):
            raise CorruptState(f"decision {identity} of the log has memos of shape {memos.shape}")

    def skip(self, count: int) -> None:
        """Count decisions whose rewards were taken in at once."""
        self._next_id += count
        self._forget(self._next_id - self._window)

    def find(self, decision: Decision | int) -> int:
        """The id of a decision whose reward may be reported now; an error names what is wrong otherwise."""
        identity = decision.id if isinstance(decision, Decision) else decision
        if isinstance(identity, bool) or not isinstance(identity, int | np.integer):
            raise InvalidInput(f"decision must be a Decision or its integer id, not {identity!r}")
        identity = int(identity)
        if identity in self._memos:
            return identity
        if not self._first_id <= identity < self._next_id:
            raise UnknownDecision(self._unknown(identity))
        if identity < self._oldest:
            raise ExpiredDecision(self._expired(identity))
        raise AlreadyRewarded(f"decision id {identity} already has its reward, or was given up: a reward counts once")

    def _expired(self, identity: int) -> str:
        if not self.age:
            limit, remedy = f"for the last {self._window} decisions", "raise reward_window if yours come later"
        else:
            limit = f"until their decision is reward_age={self.age} decisions old, when they contribute"
            remedy = "a policy with a larger reward_age waits longer"
        return f"decision id {identity} has expired: rewards are taken {limit}; {remedy}"

    def _unknown(self, identity: int) -> str:
        if self._next_id == self._first_id:
            return f"decision id {identity} is unknown: no decision has been made yet"
        known = f"ids run from {self._first_id} to {self._next_id - 1}"
        lost = "; rewards of decisions from before the recovery are lost" if self._earlier else ""
        return f"decision id {identity} is unknown: {known}{lost}"

    def take(self, decision: Decision | int) -> FloatArray:
        """What was remembered of a decision, which is then done with; an error names what is wrong otherwise."""
        identity = decision.id if type(decision) is Decision else decision
        if type(identity) is int:  # the common case, on the path of every reward
            memo = self._memos.pop(identity, None)
            if memo is not None:
                return memo
        return self._memos.pop(self.find(decision))

    def keep(self, decision: Decision | int, reward: float) -> None:
        """Keep a reward until its decision is old enough; refuses what ``take`` does."""
        identity = self.find(decision)
        self._kept[identity] = self._memos.pop(identity), reward

    def coming_of_age(self, users: int) -> int:
        """How many decisions come of age with the next ``users``: what the clock of releases counts in their place.

        Rows come by their decision's age, and so does the clock: leaves would be empty at first otherwise.
        """
        made = self._next_id - self._first_id + 1 - self.age
        return max(0, made + users) - max(0, made)

    def keep_many(self, memos: FloatArray, rewards: FloatArray) -> None:
        """Remember decisions whose rewards are known at once, until they are old enough."""
        identities = range(self._next_id, self._next_id + len(memos))
        self._kept.update(zip(identities, zip(memos, rewards.tolist(), strict=True), strict=True))
        self._next_id = identities.stop

    def matured(self, further: int = 1) -> list[tuple[FloatArray, float]]:
        """Memos and rewards of the decisions that are old enough after so many ``further`` ones, oldest first.

        Which decisions these are depends on the clock alone.  Those without a reward expire.
        """
        old = self._forget(self._next_id + further - self.age)
        return [*filter(None, map(self._kept.pop, old, repeat(None)))]

    def memo(self, identity: int) -> FloatArray:
        """What was remembered of decision ``identity``."""
        return self._memos[identity]

    def recover(self) -> None:
        """Forget all waiting decisions, and number further ones as no earlier life of this state can have."""
        self._earlier = self.decisions
        self._memos.clear()
        self._kept.clear()
        self.renumber()

    def renumber(self) -> None:
        """Begin a new range of ids, at random; none of them waits."""
        self._first_id = self._next_id = _FIRST_RANDOM_ID + secrets.randbelow(_FIRST_RANDOM_ID)
        self._oldest = self._first_id

    def to_arrays(self) -> dict[str, FloatArray | IntArray]:
        """All fields as arrays, for saving; in the order of decisions, not of their rewards."""
        clock = np.array([self._next_id, self._oldest, self._first_id, self._earlier], dtype=np.int64)
        memos = self._rows(list(self._memos.values()))
        arrays: dict[str, FloatArray | IntArray] = {"ids": _numbers(self._memos), "memos": memos, "clock": clock}
        if not self.age:
            return arrays
        kept = dict(sorted(self._kept.items()))
        rewards = np.array([reward for _, reward in kept.values()], dtype=np.float64)
        kept_memos = self._rows([memo for memo, _ in kept.values()])
        return arrays | {"kept_ids": _numbers(kept), "kept_memos": kept_memos, "kept_rewards": rewards}

    def restore(
        self,
        ids: IntArray,
        memos: FloatArray,
        clock: IntArray,
        kept_ids: IntArray | None = None,
        kept_memos: FloatArray | None = None,
        kept_rewards: FloatArray | None = None,
    ) -> None:
        """Put back what ``to_arrays`` gave."""
        self._memos = dict(self._restored(ids, memos))
        self._next_id, self._oldest, self._first_id, self._earlier = (int(value) for value in clock)
        if not self.age:
            return
        if kept_ids is None or kept_memos is None or kept_rewards is None:
            raise CorruptState("the rewards that reward_age keeps are missing")
        kept = zip(self._restored(kept_ids, kept_memos), kept_rewards, strict=True)
        self._kept = {identity: (memo, float(reward)) for (identity, memo), reward in kept}

    def _rows(self, memos: list[FloatArray]) -> FloatArray:
        return np.array(memos, dtype=np.float64).reshape(len(memos), self.memo_size)

    def _restored(self, ids: IntArray, memos: FloatArray) -> list[tuple[int, FloatArray]]:
        rows = np.ascontiguousarray(memos, dtype=np.float64).reshape(ids.size, self.memo_size)
        return [(int(identity), memo.copy()) for identity, memo in zip(ids, rows, strict=True)]


def _numbers(ids: Iterable[int]) -> IntArray:
    return np.array(list(ids), dtype=np.int64)
