"""Which coordinates can be nonzero together: no record shows others, and the structure is found."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from workloads.feature_norms import hostile_records, random_schema

from tacit.errors import InvalidInput
from tacit.features import Category, Flag, Hashed, Number, Schema, Support
from tests.steady import effort_of

KEY = "00112233445566778899aabbccddeeff"


def allowed(support: Support) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in support.pairs}


def by_names(schema: Schema) -> set[tuple[int, int]]:
    """Pairs that names allow: two coordinates exclude each other if they name different values of one field."""
    one_token = {field.name for field in (*schema.user, *schema.arm) if isinstance(field, Hashed) and field.tokens == 1}
    demands = []
    for name in schema.names:
        parts = [part for half in name.split(" x ") for part in half.split(" @ ")]
        split = [part.partition("=" if "=" in part else "#") for part in parts]
        demands.append({field: value for field, mark, value in split if mark == "=" or field in one_token})
    return {
        (i, j)
        for i, j in itertools.combinations_with_replacement(range(schema.dim), 2)
        if all(demands[j].get(field, value) == value for field, value in demands[i].items())
    }


@pytest.mark.parametrize("seed", range(60))
def test_no_record_makes_two_excluded_coordinates_nonzero(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    schema = random_schema(rng)
    support = schema.support
    rows = schema.encode(hostile_records(rng, schema, 150))
    pairs = allowed(support)
    assert pairs == by_names(schema)
    blocks = np.searchsorted(support.starts, np.arange(schema.dim), side="right")
    for row in rows:
        nonzero = np.flatnonzero(row).tolist()
        assert set(itertools.combinations_with_replacement(nonzero, 2)) <= pairs
        assert len({blocks[i] for i in nonzero}) <= 1
        assert len(nonzero) <= support.width == schema.width


@pytest.mark.parametrize("seed", range(60))
def test_pairs_are_complete_ordered_and_within_blocks_that_cannot_be_split(seed: int) -> None:
    support = random_schema(np.random.default_rng(2000 + seed)).support
    pairs = support.pairs
    assert pairs.dtype == support.starts.dtype == np.int64
    assert pairs.shape == (support.size, 2)
    assert support.dense == (support.size == support.dim * (support.dim + 1) // 2)
    assert pairs.tolist() == sorted(pairs.tolist())
    assert {(i, i) for i in range(support.dim)} <= allowed(support)
    assert support.starts[0] == 0
    assert support.starts[-1] == support.dim
    assert np.all(np.diff(support.starts) > 0)
    for first, end in itertools.pairwise(support.starts.tolist()):
        inside = [(i, j) for i, j in allowed(support) if first <= i < end]
        assert all(first <= j < end for _, j in inside)
        assert _reached(first, inside) == set(range(first, end))


def _reached(start: int, pairs: list[tuple[int, int]]) -> set[int]:
    """Everything that is connected with a coordinate."""
    found, size = {start}, 0
    while len(found) > size:
        size = len(found)
        found |= {i for pair in pairs if found & set(pair) for i in pair}
    return found


def _full(field: Any) -> Any:
    """A value that makes as many coordinates of the field nonzero as any does."""
    if not isinstance(field, Hashed):
        return field.worst()
    alone = Schema([field], intercept=False)
    tokens = {int(np.flatnonzero(alone.encode({field.name: token}, [{}])[0])[0]): token for token in range(300)}
    return list(tokens.values())[: field.tokens]


@pytest.mark.parametrize("seed", range(30))
def test_some_record_has_as_many_coordinates_nonzero_as_the_width_says(seed: int) -> None:
    schema = random_schema(np.random.default_rng(8000 + seed))
    user, arm = ({field.name: _full(field) for field in fields} for fields in (schema.user, schema.arm))
    assert np.count_nonzero(schema.encode(user, [arm])) == schema.width


def test_arms_that_share_nothing_are_blocks() -> None:
    schema = Schema(user=[Number("x", 0, 1), Flag("f")], arm=[Category("arm", ["a", "b", "c"])], per_arm="arm")
    assert schema.support == Support.of_blocks([3, 3, 3])
    assert schema.names[3:6] == ("1 @ arm=b", "x @ arm=b", "f @ arm=b")
    assert schema.width == 3
    assert schema.support.size == 18
    assert not schema.support.dense


def test_values_of_a_category_of_the_user_exclude_each_other_within_a_block() -> None:
    schema = Schema(user=[Category("u", ["p", "q"])], arm=[Category("arm", ["a", "b"])], per_arm="arm")
    assert schema.support.starts.tolist() == [0, 3, 6]
    assert schema.support.pairs.tolist()[:5] == [[0, 0], [0, 1], [0, 2], [1, 1], [2, 2]]
    assert schema.width == 2


def test_something_shared_makes_one_block_and_values_still_exclude_each_other() -> None:
    arm = [Category("arm", ["a", "b"]), Number("price", 0, 1)]
    schema = Schema(user=[Number("x", 0, 1)], arm=arm, per_arm="arm")
    assert schema.support.blocks == 1
    pair = tuple(sorted((schema.names.index("x @ arm=a"), schema.names.index("x @ arm=b"))))
    assert pair not in allowed(schema.support)


@pytest.mark.parametrize(("tokens", "excludes"), [(1, True), (2, False)])
def test_places_of_one_token_exclude_each_other_and_those_of_more_do_not(tokens: int, excludes: bool) -> None:
    schema = Schema(user=[Hashed("id", 4, tokens=tokens, key=KEY)], intercept=False)
    assert ((0, 1) not in allowed(schema.support)) == excludes
    assert schema.support.blocks == (4 if excludes else 1)
    assert schema.width == tokens


def test_a_shared_intercept_connects_everything() -> None:
    schema = Schema(user=[Category("u", ["p", "q", "r"])])
    assert schema.support.blocks == 1
    assert schema.support.size == 7
    assert Schema(user=[Category("u", ["p", "q", "r"])], intercept=False).support == Support.of_blocks([1, 1, 1])


def test_supports_without_a_schema() -> None:
    blocks = Support.of_blocks([2, 1])
    assert blocks.starts.tolist() == [0, 2, 3]
    assert blocks.pairs.tolist() == [[0, 0], [0, 1], [1, 1], [2, 2]]
    assert (blocks.width, blocks.dim, blocks.blocks, blocks.size) == (2, 3, 2, 4)
    dense = Support.of_blocks([4])
    assert dense.dense
    assert (dense.width, dense.size) == (4, 10)
    assert dense != blocks
    assert dense != "dense"
    assert hash(dense) == hash(Support.of_blocks([4]))
    assert Schema(user=[Number("x", 0, 1), Flag("f")]).support == Support.of_blocks([3])
    for wrong in ([], [0], [-1], [1.5], [True]):
        with pytest.raises(InvalidInput):
            Support.of_blocks(wrong)  # type: ignore[arg-type]


def test_a_thousand_coordinates_take_a_moment_and_five_thousand_work() -> None:
    """A moment is 10 milliseconds on a quiet machine: its work grows with the coordinates, not with their square."""

    def made(arms: int) -> Schema:
        numbers = [Number(f"x{i}", 0, 1) for i in range(9)]
        schema = Schema(numbers, [Category("arm", list(range(arms)))], per_arm="arm")
        assert (schema.dim, schema.support.blocks) == (10 * arms, arms)
        assert schema.support.pairs.shape == (55 * arms, 2)
        return schema

    made(5)
    small, large = effort_of(lambda: made(25)), effort_of(lambda: made(100))
    assert large.calls < 5 * small.calls < 100_000
    assert large.peak < 5 * small.peak < 5_000_000
    crossed = Schema(
        [Category("u", list(range(50)))],
        [Category("a", list(range(100)))],
        crosses=[("u", "a")],
        intercept=False,
    )
    assert crossed.dim == 5150
    assert crossed.support.blocks == 1
    assert crossed.support.size == 5150 + 50 * 100 + 2 * 5000
    assert Support.of_blocks([5000]).size == 12_502_500
