"""The solver against scipy and statsmodels, on the awkward data it must survive."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import NonlinearConstraint, minimize

from tacit.glm.likelihood import FitStatus, Limits, Objective, evaluate, fit, minimise
from tacit.glm.links import LINKS
from tacit.glm.rows import RowBuffer, Selection, selected
from tacit.typing import FloatArray, count


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
    def objective(theta: npt.NDArray[np.float64]) -> tuple[float, FloatArray]:
        value, gradient, _ = evaluate(LINKS[name], features, rewards, theta)
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
    assert result.status is FitStatus.CONVERGED
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


@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")
@pytest.mark.parametrize("name", ["logistic", "probit"])
def test_constrained_fits_agree_with_scipy(name: str) -> None:
    features, rewards = _instance(name, seed=3, dim=3)
    result = fit(name, features, rewards, ridge=0.1, ball_radius=0.6)
    assert result.status is FitStatus.CONVERGED
    expected = _reference(name, features, rewards, 0.1, [_ball(0.6)], np.array([0.2, -0.1, 0.3]))
    np.testing.assert_allclose(result.theta, expected, atol=2e-5)
    assert np.linalg.norm(result.theta) <= 0.6 * (1.0 + 1e-12)


@pytest.mark.parametrize("name", list(LINKS))
def test_on_the_ball_the_gradient_points_to_its_center(name: str) -> None:
    features, rewards = _instance(name, seed=4, dim=3)
    radius = 0.5 * float(np.linalg.norm(fit(name, features, rewards).theta))
    result = fit(name, features, rewards, ball_radius=radius)
    assert result.status is FitStatus.CONVERGED
    assert np.linalg.norm(result.theta) == pytest.approx(radius)
    gradient = evaluate(LINKS[name], features, rewards, result.theta).gradient
    multiplier = -float(gradient @ result.theta) / radius**2
    assert multiplier > 0.0
    assert np.linalg.norm(gradient + multiplier * result.theta) < 1e-7 * rewards.size


def test_no_rows_gives_the_origin() -> None:
    for ridge in (0.0, 2.0):
        result = fit("logistic", np.empty((0, 2)), np.empty(0), ridge=ridge)
        assert result.status is FitStatus.CONVERGED
        assert result.theta.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", list(LINKS))
def test_collinear_and_repeated_rows(name: str) -> None:
    features, rewards = _instance(name, seed=5, dim=2)
    tripled = np.repeat(features[:, [0, 1, 1]], 3, axis=0) / 2.0
    with_ridge = fit(name, tripled, np.repeat(rewards, 3), ridge=1.0)
    assert with_ridge.status is FitStatus.CONVERGED
    assert with_ridge.theta[1] == pytest.approx(with_ridge.theta[2], abs=1e-8)
    without = fit(name, tripled, np.repeat(rewards, 3))
    assert without.status is FitStatus.ILL_CONDITIONED
    plain = fit(name, features / 2.0, rewards).theta
    np.testing.assert_allclose([without.theta[0], without.theta[1:].sum()], plain, atol=1e-6)


def test_separable_rewards_need_ridge_or_ball() -> None:
    features, _ = _instance("logistic", seed=6)
    rewards = (features[:, 0] > 0.0).astype(np.float64)
    assert fit("logistic", features, rewards).status is not FitStatus.CONVERGED
    assert fit("logistic", features, rewards, ridge=1e-3).status is FitStatus.CONVERGED
    bounded = fit("logistic", features, rewards, ball_radius=300.0)
    assert bounded.status is FitStatus.CONVERGED
    assert np.linalg.norm(bounded.theta) == pytest.approx(300.0)


@pytest.mark.parametrize("name", ["logistic", "probit", "identity"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_far_starts_come_back(name: str, sign: float) -> None:
    features, rewards = _instance(name, seed=7)
    near = fit(name, features, rewards, ridge=1e-3)
    far = fit(name, features, rewards, ridge=1e-3, start=sign * np.array([350.0, 350.0, -350.0, 350.0]))
    assert far.status is FitStatus.CONVERGED
    np.testing.assert_allclose(far.theta, near.theta, atol=1e-6)


def test_log_link_from_above() -> None:
    features, rewards = _instance("log", seed=8)
    near, far = (fit("log", features, rewards, ridge=0.1, start=s * np.ones(4)) for s in (0.0, 12.0))
    assert far.status is FitStatus.CONVERGED
    np.testing.assert_allclose(far.theta, near.theta, atol=1e-7)


def test_a_fit_that_ends_early_is_no_worse_than_its_start() -> None:
    features, rewards = _instance("log", seed=9)
    start = np.full(4, 3.0)
    losses = [evaluate(LINKS["log"], features, rewards, start).value]
    for limit in range(1, 6):
        found = fit("log", features, rewards, start=start, max_iterations=limit)
        assert found.iterations == limit
        losses.append(evaluate(LINKS["log"], features, rewards, found.theta).value)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_status_text_is_the_remedy() -> None:
    features, rewards = _instance("logistic", seed=10)
    limited = fit("logistic", features, rewards, max_iterations=1)
    assert limited.status is FitStatus.ITERATION_LIMIT
    assert "raise max_iterations" in limited.status.value


def test_fits_use_what_is_held_and_marked() -> None:
    features, rewards = _instance("logistic", seed=11)
    buffer, longer = np.full((500, 4), np.nan), np.full(500, np.nan)
    buffer[:400], longer[:400] = features, rewards
    rows = RowBuffer(buffer, longer, (np.arange(500) % 2).astype(np.uint8), count(400))
    objective = Objective(LINKS["logistic"], *selected(Selection(rows, 1)), 1.0)
    found = minimise(objective, np.inf, Limits(1e-9, 50), np.zeros(4))
    assert found.status is FitStatus.CONVERGED
    np.testing.assert_allclose(found.theta, fit("logistic", features[1::2], rewards[1::2], ridge=1.0).theta)


def test_a_step_that_overflows_is_halved() -> None:
    """From below, Newton's point of the log link lies at a score of about exp(30), far above what exp can take."""
    found = fit("log", np.ones((3, 1)), np.full(3, 2.0), start=[-30.0], max_iterations=400)
    assert found.status is FitStatus.CONVERGED
    assert found.theta[0] == pytest.approx(np.log(2.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ridge": -1.0}, "ridge must be"),
        ({"ball_radius": 0.0}, "ball_radius must be positive"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"start": [1.0]}, "start must be finite"),
        ({"start": [np.nan] * 4}, "start must be finite"),
    ],
)
def test_refuses_bad_options(options: dict[str, object], message: str) -> None:
    features, rewards = _instance("logistic", seed=12)
    with pytest.raises(ValueError, match=message):
        fit("logistic", features, rewards, **options)  # type: ignore[arg-type]
