"""What each field makes of what records say, and what it refuses."""

from __future__ import annotations

import enum
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.features import Category, Flag, Hashed, Number, Schema

KEY = "00112233445566778899aabbccddeeff"


def vector(field: Any, value: Any) -> list[float]:
    """The field's vector for a value, before rows are scaled."""
    schema = Schema(user=[field], intercept=False)
    row = schema.encode({} if value is ... else {field.name: value}, [{}])[0]
    return [float(x) for x in row / (1.0 - 2.0**-40)]


class Mood(str, enum.Enum):  # noqa: UP042 - the mixin is what older programs have
    GOOD = "good"


class PandasMissing:
    """Stands for what nullable columns of pandas hold: the class's name is all that is looked at."""


PandasMissing.__name__ = "NAType"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (10, -1.0),
        (30, 1.0),
        (20.0, 0.0),
        (25, 0.5),
        (9.99, -1.0),
        (1e300, 1.0),
        (math.inf, 1.0),
        (-math.inf, -1.0),
        (10**400, 1.0),
        (-(10**400), -1.0),
        (Fraction(-(10**400)), -1.0),
        (Fraction(25), 0.5),
        (np.float32(25), 0.5),
        (np.int8(25), 0.5),
        (None, 0.0),
        (math.nan, 0.0),
        (np.float32("nan"), 0.0),
        (PandasMissing(), 0.0),
        (..., 0.0),
    ],
)
def test_a_number_goes_from_minus_1_to_1(value: Any, expected: float) -> None:
    assert vector(Number("n", 10, 30), value) == [expected]


def test_a_number_at_the_ends_of_tiny_and_huge_ranges() -> None:
    for low, high in ((0.0, 5e-324), (-8e307, 8e307), (1e16, 1e16 + 2), (-1e-300, 1e300)):
        assert vector(Number("n", low, high), low) == [-1.0]
        assert vector(Number("n", low, high), high) == [1.0]
        assert -1.0 <= vector(Number("n", low, high), low / 2.0 + high / 2.0)[0] <= 1.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("good", [1.0, 0.0]),
        ("bad", [0.0, 1.0]),
        (np.str_("bad"), [0.0, 1.0]),
        (Mood.GOOD, [1.0, 0.0]),
        ("strange", [0.0, 0.0]),
        (None, [0.0, 0.0]),
        (math.nan, [0.0, 0.0]),
        (..., [0.0, 0.0]),
    ],
)
def test_a_category_has_a_coordinate_for_each_value(value: Any, expected: list[float]) -> None:
    assert vector(Category("mood", ["good", "bad"]), value) == expected


def test_unknown_values_share_a_coordinate_if_asked_for_and_missing_ones_do_not() -> None:
    mood = Category("mood", ["good", "bad"], other=True)
    assert vector(mood, "strange") == vector(mood, "odd") == [0.0, 0.0, 1.0]
    assert vector(mood, None) == vector(mood, ...) == [0.0, 0.0, 0.0]
    assert mood.labels() == ["mood=good", "mood=bad", "mood=(other)"]


def test_a_category_of_integers() -> None:
    shop = Category("shop", [3, 7, 10**30])
    assert vector(shop, 7) == vector(shop, np.int16(7)) == [0.0, 1.0, 0.0]
    assert vector(shop, 10**30) == [0.0, 0.0, 1.0]
    assert vector(shop, 4) == [0.0, 0.0, 0.0]


def test_values_of_a_category_may_be_those_of_numpy_and_of_enumerations() -> None:
    assert Category("a", np.array([1, 2])).values == (1, 2)  # type: ignore[arg-type]
    assert Category("a", [Mood.GOOD]).values == ("good",)
    assert type(Category("a", [Mood.GOOD]).values[0]) is str


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, 1.0),
        (False, 0.0),
        (1, 1.0),
        (0, 0.0),
        (1.0, 1.0),
        (np.True_, 1.0),
        (None, 0.0),
        (math.nan, 0.0),
        (..., 0.0),
    ],
)
def test_a_flag(value: Any, expected: float) -> None:
    assert vector(Flag("f"), value) == [expected]


@pytest.mark.parametrize("tokens", [1, 3])
def test_one_token_has_one_place_and_norm_1_exactly(tokens: int) -> None:
    field = Hashed("id", 8, tokens=tokens, key=KEY)
    for token in ["", "x", "\ud800", "a" * 5000, 0, -1, 255, 2**64, 10**5000, np.int64(7)]:
        row = vector(field, token)
        assert sorted(map(abs, row)) == [0.0] * 7 + [1.0]
        assert vector(field, [token]) == row


def test_places_and_signs_are_spread_evenly() -> None:
    field = Hashed("id", 8, key=KEY)
    rows = np.array([vector(field, token) for token in range(4000)])
    counts = np.abs(rows).sum(axis=0)
    assert np.all(np.abs(counts - 500) < 4 * math.sqrt(4000 * (1 / 8) * (7 / 8)))
    assert np.all(np.abs(rows.sum(axis=0)) < 4 * np.sqrt(counts))


def test_places_depend_on_the_key_and_on_the_type_of_the_token() -> None:
    ours, other = Hashed("id", 1000, key=KEY), Hashed("id", 1000, key=KEY[::-1])
    assert [vector(ours, i) for i in range(5)] != [vector(other, i) for i in range(5)]
    assert [vector(ours, i) for i in range(5)] != [vector(ours, str(i)) for i in range(5)]
    assert vector(ours, 7) == vector(ours, np.int64(7))


def test_the_hash_is_what_it_is_said_to_be() -> None:
    """Fixed by hand: a stored schema must mean the same in every version."""
    places = [int(np.flatnonzero(vector(Hashed("id", 1000, key=KEY), token))[0]) for token in ("", "reader", 7, -7)]
    assert places == [41, 270, 814, 53]


def test_several_tokens_are_added_up_and_scaled_to_norm_1() -> None:
    field = Hashed("words", 64, tokens=3, key=KEY)
    one, two, three, four = (np.array(vector(field, word)) for word in ("a", "b", "c", "d"))
    for words, total in (
        (["a", "b"], one + two),
        (["a", "b", "c"], one + two + three),
        (["a", "a", "b"], 2 * one + two),
    ):
        assert vector(field, words) == pytest.approx(total / np.linalg.norm(total), abs=1e-15)
    assert vector(field, ["a", "b", "c", "d"]) == vector(field, ["a", "b", "c"]) != vector(field, ["a", "b", "d"])
    assert vector(field, np.array(["a", "b"], dtype=object).tolist()) == vector(field, ("a", "b"))
    assert vector(field, []) == vector(field, None) == [0.0] * 64
    assert np.any(four)


def test_tokens_that_cancel_leave_nothing_and_no_nan() -> None:
    field = Hashed("words", 1, tokens=2, key=KEY)
    signs = {token: vector(field, token)[0] for token in range(20)}
    plus, minus = (next(token for token, sign in signs.items() if sign == wanted) for wanted in (1.0, -1.0))
    assert vector(field, [plus, minus]) == [0.0]
    assert vector(field, [plus, plus]) == [1.0]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (Number("n", 0, 1), "3", "a number from 0 to 1"),
        (Number("n", 0, 1), True, "a number"),
        (Number("n", 0, 1), np.True_, "a number"),
        (Number("n", 0, 1), [1.0], "a number"),
        (Number("n", 0, 1), 1j, "a number"),
        (Number("n", 0, 1), np.timedelta64(3, "s"), "a number"),
        (Category("n", ["a"]), ["a"], "a string such as 'a'"),
        (Category("n", ["a"]), 1, "a string"),
        (Category("n", ["a"]), True, "a string"),
        (Category("n", ["a"]), b"a", "a string"),
        (Category("n", [1, 2]), "1", "an integer such as 1"),
        (Category("n", [1, 2]), True, "an integer"),
        (Category("n", [1, 2]), 1.0, "an integer"),
        (Flag("n"), "yes", "True or False"),
        (Flag("n"), 2, "True or False"),
        (Flag("n"), 0.5, "True or False"),
        (Flag("n"), [], "True or False"),
        (Hashed("n", 4), 1.5, "a string, an integer, a list of these"),
        (Hashed("n", 4), True, "a token is a string or an integer"),
        (Hashed("n", 4), b"x", "a string"),
        (Hashed("n", 4), {"a": 1}, "a string"),
        (Hashed("n", 4, tokens=2), ["a", None], "a token is a string or an integer"),
        (Hashed("n", 4, tokens=2), [["a"]], "a token is"),
    ],
)
def test_wrong_types_are_refused_by_name_value_and_remedy(field: Any, value: Any, words: str) -> None:
    schema = Schema(user=[field])
    with pytest.raises(InvalidInput, match="field 'n' of kind") as caught:
        schema.encode({"n": value}, [{}])
    assert words in str(caught.value)
    wrong = value[-1] if isinstance(field, Hashed) and isinstance(value, list) else value  # the token
    assert repr(wrong) in str(caught.value)


def test_long_values_are_cut_and_values_that_cannot_be_shown_are_named_by_type() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise ValueError("no")

    schema = Schema(user=[Number("n", 0, 1)])
    with pytest.raises(InvalidInput, match="Shy"):
        schema.encode({"n": Shy()}, [{}])
    with pytest.raises(InvalidInput) as caught:
        schema.encode({"n": "x" * 10_000}, [{}])
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Number("", 0, 1), "name of a Number"),
        (lambda: Number("  ", 0, 1), "name of a Number"),
        (lambda: Number(3, 0, 1), "name of a Number"),  # type: ignore[arg-type]
        (lambda: Number("n", 1, 1), "below high"),
        (lambda: Number("n", 2, 1), "below high"),
        (lambda: Number("n", math.nan, 1), "low of 'n'"),
        (lambda: Number("n", 0, math.inf), "high of 'n'"),
        (lambda: Number("n", 0, 10**400), "high of 'n'"),
        (lambda: Number("n", -1e308, 1e308), "high - low"),
        (lambda: Number("n", "0", 1), "low of 'n'"),  # type: ignore[arg-type]
        (lambda: Number("n", 0, 1, weight=0.0), "weight of 'n'"),
        (lambda: Number("n", 0, 1, weight=-1.0), "weight of 'n'"),
        (lambda: Number("n", 0, 1, weight=math.nan), "weight of 'n'"),
        (lambda: Number("n", 0, 1, weight=1e7), "weight of 'n' must lie between"),
        (lambda: Flag("n", weight=1e-7), "weight of 'n' must lie between"),
        (lambda: Flag("n", weight=10**400), "weight of 'n'"),
        (lambda: Category("n", []), "at least one value"),
        (lambda: Category("n", "abc"), "at least one value"),
        (lambda: Category("n", 3), "at least one value"),  # type: ignore[arg-type]
        (lambda: Category("n", ["a", 1]), "all strings or all integers"),  # type: ignore[arg-type]
        (lambda: Category("n", [True, False]), "all strings or all integers"),
        (lambda: Category("n", [1.5]), "all strings or all integers"),  # type: ignore[arg-type]
        (lambda: Category("n", [["a"]]), "all strings or all integers"),  # type: ignore[arg-type]
        (lambda: Category("n", ["a", "b", "a"]), "'a' more than once"),
        (lambda: Category("n", ["a"], other=1), "other of 'n'"),  # type: ignore[arg-type]
        (lambda: Hashed("n", 0), "width of 'n'"),
        (lambda: Hashed("n", 4.0), "width of 'n'"),  # type: ignore[arg-type]
        (lambda: Hashed("n", 4, tokens=0), "tokens of 'n'"),
        (lambda: Hashed("n", 4, key="zz" * 16), "hexadecimal"),
        (lambda: Hashed("n", 4, key="00" * 15), "hexadecimal"),
        (lambda: Hashed("n", 4, key="00" * 65), "hexadecimal"),
        (lambda: Hashed("n", 4, key=b"00" * 16), "hexadecimal"),  # type: ignore[arg-type]
    ],
)
def test_fields_that_make_no_sense_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


def test_a_hashed_field_without_a_key_draws_one() -> None:
    one, other = Hashed("id", 4), Hashed("id", 4)
    assert one.key != other.key
    assert len(bytes.fromhex(one.key)) == 16
    assert one != other
    assert Hashed("id", 4, key=one.key) == one
    assert Hashed("id", 4, key=one.key.upper()) == one


def test_fields_are_values() -> None:
    assert Number("n", 0, 1) == Number("n", 0.0, 1.0, weight=1)
    assert hash(Category("n", ["a"])) == hash(Category("n", ("a",)))
    with pytest.raises(AttributeError):
        Number("n", 0, 1).low = 2.0  # type: ignore[misc]
