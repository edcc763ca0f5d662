"""Several processes on one database: each takes every request, and none of them is missed when it is gone."""

from __future__ import annotations

import json
import math
import re
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.test_commands import tacit
from tests.service.http.processes import Load, processes, wait_until
from tests.service.http.running import STREAM, TWO, Running, problem
from tests.service.postgres_server import Server

pytestmark = pytest.mark.slow


def test_every_process_takes_every_request(tmp_path: Path, database: str) -> None:
    with processes(tmp_path, database) as found:
        first, second = found
        paths = [first.policy(), second.policy()]
        with first.client() as here, second.client() as there:
            _check_policy(paths[0], here, there)  # the policy of one is known to the other at once
            _check_policy(paths[1], there, here)
            for address in ("/v1/policies", "/v1/privacy", "/openapi.json"):
                assert here.get(address).json() == there.get(address).json()
            for client in (here, there):
                _check_shared(client, paths)
        _check_bound(found, *sorted(paths))
        assert [process.stop() for process in found] == [0, 0]


def _check_policy(path: str, here: httpx.Client, there: httpx.Client) -> None:
    asked = {"contexts": TWO, "event_id": "a/b ü"}
    made = there.post(f"{path}/decisions", json=asked)
    assert made.status_code == 201
    assert here.post(f"{path}/decisions", json=asked).json() == made.json()
    for client, status in ((here, 201), (there, 200)):
        answer = client.put(f"{path}/decisions/a%2Fb%20%C3%BC/reward", json={"reward": 1.0})
        assert answer.status_code == status
    for part in ("", "/privacy", "/history"):
        assert there.get(path + part).json() == here.get(path + part).json()
    assert there.head(path).status_code == here.head(path).status_code == 200
    for client, other in ((here, there), (there, here)):
        problem(client.post(f"{path}/decisions", json={"contexts": []}), 422, "invalid")
        problem(client.get("/v1/policies/no-such"), 404, "unknown-policy")
        problem(client.post("/v1/policies/no-such/decisions", json={"contexts": TWO}), 404, "unknown-policy")
        problem(client.delete(f"{path}/mode"), 405, "method")
        problem(client.get(path, headers={"Authorization": "Bearer no"}), 401, "key")
        problem(client.put("/v1/policies/no-such/mode", json={"mode": "off"}), 404, "unknown-policy")
        assert client.put(f"{path}/mode", json={"mode": "off"}).json()["mode"] == "off"
        problem(other.post(f"{path}/decisions", json={"contexts": TWO}), 409, "switched-off")
        assert other.get(path).json()["mode"] == "off"
        assert other.put(path, json=STREAM | {"mode": "online"}).status_code == 200
        assert client.post(f"{path}/decisions", json={"contexts": TWO}).status_code == 201


def _check_shared(client: httpx.Client, paths: list[str]) -> None:
    names = sorted(path.rpartition("/")[2] for path in paths)
    total = client.get("/v1/privacy").json()
    assert sorted(total["policies"]) == names
    mus = [report["spent_mu"] for report in total["policies"].values()]
    assert total["mu"] == pytest.approx(math.hypot(*mus))
    with client.stream("GET", "/v1/live") as stream:
        assert _names(next(stream.iter_lines())) == names
    assert client.get("/").status_code == 200
    for address in ("/healthz", "/readyz"):
        assert client.get(address).json() == {"status": "ok"}


def _check_bound(found: list[Running], own: str, hidden: str) -> None:
    """A key that is bound to one policy sees no other, whichever process it asks."""
    name = own.rpartition("/")[2]
    key = found[0].new_key("read", "decide", policies=[name])
    for process in found:
        with process.client(key) as client:
            assert [each["name"] for each in client.get("/v1/policies").json()["policies"]] == [name]
            with client.stream("GET", "/v1/live") as stream:
                assert _names(next(stream.iter_lines())) == [name]
            assert client.post(f"{own}/decisions", json={"contexts": TWO}).status_code == 201
            problem(client.get(hidden), 404, "unknown-policy")
            problem(client.post(f"{hidden}/decisions", json={"contexts": TWO}), 404, "unknown-policy")
            problem(client.get("/v1/privacy"), 403, "bound")


def _names(line: str) -> list[str]:
    """The policies in a line of a live stream."""
    return [each["name"] for each in json.loads(line.removeprefix("data: "))["policies"]]


def test_what_was_shown_by_one_is_never_taken_back_by_another(tmp_path: Path, database: str) -> None:
    with processes(tmp_path, database) as found:
        first, second = found
        path = first.policy(reward_wait=1000.0)
        loads = [Load(first, second, path), Load(second, first, path)]
        seen = 0
        with first.client() as here, second.client() as there:
            while min(len(load.arms) for load in loads) < 20 and not any(load.ended() for load in loads):
                answered = sum(len(load.arms) for load in loads)
                for client in (here, there):
                    for count in (_counted, _listed, _measured):
                        now = count(client, path)
                        assert now >= max(seen, answered)
                        seen = now
        for load in loads:
            load.finish()
            load.check_kept(first)
        with second.client() as there:
            assert _counted(there, path) == sum(len(load.arms) for load in loads)


def _counted(client: httpx.Client, path: str) -> int:
    return int(client.get(path).json()["decisions"])


def _listed(client: httpx.Client, path: str) -> int:
    (only,) = client.get("/v1/policies").json()["policies"]
    return int(only["decisions"])


def _measured(client: httpx.Client, path: str) -> int:
    found = re.search(r"^tacit_decisions_total{.*} (.*)$", client.get("/metrics").text, flags=re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def _killed(process: Running) -> None:
    process.kill()


def _stopped(process: Running) -> None:
    assert process.stop() == 0


def _paused(process: Running) -> None:
    process.process.send_signal(signal.SIGSTOP)


@pytest.mark.parametrize("leave", [_killed, _stopped, _paused])
def test_a_process_that_leaves_is_not_missed(tmp_path: Path, database: str, leave: Callable[[Running], None]) -> None:
    """Callers of the other one need not even ask again, and nothing that anybody was answered is lost."""
    with processes(tmp_path, database) as found:
        stays, leaves = found
        path = stays.policy(reward_wait=1000.0)
        own, gone = Load(stays, stays, path), Load(leaves, leaves, path)
        for load in (own, gone):
            load.grow(10)
        leave(leaves)
        own.grow(10)
        if leave is _paused:
            leaves.process.send_signal(signal.SIGCONT)  # paused in its turn it has lost that, and ends; else it goes on
            had = len(gone.arms)
            wait_until(lambda: gone.ended() or len(gone.arms) > had)
            leaves.kill()
        wait_until(gone.ended)
        own.finish()
        for load in (own, gone):
            load.check_kept(stays)
        with stays.client() as client:
            answered = len(own.arms) + len(gone.arms)
            assert answered <= _counted(client, path) <= answered + 1
        assert stays.stop() == 0


def test_what_was_due_is_settled_by_whoever_is_there(tmp_path: Path, database: str) -> None:
    with processes(tmp_path, database) as found:
        stays, leaves = found
        path = leaves.policy(reward_wait=3.0)
        with leaves.client() as client:
            assert client.post(f"{path}/decisions", json={"contexts": TWO}).status_code == 201
        leaves.kill()
        waiting = f'tacit_waiting_decisions{{policy="{path.rpartition("/")[2]}"}}'
        with stays.client() as client:
            assert waiting in client.get("/metrics").text  # found, though nobody has asked for it by name
            wait_until(lambda: f"{waiting} 0.0" in client.get("/metrics").text)


def test_keys_are_the_same_everywhere(tmp_path: Path, database: str) -> None:
    with processes(tmp_path, database) as found:
        first, second = found
        path = first.policy()
        key = first.new_key("decide", "read")
        with second.client(key) as there, first.client() as admin, second.client() as other:
            assert there.post(f"{path}/decisions", json={"contexts": TWO}).status_code == 201  # at once
            listed = other.get("/v1/keys").json()
            assert listed == admin.get("/v1/keys").json()
            name = listed["keys"][-1]["name"]
            problem(other.post("/v1/keys", json={"name": name, "scopes": ["read"]}), 409, "key-exists")
            with there.stream("GET", "/v1/live") as stream:
                assert admin.delete(f"/v1/keys/{name}").status_code == 204
                wait_until(lambda: all(_refused(there, each) for each in (path, "/v1/policies")))
                assert all(not line or line.startswith("data: ") for line in stream.iter_lines())  # it ends
        with ThreadPoolExecutor(4) as threads:
            body = {"name": "same", "scopes": ["read"]}
            made = list(threads.map(lambda n: _asked(found[n % 2], "POST", "/v1/keys", body), range(4)))
        assert sorted(answer.status_code for answer in made) == [201, 409, 409, 409]
        (text,) = (answer.json()["key"] for answer in made if answer.status_code == 201)
        for process in found:
            with process.client(text) as client:
                assert client.get(path).status_code == 200


def _refused(client: httpx.Client, path: str) -> bool:
    answer = client.get(path)
    assert answer.status_code in (200, 401)
    return answer.status_code == 401


def _asked(through: Running, method: str, path: str, body: dict[str, Any], key: str | None = None) -> httpx.Response:
    with through.client(key) as client:
        return client.request(method, path, json=body)


def test_processes_that_start_together_and_make_the_same_policy_together(tmp_path: Path, database: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        started = list(threads.map(lambda name: Running(tmp_path / name, database=database), ("a", "b")))
        try:
            (first,) = (process for process in started if process.key)  # of the two one has made a key
            (other,) = (process for process in started if process is not first)
            assert "no admin key was made" in other.log.read_text()
            assert [file.name for file in other.folder.iterdir()] == ["address"]

            def put(number: int, body: dict[str, Any]) -> int:
                return _asked(started[number % 2], "PUT", "/v1/policies/same", body, first.key).status_code

            assert sorted(threads.map(lambda number: put(number, STREAM), range(8))) == [200] * 7 + [201]
            assert [put(number, STREAM | {"epsilon": 2.0}) for number in range(2)] == [409, 409]
            assert [process.stop() for process in started] == [0, 0]
        finally:
            for process in started:
                process.kill()


def test_callers_with_wrong_keys_do_not_keep_others_from_being_answered(tmp_path: Path, database: str) -> None:
    with processes(tmp_path, database, 1) as found:
        path, stop = found[0].policy(), threading.Event()

        def ask(number: int) -> set[int]:
            statuses = set()
            with found[0].client(f"wrong{number}") as client:
                while not stop.is_set():
                    statuses.add(client.get(path).status_code)
            return statuses

        with ThreadPoolExecutor(8) as threads, found[0].client() as admin:
            wrong = [threads.submit(ask, number) for number in range(8)]
            try:
                for _ in range(20):
                    assert admin.post(f"{path}/decisions", json={"contexts": TWO}).status_code == 201
            finally:
                stop.set()
            assert all(each.result() <= {401} for each in wrong)


def test_a_database_is_backed_up_while_it_is_served_and_restored_into_a_new_one(
    tmp_path: Path, postgres: Server, database: str
) -> None:
    file = str(tmp_path / "backup")
    with processes(tmp_path, database, 1) as found:
        load = Load(found[0], found[0], found[0].policy(reward_wait=1000.0))
        load.grow(5)
        before = len(load.arms)
        assert "1 policies" in tacit("backup", database, file).output
        load.grow(5)
        load.finish()
        after = len(load.arms)
    assert "has been served already" in " ".join(tacit("restore", file, database, code=2).output.split())
    with postgres.database() as other:
        assert "1 policies are in the database" in " ".join(tacit("restore", file, other).output.split())
        with Running(tmp_path / "restored", database=other) as restored, restored.client() as client:
            assert before <= _counted(client, load.path) <= after
