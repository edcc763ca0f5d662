"""`tacit plan` in Python: the interval is that of worlds and not of luck, a site lies in it, and what it says."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from workloads.sites import SITES, calibrated

from tacit.cli.plan import sentences
from tacit.cli.plan import table as plan_table
from tacit.errors import InvalidInput
from tacit.experiments.plan import Assumptions, intervals, plan, reached, recommended_bound, truths_of
from tacit.experiments.tables import rounded
from tacit.features import Category, Flag, Schema

SMALL = Schema(user=[Flag("young")], arm=[Category("topic", ["news", "arts"])], per_arm="topic")
LARGER = Schema(user=[Flag("young"), Flag("rich")], arm=SMALL.arm, per_arm="topic")
SHORT = Assumptions(0.2, 0.3, 0.25, epsilons=(math.inf, 1.0), decisions=1_000)


def test_a_plan_has_every_schema_and_epsilon() -> None:
    done: list[str] = []
    schemas = {"small.json": SMALL, "larger": LARGER}
    expected = plan(schemas, SHORT, worlds=4, seed=1, on_world=done.append)
    assert sorted(done) == ["larger"] * 4 + ["small.json"] * 4
    kinds = [(outlook.schema, outlook.dim, outlook.arms, outlook.epsilon) for outlook in expected.outlooks]
    assert kinds == [(name, dim, 2, e) for name, dim in (("small.json", 4), ("larger", 6)) for e in (1.0, math.inf)]
    private, ceiling = expected.outlooks[:2]
    assert private.gain < ceiling.gain <= 1.0
    assert all(low.low < low.gain < low.high <= 1.0 for low in expected.outlooks)
    assert expected.marks[-1] == 1_000
    assert json.loads(json.dumps(expected.to_dict(), allow_nan=False))["outlooks"][1]["epsilon"] == "inf"
    assert plan(schemas, SHORT, worlds=4, seed=1, jobs=2) == expected
    text = "\n".join([*sentences(expected), plan_table(expected).markdown()])
    assert "With the 4 features of small, epsilon 1 per visit, 1,000 decisions gain" in text
    assert "without privacy" in text
    assert "a single visit" in text
    assert "--one-arm" not in text


def test_visits_of_one_person_are_said_and_cost_gain() -> None:
    told = {"random_rate": 0.3, "best_rate": 0.45, "decisions": 4_000, "epsilons": (4.0,)}
    visit, person = (plan({"s": SMALL}, Assumptions(**told, rounds_per_user=k), worlds=6) for k in (1, 50))  # type: ignore[arg-type]
    assert person.outlooks[0].gain < visit.outlooks[0].gain - 0.1
    assert "epsilon 4 per person" in sentences(person)[0]
    notes = plan_table(person).notes
    assert "a person with up to 50 visits" in notes[0]
    assert "--one-arm" in notes[-1]


def test_the_interval_leaves_out_luck_and_keeps_what_differs_between_worlds() -> None:
    rng, worlds, lives = np.random.default_rng(5), 400, 3
    site = rng.normal(0.5, 0.06, (1, worlds, 1, 1))
    low, high = intervals(site + rng.normal(0.0, 0.1, (2, worlds, lives, 1)))
    assert (high - low)[:, 0] == pytest.approx([2 * 1.645 * 0.06] * 2, rel=0.15)
    low, high = intervals(0.5 + rng.normal(0.0, 0.1, (2, worlds, lives, 1)))
    assert np.all(high - low < 0.08)
    assert np.all(intervals(np.full((1, 4, 3, 2), 0.7))[0] == pytest.approx(0.7))


def test_intervals_of_few_worlds_cover_another_world_as_often_as_they_say() -> None:
    rng, hits = np.random.default_rng(6), []
    for _ in range(400):
        site = rng.normal(0.5, 0.07, 21)
        low, high = intervals(site[:20, np.newaxis, np.newaxis] + rng.normal(0.0, 0.1, (2, 20, 3, 1)))
        hits.append(np.mean((low[:, 0] <= site[20]) & (site[20] <= high[:, 0])))
    assert 0.86 < np.mean(hits) < 0.95  # 0.9, less what is lost because a variance is cut at 0


@pytest.mark.parametrize(
    ("curve", "answer"), [([0.1, 0.5, 0.6], 20), ([0.6, 0.4, 0.7], 40), ([0.5, 0.6, 0.4], None), ([0.6] * 3, 10)]
)
def test_a_level_is_reached_once_a_curve_stays_there(curve: list[float], answer: int | None) -> None:
    assert reached(np.array([10, 20, 40]), np.array(curve), 0.5) == answer


def test_a_bound_is_recommended_that_about_half_of_the_worlds_keep() -> None:
    truths = list(truths_of(SMALL, SHORT, 11, 0).values())
    lengths = np.sort([np.linalg.norm(truth.theta) for truth in truths])
    assert abs(recommended_bound(truths) - lengths[5]) <= 0.25


def test_a_site_that_the_plan_does_not_know_lies_in_its_interval() -> None:
    site = calibrated(next(site for site in SITES if site.name == "trial"))
    told = Assumptions(0.40, 0.50, round(site.one_arm_rate, 3), epsilons=(4.0,), decisions=5_000)
    (outlook,) = plan({"trial": site.site.schema}, told, worlds=12, seed=3).outlooks
    gains = [site.gain(4.0, outlook.theta_bound, seed) for seed in range(900, 906)]
    assert outlook.low <= np.mean(gains) <= outlook.high


@pytest.mark.parametrize(("number", "text"), [(7, "7"), (84, "84"), (1_234, "1,200"), (98_765, "99,000")])
def test_numbers_of_decisions_are_rounded(number: int, text: str) -> None:
    assert rounded(number) == text


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilons": ()},
        {"epsilons": (0.0,)},
        {"decisions": 999},
        {"arms": 1},
        {"best_rate": 0.2},
        {"one_arm_rate": 0.4},
    ],
)
def test_assumptions_without_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Assumptions(**{"random_rate": 0.2, "best_rate": 0.3, **bad})  # type: ignore[arg-type]
