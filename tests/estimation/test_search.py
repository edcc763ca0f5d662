"""Branch and bound in batches finds what it finds one box at a time, and the table of bounds is what it finds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.contracts.links import link_called

from tacit.estimation import _bounds_table, linearised, search, sensitivity
from tacit.estimation.linearised import best_row, row_with_scale, searched_row
from tacit.estimation.search import Positions, Space, distinct, largest_value, middles
from tacit.estimation.sensitivity import gradient_diameter, searched_diameter
from tacit.glm.links import LINKS, Logistic
from tacit.glm.shifted import ShiftedLink

SHIFTS = linearised._Shifts(LINKS["logistic"], 3.0, 1.0, 1.0 / 3.0, 0.4, 1.5, 0.25)
DISTANCES = sensitivity._Distances(LINKS["probit"], 2.0, 1.0, (0.8, 1.8, 1.8), 0.2)

LINES = _bounds_table.ROWS.strip().splitlines()
SOME = LINES[1::7]
"""Lines that every run of the tests searches for anew; `benchmarks/bounds_table.py --check` does so for all."""


def one_at_a_time(space: Space, dimensions: int) -> tuple[float, int]:
    """The search as its module describes it: the largest value found, and the number of boxes looked at."""
    waiting, best, visited = [(0, np.zeros((dimensions, 1), dtype=np.int64))], 0.0, 0
    while waiting:
        level, box = waiting.pop()
        value = float(space.values(level, box)[0])
        best, visited = max(best, value), visited + 1
        if value + space.room(level) > space.enough(best) and not space.repeated(level, box)[0]:
            parts = space.split(level, box)
            waiting += [(level + 1, parts[:, [i]]) for i in reversed(range(space.parts))]
    return best, visited


@pytest.mark.parametrize(("space", "dimensions"), [(SHIFTS, 2), (DISTANCES, 3)])
@pytest.mark.parametrize("batch", [1, 40, 500, 150_000])
def test_batches_change_neither_the_result_nor_the_number_of_visits(
    space: Space, dimensions: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_BATCH", batch)
    best, visited = one_at_a_time(space, dimensions)
    assert largest_value(space, dimensions, visited + 1) == best
    assert math.isnan(largest_value(space, dimensions, visited))


def test_a_tighter_tolerance_finds_no_less_and_the_bound_holds() -> None:
    coarse = largest_value(SHIFTS, 2, 10**6)
    fine = largest_value(replace(SHIFTS, tolerance=0.01), 2, 10**6)
    assert fine <= coarse * 1.25
    assert coarse <= fine * 1.01


@pytest.mark.parametrize("spread", [1, 10**9])
def test_distinct_is_unique(spread: int) -> None:
    keys: Positions = spread * np.random.default_rng(1).integers(5, 50, size=100)
    found, places = distinct(keys)
    assert np.array_equal(found, np.unique(keys))
    assert np.array_equal(found[places], keys)


def test_middles_halve_an_interval() -> None:
    assert middles(2, np.arange(4), 8.0).tolist() == [1.0, 3.0, 5.0, 7.0]


@pytest.mark.parametrize("setting", [("logistic", 3.5, 1.0, 0.75), ("probit", 6.0, 1.0, 0.5)])
def test_scales_of_the_table_are_what_the_search_finds(setting: tuple[str, float, float, float]) -> None:
    name, *bounds = setting
    assert _bounds_table.known_row(LINKS[name], *bounds) is not None
    known, found = best_row(LINKS[name], *bounds), searched_row(LINKS[name], *bounds)
    for one, other in (
        (known.scale, found.scale),
        (known.row_norm, found.row_norm),
        (known.row_bound, found.row_bound),
    ):
        assert one == pytest.approx(other, rel=1e-13)


@pytest.mark.parametrize("line", SOME)
def test_rows_of_the_table_have_the_sensitivity_of_their_scale(line: str) -> None:
    """What noise is calibrated to, searched for anew; which scale is best concerns regret alone."""
    name, *numbers = line.split()
    theta_bound, reward_bound, blend, scale, row_norm, row_bound, _ = map(float, numbers)
    found = row_with_scale(LINKS[name], theta_bound, reward_bound, blend, scale)
    assert row_norm == pytest.approx(found.row_norm, rel=1e-13)
    assert row_bound == pytest.approx(found.row_bound, rel=1e-13)


@pytest.mark.parametrize("line", [" ".join(line.split()[:3]) for line in SOME])
def test_diameters_of_the_table_are_what_the_search_finds(line: str) -> None:
    name, theta_bound, reward_bound = line.split()[0], *map(float, line.split()[1:])
    (diameter,) = {float(other.split()[-1]) for other in LINES if other.startswith(f"{line} ")}
    assert gradient_diameter(LINKS[name], theta_bound, reward_bound) == diameter
    assert diameter == pytest.approx(searched_diameter(LINKS[name], theta_bound, reward_bound), rel=1e-13)


def test_the_table_is_about_the_links_of_the_package_alone() -> None:
    class Steep(Logistic):
        pass

    assert _bounds_table.known_diameter(Logistic(), 3.0, 1.0) is None
    assert _bounds_table.known_row(Steep(), 3.0, 1.0, 0.0) is None


def test_the_table_is_not_about_shifted_links() -> None:
    """Rewards of a shifted link are not centred: the noise for centred ones would be too small."""
    for name in LINKS:
        shifted = ShiftedLink(LINKS[name], -0.5)
        for line in LINES:
            numbers = tuple(map(float, line.split()[1:]))
            assert _bounds_table.known_row(shifted, *numbers[:3]) is None
            assert _bounds_table.known_diameter(shifted, *numbers[:2]) is None
    rare, known = link_called("logistic at 0.01"), best_row(LINKS["logistic"], 3.5, 1.0, 1.0 / 3.0)
    assert row_with_scale(rare, 3.5, 1.0, 1.0 / 3.0, known.scale).row_bound > 1.4 * known.row_bound
    assert gradient_diameter(rare, 1.0, 1.0) > 1.4 * gradient_diameter(LINKS["logistic"], 1.0, 1.0)
    assert best_row(link_called("logistic at 0.5"), 3.5, 1.0, 1.0 / 3.0) == known
