"""Schemas in experiments: examples, files, digests, and the same rows by every way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.experiments.runner import run_all, run_once
from tacit.experiments.schemas import EXAMPLES, load_schema, world_of
from tacit.experiments.spec import Experiment
from tacit.policies.registry import POLICIES, policy_class


def experiment(policy: str = "random", example: str = "patients") -> Experiment:
    world = world_of(load_schema(example), 4)
    made = Experiment(policy, link="logistic", horizon=60, theta_norm=2.0, base_rate=0.3, **world)
    return made if policy_class(policy).guarantee == "none" else replace(made, epsilon=4.0, delta=1e-5)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_the_same_each_time_and_have_enough_features(name: str) -> None:
    schema = load_schema(name)
    assert schema == load_schema(name)
    assert 20 <= schema.dim <= 60


def test_a_file_holds_what_a_schema_gives(tmp_path: Path) -> None:
    schema, path = load_schema("shops"), tmp_path / "shops.json"
    path.write_text(json.dumps(schema.to_json()))
    assert load_schema(str(path)) == schema


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no schema .* articles, patients, shops"),
        ("{", "must be JSON"),
        ('{"a": 1}', "a stored schema has"),
        ('{"format": "other"}', "written by Schema.to_json"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInput, match=message) as refused:
        load_schema(str(path))
    assert "mine.json" in str(refused.value)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_plays_users_of_a_schema(policy: str) -> None:
    result = run_once(experiment(policy), seed=0, run=0)
    assert np.isfinite(result.regret_curve[-1])


def test_late_rewards_are_delivered_to_a_policy_with_a_schema() -> None:
    late = replace(experiment("stream-glm"), rewards="late", horizon=1_300)
    assert run_once(late, seed=0, run=0).regret_curve != run_once(replace(late, rewards="now"), 0, 0).regret_curve


def test_the_schema_is_part_of_the_digest_only_where_there_is_one(tmp_path: Path) -> None:
    plain = Experiment("random", link="probit", dim=3, arms=20, horizon=500, theta_norm=2.5)
    assert plain.digest() == "4fd3dee2df34e9b4"  # as before there were schemas
    ours, others = experiment(), experiment(example="articles")
    assert len({plain.digest(), ours.digest(), replace(others, dim=ours.dim, arms=ours.arms).digest()}) == 3
    journal = tmp_path / "runs.jsonl"
    rows = run_all([ours], runs=2, seed=0, journal=journal)
    played: list[Experiment] = []
    again = run_all([experiment()], runs=2, seed=0, journal=journal, on_run=played.append)
    assert again == rows
    assert rows[0]["schema"] == ours.schema_digest
    assert len(journal.read_text().splitlines()) == 2


def test_rows_are_gained_against_random_arms_of_the_same_schema() -> None:
    rows = run_all([experiment("greedy-mle"), experiment(), experiment("greedy-mle", "shops")], runs=1, seed=0)
    assert ["gain" in row for row in rows] == [True, True, False]
