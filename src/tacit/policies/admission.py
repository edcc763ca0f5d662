"""What a policy takes in: arms and rewards, checked in one place before anything changes.

Arms come as arrays, rows of d numbers, or as records that a schema encodes.  Steps take rows of d numbers, or, where a
policy knows which features can be nonzero together, compact rows (`tacit.linalg.blocks`).  Where a policy has a schema,
arrays are refused: nothing could tell whether they were made by it.

A refusal is an answer to the one user or caller whose input it was.  In a batch each user is judged apart, so that no
user learns from an error whether another one's arms were valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.linalg.blocks import compacted, dense_rows
from tacit.policies.setting import Setting
from tacit.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from tacit.features import Schema
    from tacit.features.encoding import Arms
    from tacit.features.support import Support

_NORM_TOLERANCE = 1e-6
"""Room for arms normalised in single precision, which are scaled into the unit ball."""
_LARGEST_SQUARE = (1.0 + _NORM_TOLERANCE) ** 2
_NO_OVERFLOW = 1e300
_TWO_BLOCKS = (
    "contexts must have their nonzero entries within one block of features in every row, as this policy was told that "
    "they have: see its option blocks"
)
Record = Mapping[str, Any]
Refused = dict[int, InvalidInput]


@dataclass(frozen=True)
class ArmForm:
    """What a policy takes as arms.

    ``support`` is None where steps take rows of d numbers, ``schema`` where there are no records.
    """

    setting: Setting
    support: Support | None = None
    schema: Schema | None = None

    @property
    def size(self) -> int:
        """Numbers that steps are given for an arm."""
        return self.setting.dim if self.support is None else 2 * self.support.width

    @property
    def names(self) -> Sequence[str]:
        """One name for each feature."""
        return [f"feature {i}" for i in range(self.setting.dim)] if self.schema is None else self.schema.names

    @property
    def scales(self) -> FloatArray:
        """The largest absolute value that each feature can have."""
        return np.ones(self.setting.dim) if self.schema is None else self.schema.scales

    def dense(self, rows: FloatArray) -> FloatArray:
        """Rows as steps take them, with all of their d numbers, shape (K, d)."""
        return rows if self.support is None else dense_rows(rows, self.setting.dim)

    def one(self, contexts: npt.ArrayLike | None, user: Record | None, arms: Arms | None) -> FloatArray:
        """The arms of one user, as arrays or as records: shape (1, K, size)."""
        if arms is not None or user is not None:
            _refuse_both(contexts)
            return self._encoded(user, arms)
        if contexts is None or self.schema is not None:
            self._refuse_arrays(contexts)
        block = admit_contexts(contexts, self.setting)  # type: ignore[arg-type]
        return block if self.support is None else self.compact(block)

    def many(
        self, contexts: npt.ArrayLike | None, users: Sequence[Record] | None, arms: Arms | None
    ) -> tuple[FloatArray, Refused]:
        """The arms of many users: those that are valid, shape (N, K, size), and for each other user why not."""
        if arms is not None or users is not None:
            _refuse_both(contexts)
            return self._all_encoded(users, arms)
        self._refuse_arrays(contexts)
        block, refused = admit_users(contexts, self.setting)  # type: ignore[arg-type]
        if self.support is None:
            return block, refused
        return self._compact_each(block, refused)

    def rounds(self, contexts: npt.ArrayLike) -> FloatArray:
        """The arms of many rounds, all of them valid or none taken; what a schema encoded is taken too."""
        return self.compact(admit_rounds(contexts, self.setting))

    def compact(self, block: FloatArray) -> FloatArray:
        """Rows of d numbers as steps take them."""
        if self.support is None:
            return block
        rows = np.empty((*block.shape[:2], self.size))
        refused = compacted(block, self.support.block_of, rows)
        if refused < block.shape[0]:
            where = f"user {refused}: " if block.shape[0] > 1 else ""
            raise InvalidInput(where + _TWO_BLOCKS)
        return rows

    def _compact_each(self, block: FloatArray, refused: Refused) -> tuple[FloatArray, Refused]:
        """Users whose rows reach into two blocks join those that are refused already."""
        with suppress(InvalidInput):
            return self.compact(block), refused
        numbers = [user for user in range(block.shape[0] + len(refused)) if user not in refused]
        kept, errors = [], dict(refused)
        for user, arms in zip(numbers, block, strict=True):
            try:
                kept.append(self.compact(arms[np.newaxis]))
            except InvalidInput as error:
                errors[user] = error
        rows = np.concatenate(kept) if kept else np.empty((0, 1, self.size))
        return rows, dict(sorted(errors.items()))

    def _encoded(self, user: Record | None, arms: Arms | None) -> FloatArray:
        schema = self._known_schema()
        if arms is None:
            raise InvalidInput("select needs arms=[{...}, ...] beside the user: a record for each arm")
        known = {} if user is None else user
        rows = schema.encode(known, arms) if self.support is None else schema.rows(known, arms)
        return self._bounded(rows[np.newaxis])

    def _all_encoded(self, users: Sequence[Record] | None, arms: Any) -> tuple[FloatArray, Refused]:
        schema = self._known_schema()
        if arms is None or users is None:
            raise InvalidInput("select_batch needs users=[{...}, ...] and arms=[{...}, ...]: a record for each")
        rows, refused = schema.rows_of(users, arms)
        return self._bounded(rows if self.support is not None else schema.dense(rows)), refused

    def _bounded(self, rows: FloatArray) -> FloatArray:
        """Encoded rows in the unit ball: a sensitivity rests on rows as they are, not on what a schema promises."""
        width = self.size if self.support is None else self.support.width
        squares = _squares(rows[..., :width])
        if squares.max(initial=0.0) > 1.0:
            rows[..., :width] = _into_unit_ball(rows[..., :width], squares)
        return rows

    def _known_schema(self) -> Schema:
        if self.schema is None:
            raise InvalidInput(
                "this policy has no schema to encode user and arms by: make it with features=schema, or pass contexts"
            )
        return self.schema

    def _refuse_arrays(self, contexts: npt.ArrayLike | None) -> None:
        if self.schema is not None:
            raise InvalidInput(
                "this policy has a schema and takes records, not arrays: select(user={...}, arms=[{...}, ...])"
            )
        if contexts is None:
            raise InvalidInput("select needs contexts: the arms of one user as an array of shape (K, d)")


def _refuse_both(contexts: npt.ArrayLike | None) -> None:
    if contexts is not None:
        raise InvalidInput("give contexts as an array, or records of users and arms, not both")


def admit_contexts(contexts: npt.ArrayLike, setting: Setting) -> FloatArray:
    """The arms of one user, shape (K, d), as steps take them: shape (1, K, d)."""
    block = _block(contexts, setting.dim, 2)
    # Unlike vecdot, vdot warns of nothing; where the sum of all squares does not overflow, that of an arm does not.
    squares = np.vecdot(block, block) if np.vdot(block, block) < _NO_OVERFLOW else _squares(block)
    largest = squares.item(squares.argmax())
    if not largest <= _LARGEST_SQUARE:  # also when there is a NaN, which counts as the largest
        raise _refusal(block[0])
    return block if largest <= 1.0 else _into_unit_ball(block, squares)


def admit_rounds(contexts: npt.ArrayLike, setting: Setting) -> FloatArray:
    """The arms of many rounds, shape (N, K, d), all of them valid or none taken."""
    block = _block(contexts, setting.dim, 3)
    squares = _squares(block)
    for user in _refused(squares)[:1]:
        raise _refusal(block[user], f"round {user}: ")
    return _into_unit_ball(block, squares)


def admit_users(contexts: npt.ArrayLike, setting: Setting) -> tuple[FloatArray, Refused]:
    """The arms of many users, shape (N, K, d): those that are valid, in order, and for each other user why not."""
    try:
        block = _block(contexts, setting.dim, 3)
    except InvalidInput:
        return _one_by_one(contexts, setting)
    squares = _squares(block)
    refused = {user: _refusal(block[user]) for user in _refused(squares)}
    if refused:
        block, squares = (np.delete(array, list(refused), axis=0) for array in (block, squares))
    return _into_unit_ball(block, squares), refused


def _one_by_one(contexts: npt.ArrayLike, setting: Setting) -> tuple[FloatArray, Refused]:
    """The arms of many users, some of which are not numbers of the right shape; raises where there are no users."""
    if not isinstance(contexts, list | tuple):
        _block(contexts, setting.dim, 3)
    admitted: list[FloatArray] = []
    refused: Refused = {}
    for user, arms in enumerate(contexts):  # type: ignore[arg-type]
        try:
            block = admit_contexts(arms, setting)
            if admitted and block.shape != admitted[0].shape:
                raise InvalidInput(f"all users of a batch must bring {admitted[0].shape[1]} arms, not {block.shape[1]}")
            admitted.append(block)
        except InvalidInput as error:
            refused[user] = error
    if not admitted:
        return np.empty((0, 1, setting.dim)), refused
    return np.concatenate(admitted), refused


def admit_reward(reward: float, setting: Setting) -> float:
    """One reward in [0, R]; a link of unbounded counts has those above R cut."""
    if type(reward) is float and 0.0 <= reward <= setting.reward_bound:
        return reward
    try:
        value = float(reward)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"reward must be a number, not {reward!r}") from error
    if setting.link.clips_rewards:
        value = min(value, setting.reward_bound)
    if not 0.0 <= value <= setting.reward_bound:
        raise InvalidInput(f"reward must lie in [0, {setting.reward_bound:g}], not {value!r}")
    return value


def admit_rewards(rewards: npt.ArrayLike, shape: tuple[int, ...], setting: Setting) -> FloatArray:
    """A table of what every arm would earn, by the same rule as single rewards."""
    try:
        table = np.ascontiguousarray(rewards, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"rewards must be a numeric array: {error}") from error
    if table.shape != shape:
        raise InvalidInput(f"rewards must have shape {shape}, not {table.shape}")
    if setting.link.clips_rewards:
        table = np.minimum(table, setting.reward_bound)
    if table.size and not (np.min(table) >= 0.0 and np.max(table) <= setting.reward_bound):
        raise InvalidInput(f"rewards must lie in [0, {setting.reward_bound:g}]")
    return table


def _block(contexts: npt.ArrayLike, dim: int, axes: int) -> FloatArray:
    """A contiguous array of shape (N, K, d); N is 1 when ``axes`` is 2."""
    try:
        array: FloatArray = np.ascontiguousarray(contexts, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"contexts must be a numeric array: {error}") from error
    shape = array.shape
    if len(shape) != axes or shape[-1] != dim or shape[-2] == 0:
        form = "(K, d)" if axes == 2 else "(N, K, d)"
        raise InvalidInput(f"contexts must have shape {form} with K >= 1 and d = {dim}, not {shape}")
    return array if axes == 3 else array[np.newaxis]


def _squares(block: FloatArray) -> FloatArray:
    """Squared norms of all arms, shape (N, K): infinite or NaN where an arm is not finite."""
    with np.errstate(over="ignore"):
        return np.asarray(np.vecdot(block, block))


def _refused(squares: FloatArray) -> list[int]:
    """The users who have an arm that is not finite or too long."""
    return np.flatnonzero(~(squares <= _LARGEST_SQUARE).all(axis=1)).tolist()


def _into_unit_ball(block: FloatArray, squares: FloatArray) -> FloatArray:
    """Arms with those scaled that are longer than 1: checks tolerate a rounding error, a sensitivity bound must not."""
    if squares.max(initial=0.0) <= 1.0:
        return block
    lengths = np.sqrt(np.maximum(squares, 1.0))
    return np.asarray(block * np.where(lengths > 1.0, (1.0 - 1e-15) / lengths, 1.0)[..., np.newaxis])


def _refusal(arms: FloatArray, where: str = "") -> InvalidInput:
    """What is wrong with one user's arms: the first arm that is not finite, or the longest one."""
    finite = np.all(np.isfinite(arms), axis=1)
    if not np.all(finite):
        arm = int(np.flatnonzero(~finite)[0])
        return InvalidInput(f"{where}contexts must be finite: row {arm} is not")
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(arms, axis=1)
    arm = int(np.argmax(norms))
    return InvalidInput(
        f"{where}contexts must have Euclidean norm at most 1: row {arm} has {norms[arm]:.8g}. Divide by the largest "
        "norm that can occur, a public constant, and never by the largest one in your data, which is not"
    )


def chosen_rows(contexts: FloatArray, arms: IntArray) -> FloatArray:
    """Return the features of each user's arm.

    Parameters
    ----------
    contexts : array, shape (N, K, row size)
        All arms of N users.
    arms : array of int, shape (N,)
        The arm of each user.

    Returns
    -------
    array, shape (N, row size)
        One row for each user.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.extend import chosen_rows
    >>> chosen_rows(np.stack([np.eye(3), np.eye(3)]), np.array([2, 0]))
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    users, count, size = contexts.shape
    if users == 1:
        return contexts[:, arms.item()]
    return contexts.reshape(-1, size).take(arms + np.arange(0, users * count, count), axis=0)


def remember_rows(contexts: FloatArray, arms: IntArray, memos: FloatArray, scores: FloatArray | None = None) -> None:
    """Write the features of each user's arm to the front of its memo, and its score behind them.

    Parameters
    ----------
    contexts : array, shape (N, K, row size)
        All arms of N users.
    arms : array of int, shape (N,)
        The arm of each user.
    memos : array, shape (N, memo size)
        What learning will need; changed in place.
    scores : array, shape (N K,), optional
        Scores of all arms of the first user, then of the second, and so on; without them no score is written.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.extend import remember_rows
    >>> memos = np.zeros((2, 3))
    >>> remember_rows(np.stack([np.eye(3), np.eye(3)]), np.array([2, 0]), memos)
    >>> memos
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    users, count, size = contexts.shape
    if users == 1:  # single numbers: a call of NumPy costs more than they do
        arm, memo = arms.item(), memos[0]
        memo[:size] = contexts[0, arm]
        if scores is not None:
            memo[size] = scores[arm]
        return
    memos[:, :size] = chosen_rows(contexts, arms)
    if scores is not None:
        memos[:, size] = scores.take(arms + np.arange(0, users * count, count))
