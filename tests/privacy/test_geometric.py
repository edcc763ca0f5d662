"""Geometric leaves: schedule, columns, integers and their end, noise as stated, and what is made of the releases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.policies.state import flatten, public_part, rebuild
from tacit.policies.stream import StreamGLM
from tacit.privacy.budget import Budget
from tacit.privacy.continual import (
    ContinualRelease,
    Stream,
    close_leaf,
    contribute,
    drop_raw,
    is_used_up,
    leaf_is_due,
    leaf_noise_scale,
    plan_release,
    published,
    released_variance,
    replay_leaf,
    start_epoch,
    unevenness,
)
from tacit.privacy.discrete_gaussian import MAX_PARAMETER
from tacit.privacy.events import DiscreteGaussianRelease
from tacit.privacy.factorization import Geometric, worst_prefix_sd
from tacit.privacy.geometric import (
    DIFFUSE,
    LARGEST_SUM,
    GeometricLeaves,
    leaf_weight,
    next_boundary,
    noise_steps,
)
from tacit.privacy.lattice import reserved_steps
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise import make_noise
from tacit.typing import FloatArray, IntArray


def make_plan(size: int = 3, mu: float = 1.0, noise: str = "fast", **changes: Any) -> ContinualRelease:
    terms: dict[str, Any] = {"row_bound": math.sqrt(2.0), "row_norm": 1.0, "horizon": 1}
    plan = plan_release("test", size, mu=mu, factorization="geometric", source=make_noise(noise, 7), **terms)
    return plan.refined(**changes)


def leaves_of(stream: Stream) -> GeometricLeaves:
    assert isinstance(stream.mechanism, GeometricLeaves)
    return stream.mechanism


def play(stream: Stream, plan: ContinualRelease, rows: FloatArray, *, noisy: bool = True) -> None:
    """A decision for each row, which comes at once."""
    for row in rows:
        noise = np.zeros(row.size)
        if noisy and leaf_is_due(stream):
            noise = plan.source.integers(leaf_noise_scale(stream), row.size)
        close_leaf(stream, noise, 1)
        contribute(stream, 0, np.atleast_2d(row))


def test_the_schedule() -> None:
    boundaries = Geometric(10**6).boundaries
    assert boundaries[:3].tolist() == [1, 2, 3]
    assert np.all(np.diff(boundaries) == np.maximum(1, boundaries[:-1] // 100))
    assert 1_080 <= boundaries.size <= 1_090  # releases of a million decisions
    for boundary, decisions in ((1, 0), (1, 1), (150, 151), (200, 200), (204, 5_000)):
        later = [int(n) for n in boundaries if n > max(boundary, decisions)]
        assert next_boundary(boundary, decisions, 0) == later[0]


def test_every_column_has_norm_one_after_any_number_of_decisions() -> None:
    """Of C over its noise, with the parameters that are drawn: at most 1, and all of it is used in the end."""
    sd, grid = 3.7, 2.0**-12
    n = Geometric(10**6).boundaries
    following = np.append(n[1:], next_boundary(int(n[-1]), 0, 0))
    steps = np.array([noise_steps(sd, grid, int(a), int(b)) for a, b in zip(n, following, strict=True)])
    exact = sd / grid / np.sqrt(1.0 / n**2 - 1.0 / following**2)
    assert np.all(steps >= exact)
    assert np.all(steps <= exact + 1.0 + 1e-9 * exact)
    shares = (sd / (grid * steps)) ** 2
    for last in range(n.size):  # every leaf count
        columns = n[: last + 1] ** 2.0 * np.cumsum(shares[: last + 1][::-1])[::-1]
        assert np.max(columns) <= 1.0
    assert n[0] ** 2 * shares.sum() > 0.999


def with_head_start(a: int) -> tuple[FloatArray, FloatArray]:
    """Boundaries, and the standard deviation of t h at each per sigma, without fluctuation: t / sqrt(I(t))."""
    found = [1]
    while found[-1] <= 10**6:
        found.append(next_boundary(found[-1], 0, a))
    n = np.array(found, dtype=np.float64)
    weights = np.array([leaf_weight(boundary, a) for boundary in found], dtype=np.float64)
    n, weights, following = n[:-1], weights[:-1], weights[1:]
    sums = np.cumsum(weights * np.diff(n, prepend=0.0)) * np.sqrt(1.0 / weights**2 - 1.0 / following**2)
    return n, np.asarray(n / np.sqrt(np.cumsum(sums**2)))


def test_a_head_start_tells_later_what_noise_would_hide() -> None:
    n, usual = with_head_start(0)
    np.testing.assert_allclose(usual, np.sqrt(Geometric(10**6).prefix_variance(n.astype(np.int64))))
    n, ahead = with_head_start(1_000)
    for times, stated in ((0.5, 3.2), (1.0, 2.07), (2.0, 1.75), (3.0, 1.74), (10.0, 1.88), (100.0, 1.99)):
        assert ahead[np.argmin(np.abs(n - times * 1_000.0))] == pytest.approx(stated, abs=0.02)
    regret = {}
    for head in (0, 200, 400, 500):  # of 1 / (1 + (t / t_0)^2) per decision where a = 0, t_0 = 1,000
        n, sd = with_head_start(head)
        information = (n / sd) ** 2 / (1_000.0 / 2.0) ** 2
        regret[head] = float(n[0] + np.sum(np.diff(n, append=1.01e6) / (1.0 + information)))
    for head in (200, 400, 500):
        assert 0.92 < regret[head] / regret[0] < 0.95


def test_weights_are_whole_grow_and_are_the_clock_itself_without_a_head_start() -> None:
    for n in (1, 2, 94_906_267, 2**31 + 1, 2**40 - 1):  # squares beyond 2^53 included
        assert leaf_weight(n, 0) == n
    for a in (1, 2, 5, 1_000, 999_999):
        boundary = 1
        for _ in range(300):
            following = next_boundary(boundary, boundary, a)
            assert leaf_weight(following, a) > leaf_weight(boundary, a)
            assert leaf_weight(following, a) == math.isqrt(following**2 + a**2)
            boundary = following


@pytest.mark.parametrize("ahead", [0.0, 1.0, 77.4, 5_000.0])
def test_columns_keep_their_norm_with_a_head_start(ahead: float) -> None:
    """The weights and noise parameters that a stream really uses."""
    plan = make_plan(1, head_start=ahead)
    stream, weights, scales = plan.open(), [], []
    assert leaves_of(stream).constants.head_start == round(ahead)
    for _ in range(3_000):
        if leaf_is_due(stream):
            weights.append(float(leaves_of(stream).open_weight))
            scales.append(leaf_noise_scale(stream))
        close_leaf(stream, np.zeros(1), 1)
    shares = (plan.noise_sd / (plan.grid * np.array(scales))) ** 2
    columns = np.array(weights) ** 2 * np.cumsum(shares[::-1])[::-1]
    assert np.max(columns) <= 1.0
    last = 1.0 - weights[0] ** 2 / (3_000.0**2 + ahead**2)
    assert columns[0] == pytest.approx(last, rel=0.03)
    assert weights[0] == max(1.0, round(ahead))


def test_a_head_start_leaves_room_for_noise() -> None:
    """Whatever is asked for: the first leaf can be drawn, the epoch is not over before it began, no noise has none."""
    for mu in (1e-8, 1e-3, 1.0, 50.0):
        stream = make_plan(1, mu=mu, head_start=1e12).open()
        assert leaf_noise_scale(stream) <= MAX_PARAMETER / 4.0 + 1.0
        assert not is_used_up(stream)
        assert leaves_of(stream).constants.head_start <= 1_000_000
    assert make_plan(1, mu=math.inf, head_start=100.0).head_start == 0
    with pytest.raises(InvalidInput, match="head_start"):
        make_plan(1, head_start=-1.0)


def test_batches_that_cross_boundaries_close_one_leaf_and_keep_every_column() -> None:
    rng, plan = np.random.default_rng(0), make_plan()
    stream, weights, scales, clock = plan.open(), [], [], 0
    for users in rng.choice([1, 3, 40, 700], size=400, p=[0.6, 0.2, 0.15, 0.05]):
        if leaf_is_due(stream):
            weights.append(int(leaves_of(stream).boundary[()]))
            scales.append(leaf_noise_scale(stream))
        closed = int(stream.closed[()])
        close_leaf(stream, np.zeros(3), int(users))
        assert int(stream.closed[()]) - closed in (0, 1)
        clock += int(users)
        assert int(leaves_of(stream).boundary[()]) > clock - int(users)
    assert len(weights) < Geometric(clock).boundaries.size
    shares = (plan.noise_sd / (plan.grid * np.array(scales))) ** 2
    columns = np.array(weights) ** 2.0 * np.cumsum(shares[::-1])[::-1]
    assert 0.99 < np.max(columns) <= 1.0


def test_a_leaf_is_never_closed_without_its_noise() -> None:
    """Losing count is an error, and nothing is released."""
    plan = make_plan()
    stream = plan.open()
    close_leaf(stream, np.zeros(0), 1)  # nothing is due yet
    contribute(stream, 0, np.atleast_2d(np.ones(3)))
    with pytest.raises(ValueError, match="no noise was drawn"):
        close_leaf(stream, np.zeros(0), 1)
    assert (int(stream.closed[()]), int(leaves_of(stream).decisions[()])) == (0, 1)
    np.testing.assert_array_equal(stream.leaf, np.ones(3))
    policy = StreamGLM(dim=2, epsilon=1.0, delta=1e-6, theta_bound=2.0, seed=3)
    policy.update(policy.select(np.eye(2)), 1.0)
    policy._clock.ticks_left = 7  # a fault of the program
    with pytest.raises(ValueError, match="no noise was drawn"):
        policy.select(np.eye(2))
    assert not np.any(policy.state.stream.released)


def test_a_row_that_moves_costs_no_more_than_one_that_is_replaced() -> None:
    """On every pair of leaves: |v|^2 + |v'|^2 - 2 (A_i / A_j) <v, v'>, between |v - v'|^2 and |v|^2 + |v'|^2."""
    rng, n = np.random.default_rng(1), Geometric(2_000).boundaries.astype(np.float64)
    following = np.append(n[1:], next_boundary(int(n[-1]), 0, 0))
    b = np.sqrt(1.0 / n**2 - 1.0 / following**2)
    tail = 1.0 / following[-1] ** 2  # what leaves to come will add
    for _ in range(300):
        i, j = np.sort(rng.integers(n.size, size=2))
        v, w = rng.standard_normal((2, 4))
        shift = np.outer(b * n[i] * (np.arange(n.size) >= i), v) - np.outer(b * n[j] * (np.arange(n.size) >= j), w)
        cost = float(np.sum(shift**2)) + tail * float(np.sum((n[i] * v - n[j] * w) ** 2))
        assert cost == pytest.approx(v @ v + w @ w - 2.0 * n[i] / n[j] * (v @ w), rel=1e-9)
        assert cost <= max(float(np.sum((v - w) ** 2)), float(v @ v + w @ w)) * (1.0 + 1e-9)


def test_sums_stay_integers_up_to_the_end_of_an_epoch() -> None:
    """Rows as large as can be, as many as can be, with others that waited: W is what Python's integers say."""
    waiting = 1_000
    plan = make_plan(1, mu=1e9, steps=300.0, waiting=waiting)
    plan_steps = math.ceil(plan.row_norm / plan.grid) + 1
    stream, exact, late = plan.open(), 0, waiting
    leaves = leaves_of(stream)
    while True:
        if leaf_is_due(stream):
            if is_used_up(stream):
                break
            steps = plan_steps * int(leaves.open_rows[()] + late)
            late, stream.leaf[0] = 0, steps * plan.grid
            exact += int(leaves.boundary[()]) * steps
            assert exact < LARGEST_SUM
        close_leaf(stream, np.zeros(1), 1)
        assert int(leaves.weighted[0]) == exact
    assert exact > LARGEST_SUM // 8  # the integers are made use of
    assert leaf_noise_scale(stream) < MAX_PARAMETER
    stream.leaf[0] = 5.0 * plan.grid
    waits = int(leaves.open_rows[()])
    start_epoch(stream, plan)
    assert not is_used_up(stream)
    assert (int(leaves.weighted[0]), int(leaves.open_rows[()]), stream.leaf[0]) == (0, waits, 5.0 * plan.grid)
    close_leaf(stream, np.zeros(1), 1)  # the first decision of the epoch
    close_leaf(stream, np.zeros(1), 1)
    assert (int(leaves.weighted[0]), int(stream.epochs[()])) == (5, 2)


def test_rows_that_an_epoch_finds_in_the_open_leaf_are_counted() -> None:
    """As many as can be, beside as many as can wait: what was left out of the bound on W before."""
    waiting = 1_000
    plan = make_plan(1, mu=1e9, steps=300.0, waiting=waiting)
    row_steps = math.ceil(plan.row_norm / plan.grid) + 1
    stream = plan.open()
    leaves = leaves_of(stream)
    most = (LARGEST_SUM // 2 - 1) // row_steps  # with the weight 1 of the first leaf
    leaves.open_rows[()] = most
    start_epoch(stream, plan)
    close_leaf(stream, np.zeros(1), 1)
    assert leaf_is_due(stream)
    assert not is_used_up(stream)
    leaves.open_rows[()] += 1 + row_steps
    assert is_used_up(stream)
    leaves.open_rows[()] = most + 1
    exact = row_steps * (most + 1 + waiting)
    leaves.weighted[0] = exact  # the first leaf closes with all of them
    leaves.boundary[()] = leaves.boundary_after
    leaves.open_rows[()] = 0
    while not is_used_up(stream):  # the heaviest leaves that may follow, each with all rows that can have come
        largest = exact + int(leaves.boundary[()]) * row_steps * (int(leaves.boundary[()]) + waiting)
        assert largest + MAX_PARAMETER * 128 < 2**63
        leaves.decisions[()] = leaves.boundary[()] = leaves.boundary_after
    assert largest > LARGEST_SUM


def test_noise_that_would_leave_its_integers_ends_an_epoch_too() -> None:
    plan = make_plan(1, mu=1e-8)
    stream = plan.open()
    leaves = leaves_of(stream)
    leaves.decisions[()] = leaves.boundary[()] = 10
    assert not is_used_up(stream)
    leaves.decisions[()] = leaves.boundary[()] = 1_000_000
    assert is_used_up(stream)
    with pytest.raises(InvalidInput, match="mu = 1e-12 is too small"):
        make_plan(1, mu=1e-12)


def test_a_policy_whose_integers_end_goes_on_in_a_new_cohort() -> None:
    policy = StreamGLM(dim=2, epsilon=1.0, delta=1e-6, theta_bound=2.0, seed=3, reward_window=10, head_start=0.0)
    arms = np.eye(2)
    for _ in range(30):
        policy.update(policy.select(arms), 1.0)
    leaves_of(policy.state.stream).decisions[()] = leaves_of(policy.state.stream).boundary[()] = (
        1 << 30
    )  # as if so many
    policy._clock.ticks_left = 0
    before = policy.state.stream.released.copy()
    policy.update(policy.select(arms), 1.0)
    assert [entry.cohort for entry in policy.ledger.entries] == ["epoch 1", "epoch 2"]
    np.testing.assert_array_equal(policy.state.stream.released, before)
    for _ in range(200):
        policy.update(policy.select(arms), 1.0)
    assert policy.state.stream.closed[()] == 200
    assert policy.privacy.spent_epsilon == pytest.approx(1.0, rel=1e-6)
    assert int(leaves_of(policy.state.stream).closed_rows[()]) == 230


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("rounds_per_user", [1, 5])
def test_exact_noise_fits_its_reserve_for_ever(epsilon: float, rounds_per_user: int) -> None:
    budget = Budget(epsilon, 1e-6, rounds_per_user)
    source = make_noise("exact")
    for size in (2, 20, 1_325):
        plan = plan_release(
            "test",
            size,
            row_bound=0.4,
            row_norm=0.28,
            mu=source.mu_budget(budget),
            factorization="geometric",
            horizon=1,
            source=source,
        ).refined(steps=reserved_steps(epsilon, rounds_per_user))
        ledger = Ledger(budget)
        for epoch in range(1, 40):
            ledger.charge(plan.event(), f"epoch {epoch}")
        event = plan.event()
        assert isinstance(event, DiscreteGaussianRelease)
        # All draws of all leaves: the parameter of leaf k is sigma / (g b_k), and the b_k^2 add up to 1.
        n = Geometric(10**6).boundaries
        following = np.append(n[1:], next_boundary(int(n[-1]), 0, 0))
        steps = np.array(
            [noise_steps(plan.noise_sd, plan.grid, int(a), int(b)) for a, b in zip(n, following, strict=True)]
        )
        assert np.min(steps) >= 4.0
        assert 12.0 * size * float(np.sum(steps**-2.0)) <= event.slack
        assert event.draws >= size * n.size
        assert plan.rounding_slack <= 1e-3 * plan.row_bound
        assert math.frexp(plan.grid)[0] == 0.5
        assert ledger.epsilon_spent <= epsilon


def dense_estimate(
    weights: list[FloatArray], rows: list[IntArray], scales: list[FloatArray], seen: FloatArray, plan: ContinualRelease
) -> tuple[float, float, float]:
    """Mean row by generalized least squares over all epochs: estimate, variance, and the part of noise in it."""
    blocks, regressor, noise = [], [], []
    for a, m, s in zip(weights, rows, scales, strict=True):
        sums = np.tril(np.ones((a.size, a.size))) * a
        regressor.append(sums @ m)
        blocks.append(sums @ np.diag(m * plan.fluctuation) @ sums.T)
        noise.append((s * plan.grid) ** 2)
    x, e = np.concatenate(regressor), np.concatenate(noise)
    rest = np.zeros((x.size, x.size))
    position = 0
    for block in blocks:
        rest[position : position + len(block), position : position + len(block)] = block
        position += len(block)
    inverse = np.linalg.inv(rest + np.diag(e))
    precision = x @ inverse @ x + 1.0 / (DIFFUSE * plan.row_norm**2)
    gains = inverse @ x / precision
    return float(gains @ seen), 1.0 / float(precision), float(gains**2 @ e)


@pytest.mark.parametrize("ahead", [0.0, 40.0])
def test_the_filter_is_least_squares_over_all_releases(ahead: float) -> None:
    """Batches and a second epoch included."""
    rng, plan = np.random.default_rng(4), make_plan(1, fluctuation=0.03, head_start=ahead)
    stream = plan.open()
    leaves = leaves_of(stream)
    weights: list[list[float]] = [[]]
    rows: list[list[int]] = [[]]
    scales: list[list[float]] = [[]]
    seen: list[float] = []
    for t in range(150):
        if t == 90:
            start_epoch(stream, plan)
            weights.append([])
            rows.append([])
            scales.append([])
        noise, due = np.zeros(1), leaf_is_due(stream)
        if due:
            weights[-1].append(float(leaves.open_weight))
            rows[-1].append(int(leaves.open_rows[()]))
            scales[-1].append(leaf_noise_scale(stream))
            noise = plan.source.integers(scales[-1][-1], 1)
        users = int(rng.choice([1, 1, 4]))
        if close_leaf(stream, noise, users):
            seen.append(float(leaves.observed[0]) * plan.grid)
        contribute(stream, 0, np.atleast_2d(users * (0.3 + 0.1 * rng.standard_normal(1))))
        if due and t % 30 in (0, 29):
            mean, variance, noise_part = dense_estimate(
                [np.array(part) for part in weights if part],
                [np.array(part) for part in rows if part],
                [np.array(part) for part in scales if part],
                np.array(seen),
                plan,
            )
            assert leaves.mean[0] == pytest.approx(mean, rel=1e-6)
            assert leaves.total[0] == pytest.approx(variance, rel=1e-6)
            assert leaves.privacy[0] == pytest.approx(noise_part, rel=1e-6)
            so_far = float(leaves.closed_rows[()])
            assert stream.released[0] == pytest.approx(so_far * mean, rel=1e-6)
            assert released_variance(stream) == pytest.approx(so_far**2 * noise_part, rel=1e-6)


def test_released_sums_have_the_stated_noise_and_no_other() -> None:
    size, decisions = 4_000, 700
    plan = make_plan(size, fluctuation=1e-4)
    stream = plan.open()
    play(stream, plan, np.zeros((decisions, size)))
    measured = math.sqrt(float(np.mean(stream.released**2)))
    stated, tolerance = math.sqrt(released_variance(stream)), 4.0 / math.sqrt(2.0 * size)
    assert abs(measured / stated - 1.0) < tolerance
    assert abs(measured / (2.0 / 3.0 * stated) - 1.0) > tolerance
    assert stated < 2.05 * plan.noise_sd  # for ever: below


def test_noise_of_the_sum_stays_below_two() -> None:
    """As SPEC's t / sqrt(I(t)): 1.99 after a million decisions, and no more before."""
    chosen = Geometric(10**6)
    assert worst_prefix_sd(chosen) <= 2.0
    assert float(np.sqrt(chosen.prefix_variance(np.array([10**6]))[0])) == pytest.approx(1.99, abs=0.005)
    plan = make_plan(1, fluctuation=1e-9)
    stream = plan.open()
    play(stream, plan, np.zeros((500, 1)))
    rows = int(leaves_of(stream).closed_rows[()])
    stated = plan.noise_sd * math.sqrt(float(chosen.prefix_variance(np.array([rows]))[0]))
    assert math.sqrt(released_variance(stream)) == pytest.approx(stated, rel=2e-3)  # parameters are rounded up


def test_all_coordinates_of_a_row_weigh_alike() -> None:
    """Rows that are not alike at all: if b_i = H_i theta in every row, then also in what is made of the releases."""
    rng, theta = np.random.default_rng(3), np.array([0.75, -1.25])
    rows = np.empty((400, 6))
    for t in range(400):
        matrix = np.rint(rng.standard_normal((2, 2)) * (8.0 if t < 200 else 40.0)) / 32.0
        rows[t] = np.concatenate([matrix.ravel(), matrix @ theta])
    plan = make_plan(6, fluctuation=0.05)
    stream = plan.open()
    play(stream, plan, rows, noisy=False)
    np.testing.assert_allclose(stream.released[:4].reshape(2, 2) @ theta, stream.released[4:], rtol=1e-9)
    assert unevenness(stream) >= 1.0


def copied(stream: Stream) -> Stream:
    return rebuild(stream, flatten(stream))


@pytest.mark.parametrize("noise", ["fast", "secure", "exact"])
def test_a_replayed_twin_is_the_same_in_every_bit(noise: str) -> None:
    """Noise is fresh at each leaf, and sums do not depend on it: nothing is worked out from the releases."""
    rng, plan = np.random.default_rng(8), make_plan(noise=noise)
    stream, twin = plan.open(), plan.open()
    for t in range(300):
        if t == 128:
            for each in (stream, twin):
                start_epoch(each, plan)
        drawn, due = np.zeros(3), leaf_is_due(stream)
        if due:
            drawn = plan.source.integers(leaf_noise_scale(stream), 3)
        close_leaf(stream, drawn, 1)
        if due:
            np.testing.assert_array_equal(replay_leaf(twin, published(stream), 1), drawn)
        else:
            close_leaf(twin, drawn, 1)
        assert all(array.tobytes() == flatten(stream)[path].tobytes() for path, array in flatten(twin).items())
        row = rng.standard_normal(3)
        for each in (stream, twin):
            contribute(each, 0, np.atleast_2d(row))


def test_a_replay_that_cannot_be_is_refused_and_changes_nothing() -> None:
    plan = make_plan()
    stream = plan.open()
    close_leaf(stream, np.zeros(3), 1)
    before = copied(stream)
    for bad in (np.ones(2, dtype=np.int64), np.ones(3), np.array([1.5, 0.0, 0.0])):
        with pytest.raises(InvalidInput, match="finite numbers of type int64"):
            replay_leaf(stream, bad, 1)
    assert all(array.tobytes() == flatten(stream)[path].tobytes() for path, array in flatten(before).items())


def test_nothing_secret_is_left_when_raw_sums_are_dropped() -> None:
    plan = make_plan()
    stream = plan.open()
    play(stream, plan, np.random.default_rng(1).standard_normal((120, 3)))
    secret = {path for path in flatten(stream) if path not in public_part(stream)}
    assert secret == {"leaf", "mechanism.weighted"}
    known = leaves_of(stream).mean.copy()
    drop_raw(stream)
    assert not any(np.any(flatten(stream)[path]) for path in secret)
    assert leaves_of(stream).open_rows[()] == 0  # their rows will never come
    np.testing.assert_array_equal(leaves_of(stream).mean, known)


def test_without_noise_the_sum_is_the_sum() -> None:
    rows = np.random.default_rng(0).integers(-8, 9, size=(500, 3)) / 8.0
    plan = plan_release(
        "off", 3, row_bound=1.0, row_norm=1.0, mu=math.inf, factorization="geometric", horizon=1,
        source=make_noise("none"),
    )  # fmt: skip
    stream = plan.open()
    play(stream, plan, rows)
    closed = int(leaves_of(stream).closed_rows[()])
    np.testing.assert_allclose(stream.released, rows[:closed].sum(axis=0), rtol=1e-4, atol=1e-3)
    assert released_variance(stream) == 0.0
    assert unevenness(stream) == pytest.approx(1.0, rel=1e-3)
