"""Records in every form give the same rows, to the bit, and errors name whose record it was."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from workloads.feature_norms import hostile_record, random_schema

from tacit.errors import InvalidInput
from tacit.features import Category, Flag, Hashed, Number, Schema

KEY = "00112233445566778899aabbccddeeff"
NEWS = Schema(
    user=[Number("age", 0, 120), Category("device", ["ios", "android", "web"]), Hashed("words", 8, tokens=3, key=KEY)],
    arm=[Category("topic", ["news", "sport", "arts"]), Number("minutes", 0, 60), Flag("new")],
    crosses=[("device", "topic"), ("words", "minutes")],
)
USER = {"age": 41, "device": "ios", "words": ["tacit", "bandit"]}
ARMS: list[dict[str, Any]] = [{"topic": "news", "minutes": 4}, {"topic": "arts", "minutes": 9.5, "new": True}, {}]


def same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether two arrays agree to the bit."""
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def as_columns(records: list[dict[str, Any]]) -> dict[str, npt.NDArray[Any]]:
    """Records as arrays of objects, None where a key is absent."""
    names = sorted({name for record in records for name in record})
    columns = {name: np.empty(len(records), dtype=object) for name in names}
    for name, column in columns.items():
        column[:] = [record.get(name) for record in records]
    return columns


def test_a_row_by_hand() -> None:
    schema = Schema(
        user=[Number("age", 0, 100), Category("device", ["ios", "web"])],
        arm=[Category("topic", ["news", "arts"]), Number("minutes", 0, 60)],
        crosses=[("device", "topic"), ("age", "minutes")],
    )
    assert schema.names == (
        *("1", "age", "device=ios", "device=web", "topic=news", "topic=arts", "minutes"),
        *("device=ios x topic=news", "device=ios x topic=arts", "device=web x topic=news", "device=web x topic=arts"),
        "age x minutes",
    )
    row = schema.encode({"age": 75, "device": "web"}, [{"topic": "news", "minutes": 15}])[0]
    expected = np.array([1, 0.5, 0, 1, 1, 0, -0.5, 0, 0, 1, 0, -0.25]) / np.sqrt(7.0)
    assert row == pytest.approx(expected, rel=1e-11)


def test_parameters_per_arm_by_hand() -> None:
    schema = Schema(
        user=[Number("age", 0, 100), Flag("member")],
        arm=[Number("price", 0, 1), Category("topic", ["news", "arts"])],
        per_arm="topic",
    )
    names = ["1 @ topic=news", "1 @ topic=arts", "age @ topic=news", "age @ topic=arts"]
    assert list(schema.names) == [*names, "member @ topic=news", "member @ topic=arts", "price"]
    rows = schema.encode({"age": 75, "member": True}, [{"topic": "arts", "price": 0}, {"topic": "gardens", "price": 1}])
    assert rows * 2.0 == pytest.approx(np.array([[0, 1, 0, 0.5, 0, 1, -1], [0, 0, 0, 0, 0, 0, 1]]), rel=1e-11)


def test_an_arm_of_an_unlisted_value_can_have_parameters_of_its_own() -> None:
    schema = Schema([Flag("f")], [Category("topic", ["news"], other=True)], per_arm="topic")
    assert schema.names == ("1 @ topic=news", "f @ topic=news", "1 @ topic=(other)", "f @ topic=(other)")
    assert np.flatnonzero(schema.encode({"f": 1}, [{"topic": "gardens"}])[0]).tolist() == [2, 3]


def test_without_an_intercept_there_is_no_constant_of_any_kind() -> None:
    topic = Category("topic", ["news", "arts"])
    assert Schema([Flag("f")], [topic], intercept=False).names == ("f", "topic=news", "topic=arts")
    assert Schema([Flag("f")], [topic], per_arm="topic", intercept=False).names == ("f @ topic=news", "f @ topic=arts")


@pytest.mark.parametrize("seed", range(40))
def test_compact_rows_are_dense_rows(seed: int) -> None:
    rng = np.random.default_rng(3000 + seed)
    schema = random_schema(rng)
    user = hostile_record(rng, schema.user)
    arms = [hostile_record(rng, schema.arm) for _ in range(30)]
    rows, dense = schema.rows(user, arms), schema.encode(user, arms)
    assert rows.shape == (30, 2 * schema.width)
    assert dense.shape == (30, schema.dim)
    assert same(schema.dense(rows), dense)
    for compact, row in zip(rows, dense, strict=True):
        values, positions = compact[: schema.width], compact[schema.width :]
        nonzero = np.flatnonzero(row)
        assert positions[: nonzero.size].tolist() == nonzero.tolist()
        assert values[: nonzero.size].tolist() == row[nonzero].tolist()
        assert np.all(values[nonzero.size :] == 0.0)
        assert np.all(positions[nonzero.size :] == -1.0)


@pytest.mark.parametrize("seed", range(40))
def test_every_form_gives_the_same_rows_to_the_bit(seed: int) -> None:
    rng = np.random.default_rng(4000 + seed)
    schema = random_schema(rng)
    users = [hostile_record(rng, schema.user) for _ in range(8)]
    arms = [hostile_record(rng, schema.arm) for _ in range(8)]
    one_by_one = np.array([[schema.encode(user, [arm])[0] for arm in arms] for user in users])
    lines = [user | arm for user, arm in zip(users, arms, strict=True)]
    catalogue = schema.catalogue(arms)
    for given in (arms, catalogue, tuple(arms), [arms] * 8, [catalogue] * 8, catalogue.take(np.arange(8))):
        assert same(schema.encode(users, given), one_by_one)
    assert same(schema.encode(lines), np.array([one_by_one[i, i] for i in range(8)]))
    assert same(schema.encode(users[0], catalogue.take([2, 2, 5])), one_by_one[0, [2, 2, 5]])
    if as_columns(lines):
        assert same(schema.encode(as_columns(lines)), schema.encode(lines))
    if as_columns(users):
        assert same(schema.encode(as_columns(users), arms), one_by_one)


@pytest.mark.parametrize("seed", range(10))
def test_simulated_records_are_columns_that_give_the_same_rows_as_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(5000 + seed)
    schema = random_schema(rng)
    users, arms = schema.sample_users(rng, 6), schema.sample_arms(rng, 6, 3)
    rows, refused = schema.rows_of(users, arms)
    assert refused == {}
    assert rows.shape == (6, 3, 2 * schema.width)
    for n in range(6):
        user = {name: column.tolist()[n] for name, column in users.items()} if schema.user else {}
        own = [{name: column[n].tolist()[k] for name, column in arms.items()} if schema.arm else {} for k in range(3)]
        assert same(schema.rows(user, own), rows[n])
    common, _ = schema.rows_of(users, schema.sample_arms(rng, 4))
    assert common.shape == (6, 4, 2 * schema.width)


def test_simulated_records_are_uniform() -> None:
    rng = np.random.default_rng(1)
    schema = Schema([Number("x", -3, 5), Category("c", ["a", "b", "c"]), Flag("f"), Hashed("w", 4, tokens=2, key=KEY)])
    users = schema.sample_users(rng, 6000)
    assert users["x"].mean() == pytest.approx(1.0, abs=0.12)
    assert (users["x"].min(), users["x"].max()) == pytest.approx((-3, 5), abs=0.02)
    assert np.unique(users["c"], return_counts=True)[1] == pytest.approx(2000, abs=150)
    assert users["f"].mean() == pytest.approx(0.5, abs=0.03)
    assert all(len(tokens) == 2 for tokens in users["w"])


def test_columns_of_ordinary_types() -> None:
    columns: dict[str, Any] = {
        "age": np.array([41, 7, 200]),
        "device": np.array(["ios", "web", "fridge"]),
        "words": [["tacit"], None, "bandit"],
        "topic": np.array(["news", None, "arts"], dtype=object),
        "minutes": np.array([4.0, np.nan, np.inf], dtype=np.float32),
        "new": np.array([True, False, True]),
    }
    records = [{name: column[i] for name, column in columns.items()} for i in range(3)]
    one_by_one = np.array([NEWS.encode(_of(record, NEWS.user), [_of(record, NEWS.arm)])[0] for record in records])
    listed = {name: list(column) for name, column in columns.items()}
    for given in (columns, listed, records):
        assert same(NEWS.encode(given), one_by_one)
    assert same(NEWS.encode({"age": columns["age"]}), NEWS.encode([{"age": 41}, {"age": 7}, {"age": 200}]))


def _of(record: Mapping[str, Any], fields: Any) -> dict[str, Any]:
    return {field.name: record[field.name] for field in fields}


def test_any_mapping_is_a_record_and_a_list_in_it_is_a_list_of_tokens() -> None:
    assert same(NEWS.encode(MappingProxyType(USER), [MappingProxyType(arm) for arm in ARMS]), NEWS.encode(USER, ARMS))
    assert NEWS.encode(USER, ARMS).shape == (3, NEWS.dim)
    assert NEWS.encode({"age": np.array([1, 2])}, ARMS).shape == (2, 3, NEWS.dim)


def test_empty_tables_give_empty_results() -> None:
    assert NEWS.encode({"age": np.array([])}).shape == (0, NEWS.dim)
    assert NEWS.encode([], ARMS).shape == (0, 3, NEWS.dim)
    rows, refused = NEWS.rows_of([], ARMS)
    assert rows.shape == (0, 3, 2 * NEWS.width)
    assert refused == {}


def test_each_user_is_judged_apart() -> None:
    users: list[Any] = [USER, {"age": "old"}, {"size": 3}, 7, {"age": 3}]
    rows, refused = NEWS.rows_of(users, ARMS)
    assert same(rows, np.array([NEWS.rows(USER, ARMS), NEWS.rows({"age": 3}, ARMS)]))
    assert sorted(refused) == [1, 2, 3]
    assert "'age'" in str(refused[1])
    assert "'old'" in str(refused[1])
    assert "'size'" in str(refused[2])
    assert "mapping" in str(refused[3])
    assert all(isinstance(error, InvalidInput) for error in refused.values())
    with pytest.raises(InvalidInput, match="user 1: field 'age'"):
        NEWS.encode(users, ARMS)


def test_each_user_in_columns_is_judged_apart() -> None:
    users = {"age": np.array([41, "old", None], dtype=object), "device": ["ios", "ios", 7]}
    rows, refused = NEWS.rows_of(users, ARMS)
    assert same(rows, NEWS.rows({"age": 41, "device": "ios"}, ARMS)[np.newaxis])
    assert sorted(refused) == [1, 2]
    assert "'device'" in str(refused[2])


def test_each_users_own_arms_are_judged_apart() -> None:
    lists: list[Any] = [ARMS, [*ARMS[:2], {"topic": 3}], ARMS[:2], NEWS.catalogue(ARMS), [], "arms"]
    rows, refused = NEWS.rows_of([USER] * 6, lists)
    assert same(rows, np.array([NEWS.rows(USER, ARMS)] * 2))
    assert sorted(refused) == [1, 2, 4, 5]
    assert "arm 2: field 'topic'" in str(refused[1])
    assert "must bring 3 arms, not 2" in str(refused[2])
    assert "at least one arm" in str(refused[4])
    empty, refused = NEWS.rows_of([7], [ARMS])
    assert empty.shape == (0, 1, 2 * NEWS.width)
    assert sorted(refused) == [0]


def test_own_arms_in_columns_are_judged_apart() -> None:
    arms = {"topic": np.array([["news", "arts"], ["news", 3]], dtype=object)}
    rows, refused = NEWS.rows_of([USER, USER], arms)
    assert same(rows, NEWS.rows(USER, [{"topic": "news"}, {"topic": "arts"}])[np.newaxis])
    assert "arm 1: field 'topic'" in str(refused[1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: NEWS.encode({"agee": 3}, ARMS), "no field 'agee' here; its fields are 'age', 'device', 'words'"),
        (lambda: NEWS.encode({"topic": "news"}, ARMS), "no field 'topic' here"),
        (lambda: NEWS.encode({3: "news"}, ARMS), "no field 3 here"),
        (lambda: NEWS.encode(USER, [{}, {"age": 3}]), "arm 1: the schema has no field 'age' here"),
        (lambda: NEWS.encode(USER, [{}, {"minutes": "3"}]), "arm 1: field 'minutes' of kind number cannot be '3'"),
        (lambda: NEWS.encode(USER, []), "at least one arm"),
        (lambda: NEWS.encode(USER, 3), "arms must be a list of records"),
        (lambda: NEWS.encode(USER, "news"), "arms must be a list of records"),
        (lambda: NEWS.encode(USER, [3]), "arm 0: a record must be a mapping"),
        (lambda: NEWS.rows(cast(Any, 3), ARMS), "a record must be a mapping"),
        (lambda: NEWS.encode(3, ARMS), "users must be a list of records"),
        (lambda: NEWS.encode("x", ARMS), "users must be a list of records"),
        (lambda: NEWS.encode(3), "lines must be a list of records"),
        (lambda: NEWS.encode({"age": 41}), "column 'age' must be an array or a list"),
        (lambda: NEWS.encode({"age": "41"}), "column 'age' must be an array or a list"),
        (lambda: NEWS.encode({}), "at least one column"),
        (lambda: NEWS.encode({"age": [1], "reward": [1.0]}), "no field 'reward' here"),
        (lambda: NEWS.encode({"age": [1, 2], "minutes": [1]}), r"'age' has \(2,\), 'minutes' has \(1,\)"),
        (lambda: NEWS.encode({"age": np.zeros((2, 2))}), "must have one axis"),
        (lambda: NEWS.encode({"age": np.zeros((2, 2))}, ARMS), "must have one axis"),
        (lambda: NEWS.encode({"age": ["old", 3]}), "line 0: field 'age'"),
        (lambda: NEWS.encode({"age": np.array([3, True], dtype=object)}), "line 1: field 'age'"),
        (lambda: NEWS.encode({"age": np.array([True])}), "field 'age'"),
        (lambda: NEWS.encode({"age": np.array(["3"])}), "field 'age'"),
        (lambda: NEWS.encode({"age": np.array(["2020-01-01"], dtype="datetime64[ns]")}), "field 'age'"),
        (lambda: NEWS.encode({"age": np.array([5], dtype="timedelta64[ns]")}), "field 'age'"),
        (lambda: NEWS.encode({"device": np.array([1.5])}), "field 'device'"),
        (lambda: NEWS.rows_of([USER], [ARMS, ARMS]), "one for each of 1 users, got 2"),
        (lambda: NEWS.rows_of([USER], NEWS.sample_arms(np.random.default_rng(0), 2, 3)), "shape"),
        (lambda: NEWS.rows_of(3, ARMS), "users must be a list"),
        (lambda: NEWS.encode([USER], [3]), "user 0: arms must be a list"),
        (lambda: NEWS.encode([USER], [None]), "user 0: arms must be a list"),
        (lambda: NEWS.catalogue([]), "at least one arm"),
        (lambda: NEWS.catalogue({"minutes": np.zeros((2, 2))}), "one axis"),
        (lambda: NEWS.catalogue(ARMS).take([3]), "from 0 to 2"),
        (lambda: NEWS.catalogue(ARMS).take([-1]), "from 0 to 2"),
        (lambda: NEWS.catalogue(ARMS).take([0.5]), "from 0 to 2"),
        (lambda: NEWS.encode(USER, Schema([Flag("f")]).catalogue([{}])), "another schema"),
        (lambda: NEWS.dense(np.zeros(3)), "numbers each"),
        (lambda: NEWS.dense(np.full(2 * NEWS.width, 1e9)), "positions"),
        (lambda: NEWS.dense(np.full(2 * NEWS.width, np.nan)), "positions"),
    ],
)
def test_what_cannot_be_encoded_is_refused_in_words(call: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        call()


def test_a_catalogue_serves_equal_schemas() -> None:
    again = Schema.from_json(NEWS.to_json())
    assert len(NEWS.catalogue(ARMS)) == 3
    assert same(again.encode(USER, NEWS.catalogue(ARMS)), NEWS.encode(USER, ARMS))


def test_records_and_columns_are_left_as_they_are() -> None:
    columns = {"age": np.array([41.0, 500.0, np.nan])}
    NEWS.encode(columns)
    assert columns["age"][:2].tolist() == [41.0, 500.0]
    catalogue = NEWS.catalogue(ARMS)
    before = NEWS.encode(USER, catalogue)
    assert same(NEWS.encode({"age": 3}, catalogue), NEWS.encode({"age": 3}, ARMS))
    assert same(NEWS.encode(USER, catalogue), before)


def test_compact_rows_of_any_shape_and_read_only_ones_become_dense() -> None:
    rows = NEWS.rows(USER, ARMS)
    dense = NEWS.encode(USER, ARMS)
    rows.flags.writeable = False
    assert same(NEWS.dense(rows), dense)
    assert same(NEWS.dense(rows[1]), dense[1])
    assert same(NEWS.dense(rows[np.newaxis, ::2]), dense[np.newaxis, ::2])
    assert same(NEWS.dense(rows.tolist()), dense)


def test_wider_floats_beyond_ours_are_cut_as_others_are() -> None:
    wide = np.array([1, -1], dtype=np.longdouble) * np.finfo(np.longdouble).max
    assert same(NEWS.encode({"age": wide}), NEWS.encode({"age": [np.inf, -np.inf]}))
