"""Every route and status of the contract (SPEC section 8), on a service that runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import httpx
import pytest

from tacit.client import Client
from tacit.privacy.gaussian import delta_from
from tacit.service.http.state import LATENCIES, Latency
from tests.service.http.running import STREAM, TWO, Running, problem

E126 = math.exp(-126.0)


def decide(client: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return client.post(f"{path}/decisions", json={"contexts": TWO} | body)


def reward(client: httpx.Client, path: str, event: str, **body: Any) -> httpx.Response:
    return client.put(f"{path}/decisions/{event}/reward", json=body)


# Policies


def test_a_policy_is_made_once_and_never_changes(running: Running, admin: httpx.Client) -> None:
    body = STREAM | {"reward_wait": 60, "default_reward": 0.0}
    made = admin.put("/v1/policies/once", json=body)
    assert made.status_code == 201
    again = admin.put("/v1/policies/once", json=body)
    assert again.status_code == 200
    assert again.json() == made.json()
    problem(admin.put("/v1/policies/once", json=body | {"dim": 3}), 409, "other-configuration")
    problem(admin.put("/v1/policies/once", json=body | {"reward_wait": 61}), 409, "other-configuration")
    shown = admin.get("/v1/policies/once").json()
    assert shown["policy"] == "stream-glm"
    assert shown["config"]["dim"] == 2
    assert shown["terms"]["reward_wait"] == 60
    assert (shown["mode"], shown["decisions"], shown["releases"]) == ("online", 0, 0)
    assert shown["estimate"] == [0.0, 0.0]
    assert shown["health"]["status"] == "ok"
    assert "once" in [policy["name"] for policy in admin.get("/v1/policies").json()["policies"]]


def test_an_epsilon_that_promises_little_is_remarked_on(admin: httpx.Client) -> None:
    answers = [admin.put("/v1/policies/loose", json=STREAM | {"epsilon": 20.0}), admin.get("/v1/policies/loose")]
    (text,) = admin.get("/v1/policies/loose/privacy").json()["warnings"]
    assert "epsilon = 20 is above 10, where the guarantee says little" in text
    assert [answer.json()["health"] for answer in answers] == [{"status": "ok", "warnings": [text]}] * 2


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"policy": "no-such"},
        {"policy": 3},
        STREAM | {"dim": 0},
        STREAM | {"dim": 100_000},
        STREAM | {"epsilon": -1.0},
        STREAM | {"name": "twice"},
        STREAM | {"unknown": 1},
        STREAM | {"seed": 1},
        STREAM | {"reward_age": 5},
        STREAM | {"mode": "sometimes"},
        STREAM | {"reward_wait": "long"},
        STREAM | {"reward_wait": -1},
        STREAM | {"hold": 3},
        STREAM | {"default_reward": 2.0},
        STREAM | {"features": {"arm": 3}},
    ],
)
def test_a_policy_that_cannot_be_is_refused(running: Running, admin: httpx.Client, wrong: dict[str, Any]) -> None:
    problem(admin.put("/v1/policies/wrong", json=wrong), 422, "invalid")
    problem(admin.get("/v1/policies/wrong"), 404, "unknown-policy")


def test_names_of_policies_fit_into_paths(running: Running, admin: httpx.Client) -> None:
    for name in ("-x", "a%20b", "%C3%A9", "x" * 65):
        assert admin.put(f"/v1/policies/{name}", json=STREAM).status_code == 422


def test_modes_change_and_nothing_else_does(running: Running, admin: httpx.Client) -> None:
    path = running.policy(mode="off")
    problem(decide(admin, path, event_id="a"), 409, "switched-off")
    assert admin.get(path).json()["decisions"] == 0
    assert admin.put(path, json=STREAM | {"mode": "apprentice"}).status_code == 200
    assert {decide(admin, path, event_id=f"b{i}").json()["arm"] for i in range(8)} == {0}
    assert admin.put(path, json=STREAM | {"mode": "off"}).json()["mode"] == "off"
    assert decide(admin, path, event_id="b0").status_code == 200  # an answer that was given is given again
    assert reward(admin, path, "b0", reward=1.0).status_code == 201
    assert admin.get(path).json()["health"]["status"] == "off"
    assert admin.put(path, json=STREAM).json()["mode"] == "off"  # without a word about it nothing changes
    assert admin.put(path, json=STREAM | {"mode": "online"}).json()["mode"] == "online"
    assert decide(admin, path).status_code == 201
    history = admin.get(f"{path}/history").json()["modes"]
    expected = [(1, 0, "off"), (2, 0, "apprentice"), (3, 8, "off"), (4, 8, "online")]
    assert [(each["number"], each["decisions"], each["mode"]) for each in history] == expected
    lines = [json.loads(line) for line in running.log.read_text().splitlines() if '"event": "mode"' in line]
    own = [line for line in lines if line["policy"] == path.rpartition("/")[2]]
    assert [(line["number"], line["decisions"], line["mode"]) for line in own] == expected


def test_a_policy_is_deleted_and_what_it_spent_is_not(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    for number in range(20):
        decide(admin, path, event_id=f"e{number}")
    before, spent = admin.get(path).json(), admin.get(f"{path}/privacy").json()
    total = admin.get("/v1/privacy").json()
    answer = admin.delete(path)
    assert answer.status_code == 200
    for shown in (answer.json(), admin.get(path).json(), admin.delete(path).json()):
        assert (shown["mode"], shown["health"]["status"]) == ("deleted", "deleted")
        assert (shown["decisions"], shown["estimate"]) == (before["decisions"], before["estimate"])
    assert admin.get(f"{path}/privacy").json()["spent_mu"] == spent["spent_mu"]
    assert admin.get("/v1/privacy").json()["mu"] == total["mu"]
    assert [each["mode"] for each in admin.get(f"{path}/history").json()["modes"]] == ["deleted"]
    for event in ("e3", "another"):
        problem(decide(admin, path, event_id=event), 410, "deleted")
    problem(reward(admin, path, "e3", reward=1.0), 404, "unknown-event")
    problem(admin.put(path, json=STREAM), 409, "other-configuration")
    problem(admin.put(f"{path}/mode", json={"mode": "online"}), 409, "other-configuration")
    problem(admin.put(f"{path}/mode", json={"mode": "deleted"}), 422, "invalid")
    problem(admin.delete("/v1/policies/no-such"), 404, "unknown-policy")
    batch = admin.post(f"{path}/decisions:batch", json={"requests": [{"contexts": [[1.0, 0.0]]}]}).json()
    assert batch["decisions"][0]["status"] == 410


def test_a_backup_is_for_admins_and_not_for_bound_keys(running: Running, admin: httpx.Client) -> None:
    running.policy()
    answer = admin.get("/v1/backup")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")
    assert answer.content.startswith(b"tacit backup 1\n")
    assert len(admin.get("/v1/backup?keys=true").content) > len(answer.content)
    assert admin.get("/v1/backup?keys=some").status_code == 422
    bound = admin.post("/v1/keys", json={"name": "bound", "scopes": ["admin"], "policies": ["x*"]}).json()["key"]
    reader = admin.post("/v1/keys", json={"name": "looks", "scopes": ["read"]}).json()["key"]
    for key, kind in ((bound, "bound"), (reader, "scope")):
        with running.client(key) as client:
            problem(client.get("/v1/backup"), 403, kind)


def test_a_mode_is_changed_by_itself(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    for mode in ("off", "off", "apprentice", "online"):
        answer = admin.put(f"{path}/mode", json={"mode": mode})
        assert answer.status_code == 200
        assert answer.json() == admin.get(path).json()
        assert answer.json()["mode"] == mode
    modes = [each["mode"] for each in admin.get(f"{path}/history").json()["modes"]]
    assert modes == ["off", "apprentice", "online"]  # what does not change is no event
    lines = [json.loads(line) for line in running.log.read_text().splitlines() if '"event": "mode"' in line]
    assert [line["mode"] for line in lines if line["policy"] == path.rpartition("/")[2]] == modes
    problem(admin.put("/v1/policies/no-such/mode", json={"mode": "off"}), 404, "unknown-policy")
    for wrong in ({}, {"mode": "on"}, {"mode": None}, {"mode": "off", "dim": 3}):
        problem(admin.put(f"{path}/mode", json=wrong), 422, "invalid")
    problem(admin.put(f"{path}/mode", content=b"off", headers={"Content-Type": "application/json"}), 400, "not-json")
    problem(admin.get(f"{path}/mode"), 405, "method")
    assert admin.get(path).json()["mode"] == "online"


# Decisions


def test_a_decision_is_made_once(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    first = decide(admin, path, event_id="é/1 ?")
    assert first.status_code == 201
    assert first.json()["event_id"] == "é/1 ?"
    again = decide(admin, path, event_id="é/1 ?")
    assert (again.status_code, again.json()) == (200, first.json())
    problem(decide(admin, path, event_id="é/1 ?", contexts=[[0.5, 0.5]]), 409, "other-content")
    assert admin.get(path).json()["decisions"] == 1
    assert reward(admin, path, "%C3%A9%2F1%20%3F", reward=1.0).status_code == 201


def test_a_decision_without_an_id_gets_one(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    found = [decide(admin, path).json() for _ in range(3)]
    assert len({each["event_id"] for each in found}) == 3
    assert reward(admin, path, found[0]["event_id"], reward=1).status_code == 201


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({}, 422),
        ({"contexts": []}, 422),
        ({"contexts": [[1.0]]}, 422),
        ({"contexts": [[1.0, 0.0], [1.0]]}, 422),
        ({"contexts": [[2.0, 0.0]]}, 422),
        ({"contexts": [["1", 0.0]]}, 422),
        ({"contexts": [[True, 0.0]]}, 422),
        ({"contexts": [[None, 0.0]]}, 422),
        ({"contexts": TWO, "unknown": 1}, 422),
        ({"contexts": TWO, "event_id": ""}, 422),
        ({"contexts": TWO, "event_id": "x" * 257}, 422),
        ({"contexts": TWO, "user_id": "x" * 257}, 422),
        ({"contexts": [[0.0, 0.0]] * 1001}, 422),
        ({"user": {}, "arms": [{"a": 1}]}, 422),
        ({"contexts": TWO, "user": {}, "arms": [{}]}, 422),
        ([], 422),
        (3, 422),
    ],
)
def test_a_bad_decision_changes_nothing(running: Running, admin: httpx.Client, wrong: Any, status: int) -> None:
    path = running.policy()
    problem(admin.post(f"{path}/decisions", json=wrong), status, "invalid")
    assert admin.get(path).json()["decisions"] == 0


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b'{"contexts":[[NaN,0]]}', b'{"contexts":[[Infinity,0]]}', b'{"event_id":"\\ud800"}']
)
def test_what_is_no_json_is_refused(running: Running, admin: httpx.Client, body: bytes) -> None:
    path = running.policy()
    headers = {"Content-Type": "application/json"}
    problem(admin.post(f"{path}/decisions", content=body, headers=headers), 400, "not-json")
    assert admin.post(f"{path}/decisions", content=b'{"contexts":[[1e999,0]]}', headers=headers).status_code in (
        400,
        422,
    )
    deep = b'{"user":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b'},"arms":[{}]}'
    assert admin.post(f"{path}/decisions", content=deep, headers=headers).status_code in (400, 422)
    assert admin.get(path).json()["decisions"] == 0


def test_bodies_are_json(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    body = json.dumps({"contexts": TWO}).encode()
    for headers in ({"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"}):
        problem(admin.post(f"{path}/decisions", content=body, headers=headers), 415, "media-type")
    assert admin.post(f"{path}/decisions", content=body).status_code == 201
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert admin.post(f"{path}/decisions", content=body, headers=headers).status_code == 201


def test_a_decision_says_how_likely_its_arm_was(running: Running, admin: httpx.Client) -> None:
    """A quarter of the decisions are of the other arm; that 80 have none has the chance 0.75^80 = 1e-10."""
    path = running.policy(explore=0.5)
    decided = [decide(admin, path, event_id=f"e{number}").json() for number in range(80)]
    assert {found["propensity"] for found in decided} == {0.25, 0.75}
    for number, found in enumerate(decided):
        again = decide(admin, path, event_id=f"e{number}")
        assert (again.status_code, again.json()) == (200, found)
    requests = [{"contexts": TWO, "event_id": "e0"}, {"contexts": TWO[:1]}]
    known, single = admin.post(f"{path}/decisions:batch", json={"requests": requests}).json()["decisions"]
    assert (known["arm"], known["propensity"]) == (decided[0]["arm"], decided[0]["propensity"])
    assert single["propensity"] == 1.0
    assert "propensity" not in reward(admin, path, "e0", reward=1.0).json()
    with Client(running.address, running.key) as client:
        choice = client.decide(path.rpartition("/")[2], TWO, event_id="e1")
        assert (choice.arm, choice.propensity) == (decided[1]["arm"], decided[1]["propensity"])


def test_in_a_batch_a_bad_request_gets_its_own_error(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    kept = decide(admin, path, event_id="kept").json()
    requests: list[Any] = [
        {"contexts": TWO, "event_id": "a"},
        {"contexts": [[3.0, 0.0]]},
        {"contexts": "text"},
        {"contexts": TWO, "event_id": "a"},
        {"contexts": [[1.0, 0.0]], "event_id": "a"},
        7,
        {"contexts": TWO, "event_id": "kept"},
        {"contexts": TWO},
    ]
    answer = admin.post(f"{path}/decisions:batch", json={"requests": requests})
    assert answer.status_code == 200
    entries = answer.json()["decisions"]
    assert [entry["status"] for entry in entries] == [201, 422, 422, 200, 409, 422, 200, 201]
    assert entries[0]["arm"] == entries[3]["arm"]
    assert entries[6]["arm"] == kept["arm"]
    assert entries[4]["type"] == "urn:tacit:problem:other-content"
    assert "event_id" not in entries[1]
    assert admin.get(path).json()["decisions"] == 3
    assert admin.post(f"{path}/decisions:batch", json={"requests": []}).json() == {"decisions": []}
    assert admin.post(f"{path}/decisions%3Abatch", json={"requests": []}).status_code == 200
    problem(admin.post(f"{path}/decisions:batch", json={"requests": [{}] * 1001}), 422, "invalid")
    problem(admin.post(f"{path}/decisions:batch", json={}), 422, "invalid")


def test_records_are_encoded_by_the_schema_of_the_policy(running: Running, admin: httpx.Client) -> None:
    from tacit.features import Category, Number, Schema

    schema = Schema(user=[Number("age", 0, 100)], arm=[Category("colour", ["red", "blue"])]).to_json()
    path = "/v1/policies/records"
    body = {"policy": "stream-glm", "epsilon": 1.0, "delta": 1e-6, "features": schema}
    made = admin.put(path, json=body)
    assert made.status_code == 201, made.text
    assert admin.put(path, json=body).status_code == 200
    asked = {"user": {"age": 31}, "arms": [{"colour": "red"}, {"colour": "blue"}], "event_id": "r"}
    assert admin.post(f"{path}/decisions", json=asked).status_code == 201
    assert admin.post(f"{path}/decisions", json=asked).status_code == 200
    for wrong in (
        {"user": {"age": "old"}, "arms": [{"colour": "red"}]},
        {"user": {"age": 31, "more": 1}, "arms": [{"colour": "red"}]},
        {"user": {"age": [1]}, "arms": [{"colour": {}}]},
        {"contexts": TWO},
    ):
        answer = admin.post(f"{path}/decisions", content=json.dumps(wrong).encode())
        assert answer.status_code in (400, 422), answer.text
    names = [feature["name"] for feature in admin.get(f"{path}/explanation").json()["features"]]
    assert any("age" in name for name in names)


# Rewards


def test_a_reward_counts_once(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    arm = decide(admin, path, event_id="a").json()["arm"]
    problem(reward(admin, path, "a", reward=1.0, arm=1 - arm), 409, "other-arm")
    assert reward(admin, path, "a", reward=1.0, arm=arm).status_code == 201
    assert reward(admin, path, "a", reward=1).status_code == 200
    problem(reward(admin, path, "a", reward=0.0), 409, "other-reward")
    problem(reward(admin, path, "a", abandoned=True), 409, "other-reward")
    problem(reward(admin, path, "b", reward=1.0), 404, "unknown-event")
    problem(reward(admin, "/v1/policies/none", "a", reward=1.0), 404, "unknown-policy")


def test_a_decision_that_was_never_shown_is_abandoned(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    decide(admin, path, event_id="a")
    assert reward(admin, path, "a", abandoned=True).status_code == 201
    assert reward(admin, path, "a", abandoned=True).status_code == 200
    problem(reward(admin, path, "a", reward=1.0), 409, "other-reward")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"reward": None},
        {"reward": 2.0},
        {"reward": -0.1},
        {"reward": "1"},
        {"reward": True},
        {"reward": 1.0, "abandoned": True},
        {"abandoned": False},
        {"reward": 1.0, "arm": -1},
        {"reward": 1.0, "arm": 0.5},
        {"reward": 1.0, "more": 1},
    ],
)
def test_a_bad_reward_changes_nothing(running: Running, admin: httpx.Client, wrong: dict[str, Any]) -> None:
    path = running.policy()
    decide(admin, path, event_id="a")
    problem(reward(admin, path, "a", **wrong), 422, "invalid")
    assert reward(admin, path, "a", reward=0.0).status_code == 201


# What may be seen


def test_reports_speak_of_releases(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    for _ in range(12):
        decide(admin, path)
    shown = admin.get(path).json()
    assert shown["decisions"] == 12
    releases = admin.get(f"{path}/history").json()["releases"]
    assert 1 <= len(releases) <= shown["releases"]
    assert all(0 < point["decisions"] <= 12 for point in releases)
    assert len(admin.get(f"{path}/explanation").json()["features"]) == 2
    report = admin.get(f"{path}/privacy").json()
    assert report["target_epsilon"] == 1.0
    assert report["spent_epsilon"] <= 1.0
    for part in ("", "/privacy", "/history", "/explanation"):
        problem(admin.get(f"/v1/policies/none{part}"), 404, "unknown-policy")


def test_policies_compose(tmp_path: Path) -> None:
    alone = Running(tmp_path / "data")
    for _ in range(2):
        alone.policy()
    with alone.client() as admin:
        whole = admin.get("/v1/privacy").json()
    assert alone.stop() == 0
    spent = [report["rounds_per_user"] * report["spent_mu"] for report in whole["policies"].values()]
    assert whole["mu"] == pytest.approx(math.sqrt(sum(mu**2 for mu in spent)))
    assert whole["delta"] == max(report["delta"] for report in whole["policies"].values())
    assert whole["epsilon"] > max(report["spent_epsilon"] for report in whole["policies"].values())
    slack, draws = (sum(report[name] for report in whole["policies"].values()) for name in ("slack", "draws"))
    assert slack > 0.0
    inner = whole["epsilon"] - 2.0 * slack  # by hand: the lattice lemma, once for all policies together
    delta = math.exp(slack) * delta_from(whole["mu"], inner) + (1.0 + math.exp(inner + slack)) * 2.0 * draws * E126
    assert 0.999 * whole["delta"] < delta <= whole["delta"]
    assert all(report["lives"] == 1 for report in whole["policies"].values())


def test_a_policy_without_privacy_shows_nothing_of_what_it_learned(tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Running(tmp_path_factory.mktemp("bare") / "data")
    with other.client() as client:
        body = {"policy": "greedy-mle", "dim": 2}
        assert client.put("/v1/policies/bare", json=body).status_code == 201
        decide(client, "/v1/policies/bare")
        assert client.get("/v1/policies/bare").json()["estimate"] is None
        problem(client.get("/v1/policies/bare/explanation"), 404, "no-estimate")
        whole = client.get("/v1/privacy").json()
        assert (whole["mu"], whole["epsilon"]) == (None, None)
        assert "tacit_spent_mu" in client.get("/metrics").text
    assert other.stop() == 0


def test_metrics_keep_what_is_raw_for_operators(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    event = decide(admin, path).json()["event_id"]
    reward(admin, path, event, reward=1.0)
    with running.client(running.new_key("read")) as reader:
        public = reader.get("/metrics").text
    raw = admin.get("/metrics").text
    assert 'tacit_decisions_total{policy="' in public
    assert "reward" not in public
    assert "waiting" not in public
    assert "tacit_reward_requests_total" in raw
    for line in raw.splitlines():
        if line.startswith("# HELP") and ("reward" in line or "waiting" in line):
            assert "RAW DATA" in line


def _latencies(text: str) -> dict[str, list[float]]:
    """How many answers took no longer than each bound, by route, as `/metrics` has them."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        if line.startswith("tacit_request_seconds_bucket{"):
            found.setdefault(line.partition('route="')[2].partition('"')[0], []).append(float(line.split()[-1]))
    return found


def test_latencies_are_counted_by_route(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    decisions, rewards = "/v1/policies/{name}/decisions", "/v1/policies/{name}/decisions/{event_id}/reward"
    before = admin.get("/metrics").text
    for _ in range(3):
        reward(admin, path, decide(admin, path).json()["event_id"], reward=1.0)
    problem(admin.post(f"{path}/decisions", json={"contexts": []}), 422, "invalid")  # refusals are not counted
    with admin.stream("GET", "/v1/live") as stream:
        next(stream.iter_lines())
    after = admin.get("/metrics").text
    for route in (decisions, rewards):
        counts = _latencies(after)[route]
        assert counts == sorted(counts)
        assert len(counts) == len(LATENCIES) + 1
        assert counts[-1] == _latencies(before).get(route, [0.0])[-1] + 3.0
        assert f'tacit_request_seconds_count{{route="{route}"}} {counts[-1]}' in after
    assert {decisions, rewards, "/metrics"} <= _latencies(after).keys()
    assert not {"/v1/live", "-"} & _latencies(after).keys()  # a stream is as long as somebody listens
    with running.client(running.new_key("read")) as reader:
        assert "seconds" not in reader.get("/metrics").text  # how long an answer takes depends on rewards too


def test_a_latency_is_counted_up_to_its_bound() -> None:
    latency = Latency()
    for seconds in (0.0, LATENCIES[0], LATENCIES[0] * 1.001, LATENCIES[-1], 1e6):
        latency.note(seconds)
    assert latency.counts == [2, 1, *[0] * (len(LATENCIES) - 3), 1, 1]
    assert latency.seconds == pytest.approx(1e6 + LATENCIES[-1] + 2.001 * LATENCIES[0])


def test_health_needs_no_key(running: Running) -> None:
    with running.client("") as nobody:
        assert nobody.get("/healthz").json() == {"status": "ok"}
        assert nobody.get("/readyz").json() == {"status": "ok"}
        document = nobody.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "/v1/policies/{name}/decisions/{event_id}/reward" in document["paths"]


def test_the_page_comes_with_its_files(running: Running) -> None:
    with running.client("") as nobody:
        page = nobody.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert nobody.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
        assert nobody.get("/static/api.js").headers["content-type"].startswith("text/javascript")
        for path in ("/static/none.js", "/static/../http/app.py", "/static/%2e%2e/http/app.py", "/static/"):
            assert nobody.get(path).status_code in (401, 404)


def test_changes_come_live(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    name = path.rpartition("/")[2]
    with running.client() as listener, listener.stream("GET", "/v1/live") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        seen = []
        for line in stream.iter_lines():
            if line.startswith("data:"):
                (own,) = [one for one in json.loads(line[5:])["policies"] if one["name"] == name]
                seen.append(own["decisions"])
                if len(seen) == 2:
                    break
                decide(admin, path)
    assert seen == [0, 1]


def test_other_methods_and_paths(running: Running, admin: httpx.Client) -> None:
    path = running.policy()
    assert problem(admin.get(f"{path}/decisions"), 405, "method")["detail"] == "this path takes POST"
    assert admin.get(f"{path}/decisions").headers["allow"] == "POST"
    problem(admin.delete(f"{path}/decisions/a/reward"), 405, "method")
    problem(admin.delete("/v1/policies"), 405, "method")
    problem(admin.get("/v1/none"), 404, "unknown-path")
    problem(admin.get(f"{path}/"), 404, "unknown-path")
    problem(admin.put(f"{path}/decisions/%ff/reward", json={"reward": 1}), 400, "path")
    assert admin.head(path).status_code == 200
