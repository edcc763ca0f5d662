"""Loss, gradient and Hessian against a plain sum and finite differences, with masks."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.glm.likelihood import Expansion, evaluate
from tacit.glm.links import LINKS
from tacit.glm.rows import ALL_ROWS, RowBuffer, Selection, rows_of, selected
from tacit.typing import FloatArray, count


def _data(seed: int) -> RowBuffer:
    rng = np.random.default_rng(seed)
    rows = rows_of(rng.normal(size=(30, 4)) / 2.0, rng.random(30))
    return rows._replace(mask=rng.integers(0, 2, 30).astype(np.uint8))


def _at(name: str, rows: RowBuffer, theta: FloatArray, mark: int = ALL_ROWS) -> Expansion:
    return evaluate(LINKS[name], *selected(Selection(rows, mark)), theta)


def _loss(name: str, rows: RowBuffer, theta: FloatArray, mark: int = ALL_ROWS) -> float:
    return _at(name, rows, theta, mark).value


@pytest.mark.parametrize("name", list(LINKS))
@pytest.mark.parametrize("mark", [ALL_ROWS, 0, 1])
def test_it_is_the_sum_over_the_selected_rows(name: str, mark: int) -> None:
    rows, theta, link = _data(2), np.array([0.5, -1.0, 2.0, 0.3]), LINKS[name]
    chosen = slice(None) if mark == ALL_ROWS else rows.mask == mark
    z = rows.features[chosen] @ theta
    expected = np.sum(link.antiderivative(z) - link.antiderivative(0.0) - rows.rewards[chosen] * z)
    assert _loss(name, rows, theta, mark) == pytest.approx(float(expected))


@pytest.mark.parametrize("name", list(LINKS))
@pytest.mark.parametrize("mark", [ALL_ROWS, 0, 1])
def test_gradient_and_hessian_match_finite_differences(name: str, mark: int) -> None:
    rows, theta, h = _data(3), np.random.default_rng(3).normal(size=4), 1e-5
    _, gradient, hessian = _at(name, rows, theta, mark)
    for j in range(4):
        step = h * np.eye(4)[j]
        above, below = (_at(name, rows, theta + sign * step, mark) for sign in (1.0, -1.0))
        assert gradient[j] == pytest.approx((above.value - below.value) / (2.0 * h), rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(hessian[j], (above.gradient - below.gradient) / (2.0 * h), rtol=1e-6, atol=1e-6)
    assert np.array_equal(hessian, hessian.T)


@pytest.mark.parametrize("name", list(LINKS))
def test_loss_vanishes_at_the_origin_and_is_convex(name: str) -> None:
    rows, rng = _data(4), np.random.default_rng(4)
    assert _loss(name, rows, np.zeros(4)) == 0.0
    for _ in range(50):
        a, b = rng.normal(size=(2, 4)) * 3.0
        assert _loss(name, rows, 0.5 * (a + b)) <= 0.5 * (_loss(name, rows, a) + _loss(name, rows, b)) + 1e-9


def test_buffers_may_be_longer_than_what_they_hold() -> None:
    rows, theta = _data(6), np.array([0.1, -0.2, 1.5, 0.7])
    longer = RowBuffer(
        np.vstack([rows.features, np.full((5, 4), np.nan)]),
        np.append(rows.rewards, np.full(5, np.nan)),
        np.append(rows.mask, np.ones(5, dtype=np.uint8)),
        count(30),
    )
    for mark in (ALL_ROWS, 0, 1):
        assert _loss("probit", longer, theta, mark) == _loss("probit", rows, theta, mark)


def test_rows_refuse_what_does_not_fit() -> None:
    x, r = np.zeros((3, 2)), np.zeros(3)
    assert (rows_of(x, r).held[()], rows_of(x, r).mask.tolist()) == (3, [0, 0, 0])
    assert rows_of(x.T, [1, 0]).features.flags.c_contiguous
    with pytest.raises(ValueError, match="two axes"):
        rows_of(r, r)
    with pytest.raises(ValueError, match="one for each row"):
        rows_of(x, [1.0])
    with pytest.raises(ValueError, match="finite"):
        rows_of(x, [1.0, np.nan, 0.0])
