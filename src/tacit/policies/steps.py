"""The compiled steps of a policy, and the one loop that runs them over many rounds.

A policy is a state, a ``NamedTuple`` of arrays, and kernels on it:

- ``close(state, noise, users) -> fresh``: the clock ticks before the decisions of so many users, and the stream's leaf,
  if it is due, is closed with this noise: the release.  The only step that sees noise, and the only one that turns raw
  sums into public numbers.  Without noise there is none.
- ``advance(state, fresh) -> flag``: take in what was released, if anything was (``fresh``): solve anew.  A flag other
  than 0 asks the Python side for an event (such as a private optimizer call) before arms are chosen.
- ``choose(state, contexts, coins, memo) -> arm``: pick an arm of one user; whatever learning will need later
  (at least the arm's features) goes into ``memo``.  Must not change the state, and must not read its secret fields.
- ``learn(state, memo, reward)``: take in one reward.

Fields of a state that depend on rows other than through releases are annotated ``Secret[...]``, see
`tacit.policies.state`.

Randomness arrives as arrays: the kernels are pure functions of their arguments, so that a run can be replayed
with its noise frozen.  `run` is compiled once for each state type; library, simulator and service all run these same
kernels, interpreted until their compiled form is there (`tacit._compile`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tacit._compile import Entry, as_entry, generic_entry, generic_kernel, kernel
from tacit._compile.kinds import FLOAT, INTEGER, array_kind, kind_of
from tacit.errors import TacitError
from tacit.privacy.continual import close_leaf
from tacit.typing import FloatArray, IntArray


class Steps(NamedTuple):
    """The kernels of a policy; ``close`` is None where a tick draws no noise."""

    advance: Callable[..., int]
    choose: Callable[..., int]
    learn: Entry[..., None]
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
    _STEPS[state_type] = Steps(advance, choose, as_entry(learn), close)


@generic_kernel
def close_stream(state: Any, noise: FloatArray, users: int) -> bool:
    """The ``close`` of a state whose releases are one continual stream, in its field ``stream``."""
    return close_leaf(state.stream, noise, users)


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


def close(state: Any, noise: FloatArray, users: int) -> bool:
    """The first half of a tick, the release; inside kernels it is resolved by the state's type, as all steps are."""
    step = steps_of(type(state)).close
    return True if step is None else step(state, noise, users)


def absorb(state: Any, fresh: bool) -> int:
    """The second half of a tick, after the release."""
    return steps_of(type(state)).advance(state, fresh)


def choose(state: Any, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    """Generic ``choose``; inside kernels it is resolved by the state's type."""
    return steps_of(type(state)).choose(state, contexts, coins, memo)


def learn(state: Any, memo: FloatArray, reward: float) -> None:
    """Generic ``learn``; inside kernels it is resolved by the state's type."""
    steps_of(type(state)).learn.function(state, memo, reward)


@kernel
def _nothing_to_close(state: Any, noise: FloatArray, users: int) -> bool:
    return True


def _steps_by_name(state_type: type) -> dict[str, Callable[..., Any]]:
    """What the generic steps stand for where kernels are compiled for one type of state."""
    steps = steps_of(state_type)
    return {
        "close": steps.close or _nothing_to_close,
        "absorb": steps.advance,
        "choose": steps.choose,
        "learn": steps.learn.function,
    }


@generic_entry(_steps_by_name)
def take_in(state: Any, fresh: bool) -> int:
    """The second half of a tick whose release was made outside of kernels."""
    return absorb(state, fresh)


@generic_entry(_steps_by_name)
def pick(state: Any, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    """A choice alone, without a tick before it: for whoever looks at a policy from outside."""
    return choose(state, contexts, coins, memo)


TICKED = -1
"""In place of a number of decisions: the tick has been."""


@generic_entry(_steps_by_name)
def run(
    state: Any,
    counted: int,
    contexts: FloatArray,
    rewards: FloatArray,
    noise: FloatArray,
    coins: FloatArray,
    memos: FloatArray,
    arms: IntArray,
) -> tuple[int, int]:
    """Decide for all users: the one loop behind `select`, `select_batch` and `play`.

    Without ``rewards`` there is one tick for all users together, which counts as ``counted`` decisions, and a choice
    for each.  With them each user is a round: a tick, a choice, and what the chosen arm earns is learned from at once.
    ``counted`` of `TICKED` says that the clock has ticked for the first user already.
    Lines of ``noise`` belong to ticks, all others to users; a single line of ``memos`` serves all rounds.  Where there
    are fewer lines of ``noise``, no leaf is due at later ticks.

    Returns how many were decided for, and the event that must happen before the next one; 0 at the end.
    """
    users, learns, ready = arms.shape[0], rewards.shape[0] > 0, counted == TICKED
    for user in range(users):
        if not ready:
            line = noise[user if user < noise.shape[0] else 0]
            flag = absorb(state, close(state, line, 1 if learns else counted))
            if flag != 0:
                return user, flag
        memo = memos[user if user < memos.shape[0] else 0]
        arm = choose(state, contexts[user], coins[user], memo)
        arms[user] = arm
        if learns:
            learn(state, memo, rewards[user, arm])
        ready = not learns
    return users, 0


def compiled_run(state: Any) -> Callable[..., tuple[int, int]]:
    """`run` for states of this kind, compiled; arrays passed to it must be as `bind_steps` says."""
    return run.bound_now((kind_of(state), *_RUN))


class BoundSteps(NamedTuple):
    """The steps of one state, in the best form that there is, without the look at types that other calls take."""

    state: Any
    run: Callable[..., tuple[int, int]]
    learn: Callable[..., None]


_VECTOR, _MATRIX, _BLOCK = map(array_kind, (1, 2, 3))
_ARMS = array_kind(1, "<i8")
_RUN = (INTEGER, _BLOCK, _MATRIX, _MATRIX, _MATRIX, _MATRIX, _ARMS)


def bind_steps(state: Any, changed: Callable[[], None]) -> BoundSteps:
    """The steps of ``state``; arrays passed to them must be contiguous and aligned, of float64 (arms: int64).

    To look up the type of a state of 30 arrays costs more than to choose an arm: docs/decisions/0005-compiled-steps.md.
    ``changed`` is called when a better form has become ready, and they are to be bound anew.
    """
    kind, learner = kind_of(state), steps_of(type(state)).learn
    return BoundSteps(
        state,
        run.bound((kind, *_RUN), changed),
        learner.bound((kind, _VECTOR, FLOAT), changed),
    )
