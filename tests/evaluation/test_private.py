"""The private value of a fixed policy: sensitivity, charge, noise, interval, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.evaluation import Trial, make_trial, private_value
from tacit.features import Category, Flag, Number, Schema
from tacit.privacy import ForwardingNoise, Randomness, make_noise
from tacit.privacy.noise import Shape
from tacit.typing import FloatArray
from tests.evaluation.worlds import RATES, log_of

SHARES = {"A": 0.5, "B": 0.3, "C": 0.2}
SCHEMA = Schema(user=[Number("age", 0, 100), Flag("smoker")], arm=[Category("drug", ["A", "B", "C"])], per_arm="drug")


class Watching(ForwardingNoise):
    """Writes down the scale of what is drawn, and draws nothing where it is told so."""

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__(make_noise("fast", seed=0))
        self.scales: list[float] = []
        self._silent = silent

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        self.scales.append(scale)
        return np.zeros(shape) if self._silent else super().gaussian(scale, shape)


def sources(noise: ForwardingNoise) -> Randomness:
    return Randomness(noise, noise, np.random.default_rng(0), seeded=True)


def trial_of(lines: int = 400, shares: dict[str, float] | None = None, seed: int = 0) -> Trial:
    chosen = SHARES if shares is None else shares
    return make_trial(SCHEMA, log_of(lines, chosen, seed), reward="cured", shares=chosen)


def sums_of(trial: Trial, policy: str | Sequence[float], limit: float) -> FloatArray:
    """The two exact sums, from the value that is made of them without noise."""
    bound = trial.reward_bound
    found = private_value(
        trial, policy, epsilon=1.0, delta=1e-5, largest_weight=limit, randomness=sources(Watching(silent=True))
    )
    chances = np.minimum((trial.given == trial.names.index(str(policy))) / trial.shares, limit)
    exact = np.array([chances @ (trial.rewards - 0.5 * bound), math.sqrt(0.75) * bound * chances.sum()])
    assert found.value == pytest.approx(0.5 * bound + exact[0] / (exact[1] / (math.sqrt(0.75) * bound)))
    return exact


@pytest.mark.parametrize("limit", [2.0, 3.0])
def test_no_replaced_line_moves_the_sums_by_more_than_is_charged(limit: float) -> None:
    """All corners of what one line can be, its probability included; the charge is attained."""
    schema = Schema(arm=[Category("drug", ["A", "B"])])
    log: dict[str, list[object]] = {"drug": ["A", "B"] * 20, "cured": [1.0, 0.0] * 20, "p": [0.5] * 40}
    sums = []
    for arm, reward, chance in product("AB", (0.0, 0.4, 2.0), (0.05, 1 / limit, 1.0)):
        first = {"drug": arm, "cured": reward, "p": chance}
        changed = {name: [first[name], *column[1:]] for name, column in log.items()}
        trial = make_trial(schema, changed, reward="cured", propensity="p", reward_bound=2.0)
        sums.append(sums_of(trial, "A", limit))
    shifts = [float(np.linalg.norm(ours - theirs)) for ours, theirs in product(sums, sums)]
    assert max(shifts) == pytest.approx(limit * 2.0, rel=1e-12)


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
    value = private_value(trial, "uniform", epsilon=1.0, delta=1e-5, randomness=sources(Watching(silent=True))).value
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
    for policy in ("D", [1.0, 2.0], np.full(SCHEMA.dim, np.nan)):
        with pytest.raises(InvalidInput):
            private_value(trial, policy, epsilon=1.0, delta=1e-5)


def test_without_privacy_there_is_no_noise() -> None:
    first, second = (private_value(trial_of(), "A", epsilon=math.inf, delta=1e-5) for _ in range(2))
    assert first.value == second.value
    assert "no privacy" in str(first.privacy)
