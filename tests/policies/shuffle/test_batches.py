"""The life of a batch, which `shuffle-glm` and `shuffle-linucb` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput, RecoveryWarning
from tacit.policies.batch_policy import BatchPolicy
from tacit.policies.batches import (
    BATCH_SLOT,
    CLOSE,
    NONE_OPEN,
    OPEN,
    keep_rows,
    make_batch_rows,
    make_clock,
    tick_batch,
)
from tacit.policies.log import LogEntry, Publisher, Released
from tacit.policies.registry import make_policy
from tacit.privacy.noise import FastNoise, SecureNoise
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray, IntArray
from tests.policies.shuffle.test_policy import DIM, rounds

NAMES = ["shuffle-glm", "shuffle-linucb"]
both = pytest.mark.parametrize("name", NAMES)


def make(name: str, **changes: Any) -> BatchPolicy:
    arguments: dict[str, Any] = {
        "dim": DIM, "horizon": 600, "epsilon": 4.0, "delta": 0.01, "theta_bound": 2.0, "seed": 3,
    }  # fmt: skip
    if name == "shuffle-linucb":
        arguments["batch_size"] = 50
    policy = make_policy(name, **(arguments | changes))
    assert isinstance(policy, BatchPolicy)
    return policy


def walk(policy: BatchPolicy, count: int, seed: int = 5) -> None:
    """Rewards come a while after their decisions, some in another batch, some never."""
    contexts, rewards = rounds(count, seed)
    waiting = []
    for t in range(count):
        decision = policy.select(contexts[t])
        if t % 7 != 0:
            waiting.append((decision, float(rewards[t, 0])))
        while len(waiting) > t % 23:
            policy.update(*waiting.pop(0 if t % 3 else -1))


class Watching(Publisher):
    """Notes whom each shuffled sum is about, and the cohorts that had been charged by then."""

    def __init__(self, policy: BatchPolicy) -> None:
        self.policy = policy
        self.rows: list[FloatArray] = []
        self.charged: list[set[str | None]] = []

    def shuffled(self, protocol: SumProtocol, rows: FloatArray, release: Callable[[], Aggregate]) -> Aggregate:
        self.rows.append(rows.copy())
        self.charged.append({entry.cohort for entry in self.policy.ledger.entries})
        return release()


CASES = [
    ("shuffle-glm", {}),
    ("shuffle-glm", {"path": "bits"}),
    ("shuffle-glm", {"epsilon": float("inf")}),
    ("shuffle-glm", {"horizon": None, "rounds_per_user": 2}),
    ("shuffle-linucb", {}),
    ("shuffle-linucb", {"horizon": None}),
    ("shuffle-linucb", {"epsilon": float("inf")}),
]


@pytest.mark.parametrize(("name", "changes"), CASES)
@pytest.mark.parametrize("seed", [3, None])
def test_a_replayed_log_ends_in_the_same_state(name: str, changes: dict[str, Any], seed: int | None) -> None:
    policy = make(name, seed=seed, **changes)
    walk(policy, 20, seed=1)
    twin, log = tacit.restore(policy.snapshot()), list[LogEntry]()
    policy.keep_log(log.append)
    walk(policy, 400)
    twin.replay(log)
    assert policy.state.batch.number[()] > 3
    released = sum(isinstance(entry, Released) for entry in log)
    assert released == (0 if policy.setting.budget.unlimited else 2 * (int(policy.state.batch.number[()]) - 1))
    assert twin.public_fingerprint() == policy.public_fingerprint()
    assert twin.fingerprint() == policy.fingerprint()
    policy.keep_log(None)
    contexts, _ = rounds(150, seed=9)
    if seed is not None:  # what is drawn from here on is the same too
        assert [policy.select(arms).arm for arms in contexts] == [twin.select(arms).arm for arms in contexts]
        assert twin.fingerprint() == policy.fingerprint()


@both
def test_a_log_with_other_releases_ends_in_another_state(name: str) -> None:
    policy = make(name)
    twin, log = tacit.restore(policy.snapshot()), list[LogEntry]()
    policy.keep_log(log.append)
    walk(policy, 200)
    first = next(entry for entry in log if isinstance(entry, Released))
    first.values["sum"][0] += 1.0
    twin.replay(log)
    assert twin.public_fingerprint() != policy.public_fingerprint()


@both
def test_the_clock_counts_batches_and_places(name: str) -> None:
    policy, (contexts, _) = make(name), rounds(120)
    batch, size = policy.state.batch, policy.batch_users
    assert (batch.number[()], batch.served[()], batch.end[()]) == (1, 0, size)
    for served in range(1, size + 1):
        decision = policy.select(contexts[served - 1])
        assert (batch.number[()], batch.served[()], batch.end[()]) == (1, served, size)
        assert policy._pending.memo(decision.id)[BATCH_SLOT] == 1
    policy.select(contexts[size])
    assert (batch.number[()], batch.served[()], batch.end[()]) == (2, size + 1, size + policy.batch_users)


@both
def test_a_group_of_users_is_cut_where_batches_end(name: str) -> None:
    """Users who are decided for together get the arms, batches and chances of users who come one by one."""
    together, alone, (contexts, _) = make(name), make(name), rounds(300)
    size = together.batch_users
    calls, log = list[int](), list[LogEntry]()
    steps = together._steps

    def counted(state: Any, block: FloatArray, *rest: Any) -> IntArray:
        calls.append(len(block))
        return steps.choose(state, block, *rest)

    together._steps = steps._replace(choose=counted)
    twin = tacit.restore(together.snapshot())
    together.keep_log(log.append)
    for group in np.split(contexts, [size - 3, size, size + 1]):
        first = [made for made in together.select_batch(group) if isinstance(made, tacit.Decision)]
        second = [alone.select(arms) for arms in group]
        assert [(made.arm, made.id) for made in first] == [(made.arm, made.id) for made in second]
        assert [made.propensity for made in first] == pytest.approx([made.propensity for made in second])
        memos = [together._pending.memo(made.id) for made in first]
        np.testing.assert_array_equal(memos, [alone._pending.memo(made.id) for made in second])
    assert together.state.batch.number[()] > 2
    assert together.public_fingerprint() == alone.public_fingerprint()
    assert calls[:3] == [size - 3, 3, 1]
    assert len(calls) <= 2 * together.state.batch.number[()] + 2  # for each batch the user who opens it, and the others
    twin.replay(log)
    assert twin.fingerprint() == together.fingerprint()


def test_a_full_batch_asks_to_be_closed_and_stays_full() -> None:
    clock = make_clock()
    assert tick_batch(clock, 1) == OPEN
    clock.end[()] = 2
    assert [tick_batch(clock, 1) for _ in range(4)] == [0, 0, CLOSE, CLOSE]
    assert clock.served[()] == 2
    clock.end[()] = 5
    assert [tick_batch(clock, users) for users in (4, 3, 1)] == [CLOSE, 0, CLOSE]
    assert clock.served[()] == 5
    clock.end[()], clock.served[()] = NONE_OPEN, 2
    assert tick_batch(clock, 1) == 0
    assert clock.served[()] == 2


def test_a_batch_keeps_its_own_rows_and_no_more_than_it_has_users() -> None:
    clock, rows = make_clock(), make_batch_rows(2, 2)
    clock.number[()], clock.end[()] = 7, 2
    came = np.array([(1.0, 6.0), (2.0, 7.0), (3.0, 8.0), (4.0, 7.0), (5.0, 7.0)])
    memos = np.column_stack([np.full(5, 0.1), came])
    for part in (slice(0, 2), slice(2, 5)):
        keep_rows(clock, rows, memos[part], came[part, 0])
    assert rows.rewards.tolist() == [2.0, 4.0]
    assert rows.features.tolist() == [[0.1, 2.0], [0.1, 4.0]]
    clock.end[()], rows.held[()] = NONE_OPEN, 0
    keep_rows(clock, rows, np.array([[0.1, 0.2, 7.0]]), np.ones(1))
    assert rows.held[()] == 0


@both
def test_a_batch_is_charged_before_anything_of_it_is_released(name: str) -> None:
    policy = make(name)
    policy.publisher = watching = Watching(policy)
    opened = {entry.cohort for entry in policy.ledger.entries}
    assert opened == ({"batch 1"} if policy._charged_when_opened else set())
    walk(policy, 400)
    assert len(watching.rows) >= 6
    for position, cohorts in enumerate(watching.charged):
        assert f"batch {position // 2 + 1}" in cohorts
        assert len(cohorts) == position // 2 + 1


@both
def test_rewards_that_wait_are_in_the_batch_before_it_closes(name: str) -> None:
    policy, (contexts, rewards) = make(name), rounds(200)
    policy.publisher = watching = Watching(policy)
    size = policy.batch_users
    for arms in contexts[:size]:
        policy.update(policy.select(arms), 1.0)
    assert policy._clock.unlearned  # summed up together, later
    policy.play(contexts[size : size + 1], rewards[size : size + 1])
    assert np.all(np.any(watching.rows[0] != 0.0, axis=1))
    assert policy.state.rows.held[()] == 1


@both
def test_every_user_reports_and_late_rewards_are_dropped(name: str) -> None:
    policy, (contexts, _) = make(name), rounds(120)
    policy.publisher = watching = Watching(policy)
    size = policy.batch_users
    late = policy.select(contexts[0])
    for arms in contexts[1:size]:
        policy.update(policy.select(arms), 1.0)
    policy.select(contexts[size])
    assert [rows.shape[0] for rows in watching.rows] == [size, size]
    assert np.count_nonzero(np.any(watching.rows[0] != 0.0, axis=1)) == size - 1
    policy.update(late, 1.0)
    assert policy.state.rows.held[()] == 0


@both
def test_a_recovered_policy_gives_the_open_batch_up(name: str, tmp_path: Path) -> None:
    policy = make(name)
    size, (contexts, _) = policy.batch_users, rounds(200)
    for arms in contexts[: size + 9]:
        policy.update(policy.select(arms), 1.0)
    policy.save(tmp_path / "state")
    with pytest.warns(RecoveryWarning):
        recovered = tacit.load(tmp_path / "state", recover=True)
    assert isinstance(recovered, BatchPolicy)
    batch = recovered.state.batch
    assert (batch.number[()], batch.served[()], recovered.state.rows.held[()]) == (3, size + 9, 0)
    assert batch.end[()] - batch.served[()] == recovered.batch_users
    recovered.publisher = watching = Watching(recovered)
    for arms in contexts[: recovered.batch_users + 1]:
        recovered.update(recovered.select(arms), 1.0)
    assert "recovery 1, batch 3" in watching.charged[0]
    assert np.all(np.any(watching.rows[0] != 0.0, axis=1))  # full, of users of this life
    assert recovered.privacy.spent_epsilon <= 4.0


@both
def test_users_know_what_they_are_asked_for(name: str) -> None:
    policy = make(name)
    assert policy.plan is not None
    assert policy.reports_per_user == 2
    assert policy.bytes_per_user == policy.plan.bytes_per_user > 0
    assert policy.plan.users == policy.batch_users
    restored = tacit.restore(policy.snapshot())
    assert isinstance(restored, BatchPolicy)
    assert restored.bytes_per_user == policy.bytes_per_user
    without = make(name, epsilon=float("inf"))
    assert without.plan is None
    assert without.bytes_per_user == without.reports_per_user == 0


def test_bits_come_from_the_seeded_generator_or_from_a_new_key() -> None:
    seeded = FastNoise(np.random.default_rng(1))
    assert seeded.generator() is seeded.rng
    first, second = (SecureNoise().generator().random() for _ in range(2))
    assert first != second


def test_shuffle_linucb_is_for_one_round_per_user() -> None:
    with pytest.raises(InvalidInput, match="rounds_per_user must be 1"):
        make("shuffle-linucb", rounds_per_user=2)
