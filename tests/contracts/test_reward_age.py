"""`reward_age`: rewards are kept until their decision is so many decisions old, for every policy that can wait."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import AlreadyRewarded, CorruptState, ExpiredDecision, InvalidInput, UnknownDecision
from tacit.policies.decision import Pending
from tacit.policies.log import Decided, LogEntry, Rewarded
from tacit.policies.policy import Policy
from tacit.policies.registry import POLICIES, policy_class
from tacit.policies.state import flatten
from tacit.typing import FloatArray
from tests.contracts.policies import PRIVATE, make, make_private, rounds, walk

STREAMED = ["stream-glm", "joint-glm", "joint-linucb"]

AGE = 7
SHUFFLED = [name for name in POLICIES if policy_class(name).guarantee == "shuffle"]
AGED = [name for name in POLICIES if name not in SHUFFLED]
every_aged_policy = pytest.mark.parametrize("name", AGED)


def _learned(policy: Policy) -> dict[str, Any]:
    """All that was learned, and nothing of what waits."""
    return flatten(policy.state)


def _same(first: Policy, second: Policy) -> None:
    for path, array in _learned(first).items():
        assert np.array_equal(array, _learned(second)[path]), path


def _watched(policy: Policy) -> list[float]:
    """The rewards that the policy learns from, from now on."""
    learned: list[float] = []
    usual = policy._learn_rows

    def learn(memos: FloatArray, rewards: FloatArray) -> None:
        learned.extend(rewards.tolist())
        usual(memos, rewards)

    policy._learn_rows = learn  # type: ignore[method-assign]
    return learned


def _play(policy: Policy, count: int, delays: Any, *, group: int = 1) -> list[int]:
    """Decide, ``group`` users at a time; each reward comes so many decisions after its own, before that tick."""
    contexts, rewards = rounds(count)
    due: dict[int, list[tuple[int, float]]] = {}
    arms: list[int] = []
    for start in range(0, count, group):
        for past in [moment for moment in sorted(due) if moment <= start]:
            for identity, reward in due.pop(past):
                policy.update(identity, reward)
        for t, decision in enumerate(policy.select_batch(contexts[start : start + group]), start=start):
            assert isinstance(decision, tacit.Decision)
            arms.append(decision.arm)
            if delays[t] > 0:
                due.setdefault(t + int(delays[t]), []).append((decision.id, float(rewards[t, decision.arm])))
    return arms


@every_aged_policy
@pytest.mark.parametrize("group", [1, 4])
def test_when_a_reward_comes_does_not_matter(name: str, group: int) -> None:
    """Two worlds with the same rewards at other times: the same arms, and the same state to the bit."""
    rng = np.random.default_rng(2)
    missing = rng.random(150) < 0.1
    worlds = [np.where(missing, 0, rng.integers(1, AGE - group + 2, 150)) for _ in range(2)]
    policies = [make(name, reward_age=AGE) for _ in worlds]
    arms = [_play(policy, 150, delays, group=group) for policy, delays in zip(policies, worlds, strict=True)]
    assert not np.array_equal(worlds[0], worlds[1])
    assert arms[0] == arms[1]
    _same(*policies)
    if name in PRIVATE:
        first, second = (policy.public_fingerprint() for policy in policies)
        assert first == second


@every_aged_policy
def test_without_it_the_same_two_worlds_differ(name: str) -> None:
    """The test above can fail."""
    if name in ("random",):
        pytest.skip("learns nothing")
    early, late = (make(name) for _ in range(2))
    _play(early, 150, np.full(150, 1))
    _play(late, 150, np.full(150, AGE))
    assert any(not np.array_equal(array, _learned(late)[path]) for path, array in _learned(early).items())


@every_aged_policy
def test_it_is_the_same_as_reporting_every_reward_at_that_age(name: str) -> None:
    # Geometric leaves follow the clock of what contributes: in held rewards' place their first leaves would be empty.
    options: dict[str, Any] = {"factorization": "tree"} if name in STREAMED else {}
    kept, held = make(name, reward_age=AGE, **options), make(name, **options)
    assert _play(kept, 150, np.full(150, 1)) == _play(held, 150, np.full(150, AGE))
    _same(kept, held)


@pytest.mark.parametrize("name", STREAMED)
def test_the_clock_of_leaves_counts_what_has_come_of_age(name: str) -> None:
    policy, contexts = make(name, reward_age=AGE), rounds(150)[0]
    for t in range(AGE + 40):
        policy.select(contexts[t])
        leaves = policy.state.stream.mechanism
        assert int(leaves.decisions[()]) == max(0, t + 2 - AGE)
    batch = make(name, reward_age=AGE)
    batch.select_batch(contexts[: AGE + 40])
    assert int(batch.state.stream.mechanism.decisions[()]) == 41


@every_aged_policy
def test_an_age_of_one_is_learning_before_the_next_decision(name: str) -> None:
    contexts, rewards = rounds(120)
    kept, plain = make(name, reward_age=1), make(name)
    assert walk(kept, contexts, rewards) == walk(plain, contexts, rewards)


@every_aged_policy
def test_the_simulators_loop_is_select_and_update_in_turn(name: str) -> None:
    contexts, rewards = rounds(100)
    by_hand, at_once = make(name, reward_age=AGE), make(name, reward_age=AGE)
    assert walk(by_hand, contexts, rewards) == list(at_once.play(contexts, rewards))
    assert by_hand.fingerprint() == at_once.fingerprint()
    rest, outcome = rounds(40, seed=12)
    assert walk(by_hand, rest, outcome) == list(at_once.play(rest, outcome))


@every_aged_policy
@pytest.mark.parametrize("age", [2, 40])
def test_play_is_select_and_update_in_turn_across_releases(name: str, age: int) -> None:
    """Spans are of a few decisions here: some are shorter than the age, and others longer."""
    contexts, rewards = rounds(400)
    pair = by_hand, at_once = make(name, reward_age=age), make(name, reward_age=age)
    taken, given = _watched(by_hand), _watched(at_once)
    earlier = [[policy.select(arms) for arms in contexts[:3]] for policy in pair]
    for first, stop in ((3, 4), (4, 30), (30, 300), (300, 400)):  # calls end within spans
        rest = contexts[first:stop], rewards[first:stop]
        assert walk(by_hand, *rest) == list(at_once.play(*rest))
        _same(by_hand, at_once)
        assert taken == given
        for path, array in by_hand._pending.to_arrays().items():  # a product of many rows is rounded in its own way
            np.testing.assert_allclose(array, at_once._pending.to_arrays()[path], rtol=1e-12, err_msg=path)
        if first == 3 and age > 4:
            for policy, decisions in zip(pair, earlier, strict=True):
                policy.update(decisions[1], 0.5)


@pytest.mark.parametrize("name", STREAMED)
def test_play_makes_no_call_for_a_user_whose_reward_must_wait(name: str) -> None:
    calls = []
    for count in (4, 24):
        policy = make(name, reward_age=AGE, horizon=10_000)
        policy.play(*rounds(4_000))
        while policy._clock.ticks_left < 30:  # the next ones are in the middle of a leaf
            policy.select(rounds(1)[0][0])
        calls.append(_calls(policy, *rounds(count, seed=6)))
    assert calls[0] == calls[1]


def _calls(policy: Policy, contexts: FloatArray, rewards: FloatArray) -> int:
    """Python functions that are entered while ``policy`` plays."""
    entered: list[str] = []
    sys.setprofile(lambda frame, event, argument: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        policy.play(contexts, rewards)
    finally:
        sys.setprofile(None)
    return len(entered)


@every_aged_policy
def test_a_loaded_policy_goes_on_with_the_rewards_that_were_kept(name: str, tmp_path: Path) -> None:
    contexts, rewards = rounds(120)
    whole, split = make(name, reward_age=AGE), make(name, reward_age=AGE)
    expected = walk(whole, contexts, rewards)
    arms = walk(split, contexts[:60], rewards[:60])
    waiting = split.select(contexts[60])
    split.save(tmp_path / "state")
    loaded = tacit.load(tmp_path / "state")
    assert loaded.fingerprint() == split.fingerprint()
    loaded.update(waiting.id, float(rewards[60, waiting.arm]))
    with pytest.raises(AlreadyRewarded):
        loaded.update(waiting.id - 1, 1.0)
    arms += [waiting.arm, *walk(loaded, contexts[61:], rewards[61:])]
    assert arms == expected
    assert loaded.fingerprint() == whole.fingerprint()


@every_aged_policy
def test_late_rewards_are_refused_by_the_clock_alone_and_change_nothing(name: str) -> None:
    policy, (contexts, _) = make(name, reward_age=3), rounds(8)
    decisions = [policy.select(user) for user in contexts[:5]]
    policy.update(decisions[4], 1.0)
    before = policy.fingerprint()
    for decision in decisions[:2]:  # at the tick of number 4 those up to number 1 are three decisions old
        with pytest.raises(ExpiredDecision, match="until their decision is reward_age=3 decisions old"):
            policy.update(decision, 1.0)
    with pytest.raises(AlreadyRewarded):
        policy.update(decisions[4], 0.0)
    with pytest.raises(InvalidInput, match="reward"):
        policy.update(decisions[3], 1.5)
    with pytest.raises(UnknownDecision):
        policy.update(decisions[4].id + 1, 1.0)
    assert policy.fingerprint() == before
    policy.update(decisions[2], 1.0)  # just in time
    policy.select(contexts[5])
    with pytest.raises(ExpiredDecision):
        policy.update(decisions[2], 1.0)


@every_aged_policy
def test_nothing_is_learned_before_the_age(name: str) -> None:
    policy, (contexts, rewards) = make(name, reward_age=AGE), rounds(AGE + 1)
    learned = _watched(policy)
    walk(policy, contexts[:AGE], rewards[:AGE])
    assert policy.state is not None  # with all rewards that were taken in
    assert learned == []
    policy.select(contexts[AGE])
    assert policy.state is not None
    assert len(learned) == 1


@every_aged_policy
def test_what_is_kept_is_bounded(name: str) -> None:
    policy = make(name, reward_age=AGE)
    contexts, rewards = rounds(60)
    for t in range(60):
        decision = policy.select(contexts[t])
        if t % 2:
            policy.update(decision, float(rewards[t, decision.arm]))
        arrays = policy._pending.to_arrays()
        assert arrays["ids"].size + arrays["kept_ids"].size <= AGE


def test_a_batch_advances_the_clock_by_its_users() -> None:
    policy, (contexts, _) = make("stream-glm", reward_age=5), rounds(20)
    first = policy.select_batch(contexts[:8])
    policy.select_batch(contexts[8:9])  # number 8: those up to number 3 are five decisions old
    assert isinstance(first[3], tacit.Decision)
    assert isinstance(first[4], tacit.Decision)
    with pytest.raises(ExpiredDecision):
        policy.update(first[3], 1.0)
    policy.update(first[4], 1.0)


def _logged(name: str, **changes: Any) -> tuple[Policy, Policy, list[LogEntry]]:
    """A policy with kept rewards, its twin from before the log began, and the log."""
    policy, log = make(name, reward_age=AGE, **changes), list[LogEntry]()
    _play(policy, 40, np.random.default_rng(3).integers(0, AGE + 1, 40))
    twin = tacit.restore(policy.snapshot())
    policy.keep_log(log.append)
    rng, (contexts, rewards), waiting = np.random.default_rng(4), rounds(120, seed=5), list[tuple[int, float]]()
    for t in range(0, 120, 2):
        for user, made in enumerate(policy.select_batch(contexts[t : t + 1 + t % 4 // 2])):
            assert isinstance(made, tacit.Decision)
            waiting.append((made.id, float(rewards[t + user, made.arm])))
        while waiting and rng.random() < 0.7:
            identity, reward = waiting.pop(0)
            if identity >= policy._pending._oldest:
                policy.update(identity, reward)
    return policy, twin, log


@every_aged_policy
def test_a_replayed_log_matures_as_the_clock_did(name: str) -> None:
    policy, twin, log = _logged(name)
    assert any(isinstance(entry, Rewarded) for entry in log)
    twin.replay(log)
    assert twin.decisions == policy.decisions
    if policy.private:
        assert policy.public_fingerprint() == twin.public_fingerprint()
    else:
        assert policy.fingerprint() == twin.fingerprint()
    for path, array in policy._pending.to_arrays().items():
        assert np.array_equal(array, twin._pending.to_arrays()[path]), path
    policy.keep_log(None)
    contexts, _ = rounds(AGE + 3, seed=9)
    assert [policy.select(arms).arm for arms in contexts] == [twin.select(arms).arm for arms in contexts]


def test_a_log_has_rewards_where_they_came() -> None:
    _, _, log = _logged("stream-glm")
    first = next(position for position, entry in enumerate(log) if isinstance(entry, Rewarded))
    assert any(isinstance(entry, Decided) for entry in log[:first])
    rewarded = [entry.decision for entry in log if isinstance(entry, Rewarded)]
    assert len(rewarded) == len(set(rewarded))


@pytest.mark.parametrize("name", [name for name in PRIVATE if name in AGED])
def test_kept_rewards_are_secret_and_lost_by_a_recovery(name: str, tmp_path: Path) -> None:
    contexts, rewards = rounds(40)
    policies = [make_private(name, reward_age=AGE) for _ in range(2)]
    for policy in policies:
        walk(policy, contexts, rewards)
    waiting = [policy.select(contexts[0]) for policy in policies]
    policies[0].update(waiting[0], 0.0)
    policies[1].update(waiting[1], 1.0)
    assert policies[0].public_fingerprint() == policies[1].public_fingerprint()
    assert policies[0].fingerprint() != policies[1].fingerprint()
    policies[0].save(tmp_path / "state")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recovered = tacit.load(tmp_path / "state", recover=True)
    arrays = recovered._pending.to_arrays()
    assert arrays["ids"].size == arrays["kept_ids"].size == 0
    learned = _watched(recovered)
    for user in contexts[: 2 * AGE]:
        recovered.select(user)
    assert recovered.state is not None
    assert learned == []


@pytest.mark.parametrize("name", SHUFFLED)
def test_policies_whose_devices_wait_for_their_batch_refuse_it(name: str) -> None:
    with pytest.raises(InvalidInput, match="takes no reward_age: devices keep their rewards until their batch closes"):
        make(name, reward_age=AGE)


@pytest.mark.parametrize("bad", [0, -1, 1.5, "10", True])
def test_an_age_is_a_positive_number_of_decisions(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="reward_age"):
        make("random", reward_age=bad)


def test_one_limit_is_enough() -> None:
    with pytest.raises(InvalidInput, match="give reward_age or reward_window, not both"):
        make("random", reward_age=10, reward_window=50)
    assert make("random", reward_age=500_000).config.reward_age == 500_000


def test_a_state_without_its_kept_rewards_is_refused() -> None:
    arrays = Pending(2, 10, age=3).to_arrays()
    del arrays["kept_rewards"]
    with pytest.raises(CorruptState, match="reward_age keeps are missing"):
        Pending(2, 10, age=3).restore(**arrays)  # type: ignore[arg-type]


def test_an_interrupted_tick_counts_no_reward_twice() -> None:
    """A signal in the middle of learning: that reward may be lost, the others follow, none comes again."""
    policy, (contexts, rewards) = make("greedy-mle", reward_age=AGE), rounds(30)
    policy.select_batch(contexts[:20])
    for identity in range(20):
        policy.update(identity, float(rewards[identity, 0]))
    learned: list[float] = []
    usual = policy._learn_rows

    def interrupted(memos: FloatArray, rewards: FloatArray) -> None:
        if len(learned) == 4:
            learned.append(-1.0)
            raise KeyboardInterrupt
        learned.extend(rewards.tolist())
        usual(memos, rewards)

    policy._learn_rows = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        policy.select(contexts[20])
    policy.select(contexts[20])
    assert len(learned) == 20 - AGE + 1
    assert int(policy.state.rows.held[()]) == 20 - AGE
