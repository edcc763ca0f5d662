"""The solver against scipy and statsmodels, on the awkward data it must survive."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import NonlinearConstraint, minimize

from tacit.glm.likelihood import Fit, Status, fit, fit_kernel
from tacit.glm.links import LINKS
from tacit.glm.loss import evaluate
from tacit.glm.rows import ALL_ROWS, no_mask, no_weights
from tacit.linalg.projection import Ellipsoid, ellipsoid_distance
from tacit.typing import FloatArray


def _instance(name: str, seed: int, rows: int = 400, dim: int = 4) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, dim))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]
    theta = rng.normal(size=dim)
    means = np.clip(LINKS[name].mean(features @ (2.0 * theta / np.linalg.norm(theta))), 0.0, 10.0)
    if name == "log":
        return features, np.minimum(rng.poisson(means), 10).astype(np.float64)
    return features, (rng.random(rows) < means).astype(np.float64)


def _reference(
    name: str,
    features: FloatArray,
    rewards: FloatArray,
    ridge: float,
    constraints: list[NonlinearConstraint],
    start: FloatArray,
) -> FloatArray:
    dim = features.shape[1]
    gradient, hessian = np.empty(dim), np.empty((dim, dim))

    def objective(theta: npt.NDArray[np.float64]) -> tuple[float, FloatArray]:
        value = evaluate(
            LINKS[name].code, features, rewards, rewards.size, no_weights(), no_mask(), ALL_ROWS,
            np.ascontiguousarray(theta), gradient, hessian,
        )  # fmt: skip
        return value + 0.5 * ridge * float(theta @ theta), gradient + ridge * theta

    if not constraints:
        return np.asarray(minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x)
    found = minimize(
        objective,
        start,
        jac=True,
        method="trust-constr",
        constraints=constraints,
        options={"gtol": 1e-10, "xtol": 1e-12, "maxiter": 3000},
    )
    return np.asarray(found.x)


@pytest.mark.parametrize("name", list(LINKS))
def test_agrees_with_scipy(name: str) -> None:
    features, rewards = _instance(name, seed=1)
    result = fit(name, features, rewards, ridge=0.5)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.theta, _reference(name, features, rewards, 0.5, [], np.zeros(4)), atol=1e-6)
    assert result.gradient_norm < 1e-5


@pytest.mark.parametrize("name", ["logistic", "log"])
def test_agrees_with_statsmodels(name: str) -> None:
    api = pytest.importorskip("statsmodels.api")
    features, rewards = _instance(name, seed=2)
    family = api.families.Binomial() if name == "logistic" else api.families.Poisson()
    expected = api.GLM(rewards, features, family=family).fit(tol=1e-12).params
    np.testing.assert_allclose(fit(name, features, rewards, ridge=1e-10).theta, expected, atol=1e-6)


def _ball(radius: float) -> NonlinearConstraint:
    return NonlinearConstraint(lambda t: t @ t, -np.inf, radius**2, jac=lambda t: 2.0 * t[None, :])


def _inside(region: Ellipsoid) -> NonlinearConstraint:
    c, m = region.center, region.matrix
    return NonlinearConstraint(
        lambda t: (t - c) @ m @ (t - c), -np.inf, region.radius**2, jac=lambda t: 2.0 * (m @ (t - c))[None, :]
    )


@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")
@pytest.mark.parametrize("name", ["logistic", "probit"])
@pytest.mark.parametrize("kind", ["ball", "ellipsoid", "both"])
def test_constrained_fits_agree_with_scipy(name: str, kind: str) -> None:
    features, rewards = _instance(name, seed=3, dim=3)
    region = Ellipsoid(np.array([0.2, -0.1, 0.3]), np.diag([3.0, 1.0, 0.5]) + 0.1, 0.5)
    constraints = [_ball(0.6)] * (kind != "ellipsoid") + [_inside(region)] * (kind != "ball")
    result = fit(
        name,
        features,
        rewards,
        ridge=0.1,
        ball_radius=0.6 if kind != "ellipsoid" else None,
        ellipsoid=region if kind != "ball" else None,
    )
    assert result.status is Status.CONVERGED
    expected = _reference(name, features, rewards, 0.1, constraints, region.center)
    np.testing.assert_allclose(result.theta, expected, atol=2e-5)
    if kind != "ellipsoid":
        assert np.linalg.norm(result.theta) <= 0.6 * (1.0 + 1e-12)
    if kind != "ball":
        assert ellipsoid_distance(result.theta, region.center, region.matrix) <= 0.5 * (1.0 + 1e-12)


def _kkt_residual(name: str, features: FloatArray, rewards: FloatArray, result: Fit, region: Ellipsoid) -> float:
    """Distance of the gradient from the cone of the active constraints' normals."""
    gradient, hessian = np.empty(3), np.empty((3, 3))
    evaluate(
        LINKS[name].code, features, rewards, rewards.size, no_weights(), no_mask(), ALL_ROWS,
        result.theta, gradient, hessian,
    )  # fmt: skip
    normals = np.stack([result.theta, region.matrix @ (result.theta - region.center)], axis=1)
    multipliers, *_ = np.linalg.lstsq(normals, -gradient, rcond=None)
    assert np.all(multipliers >= -1e-9)
    return float(np.linalg.norm(gradient + normals @ multipliers))


@pytest.mark.parametrize("name", list(LINKS))
def test_both_constraints_satisfy_optimality_conditions(name: str) -> None:
    features, rewards = _instance(name, seed=4, dim=3)
    free = fit(name, features, rewards).theta
    center = 0.3 * free + np.array([0.2, -0.2, 0.1])
    region = Ellipsoid(center, np.diag([2.0, 1.0, 0.5]), 0.3)
    result = fit(name, features, rewards, ball_radius=0.95 * float(np.linalg.norm(center)), ellipsoid=region)
    assert result.status is Status.CONVERGED
    assert _kkt_residual(name, features, rewards, result, region) < 1e-7 * rewards.size


def test_no_rows_gives_the_center() -> None:
    center = np.array([1.0, -2.0])
    result = fit("logistic", np.empty((0, 2)), np.empty(0), ridge=2.0, center=center)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.theta, center)
    assert fit("probit", np.empty((0, 2)), np.empty(0)).theta.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", list(LINKS))
def test_collinear_and_repeated_rows(name: str) -> None:
    features, rewards = _instance(name, seed=5, dim=2)
    tripled = np.repeat(features[:, [0, 1, 1]], 3, axis=0) / 2.0
    with_ridge = fit(name, tripled, np.repeat(rewards, 3), ridge=1.0)
    assert with_ridge.status is Status.CONVERGED
    assert with_ridge.theta[1] == pytest.approx(with_ridge.theta[2], abs=1e-8)
    without = fit(name, tripled, np.repeat(rewards, 3))
    assert without.status is Status.ILL_CONDITIONED
    plain = fit(name, features / 2.0, rewards).theta
    np.testing.assert_allclose([without.theta[0], without.theta[1:].sum()], plain, atol=1e-6)


def test_separable_rewards_need_ridge_or_ball() -> None:
    features, _ = _instance("logistic", seed=6)
    rewards = (features[:, 0] > 0.0).astype(np.float64)
    assert fit("logistic", features, rewards).status is not Status.CONVERGED
    assert fit("logistic", features, rewards, ridge=1e-3).status is Status.CONVERGED
    bounded = fit("logistic", features, rewards, ball_radius=300.0)
    assert bounded.status is Status.CONVERGED
    assert np.linalg.norm(bounded.theta) == pytest.approx(300.0)


@pytest.mark.parametrize("name", ["logistic", "probit", "identity"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_far_starts_come_back(name: str, sign: float) -> None:
    features, rewards = _instance(name, seed=7)
    near = fit(name, features, rewards, ridge=1e-3)
    far = fit(name, features, rewards, ridge=1e-3, start=sign * np.array([350.0, 350.0, -350.0, 350.0]))
    assert far.status is Status.CONVERGED
    np.testing.assert_allclose(far.theta, near.theta, atol=1e-6)


def test_log_link_from_above() -> None:
    features, rewards = _instance("log", seed=8)
    near, far = (fit("log", features, rewards, ridge=0.1, start=s * np.ones(4)) for s in (0.0, 12.0))
    assert far.status is Status.CONVERGED
    np.testing.assert_allclose(far.theta, near.theta, atol=1e-7)


def test_weights_count_rows() -> None:
    features, rewards = _instance("logistic", seed=9, rows=60)
    counts = np.random.default_rng(0).integers(1, 4, 60)
    repeated = fit("logistic", np.repeat(features, counts, axis=0), np.repeat(rewards, counts), ridge=1.0)
    weighted = fit("logistic", features, rewards, ridge=1.0, weights=counts.astype(np.float64))
    np.testing.assert_allclose(weighted.theta, repeated.theta, atol=1e-8)


def test_status_text_is_the_remedy() -> None:
    features, rewards = _instance("logistic", seed=10)
    limited = fit("logistic", features, rewards, max_iterations=1)
    assert limited.status is Status.ITERATION_LIMIT
    assert "raise max_iterations" in limited.status.value
    apart = Ellipsoid(np.full(4, 5.0), np.eye(4), 1.0)
    assert fit("logistic", features, rewards, ball_radius=1.0, ellipsoid=apart).status is Status.INFEASIBLE


def test_kernel_uses_count_and_mask_without_copies() -> None:
    features, rewards = _instance("logistic", seed=11)
    buffer, longer = np.full((500, 4), np.nan), np.full(500, np.nan)
    buffer[:400], longer[:400] = features, rewards
    mask = (np.arange(500) % 2).astype(np.uint8)
    theta = np.zeros(4)
    code, _, _ = fit_kernel(
        0, buffer, longer, 400, no_weights(), mask, 1, 1.0, np.zeros(4),
        np.inf, np.zeros(4), np.eye(4), np.inf, 1e-9, 50, theta,
    )  # fmt: skip
    assert code == 0
    np.testing.assert_allclose(theta, fit("logistic", features[1::2], rewards[1::2], ridge=1.0).theta)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ridge": -1.0}, "ridge must be"),
        ({"ball_radius": 0.0}, "ball_radius must be positive"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"start": [1.0]}, "start must be finite"),
        ({"center": [np.nan] * 4}, "center must be finite"),
        ({"ellipsoid": Ellipsoid(np.zeros(2), np.eye(2), 1.0)}, "ellipsoid must have dimension 4"),
    ],
)
def test_refuses_bad_options(options: dict[str, object], message: str) -> None:
    features, rewards = _instance("logistic", seed=12)
    with pytest.raises(ValueError, match=message):
        fit("logistic", features, rewards, **options)  # type: ignore[arg-type]
