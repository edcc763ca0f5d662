"""Bits through three roles and sampled sums: one distribution, and tests that would notice another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import binom, chi2, ks_2samp

from tacit.errors import BatchTooSmall
from tacit.shuffle.analyzer import analyze
from tacit.shuffle.domains import Ball
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.shuffle.randomizer import randomize
from tacit.shuffle.shuffler import Shuffler
from tacit.shuffle.sums import sample_sum
from tacit.typing import FloatArray

RUNS = 2_000
USERS = 40
NUMERATOR = 9_830
PROTOCOL = SumProtocol("test", Ball(2), 6, 3, NUMERATOR, USERS)
Rows = Callable[[], FloatArray]
Release = Callable[[SumProtocol, FloatArray, np.random.Generator], Aggregate]


def by_bits(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> Aggregate:
    shuffler = Shuffler(protocol)
    shuffler.collect(randomize(protocol, rows, rng))
    return analyze(protocol, shuffler.release(rng))


@lru_cache
def sample(release: Release, rows_of: Rows, seed: int, protocol: SumProtocol = PROTOCOL) -> FloatArray:
    rows = rows_of()
    rng = np.random.default_rng(seed)
    return np.array([release(protocol, rows, rng).values for _ in range(RUNS)])


def on_grid() -> FloatArray:
    """Rows whose coordinates lie on the grid: what is released is then exactly binomial."""
    steps = np.array([(i % 4, -(i % 3)) for i in range(USERS)], dtype=np.float64)
    return steps / 6.0


def off_grid() -> FloatArray:
    rows = np.random.default_rng(0).normal(size=(USERS, 2))
    return np.asarray(0.9 * rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float64)


def binomial_fit(values: FloatArray, truth: float, protocol: SumProtocol) -> float:
    """p-value of a chi-square test of released values against ``protocol``'s exact distribution."""
    trials, p = protocol.noise_trials(USERS), protocol.noise_probability
    ones = np.rint((values - truth) / protocol.step + trials * p).astype(np.int64)
    edges = np.unique(binom.ppf(np.linspace(0.0, 1.0, 21)[1:-1], trials, p)).astype(np.int64)
    expected = np.diff(np.concatenate(([0.0], binom.cdf(edges, trials, p), [1.0]))) * RUNS
    seen = np.bincount(np.searchsorted(edges, ones), minlength=edges.size + 1)
    return float(chi2.sf(np.sum((seen - expected) ** 2 / expected), edges.size))


@pytest.mark.parametrize("release", [by_bits, sample_sum])
def test_the_distribution_is_binomial_and_no_other(release: Release) -> None:
    values = sample(release, on_grid, 11)[:, 0]
    truth = float(on_grid()[:, 0].sum())
    assert binomial_fit(values, truth, PROTOCOL) > 1e-3
    wrong = [
        replace(PROTOCOL, noise_numerator=NUMERATOR * 2 // 3),
        replace(PROTOCOL, noise_numerator=NUMERATOR * 3 // 2),
        replace(PROTOCOL, noise_bits=2),
        replace(PROTOCOL, noise_bits=4),
        replace(PROTOCOL, grid=5),
        replace(PROTOCOL, grid=7),
    ]
    for other in wrong:
        assert binomial_fit(values, truth, other) < 1e-6


def test_bits_and_sums_agree_for_any_rows() -> None:
    rows = off_grid()
    bits, sums = sample(by_bits, off_grid, 21), sample(sample_sum, off_grid, 22)
    for k in range(2):
        assert ks_2samp(bits[:, k], sums[:, k]).pvalue > 1e-3
    for values in (bits, sums):
        spread = values.std(axis=0)
        assert np.all(np.abs(values.mean(axis=0) - rows.sum(axis=0)) < 4.0 * spread / math.sqrt(RUNS))
        assert np.all(np.abs(spread / exact_sd(rows) - 1.0) < 4.0 / math.sqrt(2.0 * RUNS))
        assert abs(np.asarray(np.corrcoef(values.T))[0, 1]) < 4.0 / math.sqrt(RUNS)
        assert np.all(exact_sd(rows) <= PROTOCOL.noise_sd(USERS))


@pytest.mark.parametrize(("field", "value"), [("noise_numerator", NUMERATOR * 2 // 3), ("noise_bits", 4), ("grid", 4)])
def test_the_comparison_rejects_other_parameters(field: str, value: int) -> None:
    other = replace(PROTOCOL, **{field: value})  # type: ignore[arg-type]
    bits, sums = sample(by_bits, off_grid, 21)[:, 0], sample(sample_sum, off_grid, 32, other)[:, 0]
    assert ks_2samp(bits, sums).pvalue < 1e-3


def exact_sd(rows: FloatArray) -> FloatArray:
    """Standard deviation of a released coordinate: binomial noise and the rounding of these very rows."""
    scaled = PROTOCOL.scaled(PROTOCOL.domain.embed(rows))
    part = scaled - np.floor(scaled)
    p = PROTOCOL.noise_probability
    variance = PROTOCOL.noise_trials(USERS) * p * (1.0 - p) + np.sum(part * (1.0 - part), axis=0)
    return np.asarray(PROTOCOL.step * np.sqrt(variance), dtype=np.float64)


def test_sums_refuse_small_batches_too() -> None:
    with pytest.raises(BatchTooSmall):
        sample_sum(PROTOCOL, on_grid()[:-1], np.random.default_rng(0))
