"""Right noise is never accused; every joint fault that marginal scales do not show is found, with its name."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tacit.audit.joint_draws import DrawRecord, joint_findings
from tacit.audit.statistics import noise_scale_bounds
from tacit.typing import FloatArray

RUNS, LEAVES, SIZE, STEPS, DIM = 40, 40, 9, 4, 3
"""A policy with d = 3: leaves of 6 matrix and 3 score entries, and an optimizer of 4 steps after every tenth leaf."""

Fault = Callable[[FloatArray, FloatArray], object]
"""Changes ticks (runs, leaves, size) and event draws (runs, calls, steps, dim) in place."""


def drawn(seed: int, runs: int = RUNS) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((runs, LEAVES, SIZE)), rng.standard_normal((runs, LEAVES // 10, STEPS, DIM))


def recorded(ticks: FloatArray, events: FloatArray) -> list[list[DrawRecord]]:
    """In the order in which a policy draws them."""
    runs: list[list[DrawRecord]] = []
    for leaves, calls in zip(ticks, events, strict=True):
        run: list[DrawRecord] = []
        for number, leaf in enumerate(leaves):
            run.append(("ticks", leaf))
            if number % 10 == 9:
                run.append(("events", calls[number // 10]))
        runs.append(run)
    return runs


def found(fault: Fault, seed: int = 1, runs: int = RUNS, steps: float = math.inf) -> list[str]:
    ticks, events = drawn(seed, runs)
    fault(ticks, events)
    if math.isfinite(steps):
        ticks, events = np.rint(ticks * steps) / steps, np.rint(events * steps) / steps
    return joint_findings(recorded(ticks, events), steps=steps)


def anti_score(ticks: FloatArray, events: FloatArray) -> None:
    ticks[..., 6:] = -ticks[..., :3]


def anti_score_other_places(ticks: FloatArray, events: FloatArray) -> None:
    """A score that is minus a rotation of the matrix: no two draws are equal, no pair is fully correlated."""
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    ticks[..., 6:] = -(ticks[..., :6] @ turn)[..., :3]


def later_leaf(ticks: FloatArray, events: FloatArray) -> None:
    ticks[0, 31] = ticks[0, 7]


def every_leaf_twice(ticks: FloatArray, events: FloatArray) -> None:
    ticks[:, 1::2] = ticks[:, ::2]


def antithetic(ticks: FloatArray, events: FloatArray) -> None:
    ticks[:, 1::2] = -ticks[:, ::2]


def half_antithetic(ticks: FloatArray, events: FloatArray) -> None:
    """Correlation -1/2 only."""
    ticks[:, 1::2] = math.sqrt(0.75) * ticks[:, 1::2] - 0.5 * ticks[:, ::2]


def same_in_events(ticks: FloatArray, events: FloatArray) -> None:
    """Both sources were made from the same seed; the shapes differ."""
    events[:] = ticks.reshape(len(ticks), -1)[:, : events[0].size].reshape(events.shape)


def noisy_copy_in_events(ticks: FloatArray, events: FloatArray) -> None:
    events[:, :, 0] = 0.8 * ticks[:, 9::10, :3] + 0.6 * events[:, :, 0]


def one_draw_twice(ticks: FloatArray, events: FloatArray) -> None:
    events[3, 0, 0, 0] = -ticks[2, 5, 8]


def same_call_twice(ticks: FloatArray, events: FloatArray) -> None:
    events[:, 1] = events[:, 0]


def same_runs(ticks: FloatArray, events: FloatArray) -> None:
    ticks[1::2] = ticks[::2]


def correlated_runs(ticks: FloatArray, events: FloatArray) -> None:
    ticks[1::2] = 0.8 * ticks[::2] + 0.6 * ticks[1::2]


def unequal_scales(ticks: FloatArray, events: FloatArray) -> None:
    """The overall sum of squares stays what it was."""
    ticks[..., 0] *= 2.0 / 3.0
    ticks[..., 1] *= math.sqrt(2.0 - 4.0 / 9.0)


def two_and_four_thirds(ticks: FloatArray, events: FloatArray) -> None:
    ticks[..., 0] *= 2.0 / 3.0
    ticks[..., 1] *= 4.0 / 3.0


def cancelling_in_a_run(ticks: FloatArray, events: FloatArray) -> None:
    ticks -= ticks.mean(axis=1, keepdims=True)


def one_sided(ticks: FloatArray, events: FloatArray) -> None:
    np.abs(ticks, out=ticks)


def noise_free_sum(ticks: FloatArray, events: FloatArray) -> None:
    """The sum of all nine entries has no noise; correlations are -1/8 only."""
    ticks -= ticks.mean(axis=2, keepdims=True)
    ticks *= math.sqrt(SIZE / (SIZE - 1))


@pytest.mark.parametrize(("seeds", "runs"), [(range(100), RUNS), (range(100, 200), 1)])
def test_right_noise_is_not_accused(seeds: range, runs: int) -> None:
    for seed in seeds:
        assert joint_findings(recorded(*drawn(seed, runs))) == []


def test_right_noise_is_accused_no_more_often_than_stated() -> None:
    """At a failure probability of 0.2, so that too many false alarms would be seen; the union bound leaves slack."""
    accused = [bool(joint_findings(recorded(*drawn(seed, 4)), failure=0.2, lags=1)) for seed in range(400)]
    assert 4 <= sum(accused) <= 40 + 4 * 6  # repeats have half of 0.2; plus four standard deviations


@pytest.mark.parametrize("releases", [1, 2, 3, 5, 12])
def test_few_releases_are_no_error_and_no_finding(releases: int) -> None:
    for seed in range(50):
        ticks = np.random.default_rng(seed).standard_normal((releases, SIZE))
        assert joint_findings([[("ticks", leaf) for leaf in ticks]], failure=1e-3) == []
    assert joint_findings([]) == joint_findings([[]]) == []


FAULTS: dict[Fault, str] = {
    anti_score: "have correlation -1.000 in 1600 lines, right is within 0.156 (3 of 36 pairs are beyond)",
    anti_score_other_places: "is known from the others up to 0.000",
    later_leaf: "occurs twice",
    every_leaf_twice: "releases 1 apart: coordinate",
    antithetic: "have correlation -1.000",
    half_antithetic: "have correlation -0.5",
    same_in_events: "occurs twice",
    noisy_copy_in_events: "ticks and the next of events",
    one_draw_twice: "a draw occurs twice, up to signs: ticks, run 2, release 5, coordinate 8; events, run 3, release 0",
    same_call_twice: "events, releases 4 apart",
    same_runs: "same release in neighbouring runs",
    correlated_runs: "same release in neighbouring runs",
    unequal_scales: "of 9 coordinates are outside",
    two_and_four_thirds: "(2 of 9 coordinates are outside)",
    cancelling_in_a_run: "the total of a run has 0.000",
    one_sided: "is not centred",
    noise_free_sum: "a combination, mostly of",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_faults_are_found(fault: Fault) -> None:
    for seed in (1, 2, 3):
        findings = found(fault, seed)
        assert any(FAULTS[fault] in finding for finding in findings), findings


@pytest.mark.parametrize(
    "fault",
    [
        anti_score,
        anti_score_other_places,
        later_leaf,
        every_leaf_twice,
        antithetic,
        same_in_events,
        same_call_twice,
        cancelling_in_a_run,
        noise_free_sum,
    ],
    ids=lambda fault: fault.__name__,
)
def test_full_dependence_is_found_in_a_single_run(fault: Fault) -> None:
    for seed in range(20):
        assert found(fault, seed, runs=1)


@pytest.mark.parametrize(
    "fault", [anti_score, later_leaf, every_leaf_twice, antithetic, same_in_events, same_runs], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("steps", [200.0, 2.0**20])
def test_noise_on_a_grid(fault: Fault, steps: float) -> None:
    """Single draws coincide by chance there; whole windows do not."""
    assert found(lambda ticks, events: None, steps=steps) == []
    assert found(fault, steps=steps)


@pytest.mark.parametrize("factor", [2.0 / 3.0, 1.5])
@pytest.mark.parametrize("runs", [1, RUNS])
def test_wrong_scale_is_found(factor: float, runs: int) -> None:
    for seed in range(20):
        ticks, events = drawn(seed, runs)
        assert any(finding.startswith("ticks") for finding in joint_findings(recorded(factor * ticks, events)))
        assert any(finding.startswith("events") for finding in joint_findings(recorded(ticks, factor * events))) or (
            runs == 1  # 48 draws are too few
        )


@pytest.mark.parametrize("fault", [anti_score, antithetic, later_leaf, same_in_events, unequal_scales])
def test_the_marginal_scale_is_blind_to_these(fault: Fault) -> None:
    ticks, events = drawn(1)
    fault(ticks, events)
    low, high = noise_scale_bounds(np.concatenate([ticks.ravel(), events.ravel()]))
    assert low < 1.0 < high


def test_three_hundred_releases_are_enough() -> None:
    rng = np.random.default_rng(5)
    for fault in (anti_score, anti_score_other_places, antithetic, two_and_four_thirds, noise_free_sum):
        ticks = rng.standard_normal((1, 300, SIZE))
        fault(ticks, ticks)
        assert joint_findings([[("ticks", leaf) for leaf in ticks[0]]])


def test_noise_that_is_not_finite_or_missing() -> None:
    ticks, events = drawn(0, 2)
    ticks[1, 3, 2] = math.nan
    assert joint_findings(recorded(ticks, events)) == ["ticks: noise that is not finite"]
    assert joint_findings(recorded(np.zeros_like(ticks), events))
