"""A policy may be used from several threads (the full form of these tests: workloads/threads.py)."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workloads import threads

import tacit
from tacit.errors import AlreadyRewarded, TacitError
from tacit.policies import one_life
from tacit.policies.registry import POLICIES, policy_class
from tests.contracts.policies import PRIVATE, make, rounds
from tests.mutants.faults import NoLock

every_policy = pytest.mark.parametrize("name", list(POLICIES))


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Threads change between any two bytecodes, so that what can go wrong does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@every_policy
def test_each_reward_counts_once_each_call_ticks_once_and_saved_states_are_whole(name: str) -> None:
    assert threads.storm(name, threads=8, submissions=300) == []


@pytest.mark.parametrize("name", PRIVATE)
def test_the_same_with_noise(name: str) -> None:
    assert threads.storm(name, threads=8, submissions=200, epsilon=4.0) == []


def test_without_the_lock_the_same_threads_find_rows_and_ticks_miscounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail.  One try has found hundreds of faults each time; ten tries are patience, not luck."""
    monkeypatch.setattr(one_life, "make_lock", NoLock)
    monkeypatch.setattr(one_life, "make_running", NoLock)
    faults: list[str] = []
    for seed in range(10):
        faults += threads.storm("stream-glm", threads=8, submissions=300, seed=seed, dim=40)
        if any("sums of rows" in fault for fault in faults) and any("ticks" in fault for fault in faults):
            return
    pytest.fail(f"ten storms without a lock found only {faults}")


@every_policy
def test_four_threads_at_one_decision_leave_what_one_thread_leaves(name: str) -> None:
    """The same rewards in the same order of decisions, each sent by four threads: the state is a serial run's."""
    contexts, rewards = rounds(60)
    serial, crowded = make(name, **_without_noise(name)), make(name, **_without_noise(name))
    for arms, outcome in zip(contexts, rewards, strict=True):
        one = serial.select(arms)
        serial.update(one, float(outcome[one.arm]))
        other = crowded.select(arms)
        assert other == one
        assert sorted(_sent_by_all(crowded, other, float(outcome[other.arm]))) == ["refused"] * 3 + ["taken"]
    assert crowded.fingerprint() == serial.fingerprint()


def _without_noise(name: str) -> dict[str, Any]:
    return {} if policy_class(name).guarantee == "none" else {"epsilon": math.inf}


def _sent_by_all(policy: tacit.Policy, decision: tacit.Decision, reward: float) -> list[str]:
    answers: list[str] = []
    gate = threading.Barrier(4)

    def send() -> None:
        gate.wait()
        try:
            policy.update(decision, reward)
            answers.append("taken")
        except AlreadyRewarded:
            answers.append("refused")

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    return answers


@pytest.mark.parametrize("name", ["stream-glm", "random"])
def test_a_call_inside_a_call_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal handler would do it that saves: the state is then one in the middle of a call."""
    policy, twin, (contexts, _) = make(name), make(name), rounds(2)
    decision = policy.select(contexts[0])
    learn, refused = policy._learn, list[str]()

    def interrupted(memo: Any, reward: float) -> None:
        for call in (lambda: policy.save(tmp_path / "state"), lambda: policy.select(contexts[1])):
            with pytest.raises(TacitError, match="signal handler") as error:
                call()
            refused.append(str(error.value))
        learn(memo, reward)

    monkeypatch.setattr(policy, "_learn", interrupted)
    policy.update(decision, 1.0)
    monkeypatch.undo()
    assert len(refused) == 2
    assert not (tmp_path / "state").exists()
    twin.update(twin.select(contexts[0]), 1.0)
    assert policy.fingerprint() == twin.fingerprint()


@every_policy
def test_a_reward_that_is_interrupted_is_lost_and_not_counted_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, (contexts, _) = make(name), rounds(2)
    decision = policy.select(contexts[0])
    learn = policy._learn

    def interrupted(memo: Any, reward: float) -> None:
        learn(memo, reward)
        raise KeyboardInterrupt

    monkeypatch.setattr(policy, "_learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        policy.update(decision, 1.0)
    monkeypatch.undo()
    with pytest.raises(AlreadyRewarded):
        policy.update(decision, 1.0)
    policy.select(contexts[1])


def test_reports_may_be_read_while_others_learn() -> None:
    policy, (contexts, rewards) = make("shuffle-glm"), rounds(300)
    stop, faults = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                assert policy.privacy.spent_epsilon <= 4.0 * (1.0 + 1e-9)
                assert policy.decisions <= 300
                policy.public_fingerprint()
            except Exception as error:
                faults.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for arms, outcome in zip(contexts, rewards, strict=True):
        decision = policy.select(arms)
        policy.update(decision, float(outcome[decision.arm]))
    stop.set()
    reader.join()
    assert faults == []
    assert np.all(np.isfinite(policy.state.theta))
