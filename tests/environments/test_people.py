"""People of a trial: the outcome model that is fitted to it, and the rounds in which they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.environments import Block, Environment, People, fitted_outcomes, make_environment, register_people
from tacit.errors import InvalidInput
from tacit.features import Category, Flag, Schema

DRUGS = ("A", "B", "C")
SCHEMA = Schema(user=[Flag("smoker")], arm=[Category("drug", DRUGS)], per_arm="drug")
SMOKER = np.array([True, False, False, True, False, False, False])
MEANS = np.where(SMOKER[:, np.newaxis], [0.9, 0.2, 0.4], [0.1, 0.6, 0.5])

ARMS = tuple({"drug": drug} for drug in DRUGS)
register_people("smokers", "Seven people.", lambda: People({"smoker": SMOKER}, ARMS, MEANS))


def world(horizon: int, schema: Schema | None = SCHEMA) -> Environment:
    shape: dict[str, Any] = {"dim": SCHEMA.dim, "arms": 3, "horizon": horizon, "schema": schema}
    return make_environment(link="logistic", theta_norm=1.0, contexts="smokers", **shape)


def played(horizon: int, seed: int = 0) -> Block:
    blocks = list(world(horizon).blocks(np.random.default_rng(seed)))
    return Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def test_everybody_comes_once_in_every_pass_and_in_another_order() -> None:
    block = played(7 * 40)
    smokers = (block.contexts[:, 0, SCHEMA.names.index("smoker @ drug=A")] > 0.0).reshape(40, 7)
    assert np.all(smokers.sum(axis=1) == SMOKER.sum())
    assert len(np.unique(smokers, axis=0)) > 10
    regrets = np.where(smokers.reshape(-1, 1), [0.0, 0.7, 0.5], [0.5, 0.0, 0.1])
    np.testing.assert_allclose(block.regrets, regrets)
    assert played(5).rewards.shape == (5, 3)


def test_rewards_have_the_means_of_the_people() -> None:
    rounds = 7 * 2_000
    found = played(rounds).rewards.mean(axis=0)
    people = People({"smoker": SMOKER}, ARMS, MEANS)
    errors = (found - people.arm_values) / np.sqrt(people.arm_values * (1.0 - people.arm_values) / rounds)
    assert np.all(np.abs(errors) < 4.0)
    assert people.random_value == pytest.approx(MEANS.mean())
    assert people.best_value == pytest.approx((2 * 0.9 + 5 * 0.6) / 7)


def test_people_need_a_schema() -> None:
    with pytest.raises(InvalidInput, match="give a schema"):
        next(world(7, schema=None).blocks(np.random.default_rng(0)))


def simulated(difference: float, people: int = 3_000) -> tuple[Any, ...]:
    """A trial of three arms, the second of which helps, and by ``difference`` more where the first trait is high."""
    rng = np.random.default_rng(5)
    traits = np.column_stack([rng.standard_normal((people, 2)), np.ones(people)])
    scores = np.array([-0.5, 0.5, 0.0]) + 0.6 * traits[:, 1:2] + difference * traits[:, :1] * np.array([-1.0, 1.0, 0.0])
    truth = 1.0 / (1.0 + np.exp(-scores))
    given = rng.integers(3, size=people)
    rewards = (rng.random(people) < truth[np.arange(people), given]).astype(float)
    return truth, traits, given, rewards


@pytest.mark.parametrize("difference", [0.0, 0.5])
def test_the_outcome_model_finds_the_means_of_a_known_world(difference: float) -> None:
    truth, traits, given, rewards = simulated(difference)
    found = fitted_outcomes(traits, given, rewards, 3)
    assert np.sqrt(np.mean((found.means - truth) ** 2)) < 0.03
    assert np.abs(found.means.mean(axis=0) - truth.mean(axis=0)).max() < 4 * 0.5 / np.sqrt(1_000)


def test_people_differ_in_the_model_only_as_far_as_the_trial_allows() -> None:
    """Without differences the largest scale is refused: it would give people best arms that they do not have."""
    truth, traits, given, rewards = simulated(0.0)
    alike = fitted_outcomes(traits, given, rewards, 3)
    _, traits, given, rewards = simulated(0.5)
    different = fitted_outcomes(traits, given, rewards, 3)
    assert alike.scale < 0.4
    assert different.scale == 0.4
    assert alike.means.max(axis=1).mean() < truth.max(axis=1).mean() + 0.01
