"""Kernels that several baselines share, each against numpy; fits and inverses that fail are counted."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.glm.links import LINKS
from tacit.glm.rows import ALL_ROWS, rows_of
from tacit.policies.baselines._kernels import (
    add_to_inverse,
    choose_optimistic,
    inverse_or_keep,
    move_into_ball,
    optimistic_arm,
    refit,
    refit_due,
    rule_out,
)
from tacit.policies.registry import make_policy
from tacit.policies.row_policy import append_row, grow_flag, grown, make_rows
from tacit.typing import count
from tests.policies.baselines.helpers import Array, maximum_likelihood, unit_ball


def _matrix(rng: np.random.Generator, dim: int, ridge: float = 0.1) -> Array:
    rows = rng.standard_normal((2 * dim, dim))
    return np.asarray(rows.T @ rows + ridge * np.eye(dim))


def test_optimistic_choice_is_the_best_over_the_ellipsoid() -> None:
    rng = np.random.default_rng(1002)
    memo = np.empty(3)
    for _ in range(50):
        contexts, theta, inverse = unit_ball(rng, 7, 3), rng.standard_normal(3), _matrix(rng, 3)
        spreads = np.sqrt(np.einsum("ki,ij,kj->k", contexts, inverse, contexts))
        expected = int(np.argmax(contexts @ theta + 0.4 * spreads))
        assert optimistic_arm(contexts, theta, inverse, 0.4) == expected
        assert choose_optimistic(contexts, theta, inverse, 0.4, memo) == expected
        np.testing.assert_array_equal(memo, contexts[expected])


def test_ruled_out_arms_are_those_below_the_best_lower_bound() -> None:
    rng = np.random.default_rng(1002)
    dropped = 0
    for _ in range(50):
        contexts, theta, inverse = unit_ball(rng, 9, 3), rng.standard_normal(3), _matrix(rng, 3)
        reach = 0.1 * np.sqrt(np.einsum("ki,ij,kj->k", contexts, inverse, contexts))
        before = rng.random(9) < 0.7
        before[0] = True
        lower = contexts @ theta - reach
        expected = before & (contexts @ theta + reach >= lower[before].max())
        alive = before.copy()
        rule_out(contexts, theta, inverse, 0.1, alive)
        np.testing.assert_array_equal(alive, expected)
        dropped += int(np.sum(before & ~alive))
    assert dropped > 50


def test_inverse_is_written_or_kept_and_counted() -> None:
    rng = np.random.default_rng(1002)
    matrix, inverse, kept = _matrix(rng, 4), np.eye(4), count()
    inverse_or_keep(matrix.copy(), inverse, kept)
    np.testing.assert_allclose(inverse @ matrix, np.eye(4), atol=1e-10)
    assert int(kept[()]) == 0
    before = inverse.copy()
    for refused in (np.diag([1.0, 1.0, -1e-9, 1.0]), np.full((4, 4), np.nan)):
        inverse_or_keep(refused, inverse, kept)
    np.testing.assert_array_equal(inverse, before)
    assert int(kept[()]) == 2


def test_rank_one_update_is_the_inverse_of_the_sum() -> None:
    rng = np.random.default_rng(1002)
    matrix, x = _matrix(rng, 4), rng.standard_normal(4)
    inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    gain = add_to_inverse(inverse, x, 0.3)
    grown = matrix + 0.3 * np.outer(x, x)
    np.testing.assert_allclose(inverse @ grown, np.eye(4), atol=1e-10)
    assert np.log1p(gain) == pytest.approx(np.linalg.slogdet(grown)[1] - np.linalg.slogdet(matrix)[1])


def test_point_ends_in_the_ball_even_where_the_metric_is_useless() -> None:
    point = np.array([3.0, 4.0])
    metric = np.diag([9.0, 1.0])
    moved = point.copy()
    move_into_ball(moved, 1.0, metric)
    assert np.linalg.norm(moved) == pytest.approx(1.0)
    multipliers = metric @ (point - moved) / moved  # the gradient of the distance is normal to the sphere
    assert multipliers[0] == pytest.approx(multipliers[1])
    move_into_ball(point, 1.0, np.diag([1.0, -1.0]))
    np.testing.assert_allclose(point, [0.6, 0.8], atol=1e-12)


def test_fits_come_after_every_row_up_to_100_and_then_after_one_percent() -> None:
    fitted, fits = count(), []
    for rows in range(1, 1001):
        if refit_due(rows, fitted, 0.01):
            fits.append(rows)
    assert fits[:101] == list(range(1, 102))
    assert np.all(np.diff(fits[100:]) >= 0.01 * np.array(fits[100:-1]))
    assert np.all(np.diff(fits[100:]) < 0.01 * np.array(fits[100:-1]) + 1.0)


def test_a_fit_that_converges_is_not_counted() -> None:
    rng = np.random.default_rng(1)
    features, rewards = unit_ball(rng, 300, 3), rng.integers(0, 2, 300).astype(np.float64)
    theta, unfinished = np.zeros(3), count()
    refit(LINKS["logistic"].form, rows_of(features, rewards), ALL_ROWS, 0.5, 5.0, unfinished, theta)
    assert unfinished[()] == 0
    np.testing.assert_allclose(theta, maximum_likelihood("logistic", features, rewards, 0.5), atol=1e-7)


def test_a_fit_that_does_not_converge_is_counted_and_the_next_one_goes_on() -> None:
    """From far above, each Newton step of the log link lowers the score by about 1: 80 take more than one fit."""
    rows = rows_of(np.ones((50, 1)), np.ones(50))
    theta, unfinished = np.full(1, 80.0), count()
    refit(LINKS["log"].form, rows, ALL_ROWS, 1e-3, 100.0, unfinished, theta)
    assert unfinished[()] == 1
    assert 1.0 < theta[0] < 80.0
    refit(LINKS["log"].form, rows, ALL_ROWS, 1e-3, 100.0, unfinished, theta)
    assert unfinished[()] == 1
    assert theta[0] == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("name", ["greedy-mle", "glm-ucb", "rs-glinucb", "ofulog+", "b-glincb"])
def test_ordinary_rounds_leave_no_fit_unfinished(name: str) -> None:
    rng = np.random.default_rng(3)
    policy = make_policy(name, dim=2, horizon=400, theta_bound=3.0, seed=0)
    contexts = np.stack([unit_ball(rng, 4, 2) for _ in range(400)])
    policy.play(contexts, rng.integers(0, 2, size=(400, 4)).astype(float))
    assert policy.state.unfinished[()] == 0
    assert np.any(policy.state.thetas if name == "b-glincb" else policy.state.theta)


def test_rows_are_appended_while_there_is_room() -> None:
    rows = make_rows(2, 2)
    for mark in (1, 0):
        assert grow_flag(rows) == 0
        append_row(rows, np.array([0.1, 0.2, 9.0]), 0.5, mark)
    assert (rows.features.tolist(), rows.mask.tolist()) == ([[0.1, 0.2]] * 2, [1, 0])
    assert grow_flag(rows) != 0
    with pytest.raises(IndexError, match="row buffer is full"):
        append_row(rows, np.zeros(3), 0.5, 0)
    larger = grown(rows)
    append_row(larger, np.zeros(3), 1.0, 1)
    assert (rows.held[()], larger.held[()], larger.rewards.tolist()) == (2, 3, [0.5, 0.5, 1.0, 0.0])
