"""Policies of the package keep the contract of `tacit.testing`, and what they promise beyond it."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput, TacitError
from tacit.policies.registry import POLICIES, policy_class
from tacit.testing import policy_checks
from tests.contracts.policies import DIM, HORIZON, JOINT, PRIVATE, make, rounds
from tests.steady import effort_of

every_policy = pytest.mark.parametrize("name", list(POLICIES))
private_policy = pytest.mark.parametrize("name", PRIVATE)


@pytest.mark.parametrize(("name", "check"), [(name, check) for name in POLICIES for check in policy_checks(name)])
def test_policies_of_the_package(name: str, check: str) -> None:
    policy_checks(name)[check]()


def test_without_assertions_nothing_is_checked_and_nothing_passes() -> None:
    done = subprocess.run([sys.executable, "-O", "-c", "import tacit.testing"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "run it without -O" in done.stderr


@every_policy
def test_everybody_of_a_batch_is_learned_from_by_the_own_arm(name: str) -> None:
    policy = make(name)
    contexts, _ = rounds(12)
    for arms, decision in zip(contexts, policy.select_batch(contexts), strict=True):
        assert isinstance(decision, tacit.Decision)
        np.testing.assert_array_equal(policy._pending.memo(decision.id)[:DIM], arms[decision.arm])


@private_policy
def test_the_sources_of_a_policy_do_not_share_a_generator(name: str) -> None:
    policy = make(name)
    sources = policy.randomness
    draws = [sources.ticks.gaussian(1.0, 50), sources.events.gaussian(1.0, 50), sources.coins.random(50)]
    assert np.unique(np.abs(np.concatenate(draws))).size == 150


def test_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="joint-glm"):
        tacit.make_policy("thompson", dim=2)


@private_policy
def test_a_private_policy_needs_its_budget(name: str) -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        policy_class(name)(dim=DIM, horizon=HORIZON, link="logistic", theta_bound=2.0)


@pytest.mark.parametrize("name", JOINT)
def test_more_rounds_for_each_user_mean_more_noise(name: str) -> None:
    rows: dict[str, Any] = {"blend": 0.5} if name == "stream-glm" else {}  # which otherwise follows from the budget
    once, thrice = make(name, **rows), make(name, rounds_per_user=3, **rows)
    # Rounding to a grid, which follows from the budget, adds one part in 1,000 to a sensitivity at most.
    assert 3.0 / 1.001 < thrice._noise_scale / once._noise_scale < 3.0 * 1.001


@private_policy
def test_unseeded_policies_use_the_operating_systems_entropy(name: str) -> None:
    policy = make(name, seed=None)
    kind = "secure" if policy.guarantee == "shuffle" else "exact"  # bits of the shuffle model are whole numbers anyway
    assert policy.randomness.ticks.name == policy.randomness.events.name == kind
    assert kind in str(policy.privacy)
    assert "operating-system entropy" in str(policy.privacy)


@private_policy
def test_without_a_registry_nothing_is_resumed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    make(name).save(tmp_path / "state")
    monkeypatch.setenv("TACIT_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(TacitError, match="TACIT_STATE_DIR"):
        tacit.load(tmp_path / "state")


def test_a_derivative_that_underflows_is_no_error() -> None:
    policy = make("stream-glm", link="probit", theta_bound=45.0, blend=1.0, scale=0.5)  # without a search
    assert math.isinf(policy.setting.kappa)


@pytest.mark.parametrize("name", [name for name in POLICIES if policy_class(name)._shares_ticks])
def test_a_batch_takes_no_call_for_each_user(name: str) -> None:
    calls = []
    for users in (200, 400):
        policy, (contexts, rewards) = make(name), rounds(users)
        policy.play(contexts[:100], rewards[:100])
        calls.append(effort_of(partial(policy.select_batch, contexts)).calls)
    assert calls[1] - calls[0] < 100  # other releases may come between


@every_policy
def test_between_releases_a_batch_is_its_users_in_turn(name: str) -> None:
    """Rounds that are played together are, too (``play_is_select_and_update_in_turn``)."""
    contexts, rewards = rounds(1_003)
    together, in_turn = make(name), make(name)
    for policy in (together, in_turn):
        policy.play(contexts[:1_000], rewards[:1_000])
    for arms, decision in zip(contexts[1_000:], together.select_batch(contexts[1_000:]), strict=True):
        assert isinstance(decision, tacit.Decision)
        assert decision[:3] == in_turn.select(arms)[:3]  # predictions may be rounded otherwise
