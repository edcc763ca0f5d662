"""What the steps of every policy must keep to, as checks on a policy that can be made anew.

A check raises `Broken`, which says what was broken, and returns how many states or decisions it has looked at.  States
are looked at before the first release, between releases, and right before and after each of the first few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.audit.rehearsal import LONGEST, release_times
from tacit.audit.session import Diverged, Session
from tacit.audit.worlds import allowed, copied
from tacit.errors import ExpiredDecision
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import flatten, public_part
from tacit.privacy.continual import Stream, close_leaf
from tacit.typing import FloatArray, IntArray

ARMS: Final = 6
STATES: Final = (0, 1, 30, 150)
"""Rounds after which states are looked at, before or after releases."""
_SHORTEST_LIFE: Final = 140
_EARLY: Final = 23
"""The user who is replaced, or the number of decisions after a release at which one is."""


class Broken(Exception):  # noqa: N818 - reads as a statement at the call site
    """A policy's steps do not keep to the contract."""


def _require(kept: bool, otherwise: str) -> None:
    if not kept:
        raise Broken(otherwise)


@dataclass(frozen=True)
class Subject:
    """A policy under contract."""

    make: Callable[[], Policy]
    """The policy before its first decision, the same one each time: seeded."""
    releases: tuple[int, ...] = ()
    """Decisions before each of its first releases (`tacit.audit.rehearsal`)."""

    @classmethod
    def rehearsed(cls, make: Callable[[], Policy], longest: int = LONGEST) -> Subject:
        """A policy whose releases are found by playing it; one that is not private has none."""
        policy = make()
        return cls(make, release_times(policy, longest) if isinstance(policy, PrivatePolicy) else ())

    def states(self) -> list[int]:
        """Rounds after which states are looked at: at, after and between releases."""
        after = {rounds for release in self.releases for rounds in (release, release + 1)}
        between = {(first + second) // 2 for first, second in pairwise(self.releases)}
        return sorted({*STATES, *after, *between})

    def users(self) -> int:
        """Number of decisions to play, such that arms are chosen after each of these releases."""
        return max(_SHORTEST_LIFE, self.releases[-1] + 2 * _EARLY if self.releases else 0)

    def replaced(self) -> list[int]:
        """Users who are replaced: an early one and, where the first release is a late one, one who comes after it."""
        late = bool(self.releases) and self.releases[0] > _EARLY
        return [_EARLY, self.releases[0] + _EARLY] if late else [_EARLY]


# Single steps


def choose_keeps_the_state(subject: Subject) -> int:
    """``choose`` must not change the state: a service may ask it again, or not at all."""
    for policy in _walked(subject):
        before = _bytes(flatten(policy.state))
        for contexts in _arm_sets(policy):
            _chosen(policy, policy.state, contexts)
            changed = _differing(before, _bytes(flatten(policy.state)))
            _require(not changed, f"choose changed the state: {changed}")
    return len(subject.states())


def only_declared_randomness_is_read(subject: Subject) -> int:
    """Steps draw nothing themselves: the same state, arms, coins and noise give the same arm, memo and state."""
    for policy in _walked(subject):
        for contexts in _arm_sets(policy):
            chosen = {_chosen(policy, policy.state, contexts) for _ in range(2)}
            _require(len(chosen) == 1, f"choose drew something beside its {policy._coin_count} coins")
        ticked = [_ticked(policy, copied(policy.state)) for _ in range(2)]
        changed = _differing(*ticked)
        _require(not changed, f"a tick drew something beside its {policy._noise_size} numbers of noise: {changed}")
    return len(subject.states())


def users_do_not_depend_on_each_other(subject: Subject) -> int:
    """``choose`` gives each of N users the arm that it gives the user alone; rewards of N add to a stream as N rewards.

    What a user contributes must not depend on who else is learned from in the same call: sensitivities are of one row.
    """
    for policy in _walked(subject):
        users = 1 if policy._noise_for_each else 5  # a state has the noise of those devices that its tick was for
        contexts = policy.arm_form.rounds(_rounds(policy, users, seed=62)[0])
        coins = np.random.default_rng(42).random((users, policy._coin_count))
        together = _choices(policy, policy.state, contexts, coins)
        for user in range(users):
            own = slice(user, user + 1)
            arms, memos = _choices(policy, policy.state, contexts[own], coins[own])
            # The order of a sum may depend on how many are summed at a time.
            same = arms[0] == together[0][user] and np.allclose(memos[0], together[1][user], rtol=1e-9, atol=1e-12)
            _require(bool(same), "choose gave a user another arm or memo in a group than alone")
        _learning_adds_up(policy, together[1])
    return len(subject.states())


def _learning_adds_up(policy: Policy, memos: FloatArray) -> None:
    """Where there is a stream: its open leaf is the same after N rewards at once and one after the other."""
    at_once, in_turn = copied(policy.state), copied(policy.state)
    if not isinstance(getattr(at_once, "stream", None), Stream):
        return
    rewards = np.asarray(policy.setting.reward_bound * (np.arange(len(memos)) % 2), dtype=np.float64)
    policy._steps.learn(at_once, memos, rewards)
    for user in range(len(memos)):
        policy._steps.learn(in_turn, memos[user : user + 1], rewards[user : user + 1])
    # A number that lies between two steps of the grid may be rounded to either by the order of its factors.
    rounding = 1e-9 + 2.0 * at_once.stream.constants.grid
    same = np.allclose(at_once.stream.leaf, in_turn.stream.leaf, rtol=0.0, atol=rounding)
    _require(same, "what a user contributes depends on who else is learned from in the same call")


def choose_reads_no_secrets(subject: Subject) -> int:
    """``choose`` must not read secret fields: an arm tells of other users what was released, and nothing more.

    Numbers of the memo that hold a secret of the deciding user's own are left out (``_secret_memo``).
    """
    for policy in _walked(subject):
        own = policy._secret_memo if isinstance(policy, PrivatePolicy) else slice(0, 0)
        secret = set(flatten(policy.state)) - set(public_part(policy.state))
        _require(bool(secret), "a private policy that learns has secret fields, annotated ``Secret[...]`` in its state")
        for contexts in _arm_sets(policy):
            outcomes = []
            for number, count in ((None, None), (np.nan, 0), (1e6, 1), (-1e6, 1)):
                state = copied(policy.state)
                for path, array in flatten(state).items():
                    if path in secret and number is not None:
                        array[...] = number if array.dtype.kind == "f" else count
                arm, memo = _chosen(policy, state, contexts)
                outcomes.append((arm, np.delete(np.frombuffer(memo), own).tobytes()))
            same = len(set(outcomes)) == 1
            _require(same, f"after {policy.decisions} decisions choose read one of {sorted(secret)}")
    return len(subject.states())


def memos_are_as_large_as_declared(subject: Subject) -> int:
    """``choose`` writes all ``memo_size`` numbers of a memo."""
    for policy in _walked(subject):
        for contexts in _arm_sets(policy):
            memos = [_chosen(policy, policy.state, contexts, fill)[1] for fill in (0.125, -77.5)]
            _require(memos[0] == memos[1], f"choose left some of the memo's {policy._memo_size} numbers as they were")
    return len(subject.states())


def rewards_change_nothing_public(subject: Subject) -> int:
    """A reward becomes public through a release only: ``learn`` must not change public fields.

    Not for the local model, where the report that a reward brings about is a release.
    """
    policy = subject.make()
    contexts, rewards = _rounds(policy, subject.users(), seed=21)
    for arms, outcome in zip(contexts, rewards, strict=True):
        decision = policy.select(arms)
        before = _public(policy)
        policy.update(decision, float(outcome[decision.arm]))
        changed = _differing(before, _public(policy))
        _require(not changed, f"a reward changed what is public without a release: {changed}")
    return subject.users()


# Neighbouring worlds


class Neighbour(NamedTuple):
    """The replaced user's reward, and after how many decisions it comes (None: never)."""

    reward: float
    delay: int | None


PRESENT: Final = (Neighbour(1.0, 0), Neighbour(0.0, 0))
NEIGHBOURS: Final = (PRESENT, (Neighbour(1.0, 0), Neighbour(1.0, 7)), (Neighbour(0.0, None), Neighbour(1.0, 0)))
"""Pairs of worlds: another reward, a late one, one that never comes; arms differ in all of them."""
_VALUES: Final = frozenset({"stream.mechanism.observed"})
"""Whole numbers of a stream that are releases themselves, and may differ."""

_Both = Callable[[Callable[[int, Policy], Any]], list[Any]]
"""Calls a function in both worlds, and returns both results."""


def clocks_tell_nothing(subject: Subject) -> int:
    """Number and time of releases are the same in neighbouring worlds, for other, late and missing rewards alike.

    With equal noise and one row replaced, the ledger and all public integers, which is where clocks and counters are,
    agree after every call.  Integers that follow the *values* of releases, which differ here, are left out
    (``_follows_releases``); `the_same_releases_look_the_same` is about them.
    """
    for replaced, pair in _pairs(subject):
        worlds = subject.make(), subject.make()
        for when, _ in _lives(subject, worlds, pair, replaced):
            changed = _differing(_clocks(worlds[0]), _clocks(worlds[1]))
            _require(not changed, f"{when}: {changed} depend on one user's row ({pair[0]} against {pair[1]})")
    return len(_pairs(subject))


def the_same_releases_look_the_same(subject: Subject) -> int:
    """With its neighbour's releases a world is the same in all that others see, byte for byte, after every call."""
    for replaced, pair in _pairs(subject):
        session = Session([_private(subject.make()) for _ in range(2)])
        when, worlds = "at the beginning", tuple(session.policies)
        try:
            for when, arms in _lives(subject, worlds, pair, replaced, session.both):
                own = len(set(arms)) > 1
                _require(not own, f"{when}: the arm of another user depends on one user's row beside releases")
                changed = _differing(_public(worlds[0]), _public(worlds[1]))
                text = f"{when}: {changed} depend on one user's row beside releases ({pair[0]}, {pair[1]})"
                _require(not changed, text)
        except Diverged as found:
            raise Broken(f"after what was compared {when}: {found}") from found
    return len(_pairs(subject))


def _pairs(subject: Subject) -> list[tuple[int, tuple[Neighbour, ...]]]:
    """Replaced users and pairs of neighbours; in the local model rewards come at once, since their time is public."""
    neighbours = NEIGHBOURS[:1] if subject.make().guarantee == "local" else NEIGHBOURS
    return [(replaced, pair) for replaced in subject.replaced() for pair in neighbours]


def _lives(
    subject: Subject,
    worlds: tuple[Policy, ...],
    pair: tuple[Neighbour, ...],
    replaced: int,
    both: _Both | None = None,
) -> Iterator[tuple[str, list[int]]]:
    """Play both worlds, call by call; yields when they are to be compared, and the arms that others have just got."""
    users, bound = subject.users(), worlds[0].setting.reward_bound
    contexts, rewards = _rounds(worlds[0], users, seed=31)
    other = contexts.copy()
    other[replaced] = 0.3 * contexts[replaced - 1][::-1]
    # All rewards may be late or missing where the replaced user's may.
    always = all(neighbour.delay == 0 for neighbour in pair)
    late = np.random.default_rng(32).choice([0, 0, 0, 0, 1, 5, users], users)
    due: tuple[dict[int, list[tuple[int, float]]], ...] = ({}, {})

    def select(world: int, policy: Policy) -> int:
        decision = policy.select((contexts, other)[world][t])
        reward, delay = float(rewards[t, decision.arm]), 0 if always else int(late[t])
        if t == replaced:
            reward, delay = bound * pair[world].reward, users if pair[world].delay is None else pair[world].delay or 0
        due[world].setdefault(t + delay, []).append((decision.id, reward))
        return decision.arm

    def update(world: int, policy: Policy) -> None:
        for identity, reward in due[world].pop(t, ()):
            with suppress(ExpiredDecision):  # too late: a reward that never comes
                policy.update(identity, reward)

    play = both or (lambda action: [action(world, policy) for world, policy in enumerate(worlds)])
    for t in range(users):
        arms = play(select)
        yield f"after decision {t}", [] if t == replaced else arms
        play(update)
        yield f"after the rewards that follow decision {t}", []


# Single steps


def _choices(
    policy: Policy, state: Any, contexts: FloatArray, coins: FloatArray, fill: float = 0.0
) -> tuple[IntArray, FloatArray]:
    """Arms and memos of N users, without a tick."""
    memos = np.full((len(contexts), policy._memo_size), fill)
    return policy._steps.choose(state, contexts, coins.copy(), memos), memos


def _chosen(policy: Policy, state: Any, contexts: FloatArray, fill: float = 0.0) -> tuple[int, bytes]:
    """Arm and memo of one user, with the same coins each time."""
    coins = np.random.default_rng(41).random((1, policy._coin_count))
    arms, memos = _choices(policy, state, contexts, coins, fill)
    return int(arms[0]), memos.tobytes()


def _ticked(policy: Policy, state: Any) -> dict[str, bytes]:
    """All of ``state`` after one tick with the same noise each time, and the event that it asks for."""
    # Whole numbers, as some streams take them, and not small ones.
    noise = np.rint(100.0 * np.random.default_rng(41).standard_normal(policy._noise_size))
    stream = getattr(state, "stream", None)
    fresh = close_leaf(stream, noise, 1) if isinstance(stream, Stream) else True
    event = policy._steps.advance(state, fresh, 1)
    return {"event": b"%d" % event} | _bytes(flatten(state))


# Rounds, and what is compared


def _walked(subject: Subject) -> Iterator[Policy]:
    """One policy at several points of a run, the first before anything happened."""
    policy, stops = subject.make(), subject.states()
    contexts, rewards = _rounds(policy, stops[-1], seed=51)
    for start, stop in pairwise([0, *stops]):
        for t in range(start, stop):
            decision = policy.select(contexts[t])
            policy.update(decision, float(rewards[t, decision.arm]))
        yield policy


def _rounds(policy: Policy, count: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Contexts that the policy takes, and every arm's reward."""
    rng, dim = np.random.default_rng(seed), policy.setting.dim
    contexts = rng.standard_normal((count, ARMS, dim))
    contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
    if isinstance(policy, PrivatePolicy):
        contexts = allowed(policy, contexts)
    clicks = rng.random((count, 1)) < 1.0 / (1.0 + np.exp(-contexts @ np.linspace(1.5, -1.0, dim)))
    return contexts, policy.setting.reward_bound * clicks.astype(np.float64)


def _arm_sets(policy: Policy) -> list[FloatArray]:
    """Arms of several users, of different number, as steps take them."""
    contexts, _ = _rounds(policy, 6, seed=61)
    nothing = np.zeros((1, policy.setting.dim))
    sets = [*contexts[:4], contexts[4, :1], np.concatenate([contexts[5], nothing])]
    return [policy.arm_form.rounds(arms[np.newaxis]) for arms in sets]


def _private(policy: Policy) -> PrivatePolicy:
    if not isinstance(policy, PrivatePolicy):
        raise Broken(f"{policy.name} learns from raw data: it has nothing that is public")
    return policy


def _public(policy: Policy) -> dict[str, bytes]:
    """Everything that others may see."""
    entries = "\n".join(map(str, _private(policy).ledger.entries)).encode()
    return _bytes(public_part(policy.state)) | {"ledger": entries, "decisions": b"%d" % policy.decisions}


def _clocks(policy: Policy) -> dict[str, bytes]:
    """Public whole numbers that do not follow the values of releases, and the ledger."""
    public, driven = _public(policy), _private(policy)._follows_releases | _VALUES
    kinds = {path: array.dtype.kind for path, array in public_part(policy.state).items()}
    return {field: public[field] for field in public if kinds.get(field, "i") in "iu" and field not in driven}


def _bytes(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, bytes]:
    return {path: str(array.shape).encode() + array.tobytes() for path, array in arrays.items()}


def _differing(first: dict[str, bytes], second: dict[str, bytes]) -> list[str]:
    return sorted(field for field in first.keys() | second.keys() if first.get(field) != second.get(field))


Contract = Callable[[Subject], int]
CONTRACTS: Final[Mapping[str, Contract]] = MappingProxyType(
    {
        "choose keeps the state": choose_keeps_the_state,
        "declared randomness": only_declared_randomness_is_read,
        "users apart": users_do_not_depend_on_each_other,
        "choose reads no secrets": choose_reads_no_secrets,
        "memos as declared": memos_are_as_large_as_declared,
        "rewards change nothing public": rewards_change_nothing_public,
        "clocks tell nothing": clocks_tell_nothing,
        "the same releases look the same": the_same_releases_look_the_same,
    }
)
FOR_ALL: Final = ("choose keeps the state", "declared randomness", "users apart", "memos as declared")
"""The contracts that policies without privacy must keep too."""


def contracts_for(policy: Policy) -> dict[str, Contract]:
    """Return the contracts that a policy must keep: in the local model a reward is released as it comes."""
    if policy.guarantee == "none":
        return {title: CONTRACTS[title] for title in FOR_ALL}
    left_out = {"rewards change nothing public"} if policy.guarantee == "local" else set()
    return {title: contract for title, contract in CONTRACTS.items() if title not in left_out}
