"""Design matrices that several baselines keep as inverses, each function against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.policies.baselines._shared import (
    add_to_inverse,
    choose_optimistic,
    inverse_or_keep,
    ruled_out,
    scores,
    squared_spreads,
)
from tacit.typing import count
from tests.policies.baselines.helpers import Array, unit_ball

USERS = 50


def _matrix(rng: np.random.Generator, dim: int, ridge: float = 0.1) -> Array:
    rows = rng.standard_normal((2 * dim, dim))
    return np.asarray(rows.T @ rows + ridge * np.eye(dim))


def _users(arms: int, seed: int = 1002) -> tuple[Array, Array, Array, Array, Array]:
    """Contexts of many users, an estimate with its inverse, and scores and spreads of all arms by NumPy alone."""
    rng = np.random.default_rng(seed)
    contexts = np.stack([unit_ball(rng, arms, 3) for _ in range(USERS)])
    theta, inverse = rng.standard_normal(3), _matrix(rng, 3)
    return contexts, theta, inverse, contexts @ theta, np.sqrt(np.einsum("nki,ij,nkj->nk", contexts, inverse, contexts))


def test_optimistic_choice_is_the_best_over_the_ellipsoid() -> None:
    contexts, theta, inverse, score, spreads = _users(7)
    np.testing.assert_allclose(scores(contexts, theta), score)
    np.testing.assert_allclose(squared_spreads(contexts, inverse), spreads**2)
    expected = np.argmax(score + 0.4 * spreads, axis=1)
    memos = np.zeros((USERS, 4))
    np.testing.assert_array_equal(choose_optimistic(contexts, theta, inverse, 0.4, memos), expected)
    np.testing.assert_array_equal(memos[:, :3], contexts[np.arange(USERS), expected])
    assert not memos[:, 3].any()


def test_one_user_is_one_of_many() -> None:
    contexts, theta, inverse, _, _ = _users(7)
    memos, memo = np.empty((USERS, 3)), np.empty((1, 3))
    together = choose_optimistic(contexts, theta, inverse, 0.4, memos)
    for user in range(USERS):
        assert choose_optimistic(contexts[user : user + 1], theta, inverse, 0.4, memo)[0] == together[user]
        np.testing.assert_array_equal(memo[0], memos[user])


def test_a_quadratic_form_that_rounding_left_negative_is_0() -> None:
    assert squared_spreads(np.ones((1, 1, 2)), np.diag([1.0, -1.0 - 1e-12])).tolist() == [[0.0]]


def test_ruled_out_arms_are_those_below_the_best_lower_bound() -> None:
    _, _, _, score, spreads = _users(9)
    reach = 0.1 * spreads
    expected = score + reach < np.max(score - reach, axis=1, keepdims=True)
    np.testing.assert_array_equal(ruled_out(score, reach), expected)
    before = np.random.default_rng(3).random((USERS, 9)) < 0.3
    before[:, 0] = False
    found = ruled_out(score, reach, before)
    for user in range(USERS):
        alive = ~before[user]
        floor = np.max((score - reach)[user, alive])
        np.testing.assert_array_equal(found[user], before[user] | (score + reach < floor)[user])
    assert np.sum(found & ~before) > 50
    assert not np.array_equal(found, before | expected)  # arms that were out before have no say


def test_inverse_is_written_or_kept_and_counted() -> None:
    rng = np.random.default_rng(1002)
    matrix, inverse, kept = _matrix(rng, 4), np.eye(4), count()
    inverse_or_keep(matrix.copy(), inverse, kept)
    np.testing.assert_allclose(inverse @ matrix, np.eye(4), atol=1e-10)
    np.testing.assert_array_equal(inverse, inverse.T)
    assert int(kept[()]) == 0
    before = inverse.copy()
    hidden = np.ones((4, 4)) + 1e-20 * np.eye(4)  # a ridge that rounding hides
    for refused in (np.diag([1.0, 1.0, -1e-9, 1.0]), np.full((4, 4), np.nan), hidden):
        inverse_or_keep(refused, inverse, kept)
    np.testing.assert_array_equal(inverse, before)
    assert int(kept[()]) == 3


def test_rank_one_update_is_the_inverse_of_the_sum() -> None:
    rng = np.random.default_rng(1002)
    matrix, x = _matrix(rng, 4), rng.standard_normal(4)
    inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    inverse = 0.5 * (inverse + inverse.T)
    gain = add_to_inverse(inverse, x, 0.3)
    grown = matrix + 0.3 * np.outer(x, x)
    np.testing.assert_allclose(inverse @ grown, np.eye(4), atol=1e-10)
    np.testing.assert_array_equal(inverse, inverse.T)
    assert np.log1p(gain) == pytest.approx(np.linalg.slogdet(grown)[1] - np.linalg.slogdet(matrix)[1])
