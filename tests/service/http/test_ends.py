"""How a service ends: asked to, or by a store that fails; nothing that was answered is lost.  Kills: test_kills.py."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from tacit.errors import StoreFailed, StoreInUse
from tacit.service.host import StoppableClock
from tacit.service.http.logs import JsonLog
from tacit.service.http.options import Options
from tacit.service.http.server import Server, listen, serve
from tacit.service.http.writer import EXIT_CODE, end_process
from tacit.service.sqlite_store import SQLiteStore
from tests.service.http.processes import wait_until
from tests.service.http.running import END, PATIENCE, STREAM, TWO, Running, problem
from tests.service.http.test_routes import decide, reward


class Caller(threading.Thread):
    """Decides and rewards until it is not answered any more, and remembers what it was answered."""

    def __init__(self, running: Running, path: str, name: str) -> None:
        super().__init__()
        self.running, self.path, self.prefix = running, path, name
        self.decided: dict[str, int] = {}
        self.rewarded: list[str] = []
        self.refused: list[int] = []

    def run(self) -> None:
        with self.running.client() as client:
            for number in range(100_000):
                event = f"{self.prefix}-{number}"
                try:
                    answer = decide(client, self.path, event_id=event)
                    if answer.status_code == 201:
                        self.decided[event] = answer.json()["arm"]
                    told = reward(client, self.path, event, reward=1.0)
                except httpx.TransportError:
                    return
                if told.status_code == 201:
                    self.rewarded.append(event)
                self.refused += [each.status_code for each in (answer, told) if each.status_code != 201]


def under_load(running: Running, path: str, decisions: int) -> list[Caller]:
    """Callers that are at work, and have been answered so often."""
    callers = [Caller(running, path, f"caller{i}") for i in range(4)]
    for caller in callers:
        caller.start()
    wait_until(lambda: sum(len(caller.decided) for caller in callers) >= decisions)
    return callers


def check(again: Running, path: str, callers: list[Caller]) -> None:
    """Everything that was answered before is answered so again."""
    with again.client() as client:
        assert sum(len(caller.decided) for caller in callers) > 10
        for caller in callers:
            for event, arm in caller.decided.items():
                found = decide(client, path, event_id=event)
                assert (found.status_code, found.json()["arm"]) == (200, arm)
            for event in caller.rewarded:
                assert reward(client, path, event, reward=1.0).status_code == 200
        known = sum(len(caller.decided) for caller in callers)
        assert known <= client.get(path).json()["decisions"] <= known + len(callers)


def test_sigterm_under_load_loses_nothing(tmp_path: Path) -> None:
    running = Running(tmp_path / "data")
    path = running.policy()
    callers = under_load(running, path, 60)
    assert running.stop() == 0
    for caller in callers:
        caller.join()
        assert set(caller.refused) <= {503, 404}  # it was stopping; a decision that was refused has no reward
    assert not (tmp_path / "data" / "address").exists()
    assert running.line.count("\n") == 1
    again = Running(tmp_path / "data")
    assert again.key == running.key
    check(again, path, callers)
    assert again.stop() == 0


def test_open_streams_do_not_keep_a_service_from_ending(tmp_path: Path) -> None:
    running = Running(tmp_path / "data")
    running.policy()
    with running.client() as client, client.stream("GET", "/v1/live") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data:")
        assert running.stop() == 0
        for _ in lines:
            pass


def test_a_second_service_on_the_same_store_is_refused(tmp_path: Path) -> None:
    running = Running(tmp_path / "data")
    with pytest.raises(AssertionError, match="one owner"):
        Running(tmp_path / "data")
    assert running.stop() == 0


def test_a_store_that_fails_ends_the_process_without_a_word_of_data() -> None:
    stream, codes = io.StringIO(), list[int]()
    try:
        raise ValueError("secret 0.125")
    except ValueError as error:
        end_process(JsonLog(stream), error, codes.append)
    end_process(JsonLog(stream), StoreFailed("disk full"), codes.append)
    assert codes == [EXIT_CODE] * 2
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert "secret" not in json.dumps(first)
    assert first["error"] == "ValueError"
    assert first["places"][-1].startswith("test_ends.py:")
    assert second["words"] == "disk full"


def test_nothing_that_was_sent_is_in_the_log(tmp_path: Path) -> None:
    """Numbers with more digits than any time of the log has."""
    running = Running(tmp_path / "data")
    path = running.policy(reward_wait=0.3, event_memory=60)
    planted = "0.12345678"
    with running.client() as client:
        contexts = [[float(planted), 0.0], [0.0, 0.5]]
        decide(client, path, contexts=contexts, event_id="planted-id", user_id="planted-user")
        decide(client, path, contexts=[[99.25345678, 0.0]], event_id="planted-id")
        client.post(f"{path}/decisions", content=b'{"contexts": 0.12345678 planted')
        reward(client, path, "planted-id", reward=0.62545678)
        reward(client, path, "planted-id", reward=0.37545678)
        reward(client, path, "planted-unknown", reward=2.62545678)
        client.get(f"{path}/decisions/planted-id?planted=query")
        client.get("/planted/path?planted=query", headers={"Authorization": "Bearer planted-key"})
        client.put("/v1/policies/planted-name", json={"policy": "planted"})
        client.post(f"{path}/decisions:batch", json={"requests": [{"contexts": [[77.52345678]]}, {"contexts": TWO}]})
    time.sleep(0.5)
    assert running.stop() == 0
    text = running.log.read_text()
    for word in (
        planted,
        "planted",
        "99.25345678",
        "0.62545678",
        "0.37545678",
        "2.62545678",
        "77.52345678",
        running.key,
    ):
        assert word not in text
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert {"method", "route", "status", "microseconds", "time", "event"} == set(requests[0])
    assert "/v1/policies/{name}/decisions" in {line["route"] for line in requests}
    assert not any("reward" in line["route"] for line in requests)


FAILING = """
import sys
from tacit.errors import StoreFailed
from tacit.service.http.options import Options
from tacit.service.http.server import serve
from tacit.service.sqlite_store import SQLiteStore

append, calls = SQLiteStore.append, []

def failing(store, lease, seq, group):
    calls.append(append(store, lease, seq, group) if len(calls) < 3 else None)
    if len(calls) == 4:
        raise StoreFailed("the disk is full")
    return calls[-1]

SQLiteStore.append = failing
serve(Options(data=sys.argv[1], port=0))
"""


FAILING_ONCE = """
import sys
from tacit.service import deployment
from tacit.service.http.options import Options
from tacit.service.http.server import serve

usual, failed = deployment.Host, []

def once(*given):
    if not failed:
        failed.append(True)
        raise RuntimeError("cannot join thread before it is started")
    return usual(*given)

deployment.Host = once
serve(Options(data=sys.argv[1], port=0))
"""


def test_a_policy_whose_making_failed_is_made_by_the_next_request(tmp_path: Path) -> None:
    """The first answer is 500, since nobody foresaw it; the process goes on, and the same request makes the policy."""
    command = [sys.executable, "-c", FAILING_ONCE, str(tmp_path / "data")]
    environment = dict(os.environ)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("listening on ").strip()
        key = (tmp_path / "data" / "admin.key").read_text().strip()
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE) as client:
            path, asked = "/v1/policies/p", STREAM | {"mode": "off"}
            problem(client.put(path, json=asked), 500, "internal")
            problem(client.get(path), 404, "unknown-policy")
            assert client.put(path, json=asked).status_code == 200
            problem(decide(client, path), 409, "switched-off")
            assert client.put(path, json=STREAM | {"mode": "online"}).status_code == 200
            assert decide(client, path).status_code == 201
            assert client.get(path).json()["decisions"] == 1
        process.terminate()
        assert process.wait(END) == 0


def test_when_the_store_fails_nobody_is_answered_and_the_process_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FAILING, str(tmp_path / "data")]
    with (tmp_path / "log").open("w") as words:
        environment = dict(os.environ)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, text=True, env=environment)
    assert process.stdout is not None
    address = process.stdout.readline().removeprefix("listening on ").strip()
    key = (tmp_path / "data" / "admin.key").read_text().strip()
    answered = {}
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE) as client:
        assert client.put("/v1/policies/p", json=STREAM).status_code == 201
        with suppress(httpx.TransportError):
            for number in range(10):
                answered[number] = decide(client, "/v1/policies/p", event_id=f"e{number}").json()["arm"]
    assert process.wait(END) == EXIT_CODE
    process.stdout.close()
    assert "the disk is full" in (tmp_path / "log").read_text()
    assert 1 <= len(answered) <= 3
    again = Running(tmp_path / "data")
    with again.client() as client:
        for number in range(10):
            found = decide(client, "/v1/policies/p", event_id=f"e{number}")
            assert found.status_code == (200 if number in answered else 201)
    assert again.stop() == 0


def test_a_start_that_fails_lets_go_of_its_port(tmp_path: Path) -> None:
    with listen(Options(port=0)) as free:
        port = free.getsockname()[1]
    store = SQLiteStore(tmp_path / "data")
    with pytest.raises(StoreInUse) as refused:
        serve(Options(data=str(tmp_path / "data"), port=port))
    listen(Options(port=port)).close()  # while the error and all that it refers to are kept
    assert "one owner" in str(refused.value)
    store.close()


def test_the_clock_stands_still_from_the_signal_on(tmp_path: Path) -> None:
    clock = StoppableClock(iter([7.0, 8.0]).__next__)
    options = Options(data=str(tmp_path))
    parts: Any = SimpleNamespace(options=options, log=JsonLog(io.StringIO()), deployment=SimpleNamespace(clock=clock))
    server = Server(cast(Any, None), parts, "http://127.0.0.1:0")
    server.handle_exit(signal.SIGTERM, None)
    assert server.should_exit
    assert (clock(), clock()) == (7.0, 7.0)
