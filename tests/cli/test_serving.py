"""`tacit serve`, `keys`, `backup` and `restore` on the command line."""

from __future__ import annotations

import builtins
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_commands import tacit
from tests.service.http.running import Running
from tests.service.parts import quick_store

from tacit.service.deployment import Deployment


def test_what_serve_cannot_do_it_says(tmp_path: Path) -> None:
    refused = tacit("serve", "--port", "0", "--database", "postgresql://me:secret@127.0.0.1:1/x", code=2)
    assert "the database x on 127.0.0.1:1 cannot be reached" in " ".join(refused.output.split())
    assert "secret" not in refused.output
    file = tmp_path / "options.toml"
    file.write_text("prot = 3\n")
    assert "unknown: prot" in tacit("serve", "--config", str(file), code=2).output
    assert tacit("serve", "--config", str(tmp_path / "none.toml"), code=2)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "tacit.service.http.server":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return usual(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install 'tacit-bandits[serve]' (uvicorn is missing)" in tacit("serve", code=2).output


def listed(*where: str) -> dict[str, float | None]:
    """The rates of all keys, by name."""
    shown = tacit("keys", "list", *where, "--json", "-").stdout
    return {row["name"]: row["rate"] for row in json.loads(shown[shown.index("[\n") :])}


def exercise(*where: str) -> str:
    """Add, list and revoke; a key that stays."""
    key: str = tacit("keys", "add", "shop", "--scopes", "read,decide", *where).stdout.split()[0]
    assert "revoke it first" in tacit("keys", "add", "shop", *where, code=2).output
    bound = tacit("keys", "add", "short", "--namespace", "other", "--rate", "0.5", "--policies", "a, news-*", *where)
    assert bound.stdout.startswith("tacit_")
    assert listed(*where) == {"admin": None, "shop": None, "short": 0.5}
    shown = tacit("keys", "list", *where).stdout
    assert "0.5/s" in shown
    assert "a, news-*" in shown
    assert "policies must be" in tacit("keys", "add", "x", "--policies", "a/b", *where, code=2).output
    assert "policies must be" in tacit("keys", "add", "x", "--policies", ",", *where, code=2).output
    assert "rate must be" in tacit("keys", "add", "x", "--rate", "-1", *where, code=2).output
    tacit("keys", "revoke", "short", *where)
    assert "no key" in tacit("keys", "revoke", "short", *where, code=2).output
    assert "everything" in tacit("keys", "add", "x", "--scopes", "everything", *where, code=2).output
    return key


def test_keys_of_a_service_that_runs_and_of_one_that_does_not(tmp_path: Path) -> None:
    running = Running(tmp_path / "data")
    key = exercise("--data", str(tmp_path / "data"))
    with running.client(key) as client:
        assert client.get("/v1/policies").status_code == 200
    tacit("keys", "revoke", "shop", "--data", str(tmp_path / "data"))
    assert running.stop() == 0
    key = exercise("--data", str(tmp_path / "data"))
    again = Running(tmp_path / "data")
    with again.client(key) as client:
        assert client.get("/v1/policies").status_code == 200
    assert again.stop() == 0
    assert "no store" in tacit("keys", "list", "--data", str(tmp_path / "none"), code=2).output


def decided(running: Running) -> str:
    """The path of a policy that has made some decisions."""
    path = running.policy()
    with running.client() as client:
        for _ in range(20):
            client.post(f"{path}/decisions", json={"contexts": [[1.0, 0.0], [0.0, 1.0]]})
    return path


def test_a_backup_is_served_like_the_original(tmp_path: Path) -> None:
    running = Running(tmp_path / "data")
    path = decided(running)
    with running.client() as client:
        before = client.get(path).json()
    assert running.stop() == 0
    file, other = tmp_path / "file", tmp_path / "other"
    assert "1 policies" in tacit("backup", str(tmp_path / "data"), str(file)).output
    tacit("backup", str(tmp_path / "data"), str(file), code=2)
    tacit("restore", str(file), str(other))
    tacit("restore", str(file), str(other), code=2)
    tacit("restore", str(tmp_path / "none"), str(other), code=2)
    restored = Running(other)
    with restored.client() as client:
        after = client.get(path).json()
        assert client.post(f"{path}/decisions", json={"contexts": [[1.0, 0.0]]}).status_code == 201
    assert restored.stop() == 0
    assert after["config"] == before["config"]
    assert after["estimate"] == before["estimate"]


def test_a_backup_of_a_service_that_runs_brings_its_keys_along(tmp_path: Path) -> None:
    data, file, other = tmp_path / "data", tmp_path / "file", tmp_path / "other"
    running = Running(data)
    path = decided(running)
    with running.client() as client:
        before = client.get(f"{path}/history").json()
    assert "1 policies and the keys of callers" in tacit("backup", str(data), str(file), "--keys").output
    assert file.stat().st_mode & 0o077 == 0
    tacit("backup", str(data), str(file), code=2)
    (data / "admin.key").rename(tmp_path / "admin.key")
    assert "admin.key is missing" in " ".join(
        tacit("backup", str(data), str(tmp_path / "second"), code=2).output.split()
    )
    assert "Keys of callers came back" in tacit("restore", str(file), str(other)).output
    (tmp_path / "admin.key").rename(other / "admin.key")
    restored = Running(other)
    with restored.client() as client:
        assert client.get(f"{path}/history").json() == before
    assert (running.stop(), restored.stop()) == (0, 0)


def test_a_copy_is_adopted_on_purpose(tmp_path: Path) -> None:
    running = Running(tmp_path / "data")
    path = decided(running)
    with running.client() as client:
        before = client.get(path).json()
    assert running.stop() == 0
    (tmp_path / "copy").mkdir(mode=0o700)
    for part in (tmp_path / "data").iterdir():
        shutil.copy(part, tmp_path / "copy" / part.name)
    assert "is the original already" in " ".join(tacit("adopt", str(tmp_path / "data"), code=2).output.split())
    assert "tacit adopt" in " ".join(tacit("keys", "list", "--data", str(tmp_path / "copy"), code=2).output.split())
    assert "the original now" in tacit("adopt", str(tmp_path / "copy")).output
    adopted = Running(tmp_path / "copy")
    with adopted.client() as client:
        after = client.get(path).json()
        assert client.post(f"{path}/decisions", json={"contexts": [[1.0, 0.0]]}).status_code == 201
    assert adopted.stop() == 0
    assert (after["decisions"], after["estimate"]) == (before["decisions"], before["estimate"])


def test_a_restore_that_lets_users_count_again_is_accepted_or_declared(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "file"
    store = quick_store(data)
    body = {"policy": "stream-glm", "dim": 2, "epsilon": 1.0, "delta": 1e-6, "user_level": True, "rounds_per_user": 3}
    deployment = Deployment(store)
    deployment.put("people", body)
    deployment.close()
    tacit("backup", str(data), str(file))
    said = " ".join(tacit("restore", str(file), str(tmp_path / "new"), code=2).output.split())
    assert "people, epsilon = 1.45 at delta = 1e-06 over 2 lives in place of 1" in said
    assert "--accept-user-cost" in said
    assert "--nothing-released-since" in said
    both = ("--accept-user-cost", "--nothing-released-since")
    assert "exclude each other" in " ".join(
        tacit("restore", str(file), str(tmp_path / "new"), *both, code=2).output.split()
    )
    said = " ".join(tacit("restore", str(file), str(tmp_path / "new"), "--accept-user-cost").output.split())
    assert "people: a person may lose epsilon = 1.45 at delta = 1e-06 over 2 lives" in said
    said = " ".join(tacit("restore", str(file), str(tmp_path / "moved"), "--nothing-released-since").output.split())
    assert "people: a person may lose epsilon = 1 at delta = 1e-06 over one life" in said
    tacit("backup", str(tmp_path / "new"), str(tmp_path / "second"))
    said = " ".join(tacit("restore", str(tmp_path / "second"), str(tmp_path / "third"), code=2).output.split())
    assert "epsilon = 1.81 at delta = 1e-06 over 3 lives" in said
