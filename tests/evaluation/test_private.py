"""The private value of a fixed policy: sensitivity, charge, noise, interval, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from workloads.coverage import rare_rewards, too_seldom

import tacit
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.evaluation import Contender, Trial, make_trial, private_value
from tacit.evaluation.private import contributions
from tacit.features import Category, Flag, Number, Schema
from tacit.privacy import Budget, ForwardingNoise, Ledger, Randomness, make_noise
from tacit.privacy.noise import Shape
from tacit.typing import FloatArray
from tests.evaluation.worlds import RATES, log_of

SHARES = {"A": 0.5, "B": 0.3, "C": 0.2}
SCHEMA = Schema(user=[Number("age", 0, 100), Flag("smoker")], arm=[Category("drug", ["A", "B", "C"])], per_arm="drug")


class Watching(ForwardingNoise):
    """Writes down the scale of what is drawn; draws ``fixed`` in its place, and has a grid, where it is told so."""

    def __init__(self, fixed: Sequence[float] | None = None, grid: float | None = None) -> None:
        super().__init__(make_noise("fast", seed=0))
        self.scales: list[float] = []
        self._fixed, self._grid = fixed, grid

    @property
    def grid(self) -> float | None:
        return self._grid

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        self.scales.append(scale)
        return super().gaussian(scale, shape) if self._fixed is None else np.array(self._fixed)


SILENT = (0.0, 0.0)


def sources(noise: ForwardingNoise) -> Randomness:
    return Randomness(noise, noise, np.random.default_rng(0), seeded=True)


def trial_of(lines: int = 400, shares: dict[str, float] | None = None, seed: int = 0) -> Trial:
    chosen = SHARES if shares is None else shares
    return make_trial(SCHEMA, log_of(lines, chosen, seed), reward="cured", shares=chosen)


def test_no_replaced_line_moves_the_sums_by_more_than_is_charged() -> None:
    """All corners of what one line can be, its probability included; what the ledger says is attained."""
    schema = Schema(arm=[Category("drug", ["A", "B"])])
    log: dict[str, list[object]] = {"drug": ["A", "B"] * 20, "cured": [1.0, 0.0] * 20, "p": [0.5] * 40}
    for limit, bound in product((2.0, 3.0), (0.25, 2.0)):
        sums = []
        for arm, reward, chance in product("AB", (0.0, 0.2 * bound, bound), (0.05, 1 / limit, 1.0)):
            first = {"drug": arm, "cured": reward, "p": chance}
            changed = {name: [first[name], *column[1:]] for name, column in log.items()} | {
                "cured": [reward] + [0] * 39
            }
            trial = make_trial(schema, changed, reward="cured", propensity="p", reward_bound=bound)
            noise = Watching(SILENT)
            found = private_value(trial, "A", epsilon=1.0, delta=1e-5, largest_weight=limit, randomness=sources(noise))
            rows = contributions(trial, (trial.given == 0).astype(float), limit)
            sums.append(rows.sum(axis=0))
            assert found.value == pytest.approx(bound * (0.5 + math.sqrt(0.75) * sums[-1][0] / sums[-1][1]))
        shifts = [float(np.linalg.norm(ours - theirs)) for ours, theirs in product(sums, sums)]
        charged = found.privacy.entries[0].event.sensitivity
        assert max(shifts) == pytest.approx(charged, rel=1e-12)
        assert max(shifts) <= charged
        assert noise.scales == [pytest.approx(charged / Budget(1.0, 1e-5).mu)]


def test_rounded_products_stay_within_the_triangle() -> None:
    """Corners of the triangle in exact arithmetic, for limits whose products are rounded either way."""
    trial = replace(trial_of(3), rewards=np.array([0.0, 1.0, 1.0]), shares=np.full(3, 1e-3))
    for limit in np.random.default_rng(0).uniform(1.0, 20.0, 200).tolist():
        corners = contributions(trial, np.array([1.0, 1.0, 0.0]), limit).tolist()
        points = [[Fraction(value) for value in corner] for corner in corners]
        for one, other in product(points, points):
            assert sum((x - y) ** 2 for x, y in zip(one, other, strict=True)) <= Fraction(limit) ** 2


@pytest.mark.parametrize(
    ("name", "wrong"), [("rewards", 1e6), ("rewards", math.nan), ("shares", 0.0), ("shares", -1.0)]
)
def test_what_a_trial_should_not_hold_is_clipped_before_it_is_summed(name: str, wrong: float) -> None:
    """A trial refuses such numbers; the guarantee does not rest on that."""
    trial = trial_of(50)
    with pytest.raises(InvalidInput, match=name):
        replace(trial, **{name: np.full(50, wrong)})  # type: ignore[arg-type]
    changed = getattr(trial, name).copy()
    changed[0] = wrong
    before = contributions(trial, np.ones(50), 2.0)
    object.__setattr__(trial, name, changed)
    after = contributions(trial, np.ones(50), 2.0)
    assert np.array_equal(before[1:], after[1:])
    assert np.linalg.norm(before[0] - after[0]) <= 2.0
    assert np.all(np.abs(after[0]) <= (1.0, math.sqrt(0.75) * 2.0))


def test_a_trial_keeps_what_it_was_made_of() -> None:
    log = log_of(20, SHARES) | {"p": np.full(20, 0.5)}
    trial = make_trial(SCHEMA, log, reward="cured", propensity="p")
    before = trial.rewards.tolist(), trial.shares.tolist()
    log["cured"][:], log["p"][:] = 7.0, 0.0
    assert (trial.rewards.tolist(), trial.shares.tolist()) == before
    for name in ("given", "rewards", "shares"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(trial, name)[0] = 0
    with pytest.raises(InvalidInput, match="rewards must be one number"):
        replace(trial, rewards=np.zeros((20, 2)))


def test_contributions_are_rounded_to_the_grid() -> None:
    """By hand: 2 (0.3 - 0.5) is 409.6 steps of 2^-10 below 0, and sqrt(3) is 1773.6 of them."""
    schema = Schema(arm=[Category("drug", ["A", "B"])])
    trial = make_trial(schema, {"drug": ["A"], "cured": [0.3]}, reward="cured", shares="equal")
    noise = Watching(SILENT, grid=2.0**-10)
    found = private_value(trial, "A", epsilon=1.0, delta=1e-5, randomness=sources(noise))
    assert found.value == pytest.approx(0.5 - math.sqrt(0.75) * 410 / 1774, rel=1e-12)


def test_what_is_refused_is_refused_before_anything_is_charged_or_drawn() -> None:
    trial, noise, ledger = trial_of(), Watching(), Ledger(Budget(1.0, 1e-5))
    common: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "randomness": sources(noise), "ledger": ledger}
    for wrong in (
        {"confidence": 1.0},
        {"confidence": "95%"},
        {"epsilon": "1"},
        {"delta": 0.0},
        {"largest_weight": math.inf},
        {"randomness": sources(Watching(grid=2.0**-60))},
    ):
        with pytest.raises(InvalidInput):
            private_value(trial, "A", **(common | wrong))
    with pytest.raises(InvalidInput, match="ledger must be"):
        private_value(trial, "A", **(common | {"ledger": Budget(1.0, 1e-5)}))
    with pytest.raises(BudgetExceeded):
        private_value(trial, "A", **(common | {"epsilon": 2.0}))
    assert noise.scales == []
    assert ledger.entries == ()


def test_several_values_share_a_ledger() -> None:
    trial, ledger, noise = trial_of(), Ledger(Budget(1.0, 1e-5, rounds_per_user=2)), Watching()
    first = private_value(trial, "A", epsilon=0.6, delta=1e-5, ledger=ledger, randomness=sources(noise))
    assert noise.scales == [pytest.approx(2.0 / Budget(0.6, 1e-5, rounds_per_user=2).mu)]
    second = private_value(trial, "B", epsilon=0.6, delta=1e-5, ledger=ledger, randomness=sources(noise))
    assert [len(found.privacy.entries) for found in (first, second)] == [1, 2]
    assert second.privacy.rounds_per_user == 2
    with pytest.raises(BudgetExceeded):
        private_value(trial, "C", epsilon=0.6, delta=1e-5, ledger=ledger, randomness=sources(noise))
    assert len(noise.scales) == len(ledger.entries) == 2


def test_values_are_in_units_of_the_largest_reward() -> None:
    """A grid that is fixed must not matter more for small rewards."""
    trial = trial_of()
    for bound in (1e-6, 1e6):
        scaled = replace(trial, rewards=trial.rewards * bound, reward_bound=bound)
        ours, theirs = (
            private_value(one, "B", epsilon=1.0, delta=1e-5, randomness=sources(Watching())) for one in (scaled, trial)
        )
        assert ours.privacy.entries == theirs.privacy.entries
        assert np.allclose(
            [ours.value / bound, ours.low / bound, ours.high / bound], [theirs.value, theirs.low, theirs.high]
        )


def test_noise_is_what_the_ledger_was_charged_for() -> None:
    noise = Watching()
    found = private_value(trial_of(), "B", epsilon=1.0, delta=1e-5, randomness=sources(noise))
    (entry,) = found.privacy.entries
    assert noise.scales == [entry.event.noise_sd]
    assert entry.event.sensitivity == pytest.approx(1 / 0.3)
    assert entry.event.count == 1
    assert found.privacy.spent_epsilon == pytest.approx(1.0, rel=1e-9)
    assert found.privacy.model == "central"


def test_the_spread_of_releases_is_that_of_the_noise() -> None:
    """With 2/3 of the noise the ratio of variances would be 0.44; 400 releases tell 0.8 from 1 by five deviations."""
    trial, noise = trial_of(20_000), Watching()
    values = np.array(
        [private_value(trial, "uniform", epsilon=1.0, delta=1e-5, randomness=sources(noise)).value for _ in range(400)]
    )
    value = private_value(trial, "uniform", epsilon=1.0, delta=1e-5, randomness=sources(Watching(SILENT))).value
    sd = noise.scales[0] / trial.size
    planned = sd**2 * (1.0 + ((value - 0.5) / math.sqrt(0.75)) ** 2)
    assert 0.65 < np.var(values) / planned < 1.35


def test_exact_noise_of_the_operating_system_by_default() -> None:
    found = private_value(trial_of(), "A", epsilon=4.0, delta=1e-6)
    assert found.privacy.noise.startswith("exact")
    assert found.low <= found.value <= found.high


def test_weights_are_cut_at_the_largest_that_the_design_admits() -> None:
    trial = trial_of()
    for policy, limit in (("A", 2.0), ("C", 5.0), ("uniform", 5.0 / 3.0), (np.ones(SCHEMA.dim), 5.0)):
        noise = Watching()
        found = private_value(trial, policy, epsilon=1.0, delta=1e-5, randomness=sources(noise))
        assert found.privacy.entries[0].event.sensitivity == pytest.approx(limit), policy
        assert not any("cut" in warning for warning in found.privacy.warnings)
        cut = private_value(trial, policy, epsilon=1.0, delta=1e-5, largest_weight=1.5, randomness=sources(noise))
        assert "weights are cut at 1.5" in "".join(cut.privacy.warnings)


def test_a_public_parameter_chooses_the_arm_of_the_largest_score() -> None:
    """Smokers get A, others C: the weights of the schema say so by hand."""
    theta = np.zeros(SCHEMA.dim)
    for name, value in (("smoker @ drug=A", 2.0), ("1 @ drug=C", 1.0)):
        theta[SCHEMA.names.index(name)] = value
    trial = trial_of(40_000)
    found = private_value(trial, theta, epsilon=1.0, delta=1e-5)
    assert found.low < 0.5 * (RATES[True]["A"] + RATES[False]["C"]) < found.high
    assert found.high - found.low < 0.06


def test_an_interval_that_noise_hides_is_everything() -> None:
    found = private_value(trial_of(5), "A", epsilon=0.01, delta=1e-9, randomness=sources(Watching()))
    assert (found.low, found.high) == (0.0, 1.0)
    trial = trial_of(200)
    first, second = contributions(trial, (trial.given == 0).astype(float), 2.0).sum(axis=0)
    beyond = 0.53 * second / math.sqrt(0.75) - first
    # Fewer than nobody matches; noise hides whether anybody does; no value at all is plausible; none in [0, 1] is.
    for epsilon, drawn in (
        (1.0, (0.0, -1e4)),
        (0.2, (69.0 - first, 4.3 - second)),
        (8.0, (beyond, 0.0)),
        (0.2, (400.0, 0.0)),
        (0.2, (-400.0, 0.0)),
    ):
        found = private_value(trial, "A", epsilon=epsilon, delta=1e-5, randomness=sources(Watching(drawn)))
        assert (found.low, found.high) == (0.0, 1.0)
        assert 0.0 <= found.value <= 1.0


def rejected(trial: Trial, value: float, released: tuple[float, float], sd: float, deviations: float) -> bool:
    """Whether a value is implausible by hand: A - u B against its own standard deviation."""
    first, share = released[0] / trial.size, released[1] / math.sqrt(0.75) / trial.size
    u, sampled = value - 0.5, 2.0 * share * value * (1.0 - value) / trial.size
    return abs(first - u * share) > deviations * math.sqrt(sampled + sd**2 * (1.0 + u**2 / 0.75))


@pytest.mark.parametrize(("confidence", "deviations"), [(0.95, 1.959964), (0.5, 0.6744898)])
def test_an_interval_is_what_is_not_rejected(confidence: float, deviations: float) -> None:
    trial = trial_of(200)
    exact = contributions(trial, (trial.given == 0).astype(float), 2.0).sum(axis=0)
    for drawn in ((0.0, 0.0), (30.0, -20.0), (-60.0, 40.0)):
        noise = Watching(drawn)
        found = private_value(trial, "A", epsilon=0.5, delta=1e-5, confidence=confidence, randomness=sources(noise))
        released = float(exact[0] + drawn[0]), float(exact[1] + drawn[1])
        sd = noise.scales[0] / trial.size
        for value in np.linspace(0.0, 1.0, 101):
            if min(abs(value - found.low), abs(value - found.high)) > 1e-5:
                inside = found.low < value < found.high
                assert inside != rejected(trial, float(value), released, sd, deviations), (drawn, value)


def test_intervals_of_rare_rewards_hold() -> None:
    """The first form of the interval held 87.5% of the time here; it must be able to fail as well."""
    held = rare_rewards(8.0, 1_000, 400, seed=3)
    assert not too_seldom(held, 400)
    assert too_seldom(round(0.875 * 400), 400)


def test_what_would_not_be_private_is_refused() -> None:
    trial = trial_of()
    learning = tacit.make_policy("stream-glm", features=SCHEMA, epsilon=1.0, delta=1e-5)
    with pytest.raises(InvalidInput, match="a policy that learns"):
        private_value(trial, learning, epsilon=1.0, delta=1e-5)  # type: ignore[arg-type]
    log = log_of(400, SHARES) | {"site": ["x"] * 400, "p": [0.5] * 400}
    counted = make_trial(SCHEMA, log, reward="cured", stratum="site")
    with pytest.raises(InvalidInput, match="counted in the log"):
        private_value(counted, "A", epsilon=1.0, delta=1e-5)
    column = make_trial(SCHEMA, log, reward="cured", propensity="p")
    with pytest.raises(InvalidInput, match="largest_weight"):
        private_value(column, "A", epsilon=1.0, delta=1e-5)
    wrong: list[Any] = ["D", [1.0, 2.0], np.full(SCHEMA.dim, np.nan), ["A"], len, Contender("random"), None]
    for policy in wrong:
        with pytest.raises(InvalidInput, match="policy must be"):
            private_value(trial, policy, epsilon=1.0, delta=1e-5)
    named = Schema(arm=[Category("drug", ["uniform", "B"])])
    trial = make_trial(named, {"drug": ["uniform", "B"], "cured": [1, 0]}, reward="cured", shares="equal")
    with pytest.raises(InvalidInput, match="no arm may be called"):
        private_value(trial, "uniform", epsilon=1.0, delta=1e-5)


def test_without_privacy_there_is_no_noise() -> None:
    first, second = (private_value(trial_of(), "A", epsilon=math.inf, delta=1e-5) for _ in range(2))
    assert first.value == second.value
    assert "no privacy" in str(first.privacy)
