"""Continual releases: exact sums without noise, stated noise with it, replay of neighbours, epochs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.linalg.packing import packed_size
from tacit.policies.state import flatten, public_part, rebuild, size_in_bytes
from tacit.privacy.budget import Budget
from tacit.privacy.continual import (
    ContinualRelease,
    Stream,
    close_leaf,
    contribute,
    contribute_outer,
    drop_raw,
    plan_release,
    published,
    released_variance,
    replay_leaf,
    start_epoch,
)
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise import FastNoise, NoNoise, make_noise
from tacit.typing import FloatArray

KINDS = ["tree", "toeplitz"]


def make_plan(kind: str, horizon: int, size: int = 3, mu: float = 1.0, noise: str = "fast") -> ContinualRelease:
    return plan_release(
        "test",
        size,
        row_bound=math.sqrt(2.0),
        row_norm=1.0,
        mu=mu,
        factorization=kind,
        horizon=horizon,
        source=make_noise(noise, 7),
    )


def prefixes(plan: ContinualRelease, rows: FloatArray, noise: FloatArray) -> FloatArray:
    stream = plan.open()
    out = np.empty_like(noise)
    for t in range(len(noise)):
        contribute(stream, 0, np.atleast_2d(rows[t]))
        assert close_leaf(stream, noise[t], 1)
        out[t] = stream.released
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("horizon", [1, 5, 64, 100])
def test_without_noise_every_prefix_is_the_sum(kind: str, horizon: int) -> None:
    rows = np.random.default_rng(0).standard_normal((horizon, 3))
    out = prefixes(make_plan(kind, horizon), rows, np.zeros((horizon, 3)))
    np.testing.assert_allclose(out, np.cumsum(rows, axis=0), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_every_prefix_has_the_stated_noise_and_no_other(kind: str) -> None:
    """T = 1,000: the measured sd of every prefix is within 3 standard errors; 2/3 and 3/2 of it are not."""
    horizon, size = 1_000, 2_000
    plan = make_plan(kind, horizon, size)
    noise = plan.source.gaussian(plan.noise_sd, (horizon, size))
    out = prefixes(plan, np.zeros((horizon, size)), noise)
    stated = plan.noise_sd * np.sqrt(plan.factorization.prefix_variance(np.arange(1, horizon + 1)))
    measured = np.sqrt(np.mean(out**2, axis=1))
    standard_error = stated / math.sqrt(2.0 * size)
    # 1,000 correlated prefixes: allow the few beyond 3 that chance gives, none beyond 5.
    deviation = np.abs(measured - stated) / standard_error
    assert np.mean(deviation > 3.0) < 0.02
    assert np.max(deviation) < 5.0
    for wrong in (2.0 / 3.0, 1.5):
        assert np.all(np.abs(measured - wrong * stated) > 5.0 * wrong * standard_error)


@pytest.mark.parametrize("kind", KINDS)
def test_streaming_variance_is_the_stated_one(kind: str) -> None:
    plan = make_plan(kind, 200)
    stream = plan.open()
    stated = plan.noise_sd**2 * plan.factorization.prefix_variance(np.arange(1, 201))
    for t in range(200):
        close_leaf(stream, np.zeros(3), 1)
        assert released_variance(stream) == pytest.approx(stated[t], rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_charged_mu_is_that_of_the_noise_drawn(kind: str) -> None:
    plan = make_plan(kind, 500, mu=0.6)
    ledger = Ledger(Budget(1.0, 0.02))
    ledger.charge(plan.event())
    assert ledger.mu_spent == pytest.approx(0.6, rel=1e-12)
    assert plan.open().noise_sd[()] == plan.noise_sd
    assert plan.noise_sd == pytest.approx(math.sqrt(2.0) * plan.factorization.column_norm / 0.6)


def independent_releases(kind: str, plan: ContinualRelease, rows: FloatArray) -> FloatArray:
    """C x: what is released with independent noise.  Recovered from the stream by its response to noise."""
    horizon = len(rows)
    response = np.empty((horizon, horizon))
    for t in range(horizon):
        unit = np.zeros((horizon, 3))
        unit[t] = 1.0
        response[:, t] = prefixes(plan, np.zeros((horizon, 3)), unit)[:, 0]
    clean = prefixes(plan, rows, np.zeros((horizon, 3)))
    return np.asarray(np.linalg.solve(response, clean), dtype=np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_a_replaced_moved_or_missing_row_shifts_releases_by_at_most_the_sensitivity(kind: str) -> None:
    rng = np.random.default_rng(3)
    horizon, worst = 24, 0.0
    plan = make_plan(kind, horizon)
    sensitivity = plan.noise_sd * plan.mu
    for trial in range(60):
        rows = np.zeros((horizon, 3))
        other = rows.copy()
        first, second = rng.integers(horizon, size=2)
        v, w = np.abs(rng.standard_normal((2, 3))) * (rng.random((2, 3)) < 0.5)
        rows[first] = v / max(1.0, np.linalg.norm(v))
        other[first if trial % 3 == 0 else second] = w / max(1.0, np.linalg.norm(w)) if trial % 5 else 0.0
        shift = independent_releases(kind, plan, rows) - independent_releases(kind, plan, other)
        worst = max(worst, float(np.linalg.norm(shift)) / sensitivity)
    assert worst <= 1.0 + 1e-9
    assert worst > 0.6  # the bound is not idle


@pytest.mark.parametrize("kind", KINDS)
def test_a_spent_horizon_releases_nothing_more(kind: str) -> None:
    plan = make_plan(kind, 4)
    stream = plan.open()
    for _ in range(4):
        assert close_leaf(stream, np.ones(3), 1)
    before = stream.released.copy()
    contribute(stream, 0, np.atleast_2d(np.ones(3)))
    assert not close_leaf(stream, np.ones(3), 1)
    np.testing.assert_array_equal(stream.released, before)
    np.testing.assert_array_equal(stream.leaf, np.zeros(3))


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_carry_public_sums_over_and_add_variances(kind: str) -> None:
    rng = np.random.default_rng(5)
    first, second = make_plan(kind, 8), make_plan(kind, 16)
    rows = rng.standard_normal((24, 3))
    stream = first.open()
    for t in range(24):
        contribute(stream, 0, np.atleast_2d(rows[t]))
        if t == 8:
            start_epoch(stream, second)  # with a contribution waiting in the open leaf
        close_leaf(stream, np.zeros(3), 1)
    np.testing.assert_allclose(stream.released, rows.sum(axis=0), atol=1e-12)
    expected = (
        first.noise_sd**2 * first.factorization.prefix_variance(np.array([8]))[0]
        + second.noise_sd**2 * second.factorization.prefix_variance(np.array([16]))[0]
    )
    assert released_variance(stream) == pytest.approx(expected)


def written(kind: str, source: str = "fast") -> list[tuple[Stream, Stream, FloatArray, FloatArray]]:
    """A stream over two epochs of 128 and 256 leaves, and a twin that is given what the stream published.

    After each leaf: copies of both, the noise that was drawn, and the noise that the twin took for it.
    """
    rng, size = np.random.default_rng(8), 3
    first, second = (make_plan(kind, horizon, size, noise=source) for horizon in (128, 256))
    stream, twin, plan, seen = first.open(), first.open(), first, []
    for t in range(384):
        row = rng.standard_normal(size)
        for each in (stream, twin):
            contribute(each, 0, np.atleast_2d(row))
            if t == 128:
                start_epoch(each, second)
        plan = first if t < 128 else second
        noise = plan.source.gaussian(plan.noise_sd, size)
        close_leaf(stream, noise, 1)
        taken = replay_leaf(twin, published(stream), 1)
        seen.append((copied(stream), copied(twin), noise, taken))
    return seen


def copied(stream: Stream) -> Stream:
    return rebuild(stream, flatten(stream))


@pytest.mark.parametrize("kind", KINDS)
def test_a_replayed_twin_has_the_same_public_bits(kind: str) -> None:
    for stream, twin, noise, taken in written(kind):
        public = public_part(stream)
        assert {"closed", "released", "mechanism.carried_variance"} <= public.keys()
        for path, array in public_part(twin).items():
            assert array.tobytes() == public[path].tobytes(), path
        sd = float(stream.noise_sd[()])
        np.testing.assert_allclose(taken, noise, rtol=0.0, atol=1e-12 * sd)
        for path, array in flatten(twin).items():
            if kind == "tree":  # raw sums do not depend on noise, so that a tree's twin is the same in every bit
                assert array.tobytes() == flatten(stream)[path].tobytes(), path
            np.testing.assert_allclose(array, flatten(stream)[path], rtol=1e-10, atol=1e-10 * sd, err_msg=path)


def test_a_replay_under_exact_noise_takes_the_very_noise_that_was_drawn() -> None:
    for stream, twin, noise, taken in written("tree", "exact"):
        assert taken.tobytes() == noise.tobytes()
        assert all(array.tobytes() == flatten(stream)[path].tobytes() for path, array in flatten(twin).items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_replayed_stream_is_one_that_drew_the_noise_which_the_replay_took(kind: str) -> None:
    """It has other rows than the stream that published: what comes after is their sum, with the noise that it took."""
    plan, rng = make_plan(kind, 64), np.random.default_rng(2)
    rows, others = rng.standard_normal((2, 64, 3))
    noise = plan.source.gaussian(plan.noise_sd, (64, 3))
    stream, twin, taken = plan.open(), plan.open(), noise.copy()
    for t in range(64):
        contribute(stream, 0, np.atleast_2d(rows[t]))
        contribute(twin, 0, np.atleast_2d(others[t]))
        close_leaf(stream, noise[t], 1)
        if t < 20:
            taken[t] = replay_leaf(twin, published(stream), 1)
            np.testing.assert_array_equal(twin.released, stream.released)
        else:
            close_leaf(twin, noise[t], 1)
    assert np.min(np.abs(taken[:20] - noise[:20])) > 1e-4
    np.testing.assert_allclose(twin.released, prefixes(plan, others, taken)[-1], rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_that_cannot_be_is_refused_and_changes_nothing(kind: str) -> None:
    plan = make_plan(kind, 2)
    stream = plan.open()
    with pytest.raises(InvalidInput, match="closed yet"):
        published(stream)
    contribute(stream, 0, np.atleast_2d(np.ones(3)))
    before = copied(stream)
    for bad in (np.ones(2), np.array([1.0, math.nan, 0.0]), np.ones((1, 3))):
        with pytest.raises(InvalidInput, match="finite numbers"):
            replay_leaf(stream, bad, 1)
    assert all(array.tobytes() == flatten(stream)[path].tobytes() for path, array in flatten(before).items())
    for _ in range(2):
        replay_leaf(stream, np.ones(3), 1)
    with pytest.raises(InvalidInput, match="all of its leaves"):
        replay_leaf(stream, np.ones(3), 1)


def test_a_release_off_the_grid_is_not_replayed_under_exact_noise() -> None:
    stream = make_plan("tree", 4, noise="exact").open()
    with pytest.raises(InvalidInput, match="multiples of"):
        replay_leaf(stream, np.full(3, stream.constants.grid / 3.0), 1)
    assert stream.closed[()] == 0


def test_an_epoch_of_another_kind_is_refused() -> None:
    stream = make_plan("tree", 4).open()
    for other in (make_plan("toeplitz", 8), make_plan("tree", 8, size=2)):
        with pytest.raises(InvalidInput, match="factorization, grid and 3 numbers"):
            start_epoch(stream, other)
    assert stream.leaves[()] == 4


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_secret_is_left_when_raw_sums_are_dropped(kind: str) -> None:
    stream = written(kind)[200][0]
    contribute(stream, 0, np.atleast_2d(np.ones(3)))
    public = {path: array.copy() for path, array in public_part(stream).items()}
    drop_raw(stream)
    for path, array in flatten(stream).items():
        assert array.tobytes() == public[path].tobytes() if path in public else not np.any(array), path


def test_memory_does_not_grow_with_the_horizon() -> None:
    def size(stream: Stream) -> int:
        return size_in_bytes(stream)

    for kind in KINDS:
        assert size(make_plan(kind, 10**6).open()) == size(make_plan(kind, 10**3).open())


def test_exact_noise_keeps_every_number_on_its_grid() -> None:
    dim = 3
    plan = plan_release(
        "exact",
        packed_size(dim),
        row_bound=math.sqrt(2.0),
        row_norm=1.0,
        mu=1.0,
        factorization="tree",
        horizon=40,
        source=make_noise("exact"),
    )
    stream, grid, rng = plan.open(), plan.source.grid, np.random.default_rng(1)
    assert grid is not None
    for _ in range(40):
        x = rng.standard_normal(dim)
        contribute_outer(stream, 0, np.ones(1), np.atleast_2d(x / np.linalg.norm(x)))
        close_leaf(stream, plan.source.gaussian(plan.noise_sd, packed_size(dim)), 1)
        steps = stream.released / grid
        np.testing.assert_array_equal(steps, np.rint(steps))
    Ledger(Budget(5.0, 1e-5)).charge(plan.event())


def test_exact_noise_refuses_real_coefficients() -> None:
    with pytest.raises(InvalidInput, match="tree"):
        plan_release(
            "exact",
            3,
            row_bound=1.0,
            row_norm=1.0,
            mu=1.0,
            factorization="toeplitz",
            horizon=10,
            source=make_noise("exact"),
        )


def test_no_noise_when_mu_is_infinite() -> None:
    plan = plan_release(
        "off", 3, row_bound=1.0, row_norm=1.0, mu=math.inf, factorization="toeplitz", horizon=10, source=NoNoise()
    )
    assert plan.noise_sd == 0.0


@pytest.mark.parametrize("mu", [0.0, -1.0, math.nan])
def test_bad_budgets_are_refused(mu: float) -> None:
    with pytest.raises(InvalidInput, match="mu"):
        plan_release(
            "bad",
            3,
            row_bound=1.0,
            row_norm=1.0,
            mu=mu,
            factorization="tree",
            horizon=10,
            source=FastNoise(np.random.default_rng(0)),
        )
