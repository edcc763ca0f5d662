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
all run these same kernels, interpreted where compilation is switched off (`tacit._compile`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
from numba.extending import overload

from tacit._compile import COMPILES, generic_kernel, machine_code
from tacit.errors import TacitError
from tacit.privacy.continual import close_leaf
from tacit.typing import FloatArray, IntArray


class Rounds(NamedTuple):
    """Rounds to be played, with all the randomness that they need; the first axis of each array is the round."""

    contexts: FloatArray
    rewards: FloatArray
    """What each arm would earn; only the chosen arm's is read."""
    noise: FloatArray
    coins: FloatArray


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


def steps_of(state_type: type) -> Steps:
    """The kernels that drive states of ``state_type``."""
    found = _STEPS.get(state_type)
    if found is None:
        raise TacitError(
            f"no steps are registered for {state_type.__name__}: call register_steps({state_type.__name__}, advance, "
            "choose, learn) in the module of the policy (CONTRIBUTING.md, 'How to add a policy')"
        )
    return found


def closes_a_stream(state_type: type) -> bool:
    """Whether the tick of such states is `close_stream`, which a publisher can stand in for."""
    return steps_of(state_type).close is close_stream


def advance(state: Any, noise: FloatArray) -> int:
    """A tick: ``close`` and ``advance`` of the state; inside kernels they are resolved by the state's type."""
    steps = steps_of(type(state))
    return absorb(state, True if steps.close is None else steps.close(state, noise))


def absorb(state: Any, fresh: bool) -> int:
    """The second half of a tick, after the release."""
    return steps_of(type(state)).advance(state, fresh)


def choose(state: Any, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    """Generic ``choose``; inside kernels it is resolved by the state's type."""
    return steps_of(type(state)).choose(state, contexts, coins, memo)


def learn(state: Any, memo: FloatArray, reward: float) -> None:
    """Generic ``learn``; inside kernels it is resolved by the state's type."""
    steps_of(type(state)).learn(state, memo, reward)


@overload(advance)
def _compiled_advance(state: Any, noise: Any) -> Callable[..., int]:
    steps = steps_of(state.instance_class)
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
    step = steps_of(state.instance_class).choose

    def implementation(state: Any, contexts: Any, coins: Any, memo: Any) -> int:
        return step(state, contexts, coins, memo)

    return implementation


@overload(learn)
def _compiled_learn(state: Any, memo: Any, reward: Any) -> Callable[..., None]:
    step = steps_of(state.instance_class).learn

    def implementation(state: Any, memo: Any, reward: Any) -> None:
        step(state, memo, reward)

    return implementation


@generic_kernel
def decide(
    state: Any,
    ticked: bool,
    contexts: FloatArray,
    noise: FloatArray,
    coins: FloatArray,
    memos: FloatArray,
    arms: IntArray,
) -> int:
    """One tick for all users, unless the clock has ``ticked`` already, then a choice for each: 0, and their ``arms``.

    Otherwise the event that must happen first; the call that follows it has ``ticked`` set.
    """
    if not ticked:
        flag = advance(state, noise)
        if flag != 0:
            return flag
    for user in range(contexts.shape[0]):
        arms[user] = choose(state, contexts[user], coins[user], memos[user])
    return 0


@generic_kernel
def play(state: Any, start: int, ticked: bool, rounds: Rounds, memo: FloatArray, arms: IntArray) -> tuple[int, int]:
    """Play from round ``start`` on; the clock may have ``ticked`` for that round already.

    Returns the next round and the event that it asks for, or the number of rounds and 0.
    """
    count = arms.shape[0]
    for t in range(start, count):
        if not (ticked and t == start):
            flag = advance(state, rounds.noise[t])
            if flag != 0:
                return t, flag
        arm = choose(state, rounds.contexts[t], rounds.coins[t], memo)
        arms[t] = arm
        learn(state, memo, rounds.rewards[t, arm])
    return count, 0


class BoundSteps(NamedTuple):
    """Compiled steps for one state: machine code without the look at types that every call of a kernel takes."""

    state: Any
    decide: Callable[..., int]
    learn: Callable[..., None]


def bind_steps(state: Any) -> BoundSteps:
    """The steps of ``state``; arrays passed to them must be contiguous and aligned, of float64 (arms: int64).

    To look up the type of a state of 30 arrays costs more than to choose an arm: docs/decisions/0005-compiled-steps.md
    """
    learner = steps_of(type(state)).learn
    if not COMPILES:
        return BoundSteps(state, decide, learner)
    vector, matrix, block = (numba.types.Array(numba.float64, axes, "C") for axes in (1, 2, 3))
    kind = numba.typeof(state)
    types = (kind, numba.boolean, block, vector, matrix, matrix, numba.int64[::1])
    return BoundSteps(state, machine_code(decide, types), machine_code(learner, (kind, vector, numba.float64)))
