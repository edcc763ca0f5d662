"""The compiled steps of a policy, and the one loop that runs them over many rounds.

A policy is a state, a ``NamedTuple`` of arrays, and kernels on it:

- ``close(state, noise) -> fresh``: the clock ticks, and the stream's leaf is closed with this noise: the release.  The
  only step that sees noise, and the only one that turns raw sums into public numbers.  Without noise there is none.
- ``advance(state, fresh) -> flag``: take in what was released, if anything was (``fresh``): solve anew.  A flag other
  than 0 asks the Python side for an event (such as a private optimizer call) before arms are chosen.
- ``choose(state, contexts, coins, memo) -> arm``: pick an arm of one user; whatever learning will need later
  (at least the arm's features) goes into ``memo``.  Must not change the state, and must not read its secret fields.
- ``learn(state, memo, reward)``: take in one reward.

Fields of a state that depend on rows other than through releases are annotated ``Secret[...]``, see
`tacit.policies.state`.

Randomness arrives as arrays: the kernels are pure functions of their arguments, so that a run can be replayed
with its noise frozen.  ``play`` is compiled once for each state type; library, simulator and service
all run these same kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
from numba.extending import overload

from tacit._compile import generic_kernel
from tacit.privacy.continual import close_leaf
from tacit.typing import FloatArray, IntArray


class Steps(NamedTuple):
    """The compiled kernels of a policy; ``close`` is None where a tick draws no noise."""

    advance: Callable[..., int]
    choose: Callable[..., int]
    learn: Callable[..., None]
    close: Callable[..., bool] | None


_STEPS: dict[type, Steps] = {}


def register_steps(
    state_type: type,
    advance: Callable[..., int],
    choose: Callable[..., int],
    learn: Callable[..., None],
    close: Callable[..., bool] | None = None,
) -> None:
    """Say which kernels drive states of ``state_type``."""
    _STEPS[state_type] = Steps(advance, choose, learn, close)


@generic_kernel
def close_stream(state: Any, noise: FloatArray) -> bool:
    """The ``close`` of a state whose releases are one continual stream, in its field ``stream``."""
    return close_leaf(state.stream, noise)


def closes_a_stream(state_type: type) -> bool:
    """Whether the tick of such states is `close_stream`, which a publisher can stand in for."""
    return _STEPS[state_type].close is close_stream


def advance(state: Any, noise: FloatArray) -> int:
    """A tick: ``close`` and ``advance`` of the state; inside kernels they are resolved by the state's type."""
    steps = _STEPS[type(state)]
    return absorb(state, True if steps.close is None else steps.close(state, noise))


def absorb(state: Any, fresh: bool) -> int:
    """The second half of a tick, after the release."""
    return _STEPS[type(state)].advance(state, fresh)


def choose(state: Any, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    """Generic ``choose``; inside kernels it is resolved by the state's type."""
    return _STEPS[type(state)].choose(state, contexts, coins, memo)


def learn(state: Any, memo: FloatArray, reward: float) -> None:
    """Generic ``learn``; inside kernels it is resolved by the state's type."""
    _STEPS[type(state)].learn(state, memo, reward)


@overload(advance)
def _compiled_advance(state: Any, noise: Any) -> Callable[..., int]:
    steps = _STEPS[state.instance_class]
    step, close = steps.advance, steps.close
    if close is None:

        def without_noise(state: Any, noise: Any) -> int:
            return step(state, True)

        return without_noise

    def implementation(state: Any, noise: Any) -> int:
        return step(state, close(state, noise))

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
