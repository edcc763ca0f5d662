"""The contract of every private optimizer: guarantee, noise, utility, constraints, determinism."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import nnls

from tacit.estimation import (
    NoisyGradientDescent,
    NoisyNewton,
    PrivateOptimizer,
    PublicView,
    Regression,
    estimate,
)
from tacit.glm.likelihood import fit
from tacit.glm.links import LINKS, Link
from tacit.glm.rows import ALL_ROWS, Selection, rows_of
from tacit.linalg.projection import Ellipsoid
from tacit.privacy import Budget, BudgetExceeded, FastNoise, GaussianRelease, Ledger, NoNoise
from tacit.privacy.noise import Shape
from tacit.typing import FloatArray

PROBLEM = Regression(LINKS["logistic"], dim=3, theta_bound=2.0)
Maker = Callable[[Regression, float], PrivateOptimizer]


def _newton(problem: Regression, mu: float) -> PrivateOptimizer:
    return NoisyNewton(problem, mu)


def _descent(problem: Regression, mu: float) -> PrivateOptimizer:
    return NoisyGradientDescent.planned(problem, mu, 400)


@pytest.fixture(params=[_newton, _descent], ids=["newton", "descent"])
def make(request: pytest.FixtureRequest) -> Maker:
    maker: Maker = request.param
    return maker


class SpyNoise(FastNoise):
    """Counts what is drawn."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.default_rng(seed))
        self.drawn: list[tuple[float, Shape]] = []

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        self.drawn.append((scale, shape))
        return super().gaussian(scale, shape)


def _rows(seed: int, size: int = 400, scale: float = 1.5) -> Selection:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(size, PROBLEM.dim))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]
    theta = scale * np.array([0.6, -0.64, 0.48])
    return _all(features, (rng.random(size) < PROBLEM.link.mean(features @ theta)).astype(np.float64))


def _all(features: FloatArray, rewards: FloatArray) -> Selection:
    return Selection(rows_of(features, rewards), ALL_ROWS)


NOTHING = _all(np.zeros((0, 3)), np.zeros(0))


def _view(selection: Selection, ellipsoid: Ellipsoid | None = None) -> PublicView:
    features = selection.rows.features
    return PublicView(np.zeros(PROBLEM.dim), 0.25 * features.T @ features, ellipsoid=ellipsoid)


def _unlimited() -> Ledger:
    return Ledger(Budget(math.inf, 1e-5))


def _theta(optimizer: PrivateOptimizer, rows: Selection, view: PublicView, seed: int) -> FloatArray:
    noise = FastNoise(np.random.default_rng(seed))
    return estimate(optimizer, rows, view, charge=_unlimited().charge, noise=noise)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_noise_and_event_come_from_the_same_parameters(make: Maker, mu: float) -> None:
    optimizer = make(PROBLEM, mu)
    spy, ledger = SpyNoise(0), _unlimited()
    estimate(optimizer, _rows(0), _view(_rows(0)), charge=ledger.charge, noise=spy)
    event = ledger.entries[0].event
    assert isinstance(event, GaussianRelease)
    assert event.mu == pytest.approx(mu, rel=1e-12)
    assert (event.sensitivity, event.moving_sensitivity, event.count) == (2.0, 1.0, optimizer.steps)
    assert spy.drawn == [(event.noise_sd, (optimizer.steps, PROBLEM.dim))]
    assert event.noise_sd == pytest.approx(2.0 * math.sqrt(optimizer.steps) / mu)


def test_refusal_comes_before_any_noise(make: Maker) -> None:
    spy, ledger = SpyNoise(0), Ledger(Budget(1.0, 1e-5))
    with pytest.raises(BudgetExceeded):
        estimate(make(PROBLEM, 1.0), _rows(0), _view(_rows(0)), charge=ledger.charge, noise=spy)
    assert spy.drawn == []
    assert ledger.entries == ()


def test_nothing_visible_depends_on_rows(make: Maker) -> None:
    """Two extreme data sets: the same event and the same draws, to the last number."""
    seen = []
    for rows in (_rows(1), NOTHING):
        spy, ledger = SpyNoise(5), _unlimited()
        estimate(make(PROBLEM, 1.0), rows, _view(_rows(1)), charge=ledger.charge, noise=spy)
        seen.append((ledger.entries, spy.drawn, spy.state()))
    assert seen[0] == seen[1]


def _consistent(samples: FloatArray, sd: float) -> bool:
    """Whether the root mean square lies within four standard errors of ``sd``."""
    ratio = float(np.sqrt(np.mean(samples**2))) / sd
    return abs(ratio - 1.0) < 4.0 / math.sqrt(2.0 * samples.size)


def test_newton_adds_the_noise_it_states() -> None:
    problem = Regression(LINKS["logistic"], dim=3, theta_bound=500.0, ridge=10.0)
    optimizer = NoisyNewton(problem, 0.7, steps=1)
    view = PublicView(np.zeros(3), np.zeros((3, 3)))
    released = -10.0 * np.array([_theta(optimizer, NOTHING, view, seed) for seed in range(500)]).ravel()
    stated = optimizer.release(FastNoise(np.random.default_rng(0))).noise_sd
    assert _consistent(released, stated)
    assert not _consistent(released, stated * 2.0 / 3.0)
    assert not _consistent(released, stated * 3.0 / 2.0)


def test_descent_adds_the_noise_it_states() -> None:
    problem = Regression(LINKS["logistic"], dim=3, theta_bound=500.0, ridge=0.0)
    optimizer = NoisyGradientDescent(problem, 0.7, public_count=100_000, steps=2)
    view = PublicView(np.zeros(3))
    # The average of theta_0 = 0 and theta_1 is half the first noisy move.
    moves = np.array([_theta(optimizer, NOTHING, view, seed) for seed in range(500)]).ravel()
    released = -2.0 * moves * optimizer.public_count / optimizer.step_size
    stated = optimizer.release(FastNoise(np.random.default_rng(0))).noise_sd
    assert _consistent(released, stated)
    assert not _consistent(released, stated * 2.0 / 3.0)
    assert not _consistent(released, stated * 3.0 / 2.0)


def test_every_step_has_fresh_noise() -> None:
    """Exactly preconditioned, the mean of m iterates has the noise of one release at the whole budget."""
    problem = Regression(LINKS["identity"], dim=3, theta_bound=300.0, reward_bound=1.0, ridge=1.0)
    selection = _rows(2)
    features = selection.rows.features
    view = PublicView(np.zeros(3), features.T @ features)
    exact = fit("identity", features, selection.rows.rewards, ridge=1.0).theta

    def spread(steps: int, averaged: int) -> float:
        optimizer, noise = NoisyNewton(problem, 2000.0, steps, averaged), FastNoise(np.random.default_rng(1))
        release = optimizer.release(noise)
        draws = noise.gaussian(release.noise_sd, (400, steps, 3))
        errors = [optimizer.run(selection, view, release, draw) - exact for draw in draws]
        return float(np.sqrt(np.mean(np.square(errors))))

    single = spread(1, 1)
    assert spread(4, 4) == pytest.approx(single, rel=0.15)
    assert spread(4, 1) == pytest.approx(2.0 * single, rel=0.15)


def _loss(link: Link, selection: Selection, theta: FloatArray) -> float:
    z = selection.rows.features @ theta
    return float(np.sum(link.antiderivative(z) - link.antiderivative(0.0) - selection.rows.rewards * z))


def _unbalanced(problem: Regression, selection: Selection, ellipsoid: Ellipsoid | None, theta: FloatArray) -> float:
    """Distance of minus the gradient from the cone of the normals of ball and ellipsoid, where theta is on them."""
    features, rewards = selection.rows.features, selection.rows.rewards
    gradient = features.T @ (problem.link.mean(features @ theta) - rewards) + problem.ridge * theta
    normals = []
    if np.linalg.norm(theta) > (1.0 - 1e-9) * problem.theta_bound:
        normals.append(theta)
    if ellipsoid is not None and ellipsoid.distance(theta) > (1.0 - 1e-9) * ellipsoid.radius:
        normals.append(ellipsoid.matrix @ (theta - ellipsoid.center))
    return float(nnls(np.array([*normals, np.zeros(3)]).T, -gradient)[1])


@pytest.mark.parametrize("name", list(LINKS))
@pytest.mark.parametrize("kind", ["free", "ball", "ellipsoid", "both"])
def test_newton_without_noise_finds_the_maximum_likelihood(name: str, kind: str) -> None:
    region = Ellipsoid(np.array([0.1, 0.1, 0.0]), np.diag([4.0, 1.0, 2.0]), 0.4)
    ellipsoid = region if kind in ("ellipsoid", "both") else None
    selection, radius = _rows(3), 0.4 if kind in ("ball", "both") else 5.0
    problem, features = Regression(LINKS[name], 3, radius, ridge=0.5), selection.rows.features
    inside = fit(name, features, selection.rows.rewards, ridge=0.5, ball_radius=radius).theta
    precision = (features * LINKS[name].derivative(features @ inside)[:, None]).T @ features
    view = PublicView(np.zeros(3), 1.5 * precision, ellipsoid=ellipsoid)
    optimizer = NoisyNewton(problem, math.inf, steps=80, averaged=1)
    found = estimate(optimizer, selection, view, charge=_unlimited().charge, noise=NoNoise())
    assert np.linalg.norm(found) <= radius * (1.0 + 1e-12)
    assert ellipsoid is None or ellipsoid.distance(found) <= ellipsoid.radius * (1.0 + 1e-12)
    assert _unbalanced(problem, selection, ellipsoid, found) < 1e-6 * problem.ridge * features.shape[0]
    assert _unbalanced(problem, selection, ellipsoid, 0.99 * found) > 0.1
    if ellipsoid is None:
        np.testing.assert_allclose(found, inside, atol=1e-6)


def _fitted(selection: Selection, ridge: float) -> FloatArray:
    return fit("logistic", selection.rows.features, selection.rows.rewards, ridge=ridge, ball_radius=2.0).theta


def test_few_newton_steps_suffice_from_a_warm_start() -> None:
    selection = _rows(4)
    exact, features = _fitted(selection, 1.0), selection.rows.features
    precision = (features * PROBLEM.link.derivative(features @ exact)[:, None]).T @ features
    view = PublicView(exact + 0.1, precision)
    optimizer = NoisyNewton(PROBLEM, math.inf, steps=2, averaged=1)
    found = estimate(optimizer, selection, view, charge=_unlimited().charge, noise=NoNoise())
    assert np.linalg.norm(found - exact) < 1e-3


@pytest.mark.parametrize("steps", [100, 2500, 40_000])
def test_descent_without_noise_keeps_the_lemmas_rate(steps: int) -> None:
    """Loss gap at most D^2 / (2 eta T) + eta L^2 / 2 = 3 D L / (2 sqrt T), and theta near the optimum."""
    problem = Regression(LINKS["logistic"], 3, 2.0, ridge=0.0)
    selection = _rows(5, size=100)
    best = _fitted(selection, 0.0)
    optimizer = NoisyGradientDescent(problem, math.inf, 100, steps)
    view = PublicView(np.zeros(3))
    found = estimate(optimizer, selection, view, charge=_unlimited().charge, noise=NoNoise())
    gap = (_loss(PROBLEM.link, selection, found) - _loss(PROBLEM.link, selection, best)) / 100
    assert gap <= 1.5 * 4.0 / math.sqrt(steps)
    assert np.linalg.norm(found - best) <= 20.0 / math.sqrt(steps)


def test_utility_improves_with_budget(make: Maker) -> None:
    rows = _rows(6, size=2000)
    exact = _fitted(rows, 1.0)
    errors = [
        np.mean([np.linalg.norm(_theta(make(PROBLEM, mu), rows, _view(rows), s) - exact) for s in range(25)])
        for mu in (0.02, 0.2, 2.0)
    ]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("mu", [0.01, 10.0])
def test_constraints_hold_whatever_the_noise(make: Maker, mu: float) -> None:
    region = Ellipsoid(np.array([0.9, 0.1, 0.0]), np.diag([40.0, 1.0, 2.0]), 0.5)
    rows, problem = _rows(7), Regression(LINKS["logistic"], 3, 1.0)
    for seed in range(10):
        theta = _theta(make(problem, mu), rows, _view(rows, region), seed)
        assert np.linalg.norm(theta) <= 1.0 + 1e-9
        assert region.distance(theta) <= 0.5 + 1e-9


def test_same_seed_same_estimate(make: Maker) -> None:
    rows = _rows(8)
    first, again, other = (_theta(make(PROBLEM, 1.0), rows, _view(rows), seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_inputs_are_left_alone_and_order_does_not_matter(make: Maker) -> None:
    rows, order = _rows(9), np.random.default_rng(0).permutation(400)
    view = _view(rows)
    first = _theta(make(PROBLEM, 1.0), rows, view, 1)
    assert not np.any(view.start)
    shuffled = _all(rows.rows.features[order], rows.rows.rewards[order])
    assert np.array_equal(first, _theta(make(PROBLEM, 1.0), shuffled, view, 1))


def test_mask_selects_exploration_rows(make: Maker) -> None:
    rows, mask = _rows(10), (np.arange(400) % 3 == 0).astype(np.uint8)
    view = _view(rows)
    masked = Selection(rows.rows._replace(mask=mask), 1)
    copied = _all(rows.rows.features[mask == 1], rows.rows.rewards[mask == 1])
    assert np.array_equal(_theta(make(PROBLEM, 1.0), masked, view, 1), _theta(make(PROBLEM, 1.0), copied, view, 1))


def test_indefinite_released_matrix_is_survived() -> None:
    rows = _rows(11)
    view = PublicView(np.zeros(3), 0.25 * rows.rows.features.T @ rows.rows.features - 30.0 * np.eye(3))
    theta = _theta(NoisyNewton(PROBLEM, 1.0), rows, view, 0)
    assert np.linalg.norm(theta) <= 2.0 + 1e-12


def test_under_exact_noise_the_estimate_is_a_function_of_grid_values(make: Maker) -> None:
    """With the noise that a replaced row implies, which makes the released sums the same, no bit differs."""
    from tacit.privacy import ExactNoise

    rows, noise, optimizer = _rows(12), ExactNoise(2.0**-16), make(PROBLEM, 1.0)
    release, view = optimizer.release(noise, "x"), _view(rows)
    released, implied = list[FloatArray](), list[FloatArray]()
    assert release.grid == 2.0**-16
    assert release.event.mu == pytest.approx(1.0)

    def publish(exact: FloatArray, drawn: FloatArray, noise_sd: float) -> FloatArray:
        assert noise_sd == release.noise_sd
        released.append(exact + drawn)
        return exact + drawn

    def follow(exact: FloatArray, drawn: FloatArray, noise_sd: float) -> FloatArray:
        implied.append(released[len(implied)] - exact)
        return released[len(implied) - 1]

    draws = noise.gaussian(release.noise_sd, (optimizer.steps, PROBLEM.dim))
    theta = optimizer.run(rows, view, release, draws, publish)
    rewards = rows.rows.rewards.copy()
    rewards[0] = 1.0 - rewards[0]
    neighbour = _all(rows.rows.features, rewards)
    optimizer.run(neighbour, view, release, draws, follow)
    needed = np.array(implied)
    assert np.all(np.any(needed != draws, axis=1))
    for values in (np.array(released), needed):
        assert np.array_equal(values, release.grid * np.rint(values / release.grid))
    assert optimizer.run(neighbour, view, release, needed).tobytes() == theta.tobytes()
    assert optimizer.run(neighbour, view, release, draws).tobytes() != theta.tobytes()


def test_sharp_problems_draw_less_for_the_same_mu(make: Maker) -> None:
    sharp = Regression(LINKS["logistic"], 3, 2.0, sharp=True)
    noise = FastNoise(np.random.default_rng(0))
    plain, less = make(PROBLEM, 1.0).release(noise, "x"), make(sharp, 1.0).release(noise, "x")
    assert less.event.mu == pytest.approx(plain.event.mu)
    assert less.noise_sd / plain.noise_sd == pytest.approx(0.637, abs=0.005)
    assert less.event.moving_cost < less.event.cost


def test_lemmas_number_of_steps_from_public_numbers() -> None:
    plan = NoisyGradientDescent.planned(PROBLEM, 0.1, 200, failure_probability=0.1, max_steps=1000)
    assert plan.steps == math.ceil((200**2 * 0.1**2 / 2.0 + math.log(10.0)) / 3.0)
    assert NoisyGradientDescent.planned(PROBLEM, 1.0, 10**6, max_steps=77).steps == 77
    assert NoisyGradientDescent.planned(PROBLEM, math.inf, 10, max_steps=77).steps == 77
    assert NoisyGradientDescent.planned(PROBLEM, 1e-9, 1, failure_probability=0.9).steps == 1


def test_descent_matches_the_lemmas_sigma() -> None:
    """sigma^2 = 2 L^2 T / (n^2 rho) for gradients divided by n, with rho = mu^2 / 2."""
    plan = NoisyGradientDescent(PROBLEM, 0.8, public_count=500, steps=40)
    sigma = plan.release(FastNoise(np.random.default_rng(0))).noise_sd / 500
    assert sigma**2 == pytest.approx(2.0 * 40 / (500**2 * 0.5 * 0.8**2))


def test_refuses_bad_plans_and_calls() -> None:
    with pytest.raises(ValueError, match="mu must be positive"):
        NoisyNewton(PROBLEM, 0.0)
    with pytest.raises(ValueError, match="steps must be >= 1"):
        NoisyNewton(PROBLEM, 1.0, steps=0)
    with pytest.raises(ValueError, match="averaged must be >= 1"):
        NoisyNewton(PROBLEM, 1.0, averaged=0)
    with pytest.raises(ValueError, match="public_count must be >= 1"):
        NoisyGradientDescent.planned(PROBLEM, 1.0, 0)
    with pytest.raises(ValueError, match="ridge must be"):
        Regression(LINKS["logistic"], 3, 1.0, ridge=-1.0)
    rows, noise = _rows(13), NoNoise()
    newton = NoisyNewton(PROBLEM, math.inf)
    with pytest.raises(ValueError, match="precision must be given"):
        estimate(newton, rows, PublicView(np.zeros(3)), charge=_unlimited().charge, noise=noise)
    with pytest.raises(ValueError, match="must have dimension 3"):
        estimate(newton, rows, PublicView(np.zeros(2)), charge=_unlimited().charge, noise=noise)
    with pytest.raises(ValueError, match="precision must be finite"):
        PublicView(np.zeros(3), np.full((3, 3), np.nan))
    apart = Ellipsoid(np.full(3, 9.0), np.eye(3), 1.0)
    for optimizer in (newton, NoisyGradientDescent.planned(PROBLEM, math.inf, 10)):
        with pytest.raises(ValueError, match="ellipsoid must meet the ball"):
            estimate(optimizer, rows, _view(rows, apart), charge=_unlimited().charge, noise=noise)
