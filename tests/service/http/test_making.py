"""Policies with absurd numbers: made or refused, and soon, while decisions of others go on.

Without a bound each of them would take hours: that an answer comes before a caller's patience ends is the check.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest

from tests.service.http.running import STREAM, Running
from tests.service.http.test_routes import decide

PATIENCE = 600.0
"""Seconds that a caller waits; the slowest of these takes 5 on a quiet machine."""
FLAGS: list[dict[str, Any]] = [{"kind": "flag", "name": f"{number:x}"} for number in range(20_000)]
PAIRS = [[f"u{one}", f"a{other}"] for one in range(200) for other in range(200)]
CROSSED: dict[str, Any] = {
    "user": [{"kind": "flag", "name": f"u{number}"} for number in range(200)],
    "arm": [{"kind": "flag", "name": f"a{number}"} for number in range(200)],
    "crosses": PAIRS,
}
TOPICS = {"kind": "category", "name": "topic", "values": [f"topic {number}" for number in range(1_500)]}
WORST: dict[str, tuple[int, dict[str, Any]]] = {
    "releases that take the cube of dim": (201, {"dim": 1_000}),
    "a search for a sensitivity that runs out": (201, {"theta_bound": 700.0}),
    "the tails of a user's rows, one by one": (422, {"policy": "shuffle-glm", "rounds_per_user": 10**9}),
    "as many of them as are allowed": (201, {"policy": "shuffle-glm", "rounds_per_user": 10**5}),
    "the likely sums of a batch": (422, {"policy": "shuffle-linucb", "batch_size": 10**9}),
    "as large a batch as is allowed": (201, {"policy": "shuffle-linucb", "batch_size": 4 * 10**6}),
    "noise at every leaf": (201, {"policy": "joint-glm", "factorization": "toeplitz", "horizon": 10**9}),
    "a first epoch without an end": (201, {"policy": "joint-glm", "factorization": "toeplitz", "first_epoch": 10**9}),
    "names that are compared pair by pair": (422, {"features": {"user": FLAGS, "arm": []}, "dim": None}),
    "crosses that are compared pair by pair": (422, {"features": CROSSED, "dim": None}),
    "more coordinates than are allowed": (422, {"features": {"user": [], "arm": [TOPICS]}, "dim": None}),
}


@pytest.mark.parametrize("case", WORST)
def test_absurd_numbers_are_answered_in_bounded_time(admin: httpx.Client, case: str) -> None:
    status, change = WORST[case]
    name = "".join(letter for letter in case if letter.isalpha())
    body = {key: value for key, value in (STREAM | change).items() if value is not None}
    answer = admin.put(f"/v1/policies/{name}", json=body, timeout=PATIENCE)
    assert answer.status_code == status, answer.text
    if status == 422:
        assert any(word in answer.json()["detail"] for word in ("at most", "did not decide and learn within 5 seconds"))


def test_decisions_of_others_go_on_while_a_policy_is_made(running: Running, admin: httpx.Client) -> None:
    """Making it takes as long as hundreds of decisions: were they held back, at most one would come meanwhile."""
    path = running.policy()
    made: list[int] = []

    def make() -> None:
        with running.client() as client:
            body = STREAM | {"theta_bound": 699.0}
            made.append(client.put("/v1/policies/aside", json=body, timeout=PATIENCE).status_code)

    thread = threading.Thread(target=make)
    thread.start()
    meanwhile = 0
    while thread.is_alive():
        assert decide(admin, path).status_code == 201
        meanwhile += thread.is_alive()
        time.sleep(0.005)
    thread.join()
    assert made == [201]
    assert meanwhile > 20
