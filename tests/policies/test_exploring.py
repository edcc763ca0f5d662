"""`explore`: a share of arms is drawn at random, decisions say how likely theirs was, and all are learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import POLICIES, policy_class
from tacit.testing import check_policy
from tacit.typing import FloatArray

ARMS, DIM, SHARE = 5, 3, 0.3
DRAW_THEMSELVES = {name for name in POLICIES if policy_class(name)._coin_count}


def make(name: str, **options: Any) -> Policy:
    private = {"epsilon": 8.0, "delta": 1e-5} if policy_class(name).private else {}
    return tacit.make_policy(name, **{"dim": DIM, "horizon": 2_000, "seed": 0, **private, **options})


def rounds(count: int) -> tuple[FloatArray, FloatArray]:
    """Arms, and click probabilities: the first feature is what people like."""
    contexts = np.random.default_rng(1).uniform(-0.5, 0.5, (count, ARMS, DIM))
    return contexts, 0.5 + contexts[:, :, 0]


@pytest.mark.parametrize("name", sorted(set(POLICIES) - DRAW_THEMSELVES))
def test_a_policy_explores_as_often_as_it_says(name: str) -> None:
    """Whatever the policy chooses, an arm that it did not choose has the propensity share / K."""
    count = 1_000
    contexts, _ = rounds(count)
    policy = make(name, explore=SHARE)
    decided = [policy.select(contexts[t]) for t in range(count)]
    least = SHARE / ARMS
    propensities = np.array([decision.propensity for decision in decided])
    explored = np.isclose(propensities, least)
    assert np.all(explored | np.isclose(propensities, 1.0 - SHARE + least))
    expected = SHARE * (1.0 - 1.0 / ARMS)
    assert abs(explored.mean() - expected) < 4.5 * np.sqrt(expected * (1.0 - expected) / count)
    assert {decision.arm for decision in decided} == set(range(ARMS))


@pytest.mark.parametrize("name", ["stream-glm", "joint-glm", "rs-glinucb"])
def test_rounds_that_are_played_are_those_that_are_chosen_one_by_one(name: str) -> None:
    contexts, likely = rounds(300)
    rewards = (np.random.default_rng(2).random(likely.shape) < likely).astype(float)
    played, asked = make(name, explore=SHARE), make(name, explore=SHARE)
    arms = played.play(contexts, rewards)
    for t, arm in enumerate(arms.tolist()):
        decision = asked.select(contexts[t])
        assert decision.arm == arm
        asked.update(decision, rewards.item(t, arm))
    assert played.fingerprint() == asked.fingerprint()


def test_what_is_learned_is_the_row_of_the_arm_that_was_drawn() -> None:
    """With all arms drawn at random, the estimate is the least-squares fit to the arms that were shown."""
    policy = make("stream-glm", explore=1.0, epsilon=float("inf"), link="identity", base_rate=0.5, theta_bound=5.0)
    contexts, likely = rounds(1_500)
    for t in range(len(contexts)):
        decision = policy.select(contexts[t])
        policy.update(decision, likely.item(t, decision.arm))
    assert isinstance(policy, PrivatePolicy)
    np.testing.assert_allclose(policy.estimate, np.eye(DIM)[0], atol=0.005)


def test_a_log_tells_what_another_policy_would_have_earned() -> None:
    """Inverse propensities of a learning policy's own decisions value a fixed arm without bias."""
    count = 4_000
    contexts, likely = rounds(count)
    rng = np.random.default_rng(3)
    policy = make("stream-glm", explore=SHARE)
    terms = np.zeros(count)
    for t in range(count):
        decision = policy.select(contexts[t])
        reward = float(rng.random() < likely[t, decision.arm])
        policy.update(decision, reward)
        assert decision.propensity is not None
        terms[t] = reward / decision.propensity if decision.arm == 0 else 0.0
    error = terms.std() / np.sqrt(count)
    assert abs(terms.mean() - likely[:, 0].mean()) < 4.5 * error
    assert 4.5 * error < 0.25  # precise enough to tell 1 / propensity from 1 / (1 - share), say


def test_users_of_a_batch_explore_apart() -> None:
    contexts, _ = rounds(300)
    decided = make("stream-glm", explore=SHARE).select_batch(contexts)
    propensities = {decision.propensity for decision in decided if isinstance(decision, tacit.Decision)}
    assert propensities == {SHARE / ARMS, 1.0 - SHARE + SHARE / ARMS}


def test_without_exploring_nothing_is_drawn() -> None:
    contexts, likely = rounds(200)
    plain, off = make("stream-glm"), make("stream-glm", explore=0.0)
    assert np.array_equal(plain.play(contexts, likely), off.play(contexts, likely))
    assert plain.select(contexts[0]).propensity == 1.0


@pytest.mark.parametrize("name", sorted(DRAW_THEMSELVES))
def test_policies_that_draw_by_themselves_refuse_it(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} draws arms at random by itself"):
        make(name, explore=0.1)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), "0.1", True])
def test_a_share_lies_between_0_and_1(share: Any) -> None:
    with pytest.raises(InvalidInput, match="explore"):
        make("stream-glm", explore=share)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stream-glm", "joint-glm"])
def test_a_policy_that_explores_keeps_every_contract(name: str) -> None:
    """Saving, late rewards, budget, and that choices read no secrets."""
    check_policy(name, explore=SHARE)
