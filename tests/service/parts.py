"""What tests of the service share: small policies without a seed, a clock to set, a store that fails on demand."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import ExpiredDecision, InvalidInput
from tacit.features import Category, Number, Schema
from tacit.policies.decision import Decision
from tacit.policies.log import LogEntry
from tacit.policies.policy import Policy
from tacit.policies.registry import POLICIES, make_policy, policy_class
from tacit.policies.state import flatten
from tacit.service.durable import DurablePolicy
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import NOTHING, Behind, Group, Journal, Row, Store, Swap, Tail
from tests.contracts.policies import DIM, HORIZON, rounds
from tests.steady import entropy_of

PRIVATE = [name for name in POLICIES if policy_class(name).private]
SHUFFLED = [name for name in PRIVATE if policy_class(name).guarantee == "shuffle"]
STREAMED = ["stream-glm", "joint-glm", "joint-linucb"]
SCHEMA = Schema(
    user=[Number("age", 0, 120), Category("device", ["ios", "web"])],
    arm=[Category("topic", ["news", "sport", "arts"]), Number("minutes", 0, 60)],
    crosses=[("device", "topic")],
)
USER = {"age": 41, "device": "ios"}
RECORDS = [{"topic": "news", "minutes": 4}, {"topic": "arts", "minutes": 9}]


def arguments(name: str, **changes: Any) -> dict[str, Any]:
    """What a small policy is made with; its noise comes from the operating system."""
    given: dict[str, Any] = {"dim": DIM, "horizon": HORIZON, "link": "logistic", "theta_bound": 2.0}
    if policy_class(name).private:
        given |= {"epsilon": 4.0, "delta": 0.01}
    return given | changes


def body(name: str, **changes: Any) -> dict[str, Any]:
    """The same as a deployment takes it."""
    return {"policy": name} | arguments(name, **changes)


def quick_store(folder: Path) -> SQLiteStore:
    """A store that does not wait for the disk: for tests in which no machine loses its power."""
    return SQLiteStore(folder, synchronous="OFF")


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@contextmanager
def same_chance() -> Iterator[None]:
    """Services that do the same, each in a context of its own, draw the same noise, numbers of decisions and keys."""
    with entropy_of("the same"), pytest.MonkeyPatch.context() as fixed:
        fixed.setattr(secrets, "randbelow", lambda below: 0)
        fixed.setattr(secrets, "token_bytes", bytes)
        yield


class FaultyStore(Store):
    """A store that calls ``before`` and ``after`` around every method, by name; either may raise.

    With ``shared`` turns give what was appended by others, as on PostgreSQL: a test has several processes in one.
    """

    def __init__(self, inner: Store, *, shared: bool = False) -> None:
        self.inner, self.shared = inner, shared
        self.before: Callable[[str], None] = lambda method: None
        self.after: Callable[[str], None] = lambda method: None

    def fail(self, *methods: str, error: BaseException, after: bool = False, calls: int = 0) -> None:
        """Raise at these methods, from the call after so many others on; ``after`` it was carried out, or instead."""
        left = [calls]

        def strike(called: str) -> None:
            if called in methods:
                left[0] -= 1
                if left[0] < 0:
                    raise error

        if after:
            self.after = strike
        else:
            self.before = strike

    def _call(self, method: str, *given: Any, **named: Any) -> Any:
        self.before(method)
        found = getattr(self.inner, method)(*given, **named)
        self.after(method)
        return found

    def journals(self) -> list[Journal]:
        return list(self._call("journals"))

    def create(self, name: str, config: bytes, snapshot: bytes, note: bytes = b"", rows: Group | None = None) -> None:
        self._call("create", name, config, snapshot, note, rows)

    def read(self, name: str, after: int = NOTHING) -> Tail:
        found: Tail = self._call("read", name, after)
        return found

    @contextmanager
    def turn(self, name: str, after: int) -> Iterator[Tail | None]:
        self.before("turn")
        tail = self.inner.read(name, after) if self.shared else None
        if tail is not None and tail.snapshot is not None:
            raise Behind
        with self.inner.turn(name, after) as others:
            self.after("turn")
            yield tail or others

    def append(self, name: str, seq: int, group: Group) -> int:
        return int(self._call("append", name, seq, group))

    def find(self, name: str, table: str, keys: Iterable[bytes]) -> dict[bytes, Row]:
        return dict(self._call("find", name, table, keys))

    def scan(self, name: str, table: str, after: int, limit: int) -> list[Row]:
        return list(self._call("scan", name, table, after, limit))

    def swap(self, name: str, table: str, swaps: Sequence[Swap], beside: str = "") -> set[bytes]:
        return set(self._call("swap", name, table, swaps, beside))

    def erasable(self, name: str) -> bool:
        return self.inner.erasable(name)

    def compact(self, name: str, seq: int, snapshot: bytes, group: Group | None = None) -> bool:
        return bool(self._call("compact", name, seq, snapshot, group))

    def adopt(self) -> None:
        self._call("adopt")

    def settings(self, prefix: str) -> Mapping[str, bytes]:
        return dict(self._call("settings", prefix))

    def change_settings(self, put: Mapping[str, bytes], delete: Sequence[str] = (), *, replace: bool = True) -> None:
        self._call("change_settings", put, delete, replace=replace)

    def close(self) -> None:
        self.inner.close()


def logged(name: str, count: int = 60, **changes: Any) -> tuple[Policy, list[LogEntry]]:
    """A policy and everything that it logged: decisions one by one and in groups, rewards, some given up."""
    policy, log = make_policy(name, **arguments(name, **changes)), list[LogEntry]()
    policy.keep_log(log.append)
    walk(policy, count)
    return policy, log


def walk(policy: Policy | DurablePolicy, count: int, seed: int = 3) -> list[Decision]:
    """Decisions one by one and in groups; rewards at once, late, never, or given up."""
    contexts, rewards = rounds(count, seed)
    rng, waiting, made = np.random.default_rng(seed), list[tuple[Decision, float]](), list[Decision]()
    for t in range(count):
        if t % 7 == 6:
            made += [found for found in policy.select_batch(contexts[t - 2 : t]) if not isinstance(found, InvalidInput)]
        decision = policy.select(contexts[t])
        made.append(decision)
        waiting.append((decision, float(rewards[t, decision.arm])))
        while waiting and rng.random() < 0.55:
            chosen, reward = waiting.pop(int(rng.integers(max(0, len(waiting) - 3), len(waiting))))
            with suppress(ExpiredDecision):  # by reward_age
                if rng.random() < 0.1:
                    policy.abandon(chosen)
                else:
                    policy.update(chosen, reward)
    return made


def same_state(first: Policy, second: Policy, *, rounding: bool = False) -> None:
    """Both are in the same state: public parts to the bit, and all else too, but for noise that is worked out anew.

    The field ``noise`` of local policies is filled before each choice, and nothing is kept in it.
    """
    left_out = {"noise"} if first.guarantee == "local" else set[str]()
    assert first.decisions == second.decisions
    if first.private:
        assert first.public_fingerprint() == second.public_fingerprint()
    if not rounding:
        ours, theirs = flatten(first.state), flatten(second.state)
        assert [path for path in ours if not np.array_equal(ours[path], theirs[path])] in ([], sorted(left_out))
    for path in set(flatten(first.state)) - left_out:
        array = flatten(first.state)[path]
        np.testing.assert_allclose(flatten(second.state)[path], array, rtol=1e-9, atol=1e-9, err_msg=path)
    mine, others = first._pending.to_arrays(), second._pending.to_arrays()
    assert [path for path in mine if not np.array_equal(mine[path], others[path])] == []
