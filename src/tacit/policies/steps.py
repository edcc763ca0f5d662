"""The steps of a policy: pure functions on its state, with an axis of users in front.

A policy is a state, a ``NamedTuple`` of arrays, and three or four steps on it.  Library, simulator and service run the
same steps.  Randomness arrives as arrays: steps are functions of their arguments, so that a run can be replayed with
its noise frozen.

Fields of a state that depend on rows other than through releases are annotated ``Secret[...]``, see
`tacit.policies.state`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tacit.threads import one_blas_thread
from tacit.typing import FloatArray, IntArray


class Steps(NamedTuple):
    """The steps of a policy as NumPy functions over N users who share its state.

    N is 1 for ``select`` and ``update``, the users of a batch for ``select_batch``, and for ``play`` all rounds up to
    the next release where choices depend on releases alone.

    Parameters
    ----------
    choose : callable
        Chooses an arm for each user.
    learn : callable
        Takes in rewards.
    advance : callable
        Takes in what was released, before each tick's decisions.
    make_room : callable, optional
        Makes room for rewards, for a state that grows.
    until_change : callable, optional
        How many of the decisions that ``play`` made together may be kept.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.extend import Steps, remember_rows
    >>> def first_arm(state, contexts, coins, memos):
    ...     arms = np.zeros(len(contexts), dtype=np.int64)
    ...     remember_rows(contexts, arms, memos)
    ...     return arms
    >>> steps = Steps(first_arm, learn=lambda state, memos, rewards: None, advance=lambda state, fresh, users: 0)
    >>> steps.choose(None, np.ones((3, 2, 1)), np.zeros((3, 0)), np.zeros((3, 1)))
    array([0, 0, 0])
    """

    choose: Callable[[Any, FloatArray, FloatArray, FloatArray], IntArray]
    """``choose(state, contexts, coins, memos) -> arms``: an arm for each of N users.

    ``contexts`` has shape (N, K, row size), ``coins`` (N, coin count).  What learning will need later, the arm's
    features to begin with, goes into ``memos``, shape (N, memo size).  Does not change the state, and does not read
    its secret fields.
    """
    learn: Callable[[Any, FloatArray, FloatArray], None]
    """``learn(state, memos, rewards)``: take in the rewards of N decisions."""
    advance: Callable[[Any, bool, int], int]
    """``advance(state, fresh, users) -> event``: the second half of a tick before the decisions of ``users``.

    Takes in what was released, if anything was (``fresh``).  An event other than 0 is handed to the policy's
    ``_on_event`` before arms are chosen.
    """
    make_room: Callable[[Any, int], Any] | None = None
    """``make_room(state, count) -> state``: before ``learn`` takes in so many rewards; for states that grow.

    `tacit.glm.rows.make_room` does it for a state with rows.
    """
    until_change: Callable[[Any, FloatArray], int] | None = None
    """``until_change(state, memos) -> count``: how many of N decisions, chosen together in ``play``, may be kept.

    They end with the first whose reward can change what arms are chosen by: those behind it are chosen anew.  For
    policies that learn from every reward at once, choose without coins, and rarely change.
    """


def idle(state: Any, fresh: bool, users: int) -> int:
    """The ``advance`` of a policy that does all of its work when rewards arrive."""
    return 0


def in_turn(learn_one: Callable[[Any, FloatArray, float], None]) -> Callable[[Any, FloatArray, FloatArray], None]:
    """Make the ``learn`` of a policy that takes in rewards one after the other, of a function for one of them."""

    def learn(state: Any, memos: FloatArray, rewards: FloatArray) -> None:
        with one_blas_thread(memos.shape[1]):
            for memo, reward in zip(memos, rewards.tolist(), strict=True):
                learn_one(state, memo, reward)

    return learn
