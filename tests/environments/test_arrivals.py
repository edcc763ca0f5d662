"""How rewards come: delays by the values of rewards, from a stream of their own, and kinds of one's own."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest

from tacit.environments import ARRIVALS, NEVER, EnvironmentSetting, arrival_kind, arrivals, register_arrivals
from tacit.environments.arrivals import LONGEST_WAIT, LOST, MEAN_WAIT
from tacit.errors import InvalidInput
from tacit.glm.links import get_link
from tacit.typing import FloatArray, IntArray


@pytest.fixture(autouse=True)
def forget_what_was_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests register in a copy."""
    kinds = dict(arrivals._KINDS)
    monkeypatch.setattr(arrivals, "_KINDS", kinds)
    monkeypatch.setattr(arrivals, "ARRIVALS", kinds)


def setting(link: str = "logistic") -> EnvironmentSetting:
    return EnvironmentSetting(get_link(link), 3, 2, 100, 2.0)


def delays(name: str, rewards: FloatArray, seed: int = 0, link: str = "logistic") -> IntArray:
    return arrival_kind(name).delays(np.random.default_rng(seed), rewards, setting(link))


def test_the_packages_own_kinds() -> None:
    assert list(ARRIVALS) == ["now", "late", "held"]
    assert all(kind.summary for kind in ARRIVALS.values())
    assert [kind.at_once for kind in ARRIVALS.values()] == [True, False, False]


def test_late_ones_come_soon_zeros_when_one_stops_waiting_and_some_never() -> None:
    rewards = np.tile([1.0, 0.0], (40_000, 1))
    found = delays("late", rewards)
    lost = found[:, 0] == NEVER
    assert np.array_equal(lost, found[:, 1] == NEVER)  # by the round, whatever arm is chosen
    assert abs(np.mean(lost) - LOST) < 4 * np.sqrt(LOST * (1 - LOST) / 40_000)
    waits = found[~lost, 0]
    assert waits.min() == 1
    error = np.std(waits) / np.sqrt(waits.size)
    assert abs(np.mean(waits) - MEAN_WAIT) < 4 * error
    assert abs(np.mean(waits) - 1.1 * MEAN_WAIT) > 4 * error
    assert set(found[~lost, 1]) == {LONGEST_WAIT}


def test_good_is_above_half_of_the_range_and_of_counts_what_is_not_zero() -> None:
    rewards = np.tile([0.4, 0.6], (200, 1))
    found = delays("late", rewards)
    kept = found[:, 0] != NEVER
    assert set(found[kept, 0]) == {LONGEST_WAIT}
    assert np.mean(found[kept, 1]) < 0.5 * LONGEST_WAIT
    counts = delays("late", np.tile([0.0, 1.0], (200, 1)), link="log")
    kept = counts[:, 0] != NEVER
    assert set(counts[kept, 0]) == {LONGEST_WAIT}
    assert np.mean(counts[kept, 1]) < 0.5 * LONGEST_WAIT


def test_held_rewards_come_at_one_age() -> None:
    assert set(delays("held", np.eye(2)).ravel()) == {LONGEST_WAIT}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (np.zeros((5, 2), dtype=np.int64), "at least 1, or -1 for never"),
        (np.full((5, 2), -2), "at least 1, or -1 for never"),
        (np.ones((5, 2)), r"whole numbers of shape \(5, 2\), got float64"),
        (np.ones((5, 1), dtype=np.int64), r"got int64 of shape \(5, 1\)"),
    ],
)
def test_mistakes_are_named(given: Any, told: str) -> None:
    @register_arrivals("mine")
    def mine(rng: np.random.Generator, rewards: FloatArray, setting: EnvironmentSetting) -> Any:
        return given

    with pytest.raises(InvalidInput, match=f"rewards 'mine' must give .*{told}"):
        delays("mine", np.zeros((5, 2)))


def test_names_are_words_and_belong_to_one_module() -> None:
    def theirs(rng: np.random.Generator, rewards: FloatArray, setting: EnvironmentSetting) -> Any:
        """Never."""

    with pytest.raises(InvalidInput, match="a word without blanks and commas"):
        register_arrivals("two words")
    with pytest.raises(InvalidInput, match=r"'late' is registered by tacit\.environments\.arrivals already"):
        register_arrivals("late")(theirs)
    with pytest.raises(InvalidInput, match=r"now, late, held, not 'soon'.*--module"):
        arrival_kind("soon")


def test_the_example_of_the_docstring_runs() -> None:
    found = doctest.testmod(arrivals)
    assert found.attempted > 2
    assert found.failed == 0
