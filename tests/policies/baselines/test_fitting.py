"""Fits of baselines as their rows grow; those that do not finish are counted, and rows that do not fit make room."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.glm.links import LINKS
from tacit.glm.rows import ALL_ROWS, append_rows, grown, make_rows, rows_of
from tacit.policies.baselines._shared import refit, refit_due
from tacit.policies.registry import make_policy
from tacit.typing import count
from tests.policies.baselines.helpers import maximum_likelihood, unit_ball


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
    refit(LINKS["logistic"], rows_of(features, rewards), ALL_ROWS, 0.5, 5.0, unfinished, theta)
    assert unfinished[()] == 0
    np.testing.assert_allclose(theta, maximum_likelihood("logistic", features, rewards, 0.5), atol=1e-7)


def test_a_fit_that_does_not_converge_is_counted_and_the_next_one_goes_on() -> None:
    """From far above, each Newton step of the log link lowers the score by about 1: 80 take more than one fit."""
    rows = rows_of(np.ones((50, 1)), np.ones(50))
    theta, unfinished = np.full(1, 80.0), count()
    refit(LINKS["log"], rows, ALL_ROWS, 1e-3, 100.0, unfinished, theta)
    assert unfinished[()] == 1
    assert 1.0 < theta[0] < 80.0
    refit(LINKS["log"], rows, ALL_ROWS, 1e-3, 100.0, unfinished, theta)
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


def test_rows_are_appended_and_kept_by_a_larger_buffer() -> None:
    rows = make_rows(2, 3)
    append_rows(rows, np.array([[0.1, 0.2]]), np.array([0.5]), 1)
    append_rows(rows, np.array([[0.3, 0.4], [0.5, 0.6]]), np.array([0.25, 0.75]), np.array([0, 2], dtype=np.uint8))
    larger = grown(rows)
    append_rows(larger, np.zeros((1, 2)), np.array([1.0]), 1)
    assert (int(rows.held[()]), int(larger.held[()]), larger.rewards.size) == (3, 4, 6)
    assert larger.features[:4].tolist() == [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.0, 0.0]]
    assert larger.rewards.tolist() == [0.5, 0.25, 0.75, 1.0, 0.0, 0.0]
    assert larger.mask.tolist() == [1, 0, 2, 1, 0, 0]
    with pytest.raises(IndexError, match="row buffer is full"):
        append_rows(rows, np.zeros((1, 2)), np.array([1.0]), 1)
    assert int(rows.held[()]) == 3
