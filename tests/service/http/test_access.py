"""Keys, scopes and namespaces: no route is reachable without the right key."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tacit.errors import InvalidInput
from tacit.service.http.keys import Key, Keyring, KeyTaken, first_key
from tacit.service.http.operations import OPERATIONS, Operation
from tacit.service.sqlite_store import SQLiteStore
from tests.service.http.running import STREAM, TWO, Running, problem

SCOPES = ("decide", "reward", "read", "admin")
GUARDED = [operation for operation in OPERATIONS if operation.scope is not None]


def _named(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


def call(client: httpx.Client, operation: Operation) -> httpx.Response:
    path = operation.path.format(name="none", event_id="none", key_name="none")
    body: Any = {} if operation.takes is not None else None
    with client.stream(operation.method, path, json=body) as answer:  # a stream of changes never ends
        if operation.path != "/v1/live" or answer.status_code != 200:
            answer.read()
        return answer


@pytest.fixture(scope="package")
def keys(running: Running) -> dict[str, str]:
    return {scope: running.new_key(scope) for scope in SCOPES}


def test_the_document_lists_every_route_with_its_need_of_a_key(admin: httpx.Client) -> None:
    paths = admin.get("/openapi.json").json()["paths"]
    listed = {
        (method.upper(), path): "security" in found
        for path, methods in paths.items()
        for method, found in methods.items()
    }
    assert listed == {(operation.method, operation.path): operation.scope is not None for operation in OPERATIONS}
    assert [path for (_, path), guarded in listed.items() if not guarded] == ["/healthz", "/readyz", "/"]


@pytest.mark.parametrize("operation", GUARDED, ids=_named)
def test_without_a_key_nothing_is_reached(running: Running, operation: Operation) -> None:
    for wrong in ("", "wrong", running.key[:-1], running.key + "x", running.key.swapcase()):
        with running.client(wrong) as nobody:
            problem(call(nobody, operation), 401, "key")
    with running.client("") as other:
        other.headers["Authorization"] = f"Basic {running.key}"
        answer = call(other, operation)
        problem(answer, 401, "key")
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("operation", GUARDED, ids=_named)
def test_a_key_reaches_what_its_scope_says(running: Running, keys: dict[str, str], operation: Operation) -> None:
    for scope in SCOPES:
        with running.client(keys[scope]) as holder:
            answer = call(holder, operation)
        if scope in (operation.scope, "admin"):
            assert answer.status_code not in (401, 403, 500)
        else:
            problem(answer, 403, "scope")


def test_unknown_paths_tell_nothing_to_strangers(running: Running) -> None:
    with running.client("") as nobody:
        for path in ("/v1/none", "/v1/policies/none/decisions", "/metrics/", "/v2"):
            problem(nobody.get(path), 401, "key")


def test_event_ids_belong_to_a_namespace(running: Running) -> None:
    path = running.policy()
    clients = [running.client(running.new_key("decide", "reward", namespace=name)) for name in ("one", "one", "two")]
    first, colleague, stranger = clients
    body = {"contexts": TWO, "event_id": "same"}
    assert first.post(f"{path}/decisions", json=body).status_code == 201
    assert colleague.post(f"{path}/decisions", json=body).status_code == 200
    problem(stranger.put(f"{path}/decisions/same/reward", json={"reward": 1.0}), 404, "unknown-event")
    assert stranger.post(f"{path}/decisions", json=body).status_code == 201
    assert stranger.put(f"{path}/decisions/same/reward", json={"reward": 0.0}).status_code == 201
    assert first.put(f"{path}/decisions/same/reward", json={"reward": 1.0}).status_code == 201
    for client in clients:
        client.close()


# Keys that are bound to policies


class Bound(NamedTuple):
    """Keys that reach one of two policies, of which the service has both; by scope."""

    keys: dict[str, str]
    own: str
    hidden: str


@pytest.fixture(scope="package")
def bound(running: Running) -> Bound:
    own, hidden = (running.policy().rpartition("/")[2] for _ in range(2))
    with running.client() as admin:
        for name in (own, hidden):
            body = {"contexts": TWO, "event_id": "known"}
            assert admin.post(f"/v1/policies/{name}/decisions", json=body).status_code == 201
    return Bound({scope: running.new_key(scope, policies=["bound-*", own]) for scope in SCOPES}, own, hidden)


GONE = "bound-gone-"
"""How policies are named that bound keys may delete."""
BODIES: dict[str, Any] = {
    "DecisionBody": {"contexts": TWO, "event_id": "known"},
    "BatchBody": {"requests": [{"contexts": TWO, "event_id": "known"}]},
    "RewardBody": {"reward": 1.0},
    "ModeBody": {"mode": "online"},
    "PolicyBody": STREAM,
    "KeyBody": {"name": "mine", "scopes": ["admin"]},
}


def ask(client: httpx.Client, operation: Operation, name: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of a call that is in order; the first event of a stream."""
    path = operation.path.format(name=name, event_id="known", key_name="none")
    body = None if operation.takes is None else BODIES[operation.takes.__name__]
    with client.stream(operation.method, path, json=body) as answer:
        endless = operation.path == "/v1/live" and answer.status_code == 200
        text = next(answer.iter_lines()) if endless else answer.read().decode()
        return answer.status_code, {key: value for key, value in answer.headers.items() if key != "date"}, text


@pytest.mark.parametrize("operation", GUARDED, ids=_named)
def test_a_bound_key_never_learns_of_other_policies(running: Running, bound: Bound, operation: Operation) -> None:
    """Of every route: a policy that there is and one that there is not are answered alike, and lists have its own."""
    deletes = (operation.method, operation.path) == ("DELETE", "/v1/policies/{name}")
    for scope in SCOPES:
        name = f"{GONE}{SCOPES.index(scope)}" if deletes else bound.own
        if deletes:
            with running.client() as admin:
                assert admin.put(f"/v1/policies/{name}", json=STREAM).status_code in (200, 201)
        with running.client(bound.keys[scope]) as holder:
            found, missing = (ask(holder, operation, other) for other in (bound.hidden, "no-such"))
            status, _, own = ask(holder, operation, name)
        if scope not in (operation.scope, "admin"):
            assert found[0] == missing[0] == status == 403
        elif "{name}" in operation.path:
            assert found == missing
            assert (found[0], json.loads(found[2])["type"]) == (404, "urn:tacit:problem:unknown-policy")
            assert status in (200, 201, 404)
            assert "unknown-policy" not in own
        elif operation.whole:
            assert (status, json.loads(own)["type"]) == (403, "urn:tacit:problem:bound")
        else:
            assert status == 200
            assert bound.own in own
        assert bound.hidden not in found[2]
        assert bound.hidden not in own


def test_a_policy_that_is_hidden_is_as_one_that_there_is_not(running: Running, bound: Bound) -> None:
    """To the byte what a key that reaches all is answered for a name that no policy has."""
    every = running.new_key("admin")
    for operation in GUARDED:
        if "{name}" in operation.path and operation.method + operation.path != "PUT/v1/policies/{name}":
            with running.client(bound.keys["admin"]) as holder, running.client(every) as other:
                assert ask(holder, operation, bound.hidden) == ask(other, operation, "no-such")


@pytest.mark.parametrize("path", ["{}", "{}/privacy", "{}%2Fprivacy", "{}/decisions", "{}/decisions:batch"])
def test_a_name_in_disguise_is_hidden_too(running: Running, bound: Bound, path: str) -> None:
    disguised = "".join(f"%{ord(letter):02x}" for letter in bound.hidden)
    method = "POST" if "decisions" in path else "GET"
    body = BODIES["BatchBody" if "batch" in path else "DecisionBody"] if method == "POST" else None
    with running.client(bound.keys["admin"]) as holder, running.client() as admin:
        assert admin.request(method, f"/v1/policies/{path.format(disguised)}", json=body).status_code == 200
        problem(holder.request(method, f"/v1/policies/{path.format(disguised)}", json=body), 404, "unknown-policy")


def test_only_keys_and_totals_are_beyond_a_bound_key() -> None:
    whole = {(operation.method, operation.path) for operation in OPERATIONS if operation.whole}
    keys = {("GET", "/v1/keys"), ("POST", "/v1/keys"), ("DELETE", "/v1/keys/{key_name}")}
    assert whole == keys | {("GET", "/v1/privacy"), ("GET", "/v1/backup")}


def test_a_bound_admin_makes_policies_under_its_names_alone(running: Running, bound: Bound) -> None:
    with running.client(bound.keys["admin"]) as holder:
        assert holder.put("/v1/policies/bound-one", json=STREAM).status_code == 201
        assert holder.put("/v1/policies/bound-one", json=STREAM | {"mode": "off"}).json()["mode"] == "off"
        problem(holder.put(f"/v1/policies/{bound.hidden}", json=STREAM | {"mode": "off"}), 404, "unknown-policy")
        problem(holder.put("/v1/policies/another", json=STREAM), 404, "unknown-policy")
        names = [policy["name"] for policy in holder.get("/v1/policies").json()["policies"]]
        assert [name for name in names if not name.startswith(GONE)] == sorted(["bound-one", bound.own])
        with holder.stream("GET", "/v1/live") as stream:
            event = json.loads(next(stream.iter_lines()).removeprefix("data: "))
        assert [policy["name"] for policy in event["policies"]] == names
        numbers = {line.split("{")[0].split()[0] for line in holder.get("/metrics").text.splitlines() if line[0] != "#"}
        seen = ("tacit_decisions_total", "tacit_releases_total", "tacit_spent_mu", "tacit_waiting_decisions")
        assert numbers == set(seen)  # what is counted of all policies together is not theirs
    with running.client() as admin:
        problem(admin.get("/v1/policies/another"), 404, "unknown-policy")
        assert admin.get(f"/v1/policies/{bound.hidden}").json()["mode"] == "online"


def test_patterns_are_checked_and_listed(admin: httpx.Client) -> None:
    body = {"name": "patterns", "scopes": ["read"], "policies": ["a", "news-*", "a", "[!x]?"]}
    made = admin.post("/v1/keys", json=body).json()
    listed = {key["name"]: key["policies"] for key in admin.get("/v1/keys").json()["keys"]}
    assert made["policies"] == listed["patterns"] == ["a", "news-*", "[!x]?"]
    assert listed["admin"] is None
    assert admin.delete("/v1/keys/patterns").status_code == 204
    for wrong in ([], [""], ["a/b"], ["a" * 65], ["a\n"], "a", [1], ["a"] * 101):
        problem(admin.post("/v1/keys", json=body | {"policies": wrong}), 422, "invalid")


def test_bound_keys_and_those_of_earlier_stores_are_read(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "data")
    old: dict[str, Any] = {"name": "old", "scopes": ["read"], "namespace": "default", "created": "2026-01-01"}
    store.change_settings({"key." + "ab" * 32: json.dumps(old).encode()})
    text, made = Keyring(store).add("new", ["read"], policies=["b-*", "a"])
    again = Keyring(store)
    assert again.all() == [made, Key("old", ("read",), "default", old["created"])]
    assert again.holder(b"Bearer " + text.encode()) == made
    assert [name for name in ("a", "b-", "b-c", "b", "A", "a-", "b-" + "c" * 63) if made.reaches(name)] == [
        "a",
        "b-",
        "b-c",
    ]
    assert again.all()[1].reaches("b")
    for wrong in ([], ["a b"], ["a"] * 101):
        with pytest.raises(InvalidInput, match="policies must be"):
            again.add("x", ["read"], policies=wrong)
    with pytest.raises(KeyTaken):
        again.add("old", ["read"])
    assert again.revoke("new")
    assert again.revoke("old")
    assert store.settings("key") == {}
    store.close()


def test_of_two_who_make_a_key_of_one_name_one_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has looked before the other one began, as two processes on a database may; both have one folder."""
    store = SQLiteStore(tmp_path / "data")
    quick, slow = Keyring(store), Keyring(store)
    put, made = store.change_settings, list[Path | None]()

    def interrupted(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(store, "change_settings", put)
        made.append(first_key(quick, tmp_path / "data"))
        put(*given, **named)

    monkeypatch.setattr(store, "change_settings", interrupted)
    assert first_key(slow, tmp_path / "data") is None
    assert made == [tmp_path / "data" / "admin.key"]
    assert [file.name for file in (tmp_path / "data").glob("admin*")] == ["admin.key"]
    text = (tmp_path / "data" / "admin.key").read_text().strip()
    for ring in (quick, slow):
        assert [key.name for key in ring.all()] == ["admin"]
        assert ring.holder(b"Bearer " + text.encode()) is not None
    with pytest.raises(KeyTaken, match="revoke it first"):
        slow.add("admin", ["read"])
    store.close()


def test_keys_are_made_listed_and_revoked(running: Running, admin: httpx.Client) -> None:
    made = admin.post("/v1/keys", json={"name": "shop", "scopes": ["reward", "decide"], "namespace": "shops"})
    assert made.status_code == 201
    key = made.json()["key"]
    assert key.startswith("tacit_")
    assert len(key) >= 6 + 43
    problem(admin.post("/v1/keys", json={"name": "shop", "scopes": ["read"]}), 409, "key-exists")
    listed = admin.get("/v1/keys")
    assert key not in listed.text
    (own,) = [each for each in listed.json()["keys"] if each["name"] == "shop"]
    assert (own["scopes"], own["namespace"]) == (["decide", "reward"], "shops")
    with running.client(key) as holder:
        problem(holder.get("/v1/policies"), 403, "scope")
        assert admin.delete("/v1/keys/shop").status_code == 204
        problem(holder.get("/v1/policies"), 401, "key")
    problem(admin.delete("/v1/keys/shop"), 404, "unknown-key")
    for wrong in ({"name": "x"}, {"name": "x", "scopes": []}, {"name": "x", "scopes": ["all"]}, {"name": "/"}):
        problem(admin.post("/v1/keys", json=wrong), 422, "invalid")


def test_the_store_knows_hashes_of_keys_alone(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "data")
    keyring = Keyring(store)
    path = first_key(keyring, tmp_path / "data")
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text().strip()
    assert first_key(keyring, tmp_path / "data") is None
    ((name, value),) = store.settings("key").items()
    assert name == "key-named.admin"
    assert json.loads(value)["digest"] == hashlib.sha256(text.encode()).hexdigest()
    again = Keyring(store)
    for ring in (keyring, again):
        found = ring.holder(b"bEaReR " + text.encode())
        assert found is not None
        assert found.may("decide")
        assert ring.holder(text.encode()) is None
        assert ring.holder(None) is None
    with pytest.raises(InvalidInput):
        keyring.add("x", ["everything"])
    store.close()
    files = b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir() if file.name != "admin.key")
    assert text.encode() not in files
