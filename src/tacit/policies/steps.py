"""The three compiled steps of a policy, and the one loop that runs them over many rounds.

A policy is a state, a ``NamedTuple`` of arrays, and three kernels on it:

- ``advance(state, noise) -> flag``: the clock ticks.  Close the stream's leaf with this noise, solve anew.  A flag
  other than 0 asks the Python side for an event (such as a private optimizer call) before arms are chosen.
- ``choose(state, contexts, coins, memo) -> arm``: pick an arm of one user; whatever learning will need later
  (at least the arm's features) goes into ``memo``.  Must not change the state.
- ``learn(state, memo, reward)``: take in one reward.

Randomness arrives as arrays: the kernels are pure functions of their arguments, so that a run can be replayed
with its noise frozen.  ``play`` is compiled once for each state type; library, simulator and service
all run these same kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import overload

from tacit._compile import generic_kernel, kernel
from tacit.linalg.solve import dot
from tacit.typing import FloatArray, IntArray


class Steps(NamedTuple):
    """The compiled kernels of a policy."""

    advance: Callable[..., int]
    choose: Callable[..., int]
    learn: Callable[..., None]


_STEPS: dict[type, Steps] = {}


def register_steps(
    state_type: type,
    advance: Callable[..., int],
    choose: Callable[..., int],
    learn: Callable[..., None],
) -> None:
    """Say which kernels drive states of ``state_type``."""
    _STEPS[state_type] = Steps(advance, choose, learn)


def advance(state: Any, noise: FloatArray) -> int:
    """Generic ``advance``; inside kernels it is resolved by the state's type."""
    return _STEPS[type(state)].advance(state, noise)


def choose(state: Any, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    """Generic ``choose``; inside kernels it is resolved by the state's type."""
    return _STEPS[type(state)].choose(state, contexts, coins, memo)


def learn(state: Any, memo: FloatArray, reward: float) -> None:
    """Generic ``learn``; inside kernels it is resolved by the state's type."""
    _STEPS[type(state)].learn(state, memo, reward)


@overload(advance)
def _compiled_advance(state: Any, noise: Any) -> Callable[..., int]:
    step = _STEPS[state.instance_class].advance

    def implementation(state: Any, noise: Any) -> int:
        return step(state, noise)

    return implementation


@overload(choose)
def _compiled_choose(state: Any, contexts: Any, coins: Any, memo: Any) -> Callable[..., int]:
    step = _STEPS[state.instance_class].choose

    def implementation(state: Any, contexts: Any, coins: Any, memo: Any) -> int:
        return step(state, contexts, coins, memo)

    return implementation


@overload(learn)
def _compiled_learn(state: Any, memo: Any, reward: Any) -> Callable[..., None]:
    step = _STEPS[state.instance_class].learn

    def implementation(state: Any, memo: Any, reward: Any) -> None:
        step(state, memo, reward)

    return implementation


VALID, NOT_FINITE, TOO_LONG = 0, 1, 2
_NORM_TOLERANCE = 1e-9


@kernel
def check_contexts(contexts: FloatArray) -> int:
    """Whether all entries are finite and all arms of all users lie in the unit ball."""
    for user in range(contexts.shape[0]):
        for k in range(contexts.shape[1]):
            square = dot(contexts[user, k], contexts[user, k])
            if not np.isfinite(square):
                return NOT_FINITE
            if square > 1.0 + _NORM_TOLERANCE:
                return TOO_LONG
    return VALID


@generic_kernel
def decide(
    state: Any,
    ticks: int,
    contexts: FloatArray,
    noise: FloatArray,
    coins: FloatArray,
    memos: FloatArray,
    arms: IntArray,
) -> int:
    """One tick for all users (none when ``ticks`` is 0), then a choice for each: 0, and their ``arms``.

    Otherwise the event that must happen first; the call that follows it has ``ticks`` = 0.
    """
    if ticks != 0:
        flag = advance(state, noise)
        if flag != 0:
            return flag
    for user in range(contexts.shape[0]):
        arms[user] = choose(state, contexts[user], coins[user], memos[user])
    return 0


@generic_kernel
def play(
    state: Any,
    start: int,
    contexts: FloatArray,
    rewards: FloatArray,
    noise: FloatArray,
    coins: FloatArray,
    memo: FloatArray,
    arms: IntArray,
) -> tuple[int, int]:
    """Play rounds ``start``, ``start + 1``, ...; the clock has ticked for ``start`` already.

    ``rewards[t, k]`` is what arm k would earn in round t; only the chosen arm's is read.  Returns the next round and
    the event that it asks for, or the number of rounds and 0.
    """
    rounds = contexts.shape[0]
    for t in range(start, rounds):
        arm = choose(state, contexts[t], coins[t], memo)
        arms[t] = arm
        learn(state, memo, rewards[t, arm])
        if t + 1 < rounds:
            flag = advance(state, noise[t + 1])
            if flag != 0:
                return t + 1, flag
    return rounds, 0


class BoundSteps(NamedTuple):
    """Compiled steps for one state: machine code without the look at types that every call of a kernel takes."""

    state: Any
    decide: Callable[..., int]
    learn: Callable[..., None]


def bind_steps(state: Any) -> BoundSteps:
    """The steps of ``state``; arrays passed to them must be contiguous and aligned, of float64 (arms: int64).

    To look up the type of a state of 30 arrays costs more than to choose an arm: docs/decisions/0005-compiled-steps.md
    """
    learner: Any = _STEPS[type(state)].learn
    decider: Any = decide
    vector, matrix, block = (numba.types.Array(numba.float64, axes, "C") for axes in (1, 2, 3))
    types = (numba.int64, block, vector, matrix, matrix, numba.int64[::1])
    kind = decider.typeof_pyval(state)
    return BoundSteps(state, decider.compile((kind, *types)), learner.compile((kind, vector, numba.float64)))
