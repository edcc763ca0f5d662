"""What the compiled steps of every policy must keep to, as checks on a factory of policies.

Each check raises an ``AssertionError`` that says what was broken.  They run the machine code that serves: its arrays
are views into larger buffers, whose surroundings must neither matter nor change.  A check begins with a fresh policy,
before any step has been run outside of such buffers.

The factory must give the same policy each time: a seeded one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.publisher import Publisher
from tacit.policies.state import flatten, public_part, rebuild
from tacit.policies.steps import TICKED
from tacit.privacy.continual import Stream, close_leaf, is_used_up, leaf_is_due, published, replay_leaf
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray
from tests.contracts.policies import DIM, rounds, walk

Make = Callable[[], Policy]
Array = npt.NDArray[Any]
WALK = (0, 1, 29, 120)
"""Rounds played between the states that are looked at."""
SURROUNDINGS = (0.0, 0.25, 0.999)
"""What lies around declared coins and noise."""
_MARGIN = 8


def check_choose_keeps_the_state(make: Make) -> None:
    """``choose`` must not change the state: a service may ask it again, or not at all."""
    for policy in _walked(make):
        before = _bytes(flatten(policy.state))
        for contexts in _arm_sets():
            _chosen(policy, policy.state, contexts)
            changed = _differing(before, _bytes(flatten(policy.state)))
            assert not changed, f"choose changed the state: {changed}"


def check_only_declared_randomness_is_read(make: Make) -> None:
    """``choose`` reads ``coin_count`` coins, ``close`` reads ``noise_size`` numbers of noise, and none beside them."""
    for policy in _walked(make):
        for contexts in _arm_sets():
            chosen = [_chosen(policy, policy.state, contexts, around=around) for around in SURROUNDINGS]
            assert len(set(chosen)) == 1, f"choose read coins beyond its {policy.coin_count}"
        ticked = []
        for around in SURROUNDINGS:
            state = _copied(policy.state)
            flag = _ticked(policy, state, around)
            ticked.append({"flag": bytes([flag & 0xFF])} | _bytes(flatten(state)))
        changed = {field for other in ticked[1:] for field in _differing(ticked[0], other)}
        assert not changed, f"a tick read noise beyond its {policy.noise_size} numbers, seen in {sorted(changed)}"


def check_choose_reads_no_secrets(make: Make, own: slice = slice(0, 0)) -> None:
    """``choose`` must not read secret fields: an arm tells of other users what was released, and nothing more.

    ``own`` are those numbers of the memo that may hold a secret of the deciding user's own, such as the noise of that
    user's device.
    """
    for policy in _walked(make):
        secret = set(flatten(policy.state)) - set(public_part(policy.state))
        assert secret, "a private policy that learns has secret fields, annotated ``Secret[...]`` in its state"
        for contexts in _arm_sets():
            outcomes = []
            for number, count in ((None, None), (np.nan, 0), (1e6, 1), (-1e6, 1)):
                state = _copied(policy.state)
                for path, array in flatten(state).items():
                    if path in secret and number is not None:
                        array[...] = number if array.dtype.kind == "f" else count
                arm, memo = _chosen(policy, state, contexts)
                outcomes.append((arm, np.delete(np.frombuffer(memo), own).tobytes()))
            assert len(set(outcomes)) == 1, f"choose read one of {sorted(secret)}"


def check_memos_are_as_large_as_declared(make: Make) -> None:
    """``choose`` writes all ``memo_size`` numbers of a memo, ``learn`` reads them, and neither goes beyond."""
    for policy in _walked(make):
        for contexts in _arm_sets():
            memos = []
            for fill in (0.125, -77.5):
                memo = _padded((1, policy.memo_size), fill, fill)
                _chosen(policy, policy.state, contexts, memo=memo)
                around = np.delete(memo.buffer, slice(_MARGIN, _MARGIN + policy.memo_size))
                assert np.all(around == fill), f"choose wrote beyond the memo's {policy.memo_size} numbers"
                memos.append(memo.view.tobytes())
            assert memos[0] == memos[1], f"choose left some of the memo's {policy.memo_size} numbers as they were"
            learned = [_learned(policy, np.frombuffer(memos[0]), around) for around in SURROUNDINGS]
            changed = {field for other in learned[1:] for field in _differing(learned[0], other)}
            assert not changed, f"learn read beyond the memo's {policy.memo_size} numbers, seen in {sorted(changed)}"


def check_rewards_change_nothing_public(make: Make) -> None:
    """A reward becomes public through a release only: ``learn`` must not change public fields.

    Not for the local model, where the report that a reward brings about is a release.
    """
    contexts, rewards = rounds(60, seed=21)
    policy = make()
    for arms, outcome in zip(contexts, rewards, strict=True):
        decision = policy.select(arms)
        before = _public(policy)
        policy.update(decision, float(outcome[decision.arm]))
        changed = _differing(before, _public(policy))
        assert not changed, f"a reward changed what is public without a release: {changed}"


class Neighbour(NamedTuple):
    """What becomes of the replaced user's reward: what it is, and after how many decisions it comes (None: never)."""

    reward: float
    delay: int | None


PRESENT = (Neighbour(1.0, 0), Neighbour(0.0, 0))
NEIGHBOURS = ((*PRESENT,), (Neighbour(1.0, 0), Neighbour(1.0, 7)), (Neighbour(0.0, None), Neighbour(1.0, 0)))
"""Pairs of worlds: another reward, a late one, one that never comes; arms differ in all of them."""


def check_clocks_tell_nothing(
    make: Make, driven: frozenset[str] = frozenset(), neighbours: tuple[tuple[Neighbour, ...], ...] = NEIGHBOURS
) -> None:
    """Number and time of releases are the same in neighbouring worlds, whatever rewards are, late or missing.

    The same noise, one row replaced: all public integers, which is where clocks and counters are, and the ledger agree
    after every call.  ``driven`` names those that follow the *values* of releases, which differ here;
    `check_the_same_releases_look_the_same` is about them.  A stream's whole numbers are such values themselves.
    """
    driven |= {"stream.mechanism.observed"}

    def clocks(policy: Policy) -> dict[str, bytes]:
        public = _public(policy)
        kinds = {path: array.dtype.kind for path, array in public_part(policy.state).items()}
        return {field: public[field] for field in public if kinds.get(field, "i") in "iu" and field not in driven}

    for pair in neighbours:
        worlds = make(), make()
        for when, _ in _lives(worlds, pair):
            changed = _differing(clocks(worlds[0]), clocks(worlds[1]))
            assert not changed, f"{when}: {changed} depend on one user's row ({pair[0]} against {pair[1]})"


def check_the_same_releases_look_the_same(
    make: Make, neighbours: tuple[tuple[Neighbour, ...], ...] = NEIGHBOURS
) -> None:
    """With its neighbour's releases a world is the same in all that others see, byte for byte, after every call."""
    for pair in neighbours:
        worlds, tape = (make(), make()), deque[Any]()
        worlds[0].publisher, worlds[1].publisher = _Recorder(tape), _Player(tape)
        for when, arms in _lives(worlds, pair):
            assert len(set(arms)) <= 1, f"{when}: the arm of another user depends on one user's row beside releases"
            assert not tape, f"{when}: released in one world only"
            changed = _differing(_public(worlds[0]), _public(worlds[1]))
            assert not changed, f"{when}: {changed} depend on one user's row beside releases ({pair[0]}, {pair[1]})"


# Neighbouring worlds


def _lives(
    worlds: tuple[Policy, ...], pair: tuple[Neighbour, ...], users: int = 140, replaced: int = 23
) -> Iterator[tuple[str, list[int]]]:
    """Play both worlds, call by call; yields when they are to be compared, and the arms that others have just got."""
    contexts, rewards = rounds(users, seed=31)
    other = contexts.copy()
    other[replaced] = 0.3 * contexts[replaced - 1][::-1]
    # Everybody's rewards may be late or missing where the replaced user's may.
    always = all(neighbour.delay == 0 for neighbour in pair)
    late = np.random.default_rng(32).choice([0, 0, 0, 0, 1, 5, users], users)
    due: tuple[dict[int, list[tuple[int, float]]], ...] = ({}, {})
    for t in range(users):
        arms = []
        for world, policy in enumerate(worlds):
            decision = policy.select((contexts, other)[world][t])
            reward, delay = float(rewards[t, decision.arm]), 0 if always else int(late[t])
            if t == replaced:
                reward, delay = pair[world].reward, users if pair[world].delay is None else pair[world].delay or 0
            due[world].setdefault(t + delay, []).append((decision.id, reward))
            arms.append(decision.arm)
        yield f"after decision {t}", [] if t == replaced else arms
        for world, policy in enumerate(worlds):
            for identity, reward in due[world].pop(t, ()):
                policy.update(identity, reward)
        yield f"after the rewards that follow decision {t}", []


class _Recorder(Publisher):
    """Writes releases down."""

    def __init__(self, tape: deque[Any]) -> None:
        self._tape = tape

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        due = leaf_is_due(stream)
        fresh = close_leaf(stream, noise, users)
        if due:
            self._tape.append(published(stream))
        return fresh

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        released = super().vector(kind, exact, noise, sd)
        self._tape.append(released.copy())
        return released

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        released = release()
        self._tape.append(released)
        return released


class _Player(Publisher):
    """Releases what was written down, whatever the exact sums are."""

    def __init__(self, tape: deque[Any]) -> None:
        self._tape = tape

    def _next(self) -> Any:
        assert self._tape, "released in one world only"
        return self._tape.popleft()

    def leaf(self, stream: Stream, noise: FloatArray, users: int) -> bool:
        if not leaf_is_due(stream):
            return close_leaf(stream, noise, users)
        released = self._next()
        if is_used_up(stream):
            return close_leaf(stream, noise, users)
        replay_leaf(stream, released, users)  # all public fields but the release must agree by themselves
        return True

    def vector(self, kind: str, exact: FloatArray, noise: FloatArray, sd: float) -> FloatArray:
        return np.array(self._next())

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        released: Aggregate = self._next()
        return released


# Compiled steps on arrays with known surroundings


class _Padded(NamedTuple):
    """An array in the middle of a larger buffer."""

    view: FloatArray
    buffer: FloatArray


def _padded(shape: tuple[int, ...], inside: float | FloatArray, around: float) -> _Padded:
    """Also an empty array lies in the middle of its buffer, where a stray index finds what is around."""
    size = int(np.prod(shape))
    buffer = np.full(size + 2 * _MARGIN, around)
    view: FloatArray = np.ndarray(shape, dtype=np.float64, buffer=buffer.data, offset=_MARGIN * buffer.itemsize)
    view[...] = inside
    return _Padded(view, buffer)


def _chosen(
    policy: Policy, state: Any, contexts: FloatArray, around: float = 0.5, memo: _Padded | None = None
) -> tuple[int, bytes]:
    """Arm and memo of one compiled choice, without a tick."""
    memo = memo or _padded((1, policy.memo_size), 0.0, 0.0)
    _, arm = _decided(policy, state, True, contexts, around, memo.view)
    return arm, memo.view.tobytes()


def _ticked(policy: Policy, state: Any, around: float) -> int:
    """The flag of one compiled tick."""
    memo = _padded((1, policy.memo_size), 0.0, 0.0)
    return _decided(policy, state, False, _arm_sets()[0], around, memo.view)[0]


def _learned(policy: Policy, memo: FloatArray, around: float) -> dict[str, bytes]:
    """All of a copied state after one compiled reward."""
    state = _copied(policy.state)
    policy._steps().learn(state, _padded(memo.shape, memo, around).view, 1.0)
    return _bytes(flatten(state))


def _decided(
    policy: Policy, state: Any, ticked: bool, contexts: FloatArray, around: float, memo: FloatArray
) -> tuple[int, int]:
    rng = np.random.default_rng(41)
    coins = _padded((1, policy.coin_count), rng.random((1, policy.coin_count)), around).view
    # Whole numbers, as some streams take them, and not small ones.
    noise = _padded((1, policy.noise_size), np.rint(100.0 * rng.standard_normal(policy.noise_size)), around).view
    arms = np.zeros(1, dtype=np.int64)
    nothing = np.zeros((0, 0))
    _, flag = policy._steps().run(
        state, TICKED if ticked else 1, contexts[np.newaxis], nothing, noise, coins, memo, arms
    )
    return int(flag), int(arms[0])


def _walked(make: Make) -> Iterator[Policy]:
    """One policy at several points of a run, the first before anything happened."""
    policy = make()
    contexts, rewards = rounds(sum(WALK), seed=51)
    start = 0
    for count in WALK:
        walk(policy, contexts[start : start + count], rewards[start : start + count])
        start += count
        yield policy


def _arm_sets() -> list[FloatArray]:
    """Arms of several users, of different number."""
    contexts, _ = rounds(6, seed=61)
    return [*contexts[:4], contexts[4, :1], np.concatenate([contexts[5], np.zeros((1, DIM))])]


def _copied(state: Any) -> Any:
    return rebuild(state, {path: array.copy() for path, array in flatten(state).items()})


def _public(policy: Policy) -> dict[str, bytes]:
    """Everything that others may see."""
    assert isinstance(policy, PrivatePolicy)
    entries = "\n".join(map(str, policy.ledger.entries)).encode()
    return _bytes(public_part(policy.state)) | {"ledger": entries, "decisions": b"%d" % policy.decisions}


def _bytes(arrays: dict[str, Array]) -> dict[str, bytes]:
    return {path: str(array.shape).encode() + array.tobytes() for path, array in arrays.items()}


def _differing(first: dict[str, bytes], second: dict[str, bytes]) -> list[str]:
    return sorted(field for field in first.keys() | second.keys() if first.get(field) != second.get(field))
