"""What a schema may be, how it is stored, and how it describes itself."""

from __future__ import annotations

import copy
import doctest
import io
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
import rich.console
from workloads.feature_norms import hostile_records, random_schema

from tacit.errors import InvalidInput
from tacit.features import Category, Flag, Hashed, Number, Schema, schema

AGE, DEVICE = Number("age", 0, 120), Category("device", ["ios", "web"])
TOPIC, PRICE = Category("topic", ["news", "arts"]), Number("price", 0, 9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Schema(intercept=False), "no coordinate"),
        (lambda: Schema([AGE, Flag("age")]), "'age' more than once"),
        (lambda: Schema([AGE], [Flag("age")]), "names must differ over user and arm"),
        (lambda: Schema(AGE), "user must be a list of fields"),  # type: ignore[arg-type]
        (lambda: Schema([AGE], "topic"), "arm must be a list of fields"),  # type: ignore[arg-type]
        (lambda: Schema(["age"]), "user must hold fields"),  # type: ignore[list-item]
        (lambda: Schema([AGE], intercept=1), "intercept must be True or False"),  # type: ignore[arg-type]
        (lambda: Schema([AGE], [TOPIC], crosses="ab"), "crosses must be a list"),  # type: ignore[arg-type]
        (lambda: Schema([AGE], [TOPIC], crosses=["ab"]), "a cross must be a pair"),  # type: ignore[list-item]
        (lambda: Schema([AGE], [TOPIC], crosses=[("age",)]), "a cross must be a pair"),  # type: ignore[list-item]
        (lambda: Schema([AGE], [TOPIC], crosses=[("topic", "age")]), "'topic' is not among those of user"),
        (lambda: Schema([AGE], [TOPIC], crosses=[("age", "size")]), "'size' is not among those of arm"),
        (lambda: Schema([AGE], [TOPIC], crosses=[("age", "topic")] * 2), "more than once"),
        (lambda: Schema([AGE], [TOPIC], crosses=[("age", "topic")], per_arm="topic"), "redundant"),
        (lambda: Schema([AGE], [PRICE], per_arm="price"), "per_arm must name a Category of arm"),
        (lambda: Schema([DEVICE], [TOPIC], per_arm="device"), "per_arm must name a Category of arm"),
        (lambda: Schema([AGE], [TOPIC], per_arm=["topic"]), "per_arm must name"),  # type: ignore[arg-type]
        (lambda: Schema([], [TOPIC, PRICE], per_arm="topic", intercept=False), "nothing to multiply"),
        (lambda: Schema([Number("1", 0, 1)]), "called '1'"),
        (lambda: Schema([Category("a", ["b=c"]), Category("a=b", ["c"])]), "called 'a=b=c'"),
        (lambda: Schema([Hashed("id", 200)], [Hashed("of", 200)], crosses=[("id", "of")]), "40,401 coordinates|40,400"),
    ],
)
def test_schemas_that_make_no_sense_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


@pytest.mark.parametrize("seed", range(40))
def test_a_stored_schema_is_the_same_schema(seed: int) -> None:
    rng = np.random.default_rng(7000 + seed)
    made = random_schema(rng)
    stored = json.dumps(made.to_json(), allow_nan=False)
    records = hostile_records(rng, made, 20)
    rows = made.encode(records)
    for again in (
        Schema.from_json(made.to_json()),
        Schema.from_json(stored),
        Schema.from_json(stored.encode()),
        pickle.loads(pickle.dumps(made)),
        copy.deepcopy(made),
    ):
        assert again == made
        assert hash(again) == hash(made)
        assert again.names == made.names
        assert again.encode(records).tobytes() == rows.tobytes()
        assert json.dumps(again.to_json()) == stored


def test_a_key_that_was_drawn_is_stored() -> None:
    made = Schema([Hashed("id", 8), AGE])
    assert Schema.from_json(made.to_json()) == made
    assert Schema([Hashed("id", 8), AGE]) != made


def test_the_stored_form() -> None:
    """Fixed by hand: files of this version must be readable later."""
    key = "00" * 16
    made = Schema(
        [AGE, Hashed("id", 8, tokens=2, key=key, weight=2)],
        [Category("topic", ["news"], other=True), Flag("new")],
        crosses=[("age", "new")],
        per_arm="topic",
    )
    assert made.to_json() == {
        "format": "tacit.features",
        "version": 1,
        "user": [
            {"kind": "number", "name": "age", "low": 0.0, "high": 120.0, "weight": 1.0},
            {"kind": "hashed", "name": "id", "width": 8, "tokens": 2, "key": key, "weight": 2.0},
        ],
        "arm": [
            {"kind": "category", "name": "topic", "values": ["news"], "weight": 1.0, "other": True},
            {"kind": "flag", "name": "new", "weight": 1.0},
        ],
        "crosses": [["age", "new"]],
        "per_arm": "topic",
        "intercept": True,
    }


def test_schemas_differ_in_everything_that_they_are_made_of() -> None:
    made = [
        Schema([AGE], [TOPIC, PRICE]),
        Schema([AGE], [PRICE, TOPIC]),
        Schema([AGE], [TOPIC, PRICE], crosses=[("age", "price")]),
        Schema([AGE], [TOPIC, PRICE], per_arm="topic"),
        Schema([AGE], [TOPIC, PRICE], intercept=False),
        Schema([Number("age", 0, 120, weight=2)], [TOPIC, PRICE]),
    ]
    assert len(set(made)) == len(made)
    with pytest.raises(AttributeError):
        made[0].intercept = False  # type: ignore[misc]


def _changed(path: list[Any], value: Any) -> dict[str, Any]:
    """A stored schema with one thing changed; ``...`` takes it out."""
    stored: Any = json.loads(json.dumps(Schema([AGE, DEVICE], [TOPIC], crosses=[("age", "topic")]).to_json()))
    place = stored
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return dict(stored)


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ("{", "must be JSON"),
        (b"\xff\xfe\xfd", "must be JSON"),
        ("[" * 100_000, "must be JSON"),
        ("3", "must be a mapping"),
        (None, "must be a mapping"),
        (_changed(["format"], "other"), "the format 'tacit.features'"),
        (_changed(["version"], 2), "the version 1, got 'tacit.features' and 2"),
        (_changed(["more"], 1), "a stored schema has"),
        (_changed(["user"], {}), "user of a stored schema must be a list"),
        (_changed(["user", 0], 3), "field 0 of user in a stored schema must be a mapping"),
        (_changed(["user", 1, "kind"], "colour"), "field 1 of user in a stored schema must be a mapping with a kind"),
        (_changed(["user", 1, "kind"], ["number"]), "with a kind"),
        (_changed(["user", 0, "high"], ...), r"must have \['high', 'low', 'name'\], and may have \['weight'\]"),
        (_changed(["user", 0, "colour"], "red"), "must have"),
        (_changed(["user", 0, "high"], "120"), "high of 'age'"),
        (_changed(["user", 0, "high"], math.nan), "high of 'age'"),
        (_changed(["user", 0, "weight"], None), "weight of 'age'"),
        (_changed(["user", 1, "values"], "ios"), "values of 'device'"),
        (_changed(["user", 1, "values"], [["ios"]]), "values of 'device'"),
        (_changed(["user", 1, "name"], None), "name of a Category"),
        (_changed(["crosses"], None), "crosses must be a list"),
        (_changed(["crosses", 0], [["age"], "topic"]), "the cross"),
        (_changed(["per_arm"], {}), "per_arm must name"),
        (_changed(["intercept"], "yes"), "intercept must be"),
    ],
)
def test_corrupt_files_are_refused_in_words(stored: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Schema.from_json(stored)


def test_what_is_left_out_of_a_schema_that_was_written_by_hand_has_its_default() -> None:
    stored = {
        "user": [{"kind": "category", "name": "device", "values": ["ios", "web"]}],
        "arm": [{"kind": "number", "name": "minutes", "low": 0, "high": 60}],
    }
    expected = Schema(user=[Category("device", ["ios", "web"])], arm=[Number("minutes", 0, 60)])
    assert Schema.from_json(stored) == expected
    assert Schema.from_json(json.dumps(stored)) == expected
    with pytest.raises(InvalidInput, match="key"):  # never made up: the same id must have the same place for ever
        Schema.from_json({"arm": [{"kind": "hashed", "name": "id", "width": 8}]})


def test_the_description_has_everything() -> None:
    made = Schema([AGE, DEVICE], [TOPIC, Number("price", 0, 9, weight=2.0)], per_arm="topic")
    text = made.describe()
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + made.dim]] == [str(i) for i in range(made.dim)]
    for name, scale in zip(made.names, made.scales, strict=True):
        assert any(name in line and f"{scale:.6f}" in line for line in lines)
    assert "B = 2.64575131" in text  # 1 + 1 + 1 for the topic's own, and 2 squared
    assert "1 (age @ topic)" in text
    assert "4 (price)" in text
    assert "Proof:" in text
    assert f"{made.support.size} of {made.dim * (made.dim + 1) // 2} entries" in text
    assert f"{made.dim} coordinates in 1 block," in text


def test_long_descriptions_are_cut_in_the_middle() -> None:
    made = Schema([Flag(f"f{i}") for i in range(9)], [Category("arm", list(range(100)))], per_arm="arm")
    lines = made.describe(most=6).splitlines()
    assert lines[4] == "... 994 more ..."
    assert lines[7].split()[0] == "999"
    assert lines[7].split()[-1] == "99"
    assert "1,000 coordinates in 100 blocks, at most 10 of them nonzero in a row; 5,500 of 500,500" in lines[-1]
    with pytest.raises(InvalidInput, match="most"):
        made.describe(most=0)


def test_rich_prints_the_description_as_it_is() -> None:
    text = Schema([AGE, DEVICE], [TOPIC]).describe()
    out = io.StringIO()
    rich.console.Console(file=out, width=200).print(text)
    assert out.getvalue().rstrip() == text.rstrip()


def test_the_example_of_the_docstring_runs() -> None:
    assert doctest.testmod(schema).failed == 0
    assert doctest.testmod(schema).attempted > 3
