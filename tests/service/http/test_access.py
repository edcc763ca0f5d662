"""Keys, scopes and namespaces: no route is reachable without the right key."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from tacit.errors import InvalidInput
from tacit.service.http.keys import Keyring, first_key
from tacit.service.http.operations import OPERATIONS, Operation
from tacit.service.sqlite_store import SQLiteStore
from tests.service.http.running import TWO, Running, problem

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
    (name,) = store.settings("key.")
    assert name == "key." + hashlib.sha256(text.encode()).hexdigest()
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
