"""Rewards that are waited for, over HTTP: held, late, missing and forgotten ones."""

from __future__ import annotations

import time

import httpx

from tests.service.http.processes import wait_until
from tests.service.http.running import PATIENCE, TWO, Running, problem
from tests.service.http.test_routes import decide, reward


def until(client: httpx.Client, path: str, event: str, status: int, **body: object) -> httpx.Response:
    """The first answer to a reward with this status; others may come before it."""
    deadline = time.monotonic() + PATIENCE
    while (answer := reward(client, path, event, **body)).status_code != status:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    return answer


def rewarded_in_time(client: httpx.Client, path: str) -> str:
    """The id of a decision whose reward was taken before its time was over; how many it takes is the machine's."""
    for number in range(1000):
        event = f"timely{number}"
        decide(client, path, event_id=event)
        if (answer := reward(client, path, event, reward=1.0)).status_code == 201:
            return event
        problem(answer, 410, "expired")
    raise AssertionError("no reward comes in time")


def test_a_reward_that_comes_too_late_is_gone(running: Running, admin: httpx.Client) -> None:
    path = running.policy(reward_wait=0.5, event_memory=3600.0, default_reward=0.0)
    decide(admin, path, event_id="late")
    timely = rewarded_in_time(admin, path)
    time.sleep(0.7)
    late = reward(admin, path, "late", reward=0.5)
    problem(late, 410, "expired")
    assert late.json()["detail"].endswith(
        "nothing was learned from this reward; decisions without one teach default_reward, 0"
    )
    assert reward(admin, path, timely, reward=1.0).status_code == 200
    problem(reward(admin, path, timely, reward=0.0), 409, "other-reward")
    assert decide(admin, path, event_id="late").status_code == 200


def test_ids_are_forgotten_after_their_time(running: Running, admin: httpx.Client) -> None:
    path = running.policy(reward_wait=0.3)
    assert decide(admin, path, event_id="again").status_code == 201
    until(admin, path, "again", 404, reward=1.0, arm=7)  # another arm than it can be: nothing is ever taken
    assert decide(admin, path, event_id="again").status_code == 201
    assert admin.get(path).json()["decisions"] == 2


def test_what_waits_is_known_to_operators_alone_and_passes(running: Running, admin: httpx.Client) -> None:
    patient, soon = running.policy(reward_wait=3600.0), running.policy(reward_wait=0.5)
    for path in (patient, soon):
        decide(admin, path)
    assert f"{_waiting(patient)} 1.0" in admin.get("/metrics").text
    wait_until(lambda: f"{_waiting(soon)} 0.0" in admin.get("/metrics").text)  # by the clock: nobody asks for anything
    assert f"{_waiting(patient)} 1.0" in admin.get("/metrics").text


def _waiting(path: str) -> str:
    return f'tacit_waiting_decisions{{policy="{path.rpartition("/")[2]}"}}'


def test_users_are_named_where_they_are_counted(running: Running, admin: httpx.Client) -> None:
    path = running.policy(user_level=True, rounds_per_user=2)
    problem(admin.post(f"{path}/decisions", json={"contexts": TWO}), 422, "invalid")
    for number in range(4):
        event = f"e{number}"
        assert decide(admin, path, event_id=event, user_id="somebody").status_code == 201
        assert reward(admin, path, event, reward=1.0).status_code == 201
    problem(decide(admin, path, event_id="e0", user_id="another"), 409, "other-content")
