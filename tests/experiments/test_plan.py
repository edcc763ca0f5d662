"""`tacit plan` in Python: the effect in click rates, from when on it pays, and what it says."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tacit.cli.plan import sentences
from tacit.cli.plan import table as plan_table
from tacit.errors import InvalidInput
from tacit.experiments.plan import Assumptions, experiments_of, mostly_from, pays_from, plan, theta_norm_of
from tacit.experiments.runner import play_once
from tacit.experiments.schemas import load_schema
from tacit.experiments.tables import rounded
from tacit.features import Category, Flag, Schema

SMALL = Schema(user=[Flag("young")], arm=[Category("topic", ["news", "arts"])], per_arm="topic")


def rates(schema: Schema, asked: Assumptions, seeds: int) -> tuple[float, float]:
    """What random and best arms earn in played worlds."""
    random = experiments_of(schema, asked)[0]
    runs = [play_once(random, seed, 0) for seed in range(seeds)]
    earned = float(np.mean([run.rewards for run in runs]))
    return earned, earned + float(np.mean([run.regrets for run in runs]))


@pytest.mark.parametrize(("effect", "base_rate"), [(1.2, 0.3), (1.5, 0.05)])
def test_the_best_arms_are_as_much_better_as_was_said(effect: float, base_rate: float) -> None:
    asked = Assumptions(effect=effect, base_rate=base_rate, decisions=3_000)
    random, best = rates(load_schema("patients"), asked, seeds=30)
    assert best / random == pytest.approx(effect, rel=0.05)
    assert random == pytest.approx(base_rate, rel=0.3)


def test_an_effect_that_cannot_be_is_refused_with_the_largest_one() -> None:
    with pytest.raises(InvalidInput, match=r"above 1 and at most [\d.]+, got 5"):
        theta_norm_of(SMALL, Assumptions(effect=5.0, base_rate=0.5))
    with pytest.raises(InvalidInput, match="above 1"):
        theta_norm_of(SMALL, Assumptions(effect=1.0))


@pytest.mark.parametrize(
    ("means", "answer"),
    [
        ([1.0, 1.0, 1.0, 1.0], 10),
        ([-1.0, 1.0, 1.0, 1.0], 20),
        ([1.0, 1.0, -1.0, 1.0], 40),  # ahead early, but not for good
        ([1.0, 1.0, 1.0, -1.0], None),
        ([0.1, 0.1, 0.3, 0.3], 30),  # ahead by more than two standard errors
    ],
)
def test_it_pays_once_it_is_ahead_for_good(means: list[float], answer: int | None) -> None:
    deviations = np.array([-0.1, 0.0, 0.1, 0.0, 0.2, -0.2])  # a standard error of 0.058
    ahead = np.array(means) + deviations[:, np.newaxis]
    assert pays_from([10, 20, 30, 40], ahead) == answer


def test_nine_of_ten_runs_are_counted_for_good_too() -> None:
    ahead = np.ones((10, 4))
    ahead[0], ahead[1, :2] = -1.0, -1.0
    assert mostly_from([10, 20, 30, 40], ahead) == 30
    ahead[2, 3] = -1.0
    assert mostly_from([10, 20, 30, 40], ahead) is None


def test_a_plan_has_every_epsilon_and_the_ceiling() -> None:
    done: list[str] = []
    asked = Assumptions(epsilons=(8.0, 1.0), base_rate=0.3, decisions=2_000)
    expected = plan(SMALL, asked, runs=3, seed=1, on_run=lambda experiment: done.append(experiment.label))
    assert len(done) == 12
    assert [outlook.epsilon for outlook in expected.outlooks] == [1.0, 8.0, math.inf]
    assert expected.milestones == (1_000, 2_000)
    ceiling = expected.outlooks[-1]
    assert expected.random_rate < ceiling.rate < expected.best_rate
    share = (ceiling.rate - expected.random_rate) / (expected.best_rate - expected.random_rate)
    assert ceiling.gains[2_000] == pytest.approx(share)
    assert json.loads(json.dumps(expected.to_dict(), allow_nan=False))["outlooks"][-1]["epsilon"] == "inf"
    assert plan(SMALL, asked, runs=3, seed=1) == expected
    text = "\n".join([*sentences(expected), plan_table(expected).markdown()])
    assert "epsilon 8 per visit" in text
    assert "a single visit" in text
    assert "gain by 1,000" in text


def test_visits_of_one_person_cost_gain_and_are_said() -> None:
    asked = Assumptions(epsilons=(1.0,), rounds_per_user=50, decisions=100)
    private = experiments_of(SMALL, asked)[1]
    assert private.options == {"rounds_per_user": 50}
    expected = plan(SMALL, asked, runs=2)
    (sentence, _), table = sentences(expected), plan_table(expected)
    assert sentence.startswith("At epsilon 1 per person")
    assert "a person with up to 50 visits" in table.notes[0]


@pytest.mark.parametrize(("number", "text"), [(7, "7"), (84, "84"), (1_234, "1,200"), (98_765, "99,000")])
def test_numbers_of_decisions_are_rounded(number: int, text: str) -> None:
    assert rounded(number) == text


@pytest.mark.parametrize("bad", [{"epsilons": ()}, {"epsilons": (math.inf,)}, {"decisions": 10}, {"arms": 1}])
def test_assumptions_without_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Assumptions(**bad)  # type: ignore[arg-type]
