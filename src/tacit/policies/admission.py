"""What a policy takes in: contexts and rewards, checked in one place before anything changes.

A refusal is an answer to the one user or caller whose input it was.  In a batch each user is judged apart, so that
nobody learns from an error whether somebody else's arms were valid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import InvalidInput
from tacit.policies.setting import Setting
from tacit.typing import FloatArray

_NORM_TOLERANCE = 1e-6
"""Room for arms normalised in single precision; `remember_arm` scales what is learned from into the unit ball."""
_LARGEST_SQUARE = (1.0 + _NORM_TOLERANCE) ** 2


def admit_contexts(contexts: npt.ArrayLike, setting: Setting) -> FloatArray:
    """The arms of one user, shape (K, d), as steps take them: shape (1, K, d)."""
    block = _block(contexts, setting.dim, 2)
    squares = _squares(block)
    if not squares.item(squares.argmax()) <= _LARGEST_SQUARE:  # also when there is a NaN, which counts as the largest
        raise _refusal(block[0])
    return block


def admit_rounds(contexts: npt.ArrayLike, setting: Setting) -> FloatArray:
    """The arms of many rounds, shape (N, K, d), all of them valid or none taken."""
    block = _block(contexts, setting.dim, 3)
    for user in _refused(block)[:1]:
        raise _refusal(block[user], f"round {user}: ")
    return block


def admit_users(contexts: npt.ArrayLike, setting: Setting) -> tuple[FloatArray, dict[int, InvalidInput]]:
    """The arms of many users, shape (N, K, d): those that are valid, in order, and for each other user why not."""
    try:
        block = _block(contexts, setting.dim, 3)
    except InvalidInput:
        return _one_by_one(contexts, setting)
    refused = {user: _refusal(block[user]) for user in _refused(block)}
    if not refused:
        return block, refused
    return np.ascontiguousarray(np.delete(block, list(refused), axis=0)), refused


def _one_by_one(contexts: npt.ArrayLike, setting: Setting) -> tuple[FloatArray, dict[int, InvalidInput]]:
    """The same where some users' arms are not even numbers of the right shape; raises where there are no users."""
    if not isinstance(contexts, list | tuple):
        _block(contexts, setting.dim, 3)
    admitted: list[FloatArray] = []
    refused: dict[int, InvalidInput] = {}
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
    """An array of shape (N, K, d) of ordinary memory; N is 1 when ``axes`` is 2."""
    try:
        array: npt.NDArray[Any] = np.ascontiguousarray(contexts, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"contexts must be a numeric array: {error}") from error
    if not array.flags.carray:
        array = array.copy()  # read-only or unaligned
    shape = array.shape
    if len(shape) != axes or shape[-1] != dim or shape[-2] == 0:
        form = "(K, d)" if axes == 2 else "(N, K, d)"
        raise InvalidInput(f"contexts must have shape {form} with K >= 1 and d = {dim}, not {shape}")
    return array if axes == 3 else array[np.newaxis]


def _squares(block: FloatArray) -> FloatArray:
    """Squared norms of all arms, shape (N, K): infinite or NaN where an arm is not finite."""
    with np.errstate(over="ignore"):
        return np.asarray(np.vecdot(block, block))


def _refused(block: FloatArray) -> list[int]:
    """The users who have an arm that is not finite or too long."""
    return np.flatnonzero(~(_squares(block) <= _LARGEST_SQUARE).all(axis=1)).tolist()


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
