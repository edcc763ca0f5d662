"""More connections than places: who has shown a key stays, and newcomers are answered whatever the others do."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tacit.service.http.connections import BoundedProtocol, Places
from tacit.service.http.options import Options
from tacit.service.http.problems import Problem
from tacit.service.http.server import Server
from tests.service.http.running import END, PATIENCE, STREAM, TWO, Running, problem
from tests.service.http.test_bounds import body, raw_request, statuses
from tests.service.http.test_routes import decide

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


class Caller:
    """One connection, which sends what it is told to."""

    def __init__(self, port: int, data: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.sendall(data)

    def ask(self, data: bytes) -> bytes:
        """The answer to the rest of a request."""
        self.socket.sendall(data)
        answer = b""
        while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < _length(answer):
            piece = self.socket.recv(65536)
            assert piece, answer
            answer += piece
        return answer

    def is_closed(self) -> bool:
        """Wait for the end of the connection, which must come without a word."""
        try:
            return self.socket.recv(65536) == b""
        except ConnectionResetError:
            return True

    def is_open(self) -> bool:
        """Whether nothing has come, not even the end."""
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1) is None
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        finally:
            self.socket.settimeout(PATIENCE)


Connect = Callable[..., Caller]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes callers, whose connections end with the test."""
    with ExitStack() as ends:

        def caller(port: int, data: bytes = b"") -> Caller:
            made = Caller(port, data)
            ends.enter_context(made.socket)
            return made

        yield caller


def _length(answer: bytes) -> int:
    found = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
    assert found is not None
    return int(found[1])


def test_the_silent_leave_first_then_the_slow_and_never_who_has_a_key(tmp_path: Path, connect: Connect) -> None:
    """Eight places, of which seven are for connections with a key."""
    with Running(tmp_path / "data", most_connections=8, head_seconds=1e6, idle_seconds=1e6) as running:
        path = running.policy()

        def keyed(event: str) -> Caller:
            caller = connect(running.port)
            assert statuses(caller.ask(raw_request(running, path, body(event)))) == [201]
            return caller

        known = [keyed("first")]
        slow = [connect(running.port), connect(running.port)]
        for caller in slow:
            assert statuses(caller.ask(HEALTH + b"\r\n")) == [200]
            caller.socket.sendall(HEALTH)
        assert statuses(known[0].ask(raw_request(running, path, body("first")))) == [200]  # after what came before it
        silent = [connect(running.port) for _ in range(5)]
        for place, leaving in enumerate((*silent, slow[0])):
            assert leaving.is_open()
            known.append(keyed(f"{place}"))
            assert leaving.is_closed()
        assert slow[1].is_open()
        with running.client() as newcomer:  # in the place of the last slow one: the others are taken
            refused = decide(newcomer, path)
            problem(refused, 503, "too-many-connections")
            assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
        assert slow[1].is_closed()
        for path_of in ("/healthz", "/readyz"):
            with running.client("") as nobody:
                assert nobody.get(path_of).status_code == 200
        for caller in known:
            assert statuses(caller.ask(raw_request(running, path, body("first")))) == [200]


def test_nobody_is_crowded_out_by_many_who_are_silent_or_slow(tmp_path: Path, connect: Connect) -> None:
    """In small what `python -m benchmarks.crowd` measures."""
    with Running(tmp_path / "data", most_connections=16, head_seconds=1e6, idle_seconds=1e6) as running:
        path = running.policy()
        with running.client(transport=httpx.HTTPTransport(retries=0)) as lasting:
            assert decide(lasting, path).status_code == 201
            crowd: list[Caller] = []
            for number in range(60):
                crowd.append(connect(running.port, HEALTH[: number % 2 * 20]))
                if number % 5 == 0:
                    assert decide(lasting, path).status_code == 201
                    with running.client() as fresh:
                        assert decide(fresh, path).status_code == 201
                    with running.client("") as nobody:
                        assert [nobody.get(each).status_code for each in ("/healthz", "/readyz")] == [200, 200]
            assert decide(lasting, path).status_code == 201
            with running.client("") as nobody:  # accepted after all others
                assert nobody.get("/healthz").status_code == 200
            assert sum(caller.is_open() for caller in crowd) < 16
            assert statuses(crowd[-1].ask(HEALTH[20:] + b"\r\n")) == [200]  # the last one has its place


def test_a_newcomer_is_refused_in_words_where_no_place_can_be_made(tmp_path: Path, connect: Connect) -> None:
    with Running(tmp_path / "data", most_connections=1) as running:
        holder, listing = (
            connect(running.port),
            f"GET /v1/policies HTTP/1.1\r\nAuthorization: Bearer {running.key}\r\n\r\n",
        )
        assert statuses(holder.ask(listing.encode())) == [200]
        head, _, words = running.raw(b"").partition(b"\r\n\r\n")
        line, *headers = head.split(b"\r\n")
        assert line == b"HTTP/1.1 503 Service Unavailable"
        assert {b"retry-after: 1", b"connection: close", b"content-type: application/problem+json"} <= {*headers}
        assert json.loads(words)["type"] == "urn:tacit:problem:too-many-connections"
        assert statuses(holder.ask(listing.encode())) == [200]


def test_what_is_no_http_is_refused_with_a_problem(running: Running) -> None:
    head, _, words = running.raw(b"nonsense\r\n\r\n").partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert json.loads(words)["type"] == "urn:tacit:problem:not-http"


@pytest.mark.parametrize("first", [HEALTH + b"\r\n", b"POST /v1/keys HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"])
def test_a_few_bytes_now_and_then_do_not_keep_a_connection_open(tmp_path: Path, connect: Connect, first: bytes) -> None:
    """Empty lines between two requests, and the body of a request that has been answered."""
    with Running(tmp_path / "data", body_seconds=1.0, idle_seconds=1.0) as running:
        caller = connect(running.port)
        assert statuses(caller.ask(first)) in ([200], [401])
        caller.socket.settimeout(0.05)
        for _ in range(round(PATIENCE / 0.05)):
            try:
                caller.socket.sendall(b"\r\n")
                if not caller.socket.recv(1):
                    return
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                return
        pytest.fail("the connection stayed open")


FEW_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 256))
from tacit.service.http.options import Options
from tacit.service.http.server import serve
serve(Options(data=sys.argv[1], port=0, head_seconds=1e6))
"""


def test_files_are_left_for_the_store(tmp_path: Path, connect: Connect) -> None:
    """Of 256 files a quarter are connections, though 300 are wanted and a thousand are allowed."""
    command = [sys.executable, "-c", FEW_FILES, str(tmp_path / "data")]
    with (tmp_path / "log").open("w") as words:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, text=True, env=dict(os.environ))
    assert process.stdout is not None
    address = process.stdout.readline().removeprefix("listening on ").strip()
    port = int(address.rpartition(":")[2])
    key = (tmp_path / "data" / "admin.key").read_text().strip()
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE) as client:
        assert client.put("/v1/policies/p", json=STREAM).status_code == 201
        crowd = [connect(port) for _ in range(300)]
        assert client.post("/v1/policies/p/decisions", json={"contexts": TWO}).status_code == 201
        assert httpx.get(f"{address}/healthz", timeout=PATIENCE).status_code == 200  # accepted after all others
        assert sum(caller.is_open() for caller in crowd) <= 64
    process.terminate()
    assert process.wait(END) == 0
    process.stdout.close()
    said = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["connections"] for line in said if "connections" in line] == [64]


class Waiting:
    """What `Places` looks at, of a connection that was not made."""

    def __init__(self, since: float, *, awaited: str = "idle_seconds", coming: str = "", paused: bool = False) -> None:
        self.since, self.coming, self.flow = since, coming, SimpleNamespace(write_paused=paused)
        self.answer, self.closed, self.told = awaited, False, list[Problem]()
        self.transport = SimpleNamespace(abort=lambda: setattr(self, "closed", True))

    def awaited(self) -> str:
        return self.answer

    def refuse(self, problem: Problem) -> None:
        self.told.append(problem)


def full(*connections: Waiting) -> Any:
    """Places all of which are taken."""
    places: Any = Places(Options(), len(connections))
    for connection in connections:
        places.take(connection)
    return places


def test_who_has_no_key_any_more_and_who_does_not_read_gives_way() -> None:
    asking, revoked, deaf = Waiting(1.0, awaited=""), Waiting(2.0), Waiting(3.0, awaited="", paused=True)
    places = full(asking, revoked, deaf)
    places.show_key(revoked, True)
    places.take(Waiting(4.0, awaited=""))
    assert [each.closed for each in (asking, revoked, deaf)] == [False, False, True]
    last = Waiting(5.0)
    places.take(last)
    assert [problem.status for problem in last.told] == [503]
    places.show_key(revoked, False)
    places.take(Waiting(6.0))
    assert revoked.closed


def test_a_newcomer_among_the_slow_is_not_closed_for_the_next_one() -> None:
    slow = [Waiting(float(place), coming="head_seconds") for place in range(16)]
    places = full(*slow)
    newcomers = [Waiting(20.0 + place) for place in range(12)]
    for newcomer in newcomers:
        places.take(newcomer)
    assert [each.closed for each in slow] == [True] * 12 + [False] * 4
    assert not any(each.closed for each in newcomers)


def test_who_has_asked_meanwhile_is_passed_over() -> None:
    connections = [Waiting(float(place)) for place in range(16)]
    places = full(*connections)
    places.take(Waiting(20.0))
    connections[1].since = 21.0
    places.take(Waiting(22.0))
    assert [place for place, each in enumerate(connections) if each.closed] == [0, 2]


def test_uvicorn_has_what_is_used_of_it_and_nothing_private_is() -> None:
    for ours, theirs in ((BoundedProtocol, HttpToolsProtocol), (Server, uvicorn.Server)):
        names = {name for name in vars(ours) if not name.startswith("__")}
        assert not {name for name in names if name.startswith("_")} & {*dir(theirs)}
    called = {"connection_made", "connection_lost", "data_received", "on_message_begin", "on_headers_complete"}
    called |= {"on_message_complete", "on_response_complete", "send_400_response"}
    assert called <= {*vars(BoundedProtocol)} & {*vars(HttpToolsProtocol)}
    assert {"startup", "on_tick", "shutdown", "handle_exit"} <= {*vars(Server)} & {*vars(uvicorn.Server)}
    cycle = {"flow", "response_started", "response_complete", "disconnected", "waiting_for_100_continue", "transport"}
    cycle |= {"default_headers", "keep_alive", "message_event", "on_response"}
    assert cycle <= {*RequestResponseCycle.__init__.__code__.co_names}
    protocol = {"cycle", "flow", "headers", "loop", "scope", "transport", "server_state"}
    assert protocol <= {*HttpToolsProtocol.__init__.__code__.co_names}
    assert {"headers", "scope", "url"} <= {*HttpToolsProtocol.on_message_begin.__code__.co_names}


@pytest.mark.slow
def test_the_measurement_of_a_crowd_runs() -> None:
    command = [sys.executable, *shlex.split("-m benchmarks.crowd --clients 20 --seconds 0.5 --repeats 1 --json -")]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    quiet, crowded = json.loads(done.stdout)
    assert (quiet["clients"], crowded["clients"]) == (0, 20)
    assert min(row[name] for row in (quiet, crowded) for name in row if name != "clients") > 0
