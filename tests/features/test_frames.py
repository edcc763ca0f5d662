"""Frames of pandas and polars give the rows that records give, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import polars
import pytest

from tacit.errors import InvalidInput
from tacit.features import Category, Flag, Hashed, Number, Schema
from tacit.typing import FloatArray

KEY = "00112233445566778899aabbccddeeff"
NEWS = Schema(
    user=[Number("age", 0, 120), Category("device", ["ios", "web"]), Hashed("words", 8, tokens=2, key=KEY)],
    arm=[Category("shop", [3, 7]), Number("minutes", 0, 60), Flag("new"), Hashed("id", 8, key=KEY)],
    crosses=[("device", "shop"), ("words", "minutes")],
)
LINES: list[dict[str, Any]] = [
    {"age": 41, "device": "ios", "words": ["tacit", "bandit"], "shop": 3, "minutes": 4.5, "new": True, "id": 12},
    {"age": 200, "device": "fridge", "words": [], "shop": 4, "minutes": float("inf"), "new": False, "id": 2**40},
    {"age": 7, "device": "web", "words": ["a", "b", "c"], "shop": 7, "minutes": float("nan"), "new": True, "id": 0},
]
HOLES: list[dict[str, Any]] = [*LINES, dict.fromkeys(LINES[0])]
USERS = [{name: line[name] for name in ("age", "device", "words")} for line in HOLES]
ARMS = [{name: line[name] for name in ("shop", "minutes", "new", "id")} for line in LINES]


def same(frame: Any, expected: FloatArray) -> bool:
    rows = NEWS.encode(frame)
    return rows.shape == expected.shape and rows.tobytes() == expected.tobytes()


def nullable(lines: list[dict[str, Any]]) -> pandas.DataFrame:
    """A frame of pandas whose columns can have holes without a change of type."""
    types = {"age": "Int64", "shop": "Int64", "id": "Int64", "new": "boolean", "device": "category"}
    frame = pandas.DataFrame({name: pandas.Series([line[name] for line in lines], dtype=object) for name in lines[0]})
    return frame.astype(types)


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, nullable])
def test_frames_give_the_rows_of_records(make: Any) -> None:
    expected = np.array([NEWS.encode(_some(line, NEWS.user), [_some(line, NEWS.arm)])[0] for line in LINES])
    assert same(make(LINES), expected)


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, nullable])
def test_frames_may_have_holes(make: Any) -> None:
    assert same(make(HOLES), NEWS.encode(HOLES))


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame])
def test_frames_of_users_and_of_arms(make: Any) -> None:
    expected = NEWS.encode(USERS, ARMS)
    for users, arms in ((make(USERS), ARMS), (USERS, make(ARMS)), (make(USERS), NEWS.catalogue(make(ARMS)))):
        assert NEWS.encode(users, arms).tobytes() == expected.tobytes()


def test_integers_that_became_floats_are_integers_again_as_long_as_they_can_be_told_apart() -> None:
    frame = pandas.DataFrame({"shop": [3, None], "id": [12, None]})
    assert frame["shop"].dtype == frame["id"].dtype == np.float64
    assert same(frame, NEWS.encode([{"shop": 3, "id": 12}, {}]))
    with pytest.raises(InvalidInput, match=r"line 0: field 'shop' of kind category cannot be 3.5: give an integer"):
        NEWS.encode(pandas.DataFrame({"shop": [3.5, None]}))
    with pytest.raises(InvalidInput, match="line 1: field 'id' of kind hashed"):
        NEWS.encode(pandas.DataFrame({"id": [None, 2**53]}))


def test_users_in_a_frame_are_judged_apart_as_they_are_together() -> None:
    schema = Schema([Category("shop", [3, 7]), Category("device", ["ios"])])
    frame = pandas.DataFrame({"shop": [3, None, 7], "device": pandas.Series(["ios", 5, None], dtype=object)})
    rows, refused = schema.rows_of(frame, [{}])
    assert rows.tobytes() == schema.rows_of([{"shop": 3, "device": "ios"}, {"shop": 7}], [{}])[0].tobytes()
    assert list(refused) == [1]


def test_names_of_columns_are_those_of_fields() -> None:
    with pytest.raises(InvalidInput, match="different names"):
        NEWS.encode(pandas.DataFrame([[1, 2]], columns=["age", "age"]))
    with pytest.raises(InvalidInput, match="no field 'reward' here"):
        NEWS.encode(polars.DataFrame({"age": [1], "reward": [1.0]}))


def _some(line: dict[str, Any], fields: Any) -> dict[str, Any]:
    return {field.name: line[field.name] for field in fields}
