"""Logs of experiments: read, checked, and refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from tacit.errors import InvalidInput
from tacit.evaluation import PublicFacts, doubts, make_trial, proposed_schema, read_log, unknown_columns
from tacit.evaluation.proposals import observed_facts
from tacit.features import Category, Flag, Number, Schema
from tests.evaluation.worlds import log_of

SCHEMA = Schema(user=[Number("age", 0, 100)], arm=[Category("drug", ["A", "B"])], per_arm="drug")
LOG: dict[str, Any] = {
    "age": [10.0, 20.0, 30.0, 40.0],
    "drug": ["A", "B", "B", "A"],
    "cured": [1, 0, 1, 1],
    "p": [0.5, 0.25, 0.5, 0.5],
    "site": ["x", "x", "y", "y"],
}


def test_probabilities_come_from_the_design_from_a_column_or_are_counted() -> None:
    equal = make_trial(SCHEMA, LOG, reward="cured", shares="equal")
    named = make_trial(SCHEMA, LOG, reward="cured", shares={"B": 0.25, "A": 0.75})
    column = make_trial(SCHEMA, LOG, reward="cured", propensity="p")
    counted = make_trial(SCHEMA, LOG, reward="cured", stratum="site")
    assert [trial.shares.tolist() for trial in (equal, named, column, counted)] == [
        [0.5] * 4,
        [0.75, 0.25, 0.25, 0.75],
        [0.5, 0.25, 0.5, 0.5],
        [0.5] * 4,
    ]
    assert [trial.designed for trial in (equal, named, column, counted)] == [True, True, True, False]
    assert [trial.design is None for trial in (equal, named, column, counted)] == [False, False, True, True]
    assert equal.given.tolist() == [0, 1, 1, 0]
    assert equal.rows.shape == (4, 2, SCHEMA.dim)


@pytest.mark.parametrize(
    ("changes", "terms", "message"),
    [
        ({}, {}, "one of shares"),
        ({}, {"shares": "equal", "propensity": "p"}, "one of shares"),
        ({}, {"shares": {"A": 1.0}}, "must name the arms A, B"),
        ({}, {"shares": {"A": 0.5, "B": 0.4}}, "add up to 1"),
        ({}, {"shares": {"A": 1.0, "B": 0.0}}, "share of B"),
        ({}, {"shares": "known"}, "'equal' or a probability"),
        ({}, {"shares": [0.5, 0.5]}, "'equal' or a probability"),
        ({}, {"shares": "equal", "arms": [{"drug": "A"}, {"drug": "A"}]}, "arms must differ"),
        ({}, {"shares": "equal", "arms": [{"drug": 1}, {"drug": "1"}]}, "arms must differ"),
        ({}, {"shares": "equal", "arms": [{"drug": "A", "price": 1}, {"drug": "A", "price": 2}]}, "arms must differ"),
        ({}, {"shares": "equal", "arms": [{"drug": "A"}]}, "at least two arms"),
        ({}, {"stratum": "cured"}, "'cured' is the reward"),
        ({}, {"propensity": "cured"}, "'cured' is the reward"),
        ({"cured": np.ones((4, 2))}, {"shares": "equal"}, "rewards must be one number"),
        ({"cured": [[1, 0]] * 4}, {"shares": "equal"}, "rewards must be one number"),
        ({"p": [0.5, 0.0, 0.5, 0.5]}, {"propensity": "p"}, r"p must lie in \(0, 1\]: line 2"),
        ({"p": [0.5, None, 0.5, 0.5]}, {"propensity": "p"}, "line 2"),
        ({"cured": [1, 0, 2, 1]}, {"shares": "equal"}, "line 3"),
        ({"cured": [1, None, 1, 1]}, {"shares": "equal"}, "line 2"),
        ({"cured": ["1", "0", "no", "NaN"]}, {"shares": "equal"}, "number in every line: line 3 has 'no'"),
        ({"cured": [1, [0], "no", 1]}, {"shares": "equal"}, r"line 2 has \[0\]"),
        ({}, {"propensity": "q"}, "^the log has no column 'q'; its columns are"),
        ({"drug": ["A", "C", "B", None]}, {"shares": "equal"}, "not among A, B: 'C'"),
        ({"site": ["x", "x", "y", "z"]}, {"stratum": "site"}, r"y \(A\), z \(B\)"),
        ({}, {"stratum": "hospital"}, "no column 'hospital'"),
        ({"age": [1.0]}, {"shares": "equal"}, "equally many lines"),
        ({name: [] for name in LOG}, {"shares": "equal"}, "at least one"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(
    changes: dict[str, Any], terms: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        make_trial(SCHEMA, LOG | changes, reward="cured", **terms)


def test_shares_are_counted_within_each_stratum() -> None:
    drugs, sites = list("AAABABBB"), list("xxxxyyyy")
    log = {"age": [1.0] * 8, "drug": drugs, "cured": [1, 0] * 4, "site": sites}
    trial = make_trial(SCHEMA, log, reward="cured", stratum="site")
    assert trial.shares.tolist() == [0.75, 0.75, 0.75, 0.25, 0.25, 0.75, 0.75, 0.75]


def test_schemas_that_tell_no_arm_or_the_reward_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no field of arms"):
        make_trial(Schema(user=[Number("age", 0, 100)]), LOG, reward="cured", shares="equal", arms=[{}, {}])
    telling = Schema(user=[Flag("cured")], arm=[Category("drug", ["A", "B"])])
    with pytest.raises(InvalidInput, match="'cured' is the reward"):
        make_trial(telling, LOG, reward="cured", shares="equal")


SHARES = {"A": 0.5, "B": 0.3, "C": 0.2}
OFFERS = Schema(user=[Number("age", 0, 100)], arm=[Category("drug", list("ABC"))], per_arm="drug")


def test_probabilities_that_contradict_the_log_are_told() -> None:
    log = log_of(2_000, SHARES)
    log["p"] = np.array([SHARES[drug] for drug in log["drug"]])
    log["half"] = np.full(2_000, 0.5)
    log["site"] = ["x"] * 2_000
    told = [
        "".join(doubts(make_trial(OFFERS, log, reward="cured", **terms)))
        for terms in ({"shares": "equal"}, {"propensity": "half"}, {"shares": {"A": 0.5, "B": 0.25, "C": 0.25}})
    ]
    assert "A was given to" in told[0]
    assert "mean of 1 / p is 2" in told[1]
    assert "C was given to" in told[2]
    rare = log_of(2_000, {"A": 0.9, "B": 0.08, "C": 0.02})
    (sparse,) = doubts(make_trial(OFFERS, rare, reward="cured", shares={"A": 0.9, "B": 0.08, "C": 0.02}))
    assert "about 40 lines, and would from 667" in sparse
    assert "0.02" in sparse
    assert doubts(make_trial(OFFERS, log, reward="cured", stratum="site")) == ()


def test_probabilities_that_are_right_are_rarely_doubted() -> None:
    """By chance one log in 16,000 would be."""
    for seed in range(40):
        log = log_of(300, SHARES, seed)
        log["p"] = np.array([SHARES[drug] for drug in log["drug"]])
        for terms in ({"shares": SHARES}, {"propensity": "p"}):
            assert doubts(make_trial(OFFERS, log, reward="cured", **terms)) == (), (seed, terms)


def test_arms_of_several_fields_are_told_by_all_of_their_columns() -> None:
    offers = Schema(arm=[Category("shop", ["x", "y"]), Number("price", 0, 10)])
    log = {"shop": ["x", "y", "y"], "price": np.array([1.0, 1.0, 2.5]), "sold": [1, 0, 1]}
    arms = [{"shop": "x", "price": 1.0}, {"shop": "y", "price": 1.0}, {"price": 2.5, "shop": "y"}]
    trial = make_trial(offers, log, reward="sold", arms=arms, shares="equal")
    assert trial.given.tolist() == [0, 1, 2]
    assert trial.rows.shape == (3, 3, offers.dim)
    with pytest.raises(InvalidInput, match="give the arms"):
        make_trial(offers, log, reward="sold", shares="equal")


def test_csv_and_parquet_are_read_alike(tmp_path: Path) -> None:
    frame = polars.DataFrame(LOG | {"age": [10, 20, None, 40], "smoker": [True, None, False, True]})
    frame.write_csv(tmp_path / "log.csv")
    frame.write_csv(tmp_path / "log.tsv", separator="\t")
    frame.write_parquet(tmp_path / "log.parquet")
    logs = [read_log(tmp_path / f"log.{kind}") for kind in ("csv", "tsv", "parquet")]
    for log in logs:
        assert np.array_equal(log["age"], [10.0, 20.0, np.nan, 40.0], equal_nan=True)
        assert log["smoker"] == [True, None, False, True]
        assert log["drug"] == LOG["drug"]
        trial = make_trial(SCHEMA, log, reward="cured", shares="equal")
        assert trial.rewards.tolist() == [1.0, 0.0, 1.0, 1.0]


def test_na_is_missing_and_endings_may_be_capitals(tmp_path: Path) -> None:
    path = tmp_path / "LOG.CSV"
    path.write_text("drug,cured\nA,1\nNA,0\nB,NA\n,1\n")
    log = read_log(path)
    assert log["drug"] == ["A", None, "B", None]
    assert np.array_equal(log["cured"], [1.0, 0.0, np.nan, 1.0], equal_nan=True)
    path.write_text("drug,cured\nA,1\nB,n/a\n")
    with pytest.raises(InvalidInput, match="line 2 has 'n/a'"):
        make_trial(Schema(arm=[Category("drug", ["A", "B"])]), read_log(path), reward="cured", shares="equal")


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "log.parquet"
    broken.write_text("not that")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_log(broken)
    with pytest.raises(InvalidInput, match=r"a log is a file whose name ends in \.csv"):
        read_log(tmp_path / "log.xlsx")
    with pytest.raises(InvalidInput, match=r"missing\.csv: there is no such file"):
        read_log(tmp_path / "missing.csv")


def test_a_schema_asks_for_what_must_be_public() -> None:
    log = {name: np.array(column) if name in ("age", "p") else column for name, column in LOG.items()}
    left_out = ["cured", "p"]
    assert unknown_columns(log, "drug", PublicFacts(), left_out) == {"age": "range", "site": "values"}
    with pytest.raises(InvalidInput, match=r"age \(range\), site \(values\)"):
        proposed_schema(log, "drug", PublicFacts(), left_out)
    facts = PublicFacts(ranges={"age": (18.0, 90.0)}, values={"site": ["x", "y", "z"]})
    schema = proposed_schema(log, "drug", facts, left_out)
    assert [field.name for field in schema.user] == ["age", "site"]
    assert schema.per_arm == "drug"
    assert Schema.from_json(schema.to_json()) == schema


def test_facts_that_are_read_off_the_log_are_only_those_that_are_missing() -> None:
    log = {"age": np.array([10.0, np.nan, 40.0]), "site": ["x", None, "a"], "drug": ["A", "B", "B"]}
    facts = PublicFacts(values={"site": ["a", "x", "y"]})
    found = observed_facts(log, unknown_columns(log, "drug", facts, []), facts)
    assert found.ranges == {"age": (10.0, 40.0)}
    assert found.values == {"site": ["a", "x", "y"]}
