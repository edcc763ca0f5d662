"""From what a caller sends to a request: checked, encoded and hashed, without touching anything."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidInput
from tacit.service.deployment import Deployment
from tacit.service.intake import Intake
from tests.contracts.policies import DIM
from tests.service.parts import RECORDS, SCHEMA, USER, body, quick_store

ARMS = np.eye(DIM).tolist()


def intake(folder: Path, **changes: Any) -> Intake:
    store = quick_store(folder)
    served, _ = Deployment(store, most_arms=5).put("p", body("stream-glm") | changes)
    store.close()  # nothing here needs it
    return served.intake


def test_ids_are_made_up_where_the_caller_has_none(tmp_path: Path) -> None:
    made = [intake(tmp_path / str(life)).decision("n", contexts=ARMS) for life in range(2)]
    assert made[0][0] != made[1][0]
    assert len(made[0][0]) >= 20


@pytest.mark.parametrize("bad", ["", "x" * 257, 3, None, b"a", "\ud800", ["a"]])
def test_ids_are_text_of_1_to_256_characters(bad: Any, tmp_path: Path) -> None:
    taken = intake(tmp_path, user_level=True)
    with pytest.raises(InvalidInput, match="user_id"):
        taken.decision("n", contexts=ARMS, event_id="a", user_id=bad)
    with pytest.raises(InvalidInput, match="event_id"):
        taken.reward("n", bad, reward=1.0)
    if bad is not None:
        with pytest.raises(InvalidInput, match="event_id"):
            taken.decision("n", contexts=ARMS, event_id=bad, user_id="u")


def test_any_other_text_is_an_id(tmp_path: Path) -> None:
    taken = intake(tmp_path)
    names = ["a", " ", "\0", "é" * 256, "a\nb", "𝄞"]
    assert len({taken.decision("n", contexts=ARMS, event_id=name)[1].event for name in names}) == len(names)


def test_what_was_asked_is_told_apart_by_hashes(tmp_path: Path) -> None:
    taken = intake(tmp_path, user_level=True)

    def asked(contexts: Any = ARMS, event: str = "e", user: str = "u", namespace: str = "n") -> tuple[bytes, bytes]:
        found = taken.decision(namespace, contexts=contexts, event_id=event, user_id=user)[1]
        return found.event, found.content

    same = asked()
    assert asked() == same
    assert asked(np.eye(DIM)) == same
    assert asked(event="f")[0] != same[0]
    assert asked(namespace="m")[0] != same[0]
    assert taken._hashes.event("ab", "c") != taken._hashes.event("a", "bc")
    for other in (asked(user="v"), asked(ARMS[:2]), asked(ARMS[::-1]), asked([[0.5, 0.0, 0.0], *ARMS[1:]])):
        assert other[0] == same[0]
        assert other[1] != same[1]


@pytest.mark.parametrize(
    "bad",
    [
        {"contexts": [[1.0]]},
        {"contexts": []},
        {"contexts": [[]]},
        {"contexts": [[math.nan] * DIM]},
        {"contexts": [[1.0] * DIM]},
        {"contexts": [["a"] * DIM]},
        {"contexts": ARMS * 2},
        {},
        {"user": USER, "arms": RECORDS},
        {"contexts": ARMS, "user": USER},
    ],
    ids=str,
)
def test_bad_arms_are_refused(bad: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        intake(tmp_path).decision("n", event_id="a", **bad)


def test_records_by_a_schema(tmp_path: Path) -> None:
    taken = intake(tmp_path, features=SCHEMA, dim=None)
    _, first = taken.decision("n", user=USER, arms=RECORDS, event_id="a")
    assert first.arms.shape[1] == 2
    with pytest.raises(InvalidInput, match="at most 5 arms"):
        taken.decision("n", user=USER, arms=RECORDS * 3, event_id="a")
    with pytest.raises(InvalidInput, match="age"):
        taken.decision("n", user={"age": "old", "device": "ios"}, arms=RECORDS, event_id="a")


@pytest.mark.parametrize("bad", [2.0, -0.1, math.nan, math.inf, "1", "x", [1.0], 10**400])
def test_bad_rewards_are_refused(bad: Any, tmp_path: Path) -> None:
    taken = intake(tmp_path)
    if bad == "1":
        assert taken.reward("n", "a", reward=bad).reward == 1.0
        return
    with pytest.raises(InvalidInput, match="reward"):
        taken.reward("n", "a", reward=bad)


def test_a_reward_or_abandoned_and_not_both(tmp_path: Path) -> None:
    taken = intake(tmp_path)
    assert taken.reward("n", "a", reward=None, abandoned=True).reward is None
    assert taken.reward("n", "a", reward=1).reward == 1.0
    for given in ({"reward": None}, {"reward": 1.0, "abandoned": True}):
        with pytest.raises(InvalidInput, match="give a reward, or say that the decision is abandoned"):
            taken.reward("n", "a", **given)


def test_users_are_named_where_they_are_counted(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="user_id is missing"):
        intake(tmp_path / "a", user_level=True).decision("n", contexts=ARMS)
    assert intake(tmp_path / "b").decision("n", contexts=ARMS, user_id="u")[1].user is None
