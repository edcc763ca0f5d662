"""How often a key may ask: buckets that fill up with time, refusals that change nothing."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tacit.errors import StoreDamaged
from tacit.service.http.keys import Key, Keyring
from tacit.service.http.operations import OPERATIONS
from tacit.service.http.problems import Problem
from tacit.service.http.state import Bucket, Rates
from tacit.service.sqlite_store import SQLiteStore
from tests.service.http.running import TWO, Running, problem
from tests.service.http.test_routes import decide, reward
from tests.steady import effort_of


def passed(bucket: Bucket, now: float, tries: int) -> int:
    return sum(bucket.take(now) == 0.0 for _ in range(tries))


def test_a_bucket_holds_two_seconds_and_fills_up_with_its_rate() -> None:
    bucket = Bucket(8.0)
    assert passed(bucket, 100.0, 50) == 16
    assert bucket.take(100.0) == 0.125
    assert [passed(bucket, 100.0 + step, 50) for step in (0.125, 0.25, 1.25)] == [1, 1, 8]
    assert passed(bucket, 1000.0, 50) == 16
    slow = Bucket(0.25)
    assert [slow.take(0.0), slow.take(0.0), slow.take(3.0), slow.take(4.0)] == [0.0, 4.0, 1.0, 0.0]


def test_refusals_are_not_counted_and_batches_are_paid_for_later() -> None:
    bucket = Bucket(4.0)
    for now in (0.0, 0.5, 1.0):
        passed(bucket, now, 1000)
    assert passed(bucket, 3.0, 1000) == 8
    bucket = Bucket(4.0)
    assert bucket.take(0.0) == 0.0
    bucket.charge(39)
    assert bucket.take(0.0) == 8.25  # forty requests are ten seconds' worth, of which less than two are left
    assert passed(bucket, 8.25, 10) == 1


def test_buckets_belong_to_keys_and_do_not_pile_up() -> None:
    now = [0.0]
    rates = Rates(8.0, lambda: now[0])
    one, other = Key("one", ("read",), "default", ""), Key("other", ("read",), "default", "", rate=0.01)
    for _ in range(16):
        rates.take(one)
    rates.take(other)
    for key, wait in ((one, "1"), (other, "100")):
        with pytest.raises(Problem) as refused:
            rates.take(key)
        assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": wait})
    rates.take(Key("other", ("read",), "default", "", rate=1.0))  # revoked, and made anew with another rate
    now[0] = 10.0
    for number in range(5000):
        rates.take(Key(str(number), ("read",), "default", ""))
        now[0] += 1.0
    assert len(rates._buckets) <= 1001
    rates.charge(Key("4999", ("read",), "default", ""), 32)
    with pytest.raises(Problem):
        rates.take(Key("4999", ("read",), "default", ""))


def test_rewards_do_not_use_up_what_decisions_may() -> None:
    rates, key = Rates(1.0, lambda: 0.0), Key("one", ("read",), "default", "")
    for kind in (True, False):
        for _ in range(2):
            rates.take(key, reward=kind)
        with pytest.raises(Problem):
            rates.take(key, reward=kind)


def test_a_look_at_the_rate_takes_a_few_calls_however_many_keys_there_are() -> None:
    """0.4 microseconds on a quiet machine."""
    rates, key = Rates(50_000), Key("one", ("read",), "default", "", rate=1e9)
    for number in range(500):
        rates.take(Key(str(number), ("read",), "default", ""))
    rates.take(key)

    def looks() -> None:
        for _ in range(2000):
            rates.take(key)

    assert effort_of(looks).calls < 10 * 2000


def test_keys_without_a_rate_are_read_and_damaged_ones_are_not(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "data")
    old = {"name": "old", "scopes": ["read"], "namespace": "default", "created": "2024-01-01T00:00:00+00:00"}
    store.change_settings({"key." + "ab" * 32: json.dumps(old).encode()})
    Keyring(store).add("new", ["read"], rate=2.5)
    assert [(key.name, key.rate) for key in Keyring(store).all()] == [("new", 2.5), ("old", None)]
    store.change_settings({"key." + "cd" * 32: json.dumps(old | {"rate": "fast"}).encode()})
    with pytest.raises(StoreDamaged):
        Keyring(store)
    store.close()


def test_the_document_has_the_refusal_wherever_a_key_is_needed(admin: httpx.Client) -> None:
    paths = admin.get("/openapi.json").json()["paths"]
    for operation in OPERATIONS:
        found = "429" in paths[operation.path][operation.method.lower()]["responses"]
        assert found == (operation.scope is not None), operation


def limited(running: Running, rate: float, name: str) -> httpx.Client:
    with running.client() as admin:
        made = admin.post("/v1/keys", json={"name": name, "scopes": ["decide", "reward", "read"], "rate": rate})
    assert (made.status_code, made.json()["rate"]) == (201, rate)
    return running.client(made.json()["key"])


def test_a_key_that_asks_too_often_is_refused_and_nothing_changes(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    with limited(running, 0.01, "slow") as slow:  # its next request is due after 100 seconds
        assert decide(slow, path, event_id="first").status_code == 201
        assert decide(admin, path, event_id="third").status_code == 201
        assert reward(slow, path, "first", reward=1.0).status_code == 201  # out of a bucket of its own
        for answer in (
            decide(slow, path, event_id="second"),
            reward(slow, path, "third", reward=1.0),
            slow.post(f"{path}/decisions:batch", json={"requests": [{"contexts": TWO}]}),
            slow.get(path),
            slow.put("/v1/policies/none", json={}),  # before its scope is looked at
        ):
            problem(answer, 429, "too-often")
            assert 1 <= int(answer.headers["retry-after"]) <= 100
        assert slow.get("/healthz").status_code == 200
    assert admin.get(path).json()["decisions"] == 2
    problem(reward(admin, path, "second", reward=1.0), 404, "unknown-event")
    assert reward(admin, path, "third", reward=0.0).status_code == 201  # the refused one left no trace
    assert "too-often" not in running.log.read_text()
    with limited(running, 0.01, "batches") as batches:
        many = {"requests": [{"contexts": TWO}] * 30}
        assert batches.post(f"{path}/decisions:batch", json=many).status_code == 200
        refused = batches.get(path)
        problem(refused, 429, "too-often")
        assert 2500 <= int(refused.headers["retry-after"]) <= 3000
    for wrong in (0, -1, 1e10, "1", True):
        problem(admin.post("/v1/keys", json={"name": "x", "scopes": ["read"], "rate": wrong}), 422, "invalid")


def test_the_rate_of_the_service_is_that_of_keys_without_their_own(tmp_path: Path) -> None:
    with Running(tmp_path / "data", key_rate=1) as running:
        path = running.policy()
        with running.client() as admin:
            many = {"requests": [{"contexts": TWO}] * 500}  # more than eight minutes' worth
            assert admin.post(f"{path}/decisions:batch", json=many).status_code == 200
            assert [admin.get("/v1/policies").status_code for _ in range(6)] == [429] * 6
        lines = [json.loads(line) for line in running.log.read_text().splitlines()]
        assert {line["route"] for line in lines if line["event"] == "request" and line["status"] == 429} <= {"-"}
