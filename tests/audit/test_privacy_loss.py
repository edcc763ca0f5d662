"""The second route to a shuffled sum's epsilon: exact where that can be computed, tight, and never above the claim."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from tacit.audit.statistics import Pair, coordinate_laws, loss_epsilon, loss_mu, protocol_pairs
from tacit.audit.tasks import tasks_for
from tacit.errors import InvalidInput, TacitError
from tacit.privacy.gaussian import epsilon_from
from tacit.shuffle.calibration import calibrate
from tacit.shuffle.domains import Ball, Domain, OuterProducts
from tacit.shuffle.guarantee import TAIL_SHARE, guarantee
from tacit.shuffle.parameters import SumProtocol
from tacit.shuffle.randomizer import ones_per_coordinate
from tacit.typing import FloatArray

DELTA = 1e-5
CASES = [(60, 0.5, 0.0, 1.0), (400, 0.5, 0.3, 4.9), (3_000, 0.2, 12.0, 3.5), (20_000, 0.03, 0.0, 9.0)]
INTERVAL = 1e-4
"""Epsilon is known up to so much for each coordinate."""
BETWEEN = [
    ([CASES[0]], 1e-3, 0.630493, 0.630494),
    ([CASES[0]], 1e-8, 1.524127, 1.524321),
    ([CASES[1]], 1e-5, 1.841495, 1.842115),
    ([CASES[2]], 1e-5, 1.572417, 1.572777),
    ([CASES[3]], 1e-8, 2.141114, 2.141122),
    ([(3_000, 0.4, 0.0, 6.5), (3_000, 0.4, 7.25, 1.0)], 1e-5, 1.283403, 1.283924),
    ([(90, 0.4, 0.0, 1.7), (90, 0.4, 2.5, 0.2)], 1e-8, 3.703193, 3.704719),
    ([(10**5, 0.5, 0.3 + 0.1 * j, 3.5 + j / 7.0) for j in range(20)], 1e-5, 0.349033, 0.349176),
]
"""Laws, delta, and bounds on epsilon by sums of losses on a grid of another width, convolved without a transform."""


def hockey_stick(p: FloatArray, q: FloatArray, epsilon: float) -> float:
    """The larger delta of both directions, term by term."""
    factor = math.exp(epsilon)
    return max(float(np.sum(np.maximum(a - factor * b, 0.0))) for a, b in ((p, q), (q, p)))


def product(pairs: list[Pair]) -> Pair:
    """The two laws of the vector, one entry for each combination of outcomes."""
    p, q = (reduce(np.multiply.outer, [pair[side] for pair in pairs]).ravel() for side in (0, 1))
    return p, q


def attack_rows(domain: Domain) -> list[FloatArray]:
    """Pairs of rows whose contributions lie as far apart as any: along axes, diagonal, and turned."""
    rng, dim = np.random.default_rng(0), domain.dim
    starts = [np.eye(dim)[0], np.ones(dim), rng.standard_normal(dim)]
    rows = []
    for start in starts:
        u = start / np.linalg.norm(start)
        other = rng.standard_normal(dim)
        other -= (other @ u) * u
        v = -u if isinstance(domain, Ball) else other / np.linalg.norm(other)
        rows.append(np.array([u, v]))
    return rows


def attacks(protocol: SumProtocol, users: int) -> Iterator[list[Pair]]:
    """Laws of the coordinates for each of these pairs of rows."""
    for rows in attack_rows(protocol.domain):
        yield protocol_pairs(protocol, users, *protocol.scaled(protocol.domain.embed(rows)))


@pytest.mark.parametrize(("trials", "p", "x", "y"), CASES)
def test_laws_are_those_of_the_definition(trials: int, p: float, x: float, y: float) -> None:
    for law, value in zip(coordinate_laws(trials, p, x, y), (x, y), strict=True):
        assert float(np.sum(law)) == pytest.approx(1.0, abs=1e-12)
        k = np.arange(law.size)
        mean = float(k @ law)
        part = value - math.floor(value)
        assert float((k - mean) ** 2 @ law) == pytest.approx(trials * p * (1.0 - p) + part * (1.0 - part), rel=1e-9)
    first, second = (float(np.arange(law.size) @ law) for law in coordinate_laws(trials, p, x, y))
    assert second - first == pytest.approx(y - x, abs=1e-8)


def test_laws_are_those_of_the_device() -> None:
    """Counts of a device's own code against the law: one user, 30 noise bits."""
    protocol = SumProtocol("sum", Ball(1), grid=3, noise_bits=30, noise_numerator=1 << 14, min_users=1)
    rows = np.full((40_000, 1), 0.23)
    x = float(protocol.scaled(protocol.domain.embed(rows[:1]))[0, 0])
    law = coordinate_laws(30, 0.25, x, 0.0)[0]
    counts = np.bincount(ones_per_coordinate(protocol, rows, np.random.default_rng(3))[:, 0], minlength=law.size)
    error = np.sqrt(np.maximum(law * 40_000, 1.0))
    assert np.max(np.abs(counts[: law.size] - 40_000 * law) / error) < 5.0


def bracket(pairs: list[Pair], delta: float) -> tuple[float, float]:
    """Lower and upper bound on epsilon."""
    return loss_epsilon(pairs, delta, upper=False), loss_epsilon(pairs, delta)


@pytest.mark.parametrize(("trials", "p", "x", "y"), CASES)
def test_one_coordinate_is_bracketed_tightly(trials: int, p: float, x: float, y: float) -> None:
    pair = coordinate_laws(trials, p, x, y)
    for delta in (1e-3, 1e-5, 1e-8):
        below, above = bracket([pair], delta)
        assert hockey_stick(*pair, above) <= delta <= hockey_stick(*pair, below)
        assert above - below <= 1.001 * INTERVAL


def test_two_coordinates_are_bracketed_tightly() -> None:
    pairs = [coordinate_laws(90, 0.4, 0.0, 1.7), coordinate_laws(90, 0.4, 2.5, 0.2)]
    joint = product(pairs)
    for delta in (1e-2, 1e-4, 1e-6):
        below, above = bracket(pairs, delta)
        assert hockey_stick(*joint, above) <= delta <= hockey_stick(*joint, below)
        assert above - below <= 2.001 * INTERVAL


@pytest.mark.parametrize(("laws", "delta", "least", "most"), BETWEEN)
def test_agrees_with_another_way_of_adding_losses(
    laws: list[tuple[int, float, float, float]], delta: float, least: float, most: float
) -> None:
    below, above = bracket([coordinate_laws(*law) for law in laws], delta)
    assert max(below, least) <= min(above, most)
    assert above - below <= 1.001 * len(laws) * INTERVAL


@pytest.mark.parametrize(("mu", "coordinates"), [(0.25, 1), (1.0, 1), (1.0, 9), (0.25, 20)])
def test_many_trials_come_close_to_a_gaussian(mu: float, coordinates: int) -> None:
    trials = 10**6
    shift = mu * math.sqrt(0.25 * trials / coordinates)
    pairs = [coordinate_laws(trials, 0.5, float(j), j + shift) for j in range(coordinates)]
    for delta in (1e-3, DELTA, 1e-8):
        assert bracket(pairs, delta) == pytest.approx([epsilon_from(mu, delta)] * 2, rel=5e-3)
    assert loss_mu(pairs, DELTA) == pytest.approx(mu, rel=5e-3)


def test_laws_that_have_nothing_in_common_or_are_the_same() -> None:
    far = (np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    half = (np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.0, 0.75]))
    assert bracket([far], 0.5) == (math.inf, math.inf)
    assert bracket([half], 0.74) == (math.inf, math.inf)  # the second world's third outcome alone has 0.75
    assert loss_epsilon([half], 0.76) < math.inf
    assert bracket([half, half], 0.93) == (math.inf, math.inf)  # 1 - 0.25^2 in one of two draws
    same = coordinate_laws(100, 0.5, 1.5, 1.5)
    assert loss_epsilon([same], DELTA) == loss_epsilon([], DELTA) == loss_mu([], DELTA) == 0.0
    assert loss_epsilon([coordinate_laws(4, 0.5, 0.0, 3.0)], DELTA) == math.inf


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize(
    ("domain", "users", "least"),
    [
        (Ball(2), 60, 0.92),
        (Ball(2), 1_000, 0.97),
        (Ball(2), 10_000, 0.99),
        (OuterProducts(2), 60, 0.87),
        (OuterProducts(2), 1_000, 0.97),
        (OuterProducts(2), 10_000, 0.99),
        (OuterProducts(5), 60, 0.87),
        (OuterProducts(5), 1_000, 0.95),
        (OuterProducts(5), 10_000, 0.98),
    ],
)
def test_calibrated_protocols_keep_their_claim_and_waste_little(
    domain: Domain, users: int, least: float, epsilon: float
) -> None:
    protocol = calibrate(domain, users, epsilon, DELTA)
    claim = guarantee(protocol, TAIL_SHARE * DELTA).epsilon(DELTA)
    strongest = max(attacks(protocol, users), key=lambda pairs: loss_epsilon(pairs, DELTA))
    proven, found = bracket(strongest, DELTA)
    assert claim <= epsilon * (1.0 + 1e-9)
    assert least * claim <= proven <= found <= claim


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("domain", [Ball(2), OuterProducts(2), OuterProducts(5)])
@pytest.mark.parametrize("users", [60, 1_000, 10_000])
def test_noise_cut_to_two_thirds_is_refuted(domain: Domain, users: int, epsilon: float) -> None:
    """Either two thirds of the noise bits, or of the reports that should have brought them."""
    protocol = calibrate(domain, users, epsilon, DELTA)
    claim = guarantee(protocol, TAIL_SHARE * DELTA).epsilon(DELTA)
    fewer = replace(protocol, noise_bits=protocol.noise_bits * 2 // 3)
    for weakened, present in ((fewer, users), (protocol, users * 2 // 3)):
        assert any(loss_epsilon(pairs, DELTA, upper=False) > 1.05 * claim for pairs in attacks(weakened, present))


def test_sums_about_the_same_user_add_up() -> None:
    protocol = calibrate(OuterProducts(2), 1_000, 1.0, DELTA)
    before, after = protocol.scaled(protocol.domain.embed(np.array([[1.0, 0.0], [0.6, -0.8]])))
    pairs = protocol_pairs(protocol, 1_000, before, after)
    assert loss_mu(pairs * 4, DELTA) == pytest.approx(2.0 * loss_mu(pairs, DELTA), rel=0.02)
    assert bracket(pairs * 4, DELTA)[0] > loss_epsilon(pairs, DELTA)


def test_contributions_of_another_shape_are_refused() -> None:
    protocol = calibrate(Ball(2), 1_000, 1.0, DELTA)
    with pytest.raises(InvalidInput, match="shape"):
        protocol_pairs(protocol, 1_000, np.zeros(3), np.zeros(3))


def test_a_missing_extra_is_named_before_anything_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(TacitError, match=r"pip install 'tacit-bandits\[audit\]'"):
        loss_epsilon([coordinate_laws(100, 0.5, 0.0, 1.0)], DELTA)
    with pytest.raises(TacitError, match=r"tacit-bandits\[audit\]"):
        tasks_for(["shuffle-linucb"], epsilons=[1.0], delta=DELTA)
    assert tasks_for(["stream-glm", "shuffle-sum"], epsilons=[1.0], delta=DELTA)
