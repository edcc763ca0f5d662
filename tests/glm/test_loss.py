"""Loss, gradient and Hessian against quadrature-free finite differences, with weights and masks."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.glm.links import LINKS
from tacit.glm.loss import evaluate, loss_sum
from tacit.glm.rows import ALL_ROWS, Rows, no_mask, no_weights
from tacit.typing import ByteArray, FloatArray


def _data(rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray, ByteArray]:
    features = rng.normal(size=(30, 4)) / 2.0
    return features, rng.random(30), rng.random(30) + 0.1, rng.integers(0, 2, 30).astype(np.uint8)


@pytest.mark.parametrize("name", list(LINKS))
@pytest.mark.parametrize("selected", [ALL_ROWS, 0, 1])
def test_gradient_and_hessian_match_finite_differences(name: str, selected: int) -> None:
    rng = np.random.default_rng(3)
    features, rewards, weights, mask = _data(rng)
    code, theta, h = LINKS[name].code, rng.normal(size=4), 1e-5
    gradient, hessian = np.empty(4), np.empty((4, 4))
    value = evaluate(code, features, rewards, 30, weights, mask, selected, theta, gradient, hessian)
    assert value == pytest.approx(loss_sum(code, features, rewards, 30, weights, mask, selected, theta))
    other_gradients, scratch = np.empty((2, 4)), np.empty((4, 4))
    for j in range(4):
        step = h * np.eye(4)[j]
        values = [
            evaluate(code, features, rewards, 30, weights, mask, selected, theta + sign * step, out, scratch)
            for sign, out in ((1.0, other_gradients[0]), (-1.0, other_gradients[1]))
        ]
        assert gradient[j] == pytest.approx((values[0] - values[1]) / (2.0 * h), rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(
            hessian[j], (other_gradients[0] - other_gradients[1]) / (2.0 * h), rtol=1e-6, atol=1e-6
        )
    assert np.array_equal(hessian, hessian.T)


@pytest.mark.parametrize("name", list(LINKS))
def test_loss_vanishes_at_the_origin_and_is_convex(name: str) -> None:
    rng = np.random.default_rng(4)
    features, rewards, _, _ = _data(rng)
    code = LINKS[name].code

    def loss(theta: FloatArray) -> float:
        return loss_sum(code, features, rewards, 30, no_weights(), no_mask(), ALL_ROWS, theta)

    assert loss(np.zeros(4)) == 0.0
    for _ in range(50):
        a, b = rng.normal(size=(2, 4)) * 3.0
        assert loss(0.5 * (a + b)) <= 0.5 * (loss(a) + loss(b)) + 1e-9


def test_mask_and_weights_mean_what_they_say() -> None:
    rng = np.random.default_rng(5)
    features, rewards, weights, mask = _data(rng)
    theta = rng.normal(size=4)

    def loss(x: FloatArray, r: FloatArray, w: FloatArray, m: ByteArray, selected: int) -> float:
        return loss_sum(0, x, r, x.shape[0], w, m, selected, theta)

    kept = mask == 1
    chosen = loss(features, rewards, weights, mask, 1)
    assert chosen == pytest.approx(loss(features[kept], rewards[kept], weights[kept], no_mask(), ALL_ROWS))
    both = chosen + loss(features, rewards, weights, mask, 0)
    assert both == pytest.approx(loss(features, rewards, weights, no_mask(), ALL_ROWS))
    doubled = loss(features, rewards, np.full(30, 2.0), no_mask(), ALL_ROWS)
    assert doubled == pytest.approx(2.0 * loss(features, rewards, no_weights(), no_mask(), ALL_ROWS))


def test_buffers_may_be_longer_than_the_count() -> None:
    rng = np.random.default_rng(6)
    features, rewards, _, _ = _data(rng)
    full = np.vstack([features, np.full((5, 4), np.nan)])
    longer = np.append(rewards, np.full(5, np.nan))
    theta = rng.normal(size=4)
    expected = loss_sum(1, features, rewards, 30, no_weights(), no_mask(), ALL_ROWS, theta)
    assert loss_sum(1, full, longer, 30, no_weights(), no_mask(), ALL_ROWS, theta) == expected


def test_rows_refuse_what_does_not_fit() -> None:
    x, r = np.zeros((3, 2)), np.zeros(3)
    with pytest.raises(ValueError, match=r"count must lie in \[0, 3\]"):
        Rows(x, r, 4)
    with pytest.raises(ValueError, match="mask must cover 3 rows"):
        Rows(x, r, 3, selected=1)
    with pytest.raises(ValueError, match="features must be a contiguous float64 array"):
        Rows(x.T, r, 2)
    with pytest.raises(ValueError, match="two axes"):
        Rows(r, r, 3)
    with pytest.raises(ValueError, match="one for each row"):
        Rows.of(x, [1.0])
    with pytest.raises(ValueError, match="finite"):
        Rows.of(x, [1.0, np.nan, 0.0])
