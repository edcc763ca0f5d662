"""Constants, schedules, budgets, estimates: the parts of `shuffle-glm`."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.glm.links import LINKS
from tacit.policies.batches import make_batch_rows, make_clock
from tacit.policies.beliefs import GaussianBelief
from tacit.policies.config import PrivateConfig
from tacit.policies.setting import PrivateSetting, make_private_setting
from tacit.policies.shuffle import ShuffleGLM
from tacit.policies.shuffle.learners import prior, updated
from tacit.policies.shuffle.profiles import Schedule, batch_count, shuffle_profile, smallest_horizon
from tacit.policies.shuffle.releases import chained_tail, row_budget, score_ball
from tacit.policies.shuffle.steps import (
    ShuffleConstants,
    ShuffleState,
    averaged_derivative,
    averaged_mean,
    estimate_count,
)
from tacit.policies.shuffle.steps import surviving_arms as survivors
from tacit.privacy.budget import Budget
from tacit.privacy.gaussian import delta_from
from tacit.typing import scalar
from tests.contracts.links import link_called


def setting(
    horizon: int | None = 15_000, theta_bound: float = 3.5, dim: int = 5, epsilon: float = 1.0
) -> PrivateSetting:
    config = PrivateConfig(dim=dim, horizon=horizon, theta_bound=theta_bound, epsilon=epsilon, delta=0.02)
    return make_private_setting(config)


def test_theory_states_the_smallest_horizon_that_it_needs() -> None:
    with pytest.raises(InvalidInput, match="horizon of at least") as caught:
        shuffle_profile("theory", setting(), 0.6, 1.0, None)
    found = re.search(r"at least ([0-9.e+]+)", str(caught.value))
    assert found is not None
    needed = smallest_horizon(setting(), 1.0, None)
    assert float(found.group(1)) == pytest.approx(needed, rel=1e-3)
    shuffle_profile("theory", setting(horizon=int(needed)), 0.6, 1.0, None)
    with pytest.raises(InvalidInput, match="horizon of at least"):
        shuffle_profile("theory", setting(horizon=int(needed) - 1), 0.6, 1.0, None)
    with pytest.raises(InvalidInput, match="horizon"):
        shuffle_profile("theory", setting(horizon=None), 0.6, 1.0, None)


def test_theorys_batches_follow_the_paper_and_end_at_the_horizon() -> None:
    chosen = shuffle_profile("theory", setting(theta_bound=0.5, dim=2), 0.6, 1e-4, 3)
    alpha = 15_000 ** (1.0 / (2.0 * (1.0 - 2.0**-2)))
    assert chosen.schedule.sizes[1] == math.ceil(alpha)
    assert chosen.schedule.sizes[2] == math.ceil(alpha * math.sqrt(chosen.schedule.sizes[1]))
    used = 0
    for batch in range(4):
        used += chosen.schedule.size(batch, used, 15_000)
    assert used == 15_000
    assert [batch_count(t) for t in (2, 16, 15_000, 10**12)] == [2, 2, 4, 6]


def test_theory_runs_where_its_constants_allow_and_kappa_belongs_to_v_only() -> None:
    policy = ShuffleGLM(
        dim=2, horizon=3000, epsilon=8.0, delta=0.02, theta_bound=0.5, seed=1, profile="theory", constant=1e-4,
        batches=3, max_rounds=3,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    contexts = rng.uniform(-0.7, 0.7, size=(3000, 4, 2))
    rewards = (rng.random((3000, 4)) < 0.5).astype(np.float64)
    policy.play(contexts, rewards)
    ridge, kappa = policy._profile.ridge, policy.setting.kappa
    assert estimate_count(policy.state) >= 2
    largest = [float(np.linalg.eigvalsh(spread)[-1]) for spread in policy.state.spread[1:]]
    assert largest[0] <= kappa / ridge * (1.0 + 1e-9)
    assert largest[0] > 1.0 / (ridge + 1000.0)
    for later in largest[1:]:  # gamma ||x|| in H_k^-1, without kappa
        assert later <= 1.0 / ridge * (1.0 + 1e-9)
    constants = policy.state.constants
    assert constants.gamma == constants.gamma_newest == policy._profile.gamma
    assert policy.privacy.spent_epsilon <= 8.0


def test_schedules_grow_stop_growing_and_are_cut() -> None:
    schedule = Schedule((10,), growth=2.0, largest=35)
    assert [schedule.size(batch, 0, None) for batch in range(4)] == [10, 20, 35, 35]
    assert schedule.size(3, 90, 100) == 10
    assert schedule.size(3, 100, 100) == 0


def test_elimination_asks_every_earlier_batch() -> None:
    """Two estimates, each of which rules out one of three arms."""
    state = ShuffleState(
        batch=make_clock(),
        rows=make_batch_rows(2, 10),
        theta=np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]),
        spread=np.stack([np.eye(2), 0.01 * np.eye(2), 0.01 * np.eye(2)]),
        root=np.eye(2),
        design_ridge=scalar(0.1),
        constants=ShuffleConstants(
            link=LINKS["logistic"],
            gamma=1.0,
            gamma_newest=1.0,
            weight_max=0.25,
            averaged=True,
            beta_rate=1.0,
            beta_cap=4.0,
        ),
    )
    arms = np.array([[[0.6, 0.6], [-0.6, 0.6], [0.6, -0.6]]])
    assert np.flatnonzero(survivors(state, arms)).tolist() == [0]
    state = state._replace(theta=state.theta[:2], spread=state.spread[:2])
    assert np.flatnonzero(survivors(state, arms)).tolist() == [0, 2]
    state = state._replace(constants=state.constants._replace(gamma_newest=30.0))
    assert np.flatnonzero(survivors(state, arms)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", [*LINKS, "logistic at 0.01", "probit at 0.9", "identity at 0.3", "log at 0.1"])
def test_the_ball_of_scores_holds_them_and_is_smaller_than_one_around_zero(name: str) -> None:
    link, rng = link_called(name), np.random.default_rng(2)
    bound = link.default_reward_bound
    theta = np.array([1.2, -0.8, 0.3])
    ball = score_ball(link, float(np.linalg.norm(theta)), bound)
    x = rng.standard_normal((4000, 3))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    scores = (rng.choice([0.0, bound], 4000) - link.mean(x @ theta))[:, None] * x
    assert np.max(np.linalg.norm(scores - ball.point(theta), axis=1)) <= ball.radius
    assert np.linalg.norm(ball.point(theta)) <= ball.radius  # a user without a reward contributes 0
    largest = link.residual_bound(float(np.linalg.norm(theta)), bound)
    assert ball.radius < (0.99 if name in LINKS else 1.02) * largest  # rare rewards are far from 0 in every direction


def test_averages_over_the_spread_are_those_of_a_normal_score() -> None:
    draws = 0.3 + 0.8 * np.random.default_rng(0).standard_normal(400_000)
    link = LINKS["logistic"]
    assert averaged_mean(link, 0.3, 0.8) == pytest.approx(float(np.mean(link.mean(draws))), abs=2e-3)
    assert averaged_derivative(link, 0.3, 0.8) == pytest.approx(float(np.mean(link.derivative(draws))), abs=2e-3)


def test_the_ball_of_scores_around_an_estimate_of_0_has_its_center_there() -> None:
    """Residuals are 0.99 and -0.01 then, not +-1/2, yet no direction is special."""
    ball = score_ball(link_called("logistic at 0.01"), 0.0, 1.0)
    assert abs(ball.center) < 1e-12
    assert 0.99 <= ball.radius <= 1.0 + 1.0 / 64.0


def test_an_update_is_the_posterior_of_a_linear_model() -> None:
    """Identity link without privacy noise: ridge regression, whatever the split into batches."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-0.5, 0.5, size=(200, 3))
    r = x @ np.array([0.5, -0.3, 0.2]) + rng.standard_normal(200)
    belief = prior(3, 5.0)
    for part in (slice(0, 70), slice(70, 200)):
        score = x[part].T @ (r[part] - x[part] @ belief.theta)
        belief = updated(belief, x[part].T @ x[part], score, 0.0, 0.0, 5.0)
    precision = x.T @ x + 3.0 / 25.0 * np.eye(3)
    assert np.allclose(belief.theta, np.linalg.solve(precision, x.T @ r))
    assert np.allclose(belief.covariance, np.linalg.inv(precision))


def test_noise_lowers_the_weight_of_a_batch() -> None:
    belief = GaussianBelief(np.zeros(2), np.eye(2))
    matrix, score = 50.0 * np.eye(2), np.array([25.0, 0.0])
    clean, noisy = (updated(belief, matrix, score, 0.0, sd, 10.0) for sd in (0.0, 30.0))
    information = 50.0**2 / (50.0 + 30.0**2)
    assert noisy.covariance[0, 0] == pytest.approx(1.0 / (1.0 + information))
    assert noisy.theta[0] < clean.theta[0]
    indefinite = updated(belief, np.diag([50.0, -20.0]), score, 5.0, 5.0, 10.0)
    assert indefinite.covariance[1, 1] == pytest.approx(1.0)
    assert np.linalg.norm(updated(belief, matrix, 1e6 * score, 0.0, 1.0, 2.0).theta) <= 2.0 * (1.0 + 1e-9)


@pytest.mark.parametrize(("epsilon", "delta", "rows"), [(1.0, 1e-6, 1), (1.0, 1e-6, 4), (8.0, 0.02, 3), (0.1, 1e-9, 2)])
def test_row_budgets_leave_room_for_all_rows_and_their_tails(epsilon: float, delta: float, rows: int) -> None:
    target = row_budget(Budget(epsilon, delta, rows))
    tail = 1e-3 * target.delta
    assert chained_tail(target.mu, tail, rows) <= target.reserve <= 2e-3 * delta * (1.0 + 1e-12)
    assert delta_from(rows * target.mu, epsilon) + target.reserve <= delta * (1.0 + 1e-6)
    assert delta_from(target.mu, target.epsilon) + tail == pytest.approx(target.delta, rel=1e-4)
