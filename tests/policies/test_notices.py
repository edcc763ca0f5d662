"""The report says when an estimate lies on its bound and when a policy has outlived its horizon."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.policies.private_policy import PrivatePolicy, bound_notices, horizon_notices
from tacit.policies.stream import StreamGLM
from tests.contracts.policies import ARMS, DIM, HORIZON, PRIVATE, make_private, rounds

private_policy = pytest.mark.parametrize("name", PRIVATE)


def _told(policy: PrivatePolicy, what: str) -> list[str]:
    return [warning for warning in policy.privacy.warnings if what in warning]


def _clear_rewards(count: int) -> tuple[Any, Any]:
    """Arms along one axis whose better end always pays: no bounded parameter is long enough."""
    contexts = np.zeros((count, ARMS, DIM))
    contexts[:, :, 0] = np.linspace(-1.0, 1.0, ARMS)
    return contexts, (contexts[:, :, 0] > 0.0).astype(np.float64)


def test_an_estimate_on_its_bound_is_told_with_what_to_do() -> None:
    policy = make_private("stream-glm", epsilon=np.inf, theta_bound=0.5, horizon=2_000)
    assert _told(policy, "theta_bound") == []
    policy.play(*_clear_rewards(500))
    assert np.linalg.norm(policy.estimate) >= 0.999 * 0.5
    (text,) = _told(policy, "theta_bound")
    assert "length 0.5, and 0.5 is admitted" in text
    assert "a larger theta_bound" in text
    assert "base_rate" in text
    assert text in str(policy.privacy)
    assert text in policy.privacy.to_json()


def test_an_estimate_inside_is_not_told() -> None:
    contexts, rewards = rounds(HORIZON)
    policy = make_private("stream-glm", epsilon=np.inf, theta_bound=20.0, blend=1.0)
    policy.play(contexts, rewards)
    assert np.linalg.norm(policy.estimate) > 0.0
    assert _told(policy, "theta_bound") == []


@pytest.mark.parametrize(("share", "told"), [(0.0, 0), (0.9, 0), (0.9989, 0), (0.9991, 1), (1.0, 1), (1.2, 1)])
def test_the_line_is_drawn_at_a_thousandth(share: float, told: int) -> None:
    assert len(bound_notices(share * np.array([1.8, -2.4]), 3.0)) == told


@private_policy
def test_more_decisions_than_the_horizon_are_told(name: str) -> None:
    contexts, rewards = rounds(HORIZON + 5)
    policy = make_private(name)
    policy.play(contexts[:HORIZON], rewards[:HORIZON])
    assert _told(policy, "the horizon is") == []
    policy.play(contexts[HORIZON:], rewards[HORIZON:])
    (text,) = _told(policy, "the horizon is")
    assert f"{HORIZON + 5} decisions were made, and the horizon is {HORIZON}" in text
    before = policy.public_fingerprint()
    policy.play(contexts, rewards)
    stopped = "the last release has been made" in text
    assert stopped or "still learns" in text
    if stopped:
        assert "teach nothing" in text
        assert _estimate_stays(policy)
    else:
        assert policy.public_fingerprint() != before


def _estimate_stays(policy: PrivatePolicy) -> bool:
    estimate = policy.estimate
    policy.play(*rounds(200, seed=8))
    return np.array_equal(estimate, policy.estimate)


def test_what_goes_on_is_said_for_each_policy() -> None:
    def ended(name: str) -> bool:
        policy = make_private(name)
        policy.play(*rounds(HORIZON + 1))
        return "the last release" in _told(policy, "the horizon is")[0]

    assert {name for name in PRIVATE if ended(name)} == {"shuffle-glm"}


def test_a_batch_is_one_leaf_so_that_leaves_may_be_left_after_the_horizon() -> None:
    contexts, _ = rounds(HORIZON)
    policy = make_private("stream-glm", horizon=100, factorization="tree")
    policy.select_batch(contexts)
    (text,) = _told(policy, "the horizon is")
    assert "still learns" in text


def test_without_a_horizon_there_is_nothing_to_outlive() -> None:
    assert horizon_notices(10**9, None, ended=False) == ()
    assert horizon_notices(5, 5, ended=True) == ()
    assert len(horizon_notices(6, 5, ended=True)) == 1


def test_a_release_of_many_numbers_is_told_with_what_would_save_it() -> None:
    told: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "scale": 0.5, "blend": 1.0, "seed": 1}
    dense = StreamGLM(dim=200, **told)
    (notice,) = _told(dense, "numbers")
    assert "200 features" in notice
    assert "20,100 numbers" in notice
    assert _told(StreamGLM(dim=200, blocks=20, **told), "numbers") == []
    assert _told(StreamGLM(dim=50, **told), "numbers") == []
