"""Policies that take records by a schema, and what decisions and explanations say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.features import Category, Number, Schema
from tacit.policies.explanation import ChoiceExplanation, Explanation
from tacit.policies.policy import Policy
from tacit.policies.registry import POLICIES, policy_class
from tacit.typing import FloatArray

SCHEMA = Schema(
    user=[Number("age", 0, 120), Category("device", ["ios", "web"])],
    arm=[Category("topic", ["news", "sport", "arts"]), Number("minutes", 0, 60)],
    crosses=[("device", "topic")],
)
OWN = Schema(user=[Number("age", 0, 120)], arm=[Category("topic", ["news", "arts"])], per_arm="topic")
USER = {"age": 41, "device": "ios"}
ARMS = [{"topic": "news", "minutes": 4}, {"topic": "arts", "minutes": 9}]
NO_ESTIMATE = {"random", "b-glincb"}


def make(name: str, schema: Schema = SCHEMA, **changes: Any) -> Policy:
    shared: dict[str, Any] = {"features": schema, "horizon": 300, "theta_bound": 2.0, "seed": 3}
    budget = {"epsilon": 2.0, "delta": 1e-5} if policy_class(name).private else {}
    return tacit.make_policy(name, **(shared | budget | changes))


def estimate(policy: Policy) -> FloatArray:
    assert policy.belief is not None
    return policy.belief.theta


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_takes_records(name: str, tmp_path: Path) -> None:
    policy = make(name)
    for _ in range(5):
        policy.update(policy.select(user=USER, arms=ARMS), 1.0)
    answers = policy.select_batch(users=[USER, {"age": "old"}, USER], arms=ARMS)
    assert [isinstance(answer, InvalidInput) for answer in answers] == [False, True, False]
    assert "age" in str(answers[1])
    policy.save(tmp_path / "state")
    loaded = tacit.load(tmp_path / "state")
    assert loaded.config.features == SCHEMA
    assert loaded.select(user=USER, arms=ARMS).arm in (0, 1)


@pytest.mark.parametrize("name", POLICIES)
def test_records_decide_as_their_rows_do(name: str) -> None:
    by_record = make(name)
    budget: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5} if policy_class(name).private else {}
    by_array = tacit.make_policy(name, dim=SCHEMA.dim, horizon=300, theta_bound=2.0, seed=3, **budget)
    if name == "stream-glm":  # with a schema it releases less, and so decides otherwise
        by_array = make(name)
    rng = np.random.default_rng(1)
    for _ in range(30):
        user = {"age": float(rng.uniform(0, 120)), "device": "web"}
        decision = by_record.select(user=user, arms=ARMS)
        if name == "stream-glm":
            rows = by_array.arm_form.rounds(SCHEMA.encode(user, ARMS)[None])
            other = by_array.select_admitted(rows)
        else:
            other = by_array.select(SCHEMA.encode(user, ARMS))
        assert (decision.arm, decision.propensity) == (other.arm, other.propensity)
        reward = float(rng.integers(2))
        by_record.update(decision, reward)
        by_array.update(other, reward)


def test_arrays_are_refused_where_there_is_a_schema_and_records_where_there_is_none() -> None:
    policy = make("stream-glm")
    before = policy.fingerprint()
    with pytest.raises(InvalidInput, match="takes records, not arrays"):
        policy.select(SCHEMA.encode(USER, ARMS))
    with pytest.raises(InvalidInput, match="takes records, not arrays"):
        policy.select_batch(SCHEMA.encode(USER, ARMS)[None])
    with pytest.raises(InvalidInput, match="takes records, not arrays"):
        policy.select()
    with pytest.raises(InvalidInput, match="needs arms"):
        policy.select(user=USER)
    with pytest.raises(InvalidInput, match="needs users"):
        policy.select_batch(users=[USER])
    with pytest.raises(InvalidInput, match="not both"):
        policy.select(SCHEMA.encode(USER, ARMS), user=USER, arms=ARMS)
    with pytest.raises(InvalidInput, match="colour"):
        policy.select(user={**USER, "colour": "red"}, arms=ARMS)
    assert policy.fingerprint() == before
    plain = tacit.make_policy("stream-glm", dim=2, epsilon=1.0, delta=1e-6, seed=1)
    with pytest.raises(InvalidInput, match="no schema"):
        plain.select(user=USER, arms=ARMS)
    with pytest.raises(InvalidInput, match="contexts"):
        plain.select()


def test_the_dimension_follows_from_the_schema() -> None:
    assert make("stream-glm").setting.dim == SCHEMA.dim
    assert make("stream-glm", dim=SCHEMA.dim).setting.dim == SCHEMA.dim
    with pytest.raises(InvalidInput, match="dim follows from the schema"):
        make("stream-glm", dim=3)
    with pytest.raises(InvalidInput, match="blocks follow from the schema"):
        make("stream-glm", blocks=2)
    with pytest.raises(InvalidInput, match=r"must be a tacit\.features\.Schema"):
        tacit.make_policy("random", features="schema.json")  # type: ignore[arg-type]


def test_a_configuration_with_a_schema_survives_json() -> None:
    config = make("stream-glm").config
    assert type(config).from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_carry_a_prediction_and_a_propensity(name: str) -> None:
    policy = make(name)
    for _ in range(20):
        decision = policy.select(user=USER, arms=ARMS)
        policy.update(decision, 1.0)
        if name == "adaprivate-ts":  # arms of a draw of theta: their probabilities have no closed form
            assert decision.propensity is None
        else:
            assert decision.propensity is not None
            assert 0.0 < decision.propensity <= 1.0
        if name in NO_ESTIMATE:
            assert decision.mean is None
            assert decision.sd is None
        else:
            assert decision.mean is not None
            assert math.isfinite(decision.mean)
    if name in ("stream-glm", "shuffle-glm"):
        assert decision.sd is not None
        assert decision.sd > 0.0


def test_the_propensity_of_a_random_arm_is_that_of_the_coin() -> None:
    policy = make("random")
    assert policy.select(user=USER, arms=ARMS * 2).propensity == 0.25


def test_propensities_of_a_design_are_the_frequencies_of_its_arms() -> None:
    """The first batch of shuffle-glm samples from a design that depends on the arms alone."""
    policy = make("shuffle-glm", horizon=5000)
    arms = [{"topic": topic, "minutes": 10.0 * i} for i, topic in enumerate(("news", "sport", "arts"))]
    decisions = [policy.select(user=USER, arms=arms) for _ in range(600)]
    stated = {decision.arm: decision.propensity for decision in decisions}
    assert sum(p for p in stated.values() if p is not None) == pytest.approx(1.0)
    for arm, propensity in stated.items():
        assert propensity is not None
        share = np.mean([decision.arm == arm for decision in decisions])
        assert abs(share - propensity) < 5.0 * math.sqrt(propensity / 600)


def test_predictions_are_those_of_the_estimate() -> None:
    policy, rng = make("stream-glm", OWN, epsilon=50.0), np.random.default_rng(2)
    arms = [{"topic": "news"}, {"topic": "arts"}]
    hits = []
    for _ in range(3000):
        user = {"age": float(rng.uniform(0, 120))}
        decision = policy.select(user=user, arms=arms)
        chance = 0.8 if decision.arm == 1 else 0.2
        policy.update(decision, float(rng.random() < chance))
        hits.append((decision, chance))
    assert decision.mean is not None
    assert decision.sd is not None
    row = OWN.encode(user, arms)[decision.arm]
    assert decision.mean == pytest.approx(float(policy.setting.link.mean(row @ estimate(policy))), abs=0.02)
    late = [(d.mean - chance, d.sd) for d, chance in hits[-1000:] if d.mean is not None and d.sd is not None]
    assert np.mean([abs(error) for error, _ in late]) < 0.1
    assert all(0.0 < sd < 0.2 for _, sd in late)


def test_explanations_name_every_feature_and_come_from_the_estimate(tmp_path: Path) -> None:
    policy, rng = make("stream-glm", OWN, epsilon=50.0), np.random.default_rng(2)
    arms = [{"topic": "news"}, {"topic": "arts"}]
    for _ in range(1500):
        decision = policy.select(user={"age": 60.0}, arms=arms)
        policy.update(decision, float(rng.random() < (0.9 if decision.arm == 1 else 0.1)))
    told = policy.explain()
    assert isinstance(told, Explanation)
    assert {feature.name for feature in told.features} == set(OWN.names)
    assert told.features[0].name == "1 @ topic=arts"
    assert told.features[0].weight > 0.0
    weights = dict(zip(OWN.names, estimate(policy), strict=True))
    deviations = policy.state.posterior.reshape(2, 2, 2)
    for feature in told.features:
        assert feature.weight == weights[feature.name]
        position = OWN.names.index(feature.name)
        assert feature.sd == pytest.approx(math.sqrt(deviations[position // 2, position % 2, position % 2]))
    assert str(told).splitlines()[1].startswith("1 @ topic=arts")
    assert json.loads(json.dumps(told.to_json()))["features"][0]["name"] == "1 @ topic=arts"
    told.plot(tmp_path / "features.png")
    assert (tmp_path / "features.png").stat().st_size > 5_000


def test_why_this_arm() -> None:
    policy, rng = make("stream-glm", OWN, epsilon=50.0), np.random.default_rng(2)
    arms = [{"topic": "news"}, {"topic": "arts"}]
    for _ in range(1500):
        decision = policy.select(user={"age": 60.0}, arms=arms)
        policy.update(decision, float(rng.random() < (0.9 if decision.arm == 1 else 0.1)))
    before = policy.fingerprint()
    why = policy.explain(user={"age": 30.0}, arms=arms)
    assert isinstance(why, ChoiceExplanation)
    assert policy.fingerprint() == before  # nothing is kept, and the clock does not go on
    assert why.chosen.arm == 1
    assert why.other is not None
    assert why.other.arm == 0
    assert sum(part for _, part in why.parts) == pytest.approx(why.chosen.score - why.other.score)
    assert "what speaks for arm 1 against arm 0" in str(why)
    assert json.loads(json.dumps(why.to_json()))["chosen"]["arm"] == 1
    other = policy.explain(user={"age": 30.0}, arms=arms, arm=0)
    assert isinstance(other, ChoiceExplanation)
    assert other.chosen.arm == 0
    with pytest.raises(InvalidInput, match="one of the 2 arms"):
        policy.explain(user={"age": 30.0}, arms=arms, arm=2)


def test_explanations_of_arrays_and_of_policies_without_an_estimate() -> None:
    plain = tacit.make_policy("greedy-mle", dim=2, seed=1)
    plain.update(plain.select(np.eye(2)), 1.0)
    told = plain.explain()
    assert isinstance(told, Explanation)
    assert {feature.name for feature in told.features} == {"feature 0", "feature 1"}
    assert all(feature.sd is None for feature in told.features)
    assert "no privacy" in str(told)
    assert isinstance(plain.explain(np.eye(2)), ChoiceExplanation)
    with pytest.raises(InvalidInput, match="no estimate"):
        make("random").explain()


@pytest.mark.parametrize("schema", [SCHEMA, OWN])
@pytest.mark.parametrize("name", ["stream-glm", "joint-linucb"])
def test_rows_lie_in_the_unit_ball_whatever_a_schema_makes(
    name: str, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sensitivities rest on the rows that policies are given, not on how they were made."""
    policy, encoder = make(name, schema), type(schema)
    users, arms = [{"age": 41}, {"age": 7}], [{"topic": "news"}, {"topic": "arts"}]

    def longer(rows: FloatArray) -> FloatArray:
        rows[..., : schema.width if rows.shape[-1] == 2 * schema.width else None] *= 4.0
        return rows

    rows, encode, rows_of, dense = encoder.rows, encoder.encode, encoder.rows_of, encoder.dense
    monkeypatch.setattr(encoder, "rows", lambda self, *given: longer(rows(self, *given)))
    monkeypatch.setattr(encoder, "encode", lambda self, *given: longer(encode(self, *given)))
    monkeypatch.setattr(encoder, "rows_of", lambda self, *given: (longer(rows_of(self, *given)[0]), {}))
    monkeypatch.setattr(encoder, "dense", lambda self, given: longer(dense(self, given)))
    form = policy.arm_form
    for block in (form.one(None, users[0], arms), form.many(None, users, arms)[0]):
        found = np.array([form.dense(user) for user in block])
        lengths = np.vecdot(found, found)
        assert np.all(lengths <= 1.0)
        assert lengths.max() > 1.0 - 1e-9
