"""Sources of noise: one contract for all, and what each promises by itself."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from tacit.errors import BudgetExceeded, InvalidInput
from tacit.linalg.packing import rounded_to_grid
from tacit.privacy import (
    Budget,
    DiscreteGaussianRelease,
    ExactNoise,
    FastNoise,
    ForwardingNoise,
    GaussianRelease,
    Ledger,
    NoiseSource,
    NoNoise,
    SecureNoise,
    epsilon_from,
    make_noise,
    mu_from,
    noise_from_state,
)
from tacit.privacy.lattice import discretisation_slack, fits_reserve, lattice_mu
from tacit.privacy.noise import Shape
from tacit.typing import FloatArray

RANDOM = ("fast", "secure", "exact")
SIZE = 4000


def consistent_with(sample: FloatArray, scale: float) -> bool:
    """Sum of squares within six standard errors of the scale; false alarms have probability 2e-9."""
    sample = sample.ravel()
    return bool(abs(np.mean((sample / scale) ** 2) - 1.0) < 6.0 * math.sqrt(2.0 / sample.size))


def rounded(values: FloatArray, noise: NoiseSource) -> FloatArray:
    """Contributions as streams round them for this source."""
    return rounded_to_grid(values, noise.grid or 0.0)


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("scale", [0.01, 1.0, 37.5])
def test_scale_is_right_and_wrong_scales_are_seen(name: str, scale: float) -> None:
    sample = make_noise(name, 7).gaussian(scale, (SIZE // 4, 4))
    assert sample.shape == (SIZE // 4, 4)
    assert sample.dtype == np.float64
    assert consistent_with(sample, scale)
    assert not consistent_with(sample, scale * 2 / 3)
    assert not consistent_with(sample, scale * 3 / 2)


@pytest.mark.parametrize("name", RANDOM)
def test_shape_of_the_distribution(name: str) -> None:
    sample = make_noise(name, 8).gaussian(2.0, SIZE)
    assert stats.kstest(sample / 2.0, "norm").pvalue > 1e-7
    assert stats.kstest(sample / 3.0, "norm").pvalue < 1e-7
    assert abs(np.mean(sample)) < 6.0 * 2.0 / math.sqrt(SIZE)
    assert abs(np.corrcoef(sample[:-1], sample[1:])[0, 1]) < 6.0 / math.sqrt(SIZE)


@pytest.mark.parametrize("name", [*RANDOM, "none"])
def test_contract(name: str) -> None:
    noise = make_noise(name, 1)
    assert isinstance(noise, NoiseSource)
    assert noise.name == name
    assert noise.describe().startswith(name)
    assert noise.gaussian(1.0, ()).shape == ()
    assert noise.gaussian(1.0, 0).shape == (0,)
    assert json.loads(json.dumps(noise.state())) == noise.state()
    assert noise_from_state(noise.state()).name == name
    values = np.array([0.1, -2.7, 3.0])
    assert np.linalg.norm(rounded(values, noise) - values) <= 0.5 * noise.rounding_slack(3)


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_bad_scales_are_refused(name: str, scale: float) -> None:
    with pytest.raises(InvalidInput, match="scale must be"):
        make_noise(name, 1).gaussian(scale, 3)


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("rounds", [1, 3])
def test_planning_needs_no_special_cases(name: str, rounds: int) -> None:
    """Split the source's own mu in any way, charge its own events: it fits, and it is nearly all used."""
    budget = Budget(1.0, 1e-5, rounds)
    noise = make_noise(name, 1)
    mu = noise.mu_budget(budget)
    ledger = Ledger(budget)
    for share in (0.6, 0.8):
        sd = noise.scale_for(math.sqrt(2.0), share * mu, size=15)
        ledger.charge(noise.event("matrix", math.sqrt(2.0), sd, size=15, moving_sensitivity=1.0))
    assert 0.9997 < ledger.epsilon_spent <= 1.0 + 1e-9
    assert not ledger.fits(noise.event("more", 1.0, 1e3, size=15))


def test_fast_is_reproducible_and_resumes() -> None:
    for bits in (np.random.PCG64, np.random.Philox, np.random.SFC64, np.random.MT19937):
        noise = FastNoise(np.random.Generator(bits(5)))
        first = noise.gaussian(1.0, 7)
        saved = json.loads(json.dumps(noise.state()))
        later = noise.gaussian(1.0, 7)
        assert np.array_equal(FastNoise(np.random.Generator(bits(5))).gaussian(1.0, 7), first)
        assert np.array_equal(noise_from_state(saved).gaussian(1.0, 7), later)


@pytest.mark.parametrize("state", [{}, {"name": "loud"}, {"name": "fast"}, {"name": "exact", "grid": 0.3}])
def test_damaged_states_are_refused(state: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        noise_from_state(state)
    with pytest.raises(InvalidInput, match="damaged"):
        noise_from_state({"name": "fast", "generator": {"bit_generator": "PCG64", "state": 3}})


def test_secure_and_exact_ignore_seeds() -> None:
    for name in ("secure", "exact"):
        assert not np.array_equal(make_noise(name, 1).gaussian(1.0, 50), make_noise(name, 1).gaussian(1.0, 50))
    assert SecureNoise().state() == {"name": "secure"}


def test_secure_uses_sixty_four_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.array([0, 1, 2**64 - 1, 2**64 - 2, 2**63], dtype=np.uint64)
    monkeypatch.setattr("tacit.privacy.system_entropy.read", lambda size: words.tobytes()[:size])
    noise = SecureNoise().gaussian(1.0, 5)
    assert noise[1] == -noise[0] == pytest.approx(stats.norm.isf(2.0**-65))
    assert np.all(np.isfinite(noise))
    assert noise[2] == noise[3] == 0.0
    assert noise[4] == pytest.approx(-stats.norm.isf(0.25))


def test_no_noise_is_zero_and_fits_only_the_unlimited_budget() -> None:
    noise = NoNoise()
    assert not np.any(noise.gaussian(0.0, 4))
    assert "noise is off" in noise.describe()
    event = noise.event("sum", 1.0, 5.0, size=3)
    assert noise.scale_for(1.0, noise.mu_budget(Budget(math.inf, 1e-5)), size=3) == 0.0
    Ledger(Budget(math.inf, 1e-5)).charge(event)
    with pytest.raises(BudgetExceeded):
        Ledger(Budget(8.0, 0.02)).charge(event)


def test_exact_stays_on_the_grid_in_any_order() -> None:
    noise = ExactNoise()
    assert noise.grid == 2.0**-20
    rng = np.random.default_rng(4)
    rows = rounded(rng.uniform(-1.0, 1.0, (2000, 3)), noise)
    drawn = noise.gaussian(50.0, 3)
    total = rows.sum(axis=0) + drawn
    assert np.array_equal(total, rng.permutation(rows).sum(axis=0) + drawn)
    assert np.array_equal(total, drawn + sum(row for row in rows))
    for values in (rows, drawn, total):
        steps = values * 2.0**20
        assert np.array_equal(steps, np.rint(steps))


def test_exact_rounding_slack_covers_replacement_and_moving() -> None:
    noise = ExactNoise(2.0**-4)
    rng = np.random.default_rng(5)
    x, y = rng.uniform(-1.0, 1.0, (2, 500, 6))
    difference = rounded(x, noise) - rounded(y, noise)
    excess = np.linalg.norm(difference, axis=1) - np.linalg.norm(x - y, axis=1)
    assert np.max(excess) <= noise.rounding_slack(6) == math.sqrt(6.0) / 16.0
    event = noise.event("sum", 2.0, 900.0, size=6, moving_sensitivity=1.0)
    assert isinstance(event, DiscreteGaussianRelease)
    assert event.sensitivity == 2.0 + noise.rounding_slack(6)
    assert event.moving_sensitivity == 1.0 + 0.5 * noise.rounding_slack(6)
    assert (event.draws, event.grid) == (6, 2.0**-4)
    assert isinstance(FastNoise(rng).event("sum", 2.0, 9.0, size=6), GaussianRelease)


def test_exact_refuses_what_leaves_the_exact_range() -> None:
    noise = ExactNoise()
    with pytest.raises(InvalidInput, match="scale of exact noise must be at most"):
        noise.gaussian(2.0**27, 1)
    with pytest.raises(InvalidInput, match="power of two"):
        ExactNoise(0.001)


@pytest.mark.parametrize("steps", [4.0, 5.5, 12.0, 40.0])
def test_likelihood_ratio_of_the_lattice_lemma(steps: float) -> None:
    """Rounded continuous against discrete Gaussian, point by point, out to 16 standard deviations."""
    k = np.arange(-int(60 * steps), int(60 * steps) + 1)
    log_weights = -0.5 * (k / steps) ** 2
    log_discrete = log_weights - np.log(np.sum(np.exp(log_weights)))
    inside = np.abs(k) <= 16 * steps
    low, high = (np.abs(k) - 0.5) / steps, (np.abs(k) + 0.5) / steps
    log_low, log_high = stats.norm.logsf(low), stats.norm.logsf(high)
    log_rounded = log_low + np.log1p(-np.exp(log_high - log_low))
    assert np.max(np.abs(log_rounded - log_discrete)[inside]) <= discretisation_slack(1, steps)


@pytest.mark.parametrize(("steps", "shift"), [(40.0, 10), (100.0, 60), (200.0, 40)])
def test_discrete_gaussian_is_within_the_claim(steps: float, shift: int) -> None:
    """Its exact privacy, by an outside accountant, against Gaussian DP plus twice the slack."""
    oracle = pld.from_discrete_gaussian_mechanism(steps, sensitivity=shift, value_discretization_interval=1e-4)
    for delta in (1e-6, 0.02):
        slack = discretisation_slack(1, steps)
        claim = epsilon_from(shift / steps, delta * math.exp(-slack) * (1 - 1e-6)) + 2.0 * slack
        assert oracle.get_epsilon_for_delta(delta) <= claim + 1e-3  # PLDs round each loss up by 1e-4
        assert oracle.get_epsilon_for_delta(delta) > 0.97 * epsilon_from(shift / steps, delta)


def test_reserve_for_discreteness() -> None:
    assert 0.999 * mu_from(1.0, 1e-5) < lattice_mu(1.0, 1e-5) < mu_from(1.0, 1e-5)
    assert fits_reserve(discretisation_slack(10**6, 4.0 * 2**20), 10**6, 1.0, 1e-5)
    assert not fits_reserve(discretisation_slack(10**6, 1000.0), 10**6, 1.0, 1e-5)
    assert discretisation_slack(1, 3.9) == math.inf
    coarse = ExactNoise(2.0**-2)
    with pytest.raises(BudgetExceeded, match="finer grid"):
        Ledger(Budget(1.0, 1e-5)).charge(coarse.event("sum", 1.0, 10.0, size=4))


def test_generators_go_on_when_seeded_and_are_fresh_otherwise() -> None:
    fast = FastNoise(np.random.default_rng(3))
    assert fast.generator() is fast.rng
    for noise in (SecureNoise(), NoNoise()):
        first, second = noise.generator(), noise.generator()
        assert type(first.bit_generator) is np.random.Philox
        assert first.random() != second.random()
    with pytest.raises(InvalidInput, match="'fast' or noise='secure'"):
        ExactNoise().generator()


class Halved(ForwardingNoise):
    """Draws half of what it is asked for."""

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        return 0.5 * super().gaussian(scale, shape)


@pytest.mark.parametrize("name", [*RANDOM, "none"])
def test_a_wrapped_source_is_the_source_except_for_what_it_draws(name: str) -> None:
    source = make_noise(name, 5)
    wrapped, budget = Halved(source), Budget(2.0, 1e-5, 3)
    assert (wrapped.name, wrapped.grid, wrapped.describe()) == (source.name, source.grid, source.describe())
    assert wrapped.state() == source.state()
    assert wrapped.mu_budget(budget) == source.mu_budget(budget)
    assert wrapped.rounding_slack(7) == source.rounding_slack(7)
    assert wrapped.scale_for(1.5, 0.3, size=4) == source.scale_for(1.5, 0.3, size=4)
    charged = [
        each.event("sum", 2.0, 9.0, size=3, count=2, moving_sensitivity=1.5, note="x") for each in (wrapped, source)
    ]
    assert charged[0] == charged[1]
    if name == "fast":
        assert wrapped.generator() is source.generator()
        expected = FastNoise(np.random.default_rng(5)).gaussian(2.0, 4)
        assert np.array_equal(wrapped.gaussian(2.0, 4), 0.5 * expected)
    if name == "none":
        assert charged[0].noise_sd == 0.0


def test_unknown_noise_is_refused() -> None:
    with pytest.raises(InvalidInput, match="noise must be one of"):
        make_noise("pink")
    with pytest.raises(InvalidInput, match="rng must be"):
        FastNoise(np.random.RandomState(1))  # type: ignore[arg-type]
