"""`joint-glm`: both criteria act, releases are all that others see, charges match noise, profiles differ as stated."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.experiments.runner import run_once
from tacit.experiments.spec import Experiment
from tacit.policies.joint import JointGLM
from tacit.policies.joint.steps import EXPLORED
from tacit.policies.state import flatten, size_in_bytes
from tacit.typing import FloatArray
from tests.tapes import Tape, taped

HORIZON = 600


def make(**changes: Any) -> JointGLM:
    arguments: dict[str, Any] = {
        "dim": 3,
        "horizon": HORIZON,
        "epsilon": 8.0,
        "delta": 0.02,
        "link": "probit",
        "theta_bound": 2.5,
        "seed": 5,
    }
    return JointGLM(**(arguments | changes))


def world(rounds: int, seed: int = 2) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((rounds, 10, 3))
    contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
    z = contexts @ np.array([2.0, -1.0, 1.0])
    rewards = (rng.random((rounds, 1)) < 0.5 + 0.5 * np.tanh(z)).astype(np.float64)
    return contexts, rewards


def test_both_criteria_act() -> None:
    policy = make(horizon=3000)
    policy.play(*world(3000))
    mask = policy.state.rows.mask[:3000]
    explored = int(np.sum(mask == EXPLORED))
    assert 10 <= explored <= 600
    assert policy.state.explore.calls[()] >= 1  # theta_o was refreshed
    assert policy.state.exploit.calls[()] >= 3  # and theta_tau more often
    assert np.linalg.norm(policy.state.explore.theta) > 0.0


def test_elimination_removes_arms_that_theta_o_rules_out() -> None:
    policy = make(horizon=3000)
    policy.play(*world(3000))
    policy.state.explore.theta[:] = (2.5, 0.0, 0.0)
    policy.state.exploit.theta[:] = (-2.5, 0.0, 0.0)  # would choose the arm that theta_o rules out
    policy.state.explore.spread[:] = 1e-4 * np.eye(3)
    policy.state.coverage[:] = 1e-9 * np.eye(3)  # no exploration
    arms = np.array([[0.9, 0.0, 0.0], [-0.9, 0.0, 0.0]])
    assert policy.select(arms).arm == 0
    policy.state.explore.spread[:] = 100.0 * np.eye(3)
    assert policy.select(arms).arm == 1


def test_replacing_a_row_changes_others_arms_through_releases_only() -> None:
    """With frozen noise, and releases forced to be the same, a replaced row leaves no trace in what others see."""
    contexts, rewards = world(200)
    first, second = make(), make()
    other = contexts.copy()
    other[50] = -contexts[50][::-1]
    for t in range(200):
        a = first.select(contexts[t])
        b = second.select(other[t])
        if t != 50:
            assert a.arm == b.arm, t
        first.update(a, float(rewards[t, a.arm]))
        second.update(b, float(1.0 - rewards[t, b.arm] if t == 50 else rewards[t, b.arm]))
        # Whatever reaches the next decision must come from `released`: copy it and all that derives from it.
        ours = flatten(first.state.stream)
        for path, theirs in flatten(second.state.stream).items():
            theirs[...] = ours[path]
        for side in ("explore", "exploit"):
            for field in ("theta", "spread", "anchor"):
                getattr(getattr(second.state, side), field)[...] = getattr(getattr(first.state, side), field)
    assert first.state.explore.calls[()] == second.state.explore.calls[()]
    assert first.state.exploit.calls[()] == second.state.exploit.calls[()]


def test_the_refresh_leak_of_the_paper_shows_and_ours_does_not() -> None:
    """Same noise, one user whose arms are all zero or all long: only the paper's rule refreshes theta_o at once."""
    for profile, leaks in (("paper", True), ("tuned", False)):
        moved = []
        for arms in (np.zeros((4, 3)), np.eye(3)):
            policy = make(profile=profile, horizon=50)
            # Criterion I: explores on long arms, not on zero ones.
            always = replace(policy.state.constants.profile, threshold=1e-9)
            policy.state = policy.state._replace(constants=policy.state.constants._replace(profile=always))
            policy.update(policy.select(arms), 1.0)
            before = int(policy.state.explore.calls[()])
            policy.select(np.zeros((4, 3)))
            moved.append(int(policy.state.explore.calls[()] - before))
        assert (moved[0] != moved[1]) == leaks, profile


def test_paper_profile_warns_that_its_figures_do_not_cover_the_leak() -> None:
    assert "WARNING" in str(make(profile="paper").privacy)
    assert "WARNING" not in str(make().privacy)


def test_call_k_of_both_optimizers_is_charged_once_at_the_noise_drawn() -> None:
    policy, tape = make(horizon=3000), Tape()
    policy.randomness = taped(policy.randomness, tape)
    policy.play(*world(3000))
    drawn = [draw.scale for draw in tape.draws if draw.source == "events"]
    entries = [entry.event for entry in policy.ledger.entries if entry.event.name.startswith("optimizer")]
    calls = [int(side.calls[()]) for side in (policy.state.explore, policy.state.exploit)]
    assert len(entries) == max(calls)
    assert len(drawn) == sum(calls)
    charged = sorted({round(float(event.noise_sd or 0.0), 9) for event in entries})
    assert sorted({round(scale, 9) for scale in drawn}) == charged
    # A row that changes sides: its gradient, of length up to the residual bound, leaves one sum and enters the other.
    longest = policy._problem(0.0).moving_sensitivity
    assert all(event.sensitivity >= math.sqrt(2.0) * longest for event in entries)


def test_stream_noise_is_the_charged_one_and_not_two_thirds_of_it() -> None:
    size = 0
    total = 0.0
    for seed in range(300):
        policy = make(seed=seed, horizon=64, factorization="toeplitz")
        policy.select(np.zeros((2, 3)))
        total += float(np.sum(policy.state.stream.released**2))
        size += policy.state.stream.released.size
    event = policy.ledger.entries[0].event
    # Before anybody's reward the first release is noise alone.
    ratio = total / size / float(event.noise_sd or 0.0) ** 2
    assert abs(ratio - 1.0) < 4.0 * math.sqrt(2.0 / size)
    assert 1.0 - 4.0 * math.sqrt(2.0 / size) > (2.0 / 3.0) ** 2


def test_the_budget_splits_exactly() -> None:
    policy = make()
    constants = policy._profile
    optimizer = float(np.sum(policy._call_budgets**2))
    stream = policy._plan(HORIZON).mu ** 2
    assert stream + optimizer == pytest.approx(policy.setting.budget.mu**2, rel=1e-12)
    assert stream == pytest.approx(constants.stream_share * policy.setting.budget.mu**2, rel=1e-12)


def test_state_stays_small_beyond_the_rows_of_the_optimizer() -> None:
    for factorization in ("toeplitz", "tree"):
        policy = make(dim=10, horizon=10**6, factorization=factorization)
        assert size_in_bytes(policy.state) - size_in_bytes(policy.state.rows) < 2**20


def test_unknown_horizon_runs_in_doubling_epochs_within_the_budget() -> None:
    policy = make(horizon=None, factorization="toeplitz")
    contexts, rewards = world(1100)
    for _ in range(3):
        policy.play(contexts, rewards)
    epochs = [entry.cohort for entry in policy.ledger.entries if entry.cohort]
    assert epochs == ["epoch 1", "epoch 2", "epoch 3"]
    assert policy.privacy.spent_epsilon <= 8.0 * (1.0 + 1e-9)


@pytest.mark.parametrize("link", ["logistic", "probit", "identity", "log"])
def test_every_link_learns(link: str) -> None:
    experiment = Experiment("joint-glm", link, 3, 10, 4000, 2.0, epsilon=8.0, delta=0.02)
    random = Experiment("random", link, 3, 10, 4000, 2.0)
    assert run_once(experiment, 77, 0).regret_curve[-1] < 0.5 * run_once(random, 77, 0).regret_curve[-1]


def test_theory_profile_keeps_the_papers_constants() -> None:
    policy = make(profile="theory")
    assert policy._profile.factorization == "tree"
    assert policy._profile.weight_divisor == math.e
    contexts, rewards = world(30)
    policy.play(contexts, rewards)
    assert np.all(policy.state.rows.mask[:30] == EXPLORED)  # the threshold is far below any width
