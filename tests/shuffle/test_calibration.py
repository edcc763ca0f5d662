"""Calibration: exact in one dimension, never optimistic for vectors, small messages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import binom
from tests.steady import effort_of

from tacit.errors import CalibrationError, InvalidInput
from tacit.privacy.gaussian import mu_from
from tacit.shuffle.calibration import _calibrated, calibrate, epsilon_at, matrix_report
from tacit.shuffle.domains import Ball, OuterProducts
from tacit.shuffle.guarantee import binomial_dominance
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

WINDOW = 9.0
"""Standard deviations of noise kept by the exact computations: what lies beyond weighs less than 1e-18."""


def noise_window(protocol: SumProtocol) -> FloatArray:
    trials, p = protocol.noise_trials(protocol.min_users), protocol.noise_probability
    mean, sd = trials * p, math.sqrt(trials * p * (1.0 - p))
    margin = WINDOW * sd + float(protocol.levels.max()) + 2.0
    y = np.arange(max(0, int(mean - margin)), min(trials, int(mean + margin)) + 1)
    return np.asarray(binom.pmf(y, trials, p), dtype=np.float64)


def law(noise: FloatArray, x: float, levels: int) -> FloatArray:
    """Mass function of a scaled value x, rounded at random, plus noise."""
    whole = min(math.floor(x), levels)
    part = x - whole
    out = np.zeros(noise.size + levels + 1)
    out[whole : whole + noise.size] += (1.0 - part) * noise
    if part > 0.0:
        out[whole + 1 : whole + 1 + noise.size] += part * noise
    return out


def exact_epsilon(noise: FloatArray, shift: int, delta: float) -> float:
    """By dp-accounting, from the two mass functions, over both directions."""
    masses = {k: math.log(m) for k, m in enumerate(noise) if m > 0.0}
    shifted = {k + shift: m for k, m in masses.items()}
    loss = pld.from_two_probability_mass_functions(
        masses,
        shifted,
        value_discretization_interval=1e-4,
        pessimistic_estimate=False,
        symmetric=False,
    )
    return float(loss.get_epsilon_for_delta(delta))


def test_the_specified_setting_needs_a_few_dozen_bits() -> None:
    report = matrix_report(10_000, 5, 1.0, 1e-6)
    paper = report["paper"]
    assert isinstance(paper, dict)
    assert report["bits_per_coordinate"] <= 26  # type: ignore[operator]
    assert report["noise_sd"] <= 1.2 * report["central_gaussian_sd"]  # type: ignore[operator]
    assert report["central_gaussian_sd"] == pytest.approx(math.sqrt(2.0) / 0.23670, rel=1e-4)
    assert report["epsilon_at_80_percent_honest"] == pytest.approx(1.13, abs=0.01)
    assert report["epsilon_at_50_percent_honest"] == pytest.approx(1.46, abs=0.01)
    assert paper["bits_per_coordinate"] == pytest.approx(3.27e8, rel=0.01)
    assert paper["noise_sd"] == pytest.approx(3_916, rel=0.001)
    assert set(report) - {"paper"} == set(paper)


def test_twice_the_bound_as_sensitivity() -> None:
    protocol = calibrate(Ball(15), 10_000, 1.0, 1e-6)
    assert protocol.bits_per_coordinate == 2 * protocol.grid + protocol.noise_bits <= 46
    assert protocol.noise_sd(10_000) <= 1.2 * 2.0 / mu_from(1.0, 1e-6)


def test_calibration_is_cheap() -> None:
    """Its searches end soon: counted, since how long that takes is the machine's business."""

    def calibrated() -> None:
        _calibrated.cache_clear()
        binomial_dominance.cache_clear()
        matrix_report(10_000, 5, 1.0, 1e-6)

    calibrated()
    effort = effort_of(calibrated)
    assert effort.calls < 20_000  # 5,733
    assert effort.peak < 2_000_000  # 0.25 MB


@pytest.mark.parametrize(
    ("users", "epsilon", "delta"),
    [(10_000, 1.0, 1e-6), (1_000, 1.0, 1e-5), (1_000, 0.3, 0.02), (2_000, 4.0, 1e-6), (3_000, 8.0, 0.02)],
)
@pytest.mark.parametrize("honest", [1.0, 0.8, 0.5])
def test_in_one_dimension_within_ten_percent_of_the_exact_value(
    users: int, epsilon: float, delta: float, honest: float
) -> None:
    protocol = calibrate(Ball(1), users, epsilon, delta)
    claimed = epsilon_at(protocol, delta, honest)
    smaller = SumProtocol(
        "", protocol.domain, protocol.grid, protocol.noise_bits, protocol.noise_numerator, int(honest * users)
    )
    exact = exact_epsilon(noise_window(smaller), 2 * protocol.grid, delta)
    assert exact <= claimed <= 1.10 * exact
    assert honest < 1.0 or claimed <= epsilon


def vector_delta(protocol: SumProtocol, x: FloatArray, y: FloatArray, epsilon: float) -> float:
    """Exact hockey-stick divergence of three coordinates: all pairs of losses of two, a table for the third.

    sum_k P_k (1 - e^(t - L_k))_+ is the divergence of one coordinate at t; coordinates are independent, so
    that of three is its mean over the losses of the other two, at t = epsilon - L_i - L_j.
    """
    noise = noise_window(protocol)
    masses, losses = [], []
    for k in range(3):
        levels = int(protocol.levels[k])
        p, q = law(noise, float(x[k]), levels), law(noise, float(y[k]), levels)
        both = (p > 1e-12) & (q > 0.0)
        masses.append(p[both])
        losses.append(np.log(p[both] / q[both]))
    order = np.argsort(losses[2])
    last_mass, last_loss = masses[2][order], losses[2][order]
    above = np.append(np.cumsum(last_mass[::-1])[::-1], 0.0)
    weighted = np.append(np.cumsum((last_mass * np.exp(-last_loss))[::-1])[::-1], 0.0)
    level = epsilon - np.add.outer(losses[0], losses[1])
    first = np.searchsorted(last_loss, level)
    single = above[first] - np.exp(np.minimum(level, 700.0)) * weighted[first]
    return float(masses[0] @ np.maximum(single, 0.0) @ masses[1])


def random_rows(rng: np.random.Generator, count: int) -> FloatArray:
    """Users in the unit disc: on the circle for the most part, and on the axes and diagonals."""
    angle = np.where(rng.random(count) < 0.3, rng.integers(0, 8, count) * math.pi / 4, rng.uniform(0, 7, count))
    radius = np.where(rng.random(count) < 0.8, 1.0, rng.random(count))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def test_for_matrices_never_below_the_exact_value() -> None:
    """1,000 pairs of neighbouring users: the mechanism as it is, rounding included, three coordinates."""
    users, epsilon, delta = 400, 2.0, 1e-4
    protocol = calibrate(OuterProducts(2), users, epsilon, delta)
    rng = np.random.default_rng(3)
    x, y = (protocol.scaled(protocol.domain.embed(random_rows(rng, 1_000))) for _ in range(2))
    x[0], y[0] = (protocol.scaled(protocol.domain.embed(np.eye(2)[[i]]))[0] for i in (0, 1))
    claimed = epsilon_at(protocol, delta)
    exact = np.array([vector_delta(protocol, x[i], y[i], claimed) for i in range(1_000)])
    assert np.max(exact) <= delta * (1.0 - 1e-4)  # masses below 1e-12 were left out
    assert np.max(exact) >= 0.5 * delta  # the worst pair uses up most of the budget


def test_for_vectors_never_below_the_exact_value_over_integer_shifts() -> None:
    """1,000 ways to spend the norm 2 g on integer shifts of three coordinates, extreme ones, random ones."""
    users, epsilon, delta = 300, 3.0, 1e-4
    protocol = calibrate(Ball(3), users, epsilon, delta)
    grid = protocol.grid
    limit = (2 * grid) ** 2
    shifts = [
        (a, b, math.isqrt(limit - a * a - b * b))
        for a in range(-2 * grid, 2 * grid + 1)
        for b in range(-2 * grid, 2 * grid + 1)
        if a * a + b * b <= limit
    ]
    rng = np.random.default_rng(4)
    chosen = [shifts[i] for i in rng.permutation(len(shifts))[:1_000]]
    chosen += [(2 * grid, 0, 0), (0, -2 * grid, 0), (grid, grid, math.isqrt(2) * grid), (1, 1, 1)]
    while len(chosen) < 1_010:
        s = rng.integers(-2 * grid, 2 * grid + 1, 3)
        if s @ s <= limit:
            chosen.append((int(s[0]), int(s[1]), int(s[2])))
    claimed = epsilon_at(protocol, delta)
    worst = 0.0
    for shift in chosen:
        start = np.where(np.asarray(shift) < 0, 2 * grid, 0).astype(np.float64)
        worst = max(worst, vector_delta(protocol, start + shift, start, claimed))
    assert 0.4 * delta <= worst <= delta


def test_six_coordinates_by_composed_loss_distributions() -> None:
    users, epsilon, delta = 2_000, 1.0, 1e-5
    protocol = calibrate(Ball(6), users, epsilon, delta)
    noise = noise_window(protocol)
    budget = (2 * protocol.grid) ** 2
    even = math.isqrt(budget // 6)
    for shift in [
        (even,) * 6,
        (2 * protocol.grid,),
        (even, even, even, 1, 1, math.isqrt(budget - 3 * even**2 - 2)),
    ]:
        total = None
        for s in shift:
            masses = {k: math.log(m) for k, m in enumerate(noise) if m > 0.0}
            loss = pld.from_two_probability_mass_functions(
                masses,
                {k + s: m for k, m in masses.items()},
                value_discretization_interval=1e-4,
                pessimistic_estimate=False,
                symmetric=False,
            )
            total = loss if total is None else total.compose(loss)
        assert total is not None
        assert total.get_epsilon_for_delta(delta) <= epsilon_at(protocol, delta) <= epsilon


def test_more_honest_users_never_hurt_and_bounds_are_respected() -> None:
    protocol = calibrate(OuterProducts(4), 5_000, 0.7, 1e-6, max_bits=40)
    epsilons = [epsilon_at(protocol, 1e-6, honest) for honest in (0.3, 0.5, 0.8, 1.0)]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[-1] <= 0.7
    assert protocol.bits_per_coordinate <= 40


def test_for_a_given_message_more_bits_mean_less_noise() -> None:
    noise = [calibrate(OuterProducts(5), 10**6, 1.0, 1e-6, max_bits=bits).noise_sd(10**6) for bits in (12, 24, 48, 96)]
    assert noise == sorted(noise, reverse=True)


def test_impossible_requests_say_what_would_help() -> None:
    with pytest.raises(CalibrationError, match="admit more users"):
        calibrate(OuterProducts(5), 10, 0.1, 1e-9)
    with pytest.raises(InvalidInput, match="epsilon"):
        calibrate(Ball(2), 100, -1.0, 1e-6)
    with pytest.raises(InvalidInput, match="honest"):
        epsilon_at(calibrate(Ball(2), 1_000, 1.0, 1e-6), 1e-6, 0.0)
