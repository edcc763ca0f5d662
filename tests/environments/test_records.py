"""Simulated users of a schema: their arms, their rewards, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.environments import ENVIRONMENTS, SCHEMA, Block, Environment, make_environment, offered_arms
from tacit.environments.records import rounds_with, sampled_contexts
from tacit.errors import InvalidInput
from tacit.features import Category, Flag, Hashed, Number, Schema

TREATMENTS = ["A", "B", "C", "D"]
OWN = Schema(user=[Flag("smoker")], arm=[Category("treatment", TREATMENTS)], per_arm="treatment")
OWN_AND_DOSE = Schema(
    user=[Flag("smoker")], arm=[Category("treatment", TREATMENTS), Number("dose", 0, 10)], per_arm="treatment"
)
FREE = Schema(
    user=[Number("age", 0, 100), Hashed("words", 4, tokens=2, key="00" * 16)],
    arm=[Category("topic", ["news", "arts"]), Number("minutes", 0, 60)],
    crosses=[("age", "topic")],
)


def world(features: Schema, asked: int | None = None, **changes: Any) -> Environment:
    settings: dict[str, Any] = {"link": "logistic", "horizon": 3_000, "theta_norm": 2.0, "contexts": SCHEMA}
    shape = {"dim": features.dim, "arms": offered_arms(features, asked), "schema": features}
    return make_environment(**(settings | shape | changes))


def played(environment: Environment, seed: int = 0) -> Block:
    blocks = list(environment.blocks(np.random.default_rng(seed)))
    return Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def treatments(contexts: Any) -> Any:
    """The number of the treatment of every arm, by the coordinate of its constant."""
    constants = [OWN_AND_DOSE.names.index(f"1 @ treatment={value}") for value in TREATMENTS]
    return np.argmax(contexts[:, :, constants] != 0.0, axis=2)


def test_the_arms_of_a_round_are_the_values_that_have_parameters_of_their_own() -> None:
    assert offered_arms(OWN) == offered_arms(OWN, 9) == 4
    contexts = played(world(OWN)).contexts
    assert contexts.shape == (3_000, 4, 8)
    records = [{"treatment": value} for value in TREATMENTS]
    possible = [OWN.encode({"smoker": smoker}, records) for smoker in (False, True)]
    for arms in contexts[:50]:
        assert any(np.array_equal(arms, rows) for rows in possible)


@pytest.mark.parametrize("arms", [2, 4])
def test_of_more_values_than_arms_a_round_has_some_without_repetition(arms: int) -> None:
    contexts = played(world(OWN_AND_DOSE, arms)).contexts
    found = np.sort(treatments(contexts), axis=1)
    assert found.shape == (3_000, arms)
    assert np.all(np.diff(found, axis=1) > 0)
    shares = np.bincount(found.ravel(), minlength=4) / found.size
    assert np.all(np.abs(shares - 0.25) < 4.0 * np.sqrt(0.25 * 0.75 / found.size))
    doses = contexts[:, :, OWN_AND_DOSE.names.index("dose")]
    assert np.unique(doses).size == doses.size  # drawn anew for every arm of every user


def test_without_parameters_of_their_own_arms_are_drawn_as_many_as_are_asked_for() -> None:
    assert (offered_arms(FREE), offered_arms(FREE, 7)) == (20, 7)
    contexts = played(world(FREE, 7)).contexts
    assert contexts.shape == (3_000, 7, FREE.dim)
    ages = contexts[:, :, FREE.names.index("age")]
    assert np.all(ages == ages[:, :1])  # one user a round,
    minutes = contexts[:, :, FREE.names.index("minutes")]
    assert np.unique(minutes).size == minutes.size  # and arms of their own
    scale = FREE.scales[FREE.names.index("minutes")]
    assert minutes.mean() == pytest.approx(0.0, abs=4.0 * scale / np.sqrt(3.0 * minutes.size))
    assert np.linalg.norm(contexts, axis=2).max() <= 1.0


def test_rewards_follow_the_link_and_the_base_rate() -> None:
    environment = world(OWN, base_rate=0.1, horizon=20_000, theta_norm=0.1)
    theta = np.random.default_rng(5).standard_normal(OWN.dim)
    rounds = next(rounds_with(np.random.default_rng(0), environment.setting, theta))
    odds = np.log(0.1 / 0.9) + rounds.contexts @ theta
    assert np.allclose(rounds.means, 1.0 / (1.0 + np.exp(-odds)))
    block = played(environment)
    assert block.rewards.mean() == pytest.approx(0.1, abs=0.01)
    assert np.all(block.regrets.min(axis=1) == 0.0)


def test_a_run_is_the_same_for_the_same_seed_and_differs_in_theta() -> None:
    first, again, other = (played(world(OWN), seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    assert not np.array_equal(first.regrets, other.regrets)


def test_blocks_of_a_wide_schema_stay_small() -> None:
    wide = Schema(
        user=[Number(f"n{i}", 0, 1) for i in range(9)], arm=[Category("arm", list(range(100)))], per_arm="arm"
    )
    block = next(world(wide).blocks(np.random.default_rng(0)))
    assert block.contexts.shape == (16, 100, 1_000)


def test_users_without_fields_have_arms_too() -> None:
    schema = Schema(arm=[Number("price", 0, 10)])
    assert sampled_contexts(np.random.default_rng(0), schema, 5, 3).shape == (5, 3, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": None}, "--schema"),
        ({"dim": 9}, "dim follows from the schema, which has 8, not 9"),
        ({"arms": 5}, "at most 4, one for each value of 'treatment', not 5"),
        ({"schema": Schema(user=[Number("age", 0, 1)]), "dim": 2}, "no field of arms"),
    ],
)
def test_settings_that_do_not_fit_the_schema_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        world(OWN, **changes)


def test_it_is_listed_with_the_others() -> None:
    assert "schema" in ENVIRONMENTS[SCHEMA].summary
