"""What a policy takes in and refuses: each user apart, with errors that say which row, how long, and what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import AlreadyRewarded, ExpiredDecision, InvalidInput, TacitError, UnknownDecision
from tacit.policies.decision import Decision
from tacit.policies.registry import POLICIES
from tacit.typing import FloatArray
from tests.contracts.policies import ARMS, DIM, make, rounds, walk

every_policy = pytest.mark.parametrize("name", list(POLICIES))


def _bad(kind: str, arms: FloatArray) -> FloatArray:
    """One user's arms, spoilt in row 2."""
    spoilt = arms.copy()
    spoilt[2] = {"long": 3.0, "nan": math.nan, "infinite": math.inf, "overflows": 1e200}[kind]
    return spoilt


# Batches


@every_policy
@pytest.mark.parametrize("refused", [[0], [4], [1, 2], list(range(7))])
def test_in_a_batch_a_refused_user_is_as_one_who_never_came(name: str, refused: list[int]) -> None:
    """The others get the same decisions, and the state is the same, byte for byte."""
    contexts, rewards = rounds(7, seed=4)
    with_them, without_them = make(name), make(name)
    for policy in (with_them, without_them):
        walk(policy, *rounds(20))
    batch = contexts.copy()
    for user, kind in zip(refused, ("long", "nan", "infinite", "overflows", "long", "nan", "long"), strict=False):
        batch[user] = _bad(kind, contexts[user])
    answers = with_them.select_batch(batch)
    expected = without_them.select_batch(np.delete(contexts, refused, axis=0))
    assert [answer for answer in answers if isinstance(answer, Decision)] == expected
    assert [user for user, answer in enumerate(answers) if isinstance(answer, InvalidInput)] == refused
    assert with_them.fingerprint() == without_them.fingerprint()
    assert with_them.decisions == 20 + 7 - len(refused)
    for answer, outcome in zip(answers, rewards, strict=True):
        if isinstance(answer, Decision):
            for policy in (with_them, without_them):
                policy.update(answer, float(outcome[answer.arm]))
    assert with_them.fingerprint() == without_them.fingerprint()


@every_policy
def test_what_others_get_does_not_tell_how_somebodys_arms_were_bad(name: str) -> None:
    contexts, _ = rounds(5, seed=4)
    seen = []
    for kind in ("long", "nan", "infinite", "overflows"):
        policy, batch = make(name), contexts.copy()
        batch[3] = _bad(kind, contexts[3])
        answers = policy.select_batch(batch)
        assert isinstance(answers.pop(3), InvalidInput)
        seen.append((answers, policy.fingerprint()))
    assert all(other == seen[0] for other in seen)


def test_a_refused_user_may_come_again_with_valid_arms() -> None:
    policy, (contexts, _) = make("stream-glm"), rounds(3)
    batch = contexts.copy()
    batch[1] = _bad("long", batch[1])
    error = policy.select_batch(batch)[1]
    assert isinstance(error, InvalidInput)
    with pytest.raises(InvalidInput, match="row 2 has 5"):
        raise error
    assert policy.select(contexts[1]).id == 2


# Texts


@pytest.mark.parametrize("call", ["select", "select_batch", "play"])
def test_errors_name_row_and_norm_and_a_remedy_that_does_not_look_at_data(call: str) -> None:
    policy, (contexts, rewards) = make("stream-glm"), rounds(3)
    batch = contexts.copy()
    batch[1, 2] = [0.0, 3.0, 4.0]
    error: BaseException | Decision
    if call == "select_batch":
        error = policy.select_batch(batch)[1]
    else:
        with pytest.raises(InvalidInput) as caught:
            policy.select(batch[1]) if call == "select" else policy.play(batch, rewards)
        error = caught.value
    text = str(error)
    assert "row 2 has 5" in text
    assert "Divide by the largest norm that can occur, a public constant" in text
    assert ("round 1: " in text) == (call == "play")


@pytest.mark.parametrize(
    ("kind", "text"),
    [("nan", "must be finite: row 2 is not"), ("infinite", "must be finite: row 2 is not"), ("overflows", "row 2 has")],
)
def test_numbers_that_are_not_finite_are_named(kind: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        make("stream-glm").select(_bad(kind, rounds(1)[0][0]))


def test_the_first_arm_that_is_not_finite_is_named_also_behind_a_long_one() -> None:
    arms = rounds(1)[0][0]
    arms[1], arms[4] = 7.0, math.nan
    with pytest.raises(InvalidInput, match="row 4"):
        make("stream-glm").select(arms)


# Norms


@every_policy
def test_norms_of_single_precision_are_admitted(name: str) -> None:
    rng = np.random.default_rng(0)
    policy = make(name)
    for _ in range(20):
        arms = rng.standard_normal((ARMS, DIM)).astype(np.float32)
        arms /= np.linalg.norm(arms, axis=1, keepdims=True)
        policy.update(policy.select(arms), 1.0)
    policy.select(np.array([[1.0 + 1e-7, 0.0, 0.0]]))
    policy.select_batch(np.array([[[0.0, -1.0 - 1e-7, 0.0]]]))
    policy.play(np.array([[[0.0, 0.0, 1.0 + 1e-7]]]), np.ones((1, 1)))


@pytest.mark.parametrize("excess", [1e-7, 9.9e-7])
def test_what_is_learned_from_lies_in_the_unit_ball_all_the_same(excess: float) -> None:
    """Sensitivities hold for every row that is admitted, not for nearly every one."""
    policy = make("joint-linucb", epsilon=math.inf)
    policy.update(policy.select(np.array([[1.0 + excess, 0.0, 0.0]])), 1.0)
    assert policy.state.stream.leaf[0] <= 1.0


@pytest.mark.parametrize("blocks", [None, 2])
def test_steps_are_given_arms_of_the_unit_ball_in_every_way(blocks: int | None) -> None:
    """What is longer by a rounding error is scaled for the policy, not in the caller's array; the rest stays as is."""
    policy = tacit.make_policy("stream-glm", dim=4, blocks=blocks, epsilon=1.0, delta=1e-5, theta_bound=2.0)
    arms = np.array([[[0.6, 0.8 + 1e-7, 0.0, 0.0], [0.3, 0.1, 0.0, 0.0]], [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.2]]])
    sent, form = arms.copy(), policy.arm_form
    given = [form.one(arms[0], None, None), form.many(arms, None, None)[0], form.rounds(arms)]
    for rows in (np.array([form.dense(user) for user in block]) for block in given):
        assert np.all(np.vecdot(rows, rows) <= 1.0)
        np.testing.assert_allclose(rows, arms[: len(rows)], rtol=2e-7)
        np.testing.assert_array_equal(rows[0, 1], arms[0, 1])
    np.testing.assert_array_equal(arms, sent)


@pytest.mark.parametrize("excess", [1.1e-6, 1e-3])
def test_longer_arms_are_refused(excess: float) -> None:
    with pytest.raises(InvalidInput, match=r"row 0 has 1\.00"):
        make("stream-glm").select(np.array([[0.0, 1.0 + excess, 0.0]]))


# Rewards


@pytest.mark.parametrize("name", ["stream-glm", "joint-glm", "shuffle-glm", "joint-linucb", "local-glm", "greedy-mle"])
def test_counts_above_the_bound_are_cut_alike_by_update_and_play(name: str) -> None:
    contexts, _ = rounds(30)
    counts = np.random.default_rng(1).poisson(3.0, size=(30, ARMS)).astype(np.float64)
    counts[3] = math.inf
    settings: dict[str, Any] = {"link": "log", "theta_bound": 1.0, "reward_bound": 2.5}
    by_hand, at_once, cut = (make(name, **settings) for _ in range(3))
    assert walk(by_hand, contexts, counts) == list(at_once.play(contexts, counts))
    cut.play(contexts, np.minimum(counts, 2.5))
    # `play` counts its decisions without ids that wait, so that whole fingerprints are compared among equals only.
    assert at_once.fingerprint() == cut.fingerprint()
    contexts, _ = rounds(30, seed=5)
    assert list(by_hand.play(contexts, counts)) == list(at_once.play(contexts, counts))


@pytest.mark.parametrize("link", ["log", "logistic"])
@pytest.mark.parametrize("reward", [-1e-9, math.nan, -math.inf, "much", None])
def test_rewards_that_update_refuses_are_refused_by_play(link: str, reward: Any) -> None:
    policy, (contexts, rewards) = make("stream-glm", link=link, theta_bound=1.0), rounds(2)
    decision = policy.select(contexts[0])
    before = policy.fingerprint()
    with pytest.raises(InvalidInput, match="reward"):
        policy.update(decision, reward)
    table: list[list[Any]] = rewards.tolist()
    table[1][2] = reward
    with pytest.raises(InvalidInput, match="rewards"):
        policy.play(contexts, table)
    assert policy.fingerprint() == before


def test_links_with_a_largest_reward_refuse_what_is_above_it() -> None:
    policy, (contexts, rewards) = make("stream-glm"), rounds(2)
    with pytest.raises(InvalidInput, match=r"\[0, 1\], not 1.5"):
        policy.update(policy.select(contexts[0]), 1.5)
    with pytest.raises(InvalidInput, match=r"\[0, 1\]"):
        policy.play(contexts, rewards + 0.5)


# Decisions


@every_policy
def test_unknown_expired_and_rewarded_decisions_raise_errors_of_their_own(name: str) -> None:
    policy, (contexts, _) = make(name, reward_window=3), rounds(6)
    with pytest.raises(UnknownDecision, match="no decision has been made yet"):
        policy.update(0, 1.0)
    decisions = [policy.select(arms) for arms in contexts]
    policy.update(decisions[4], 1.0)
    wrong: list[tuple[Any, type[TacitError], str]] = [
        (decisions[4], AlreadyRewarded, "already has its reward"),
        (decisions[0], ExpiredDecision, "raise reward_window"),
        (6, UnknownDecision, "ids run from 0 to 5"),
        (-1, UnknownDecision, "unknown"),
        (2**60, UnknownDecision, "unknown"),
        ("5", InvalidInput, "integer id"),
        (5.0, InvalidInput, "integer id"),
        (True, InvalidInput, "integer id"),
    ]
    before = policy.fingerprint()
    for decision, kind, text in wrong:
        with pytest.raises(InvalidInput, match=text) as caught:
            policy.update(decision, 1.0)
        assert type(caught.value) is kind
    assert policy.fingerprint() == before
    policy.update(np.int64(5), 1.0)  # type: ignore[arg-type]  # an integer all the same
