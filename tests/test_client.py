"""Clients against a service that fails in every way: nothing counts twice, and there is always an arm to show."""

from __future__ import annotations

import asyncio
import inspect
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pytest

from tacit.client import AsyncClient, Choice, Client, verbs
from tacit.client.calls import Call, Reply
from tacit.errors import InvalidInput, ServiceRefused, ServiceUnavailable
from tacit.features import Flag, Schema
from tests.service.http.running import STREAM, TWO, Running
from tests.test_interface import sections, wanted_sections

URL = "http://service.test"
DONE = Reply(201, b"{}")
GONE = Reply(0, error="gone", sent=False)
CUT = Reply(0, error="cut off")
NAMES = [name for name, found in vars(verbs.Verbs).items() if isinstance(found, verbs.Verb)]


class Fake:
    """Answers from a list, and remembers what was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, str, Any]] = []

    def __call__(self, call: Call) -> Reply:
        self.asked.append((call.method, call.path, call.body and json.loads(call.body)))
        return self.replies.pop(0)


class Waiting:
    """The verbs of `AsyncClient`, each waited for in one event loop, so that every test runs with both clients."""

    def __init__(self, url: str, key: str, **options: Any) -> None:
        self._runner, self._client = asyncio.Runner(), AsyncClient(url, key, **options)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return lambda *arguments, **named: self._runner.run(getattr(self._client, verb)(*arguments, **named))

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


@pytest.fixture(params=[Client, Waiting], ids=["Client", "AsyncClient"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(verbs, "_FIRST_PAUSE", 0.0)
    return request.param


@pytest.fixture
def connect(kind: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Makes a client of a service that is a `Fake`."""
    made = []

    def connected(fake: Fake, **options: Any) -> Any:
        async def send(client: AsyncClient, call: Call) -> Reply:
            return fake(call)

        monkeypatch.setattr(Client, "_send", lambda client, call: fake(call))
        monkeypatch.setattr(AsyncClient, "_send", send)
        made.append(kind(URL, "secret", **options))
        return made[-1]

    yield connected
    for client in made:
        client.close()


def answer(**document: Any) -> Reply:
    return Reply(200, json.dumps(document).encode())


def decided(arm: int = 2) -> Reply:
    return answer(event_id="x", arm=arm)


def problem(status: int, code: str, detail: str = "no") -> Reply:
    document = {"type": f"urn:tacit:problem:{code}", "title": "Refused", "status": status, "detail": detail}
    return Reply(status, json.dumps(document).encode())


OFF = problem(409, "switched-off")
UNTOUCHED = [(503, "too-many-wait"), (503, "too-many-connections"), (429, "too-often")]


def test_a_decision_and_its_reward(connect: Callable[..., Any]) -> None:
    fake = Fake(decided(), DONE, answer(epsilon=1.0), answer(epsilon=2.0))
    client = connect(fake)
    choice = client.decide("a b", [[1, 0]], event_id="e/1", user_id="u")
    assert choice == Choice(2, "e/1")
    client.reward("a b", choice, 1.0)
    assert client.privacy() == {"epsilon": 1.0}
    assert client.privacy("a b") == {"epsilon": 2.0}
    assert fake.asked == [
        ("POST", "/v1/policies/a%20b/decisions", {"event_id": "e/1", "contexts": [[1.0, 0.0]], "user_id": "u"}),
        ("PUT", "/v1/policies/a%20b/decisions/e%2F1/reward", {"reward": 1.0, "arm": 2}),
        ("GET", "/v1/privacy", None),
        ("GET", "/v1/policies/a%20b/privacy", None),
    ]


def test_records_arrays_and_schemas_are_sent_as_json(connect: Callable[..., Any]) -> None:
    fake = Fake(decided(0), decided(0), answer(name="p"))
    client = connect(fake)
    client.decide("p", user={"age": np.int64(41)}, arms=[{"topic": "news"}])
    client.decide("p", np.eye(2))
    schema = Schema(user=[Flag("new")], arm=[Flag("long")])
    assert client.create("p", "stream-glm", features=schema, epsilon=1.0) == {"name": "p"}
    first, second, made = (body for _, _, body in fake.asked)
    assert (first["user"], first["arms"]) == ({"age": 41}, [{"topic": "news"}])
    assert second["contexts"] == [[1.0, 0.0], [0.0, 1.0]]
    assert len({first["event_id"], second["event_id"]}) == 2
    assert len(first["event_id"]) >= 20  # made up: a call that is made again must be known
    assert made == {"policy": "stream-glm", "features": schema.to_json(), "epsilon": 1.0}


def test_reading_and_changing_policies(connect: Callable[..., Any]) -> None:
    fake = Fake(answer(name="p"), answer(mode="off"), answer(policies=[{"name": "p"}]), answer(features=[]))
    client = connect(fake)
    assert client.policy("p") == {"name": "p"}
    assert client.mode("p", "off") == {"mode": "off"}
    assert client.policies() == [{"name": "p"}]
    assert client.explain("p") == {"features": []}
    assert fake.asked == [
        ("GET", "/v1/policies/p", None),
        ("PUT", "/v1/policies/p/mode", {"mode": "off"}),
        ("GET", "/v1/policies", None),
        ("GET", "/v1/policies/p/explanation", None),
    ]


@pytest.mark.parametrize(
    "fault", [GONE, CUT, problem(503, "overloaded"), Reply(502, b"<html>"), Reply(500), Reply(200, b"<html>")]
)
def test_calls_are_made_again_with_the_same_id(connect: Callable[..., Any], fault: Reply) -> None:
    fake = Fake(fault, fault, decided(1))
    assert connect(fake).decide("p", [[1.0]]).arm == 1
    assert len({body["event_id"] for _, _, body in fake.asked}) == 1
    assert len(fake.asked) == 3


def test_refusals_are_not_tried_again(connect: Callable[..., Any]) -> None:
    fake = Fake(problem(409, "other-content", "used for another request"))
    with pytest.raises(ServiceRefused, match=r"used for another request \(409\)") as caught:
        connect(fake).decide("p", [[1.0]], default_arm=0)
    assert (caught.value.status, caught.value.code) == (409, "other-content")
    assert len(fake.asked) == 1


def test_without_a_default_arm_the_caller_is_told(connect: Callable[..., Any]) -> None:
    fake = Fake(*[GONE] * 3)
    with pytest.raises(ServiceUnavailable, match="gone") as caught:
        connect(fake, retries=2).decide("p", [[1.0]])
    assert not caught.value.lost
    assert len(fake.asked) == 3
    with pytest.raises(ServiceRefused) as refused:
        connect(Fake(OFF)).decide("p", [[1.0]])
    assert refused.value.code == "switched-off"


# Default arms


def test_a_default_arm_is_shown_and_the_decision_abandoned_later(connect: Callable[..., Any]) -> None:
    """The decision may have been made: the answer was lost.  Its reward must never be that of the default arm."""
    fake = Fake(CUT, decided(1), DONE)
    client = connect(fake, retries=0)
    choice = client.decide("p", [[1.0]], event_id="lost", default_arm=7)
    assert choice == Choice(7, "lost", answered=False)
    client.reward("p", choice, 1.0)
    client.abandon("p", choice)
    assert len(fake.asked) == 1  # nothing was sent
    assert client.decide("p", [[1.0]], event_id="next").arm == 1
    assert fake.asked[2] == ("PUT", "/v1/policies/p/decisions/lost/reward", {"abandoned": True})


@pytest.mark.parametrize("reply", [OFF, GONE, *(problem(*each) for each in UNTOUCHED)])
def test_where_nothing_was_made_nothing_is_abandoned(connect: Callable[..., Any], reply: Reply) -> None:
    fake = Fake(reply, decided(1))
    client = connect(fake, retries=0)
    choice = client.decide("p", [[1.0]], default_arm=0)
    assert choice == Choice(0, choice.event_id, answered=False)
    client.abandon("p", choice)
    assert client.decide("p", [[1.0]]).answered
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    "refusal", [problem(404, "unknown-policy"), problem(401, "key"), problem(422, "invalid"), Reply(404, b"<html>")]
)
def test_always_covers_every_refusal(connect: Callable[..., Any], refusal: Reply) -> None:
    fake = Fake(refusal, refusal, decided(1))
    client = connect(fake)
    with pytest.raises(ServiceRefused):
        client.decide("p", [[1.0]], default_arm=3)
    choice = client.decide("p", [[1.0]], default_arm=3, always=True)
    assert (choice.arm, choice.answered) == (3, False)
    client.abandon("p", choice)
    client.decide("p", [[1.0]])
    assert len(fake.asked) == 3
    assert client.decide("p", [[float("nan")]], default_arm=3, always=True).arm == 3  # JSON has no word for it
    with pytest.raises(InvalidInput, match="JSON"):
        client.decide("p", [[float("nan")]], default_arm=3)
    assert len(fake.asked) == 3


@pytest.mark.parametrize(
    ("refusal", "abandoned"), [(problem(401, "key"), 1), (problem(409, "other-content"), 0), (OFF, 0)]
)
def test_a_refusal_after_a_lost_answer(connect: Callable[..., Any], refusal: Reply, abandoned: int) -> None:
    """A decision of the lost attempt may wait for its reward, unless the service says that it has none of this call."""
    fake = Fake(CUT, refusal, decided(), DONE)
    client = connect(fake, retries=1)
    client.decide("p", [[1.0]], event_id="lost", default_arm=0, always=True)
    client.decide("p", [[1.0]])
    assert [path for _, path, _ in fake.asked].count("/v1/policies/p/decisions/lost/reward") == abandoned


def test_what_cannot_be_abandoned_yet_is_tried_again_and_what_was_never_made_is_dropped(
    connect: Callable[..., Any],
) -> None:
    fake = Fake(CUT, decided(1), CUT, decided(1), problem(404, "unknown-event"), decided(1))
    client = connect(fake, retries=0)
    client.decide("p", [[1.0]], event_id="lost", default_arm=0)
    for _ in range(3):
        assert client.decide("p", [[1.0]]).answered
    assert [path for _, path, _ in fake.asked].count("/v1/policies/p/decisions/lost/reward") == 2
    assert not fake.replies


def test_callers_wait_for_few_decisions_to_be_abandoned(connect: Callable[..., Any]) -> None:
    fake = Fake(*[CUT] * 5, decided(), DONE, DONE, decided(), DONE, DONE, decided(), DONE, decided())
    client = connect(fake, retries=0)
    for _ in range(5):
        client.decide("p", [[1.0]], default_arm=0)
    for _ in range(4):
        client.decide("p", [[1.0]])
    assert not fake.replies


def test_abandoning_and_events_by_id(connect: Callable[..., Any]) -> None:
    fake = Fake(DONE, DONE, DONE)
    client = connect(fake)
    client.abandon("p", Choice(3, "e"))
    client.abandon("p", "e")
    client.reward("p", "e", 0.0)
    assert [body for _, _, body in fake.asked] == [{"abandoned": True}, {"abandoned": True}, {"reward": 0.0}]


# Batches


def entries(*found: Any) -> Reply:
    refused = {"status": 422, "type": "urn:tacit:problem:invalid", "title": "Refused", "detail": "bad arms"}
    off = refused | {"status": 409, "type": "urn:tacit:problem:switched-off"}
    kinds = {"bad": refused, "off": off}
    made = [{"status": 201, "event_id": "x", "arm": each} if isinstance(each, int) else kinds[each] for each in found]
    return answer(decisions=made)


def test_each_user_of_a_batch_gets_a_decision_or_an_error(connect: Callable[..., Any]) -> None:
    fake = Fake(entries(1, "bad", 0))
    asked = [{"contexts": TWO, "event_id": "a"}, {"contexts": []}, {"contexts": [[np.nan]]}, {"contexts": TWO}]
    first, bad, unsent, last = connect(fake).decide_batch("p", asked, default_arm=1)
    ((method, path, body),) = fake.asked
    assert (method, path) == ("POST", "/v1/policies/p/decisions:batch")
    assert first == Choice(1, "a")
    assert isinstance(bad, ServiceRefused)
    assert (bad.status, bad.code) == (422, "invalid")
    assert isinstance(unsent, InvalidInput)
    assert last == Choice(0, body["requests"][2]["event_id"])
    assert [each["contexts"] for each in body["requests"]] == [TWO, [], TWO]


def test_batches_have_default_arms(connect: Callable[..., Any]) -> None:
    asked = [{"contexts": TWO, "event_id": f"e{number}"} for number in range(3)]
    fake = Fake(entries("off", "bad", 1), entries("off", "bad", 1), CUT, answer(), DONE, DONE, answer(), DONE)
    client = connect(fake, retries=0)
    off, bad, made = client.decide_batch("p", asked, default_arm=0)
    assert (off, made) == (Choice(0, "e0", answered=False), Choice(1, "e2"))
    assert isinstance(bad, ServiceRefused)
    found = client.decide_batch("p", asked, default_arm=0, always=True)
    assert [(each.arm, each.answered) for each in found] == [(0, False), (0, False), (1, True)]
    assert {each.answered for each in client.decide_batch("p", asked, default_arm=0)} == {False}
    client.privacy()
    client.privacy()
    assert [path.split("/")[5] for _, path, body in fake.asked if body == {"abandoned": True}] == ["e0", "e1", "e2"]


def test_of_a_batch_that_was_lost_only_what_may_have_been_made_is_abandoned(connect: Callable[..., Any]) -> None:
    asked = [{"contexts": TWO, "event_id": "made"}, {"contexts": [[np.nan]], "event_id": "unsent"}]
    fake = Fake(CUT, answer(), DONE, CUT, entries("bad"), answer())
    client = connect(fake, retries=0)
    assert [each.arm for each in client.decide_batch("p", asked, default_arm=4, always=True)] == [4, 4]
    client.privacy()
    client = connect(fake, retries=1)
    client.decide_batch("p", asked, default_arm=4, always=True)  # what was made is answered the second time
    client.privacy()
    abandoned = [path for _, path, body in fake.asked if body == {"abandoned": True}]
    assert abandoned == ["/v1/policies/p/decisions/made/reward"]


def test_a_batch_that_is_refused_as_a_whole(connect: Callable[..., Any]) -> None:
    client = connect(Fake(problem(404, "unknown-policy"), problem(404, "unknown-policy"), GONE), retries=0)
    with pytest.raises(ServiceRefused, match="404"):
        client.decide_batch("p", [{"contexts": TWO}], default_arm=0)
    (choice,) = client.decide_batch("p", [{"contexts": TWO}], default_arm=0, always=True)
    assert not choice.answered
    with pytest.raises(ServiceUnavailable):
        client.decide_batch("p", [{"contexts": TWO}])


# What a user sees


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"retries": -1}, "retries"),
        ({"retries": 1.5}, "retries"),
        ({"retries": True}, "retries"),
        ({"timeout": 0.0}, "timeout"),
        ({"url": "service.test:80"}, "url"),
        ({"url": "ftp://x"}, "url"),
    ],
)
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_bad_options(client: Any, given: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        client(**{"url": URL, "key": "secret"} | given)


@pytest.mark.parametrize("name", NAMES)
def test_verbs_are_the_same_in_both_clients_and_documented(name: str) -> None:
    found = getattr(Client, name)
    assert getattr(AsyncClient, name) is found
    text = inspect.getdoc(found) or ""
    assert sections(text) == wanted_sections(found) | {"Raises"}
    client = Client(URL, "secret")
    assert inspect.getdoc(getattr(client, name)) == text
    assert "self" not in inspect.signature(getattr(client, name)).parameters
    client.close()


def test_verbs_are_typed(connect: Callable[..., Any]) -> None:
    connect(Fake(decided(), decided()))
    with Client(URL, "secret") as client:
        assert_type(client.decide("p", [[1.0]], default_arm=0), Choice)
        with pytest.raises(TypeError, match="no_such"):
            client.decide("p", no_such=1)  # type: ignore[call-arg]

    async def main() -> None:
        async with AsyncClient(URL, "secret") as waiting:
            assert_type(await waiting.decide("p", [[1.0]]), Choice)

    asyncio.run(main())


# On a network


class Answering(BaseHTTPRequestHandler):
    """A service that answers every decision with arm 1, unless it is told to cut it off or to be slow."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"], self.client_address[1]))
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["event_id"] == "cut":
            self.close_connection = True
            return
        if asked["event_id"] == "slow":
            self.server.over.wait()
        text = json.dumps({"event_id": asked["event_id"], "arm": 1}).encode()
        self.send_response(307 if asked["event_id"] == "moved" else 201)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Location", self.path)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        return


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.seen: list[tuple[str, str, int]] = []
        self.over = threading.Event()
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.over.set()
        found.shutdown()
        thread.join()


@pytest.fixture
def reach(kind: Any) -> Iterator[Callable[..., Any]]:
    """Makes a client of a service at an address."""
    made = []

    def reached(url: str, **options: Any) -> Any:
        made.append(kind(url, "secret", **{"timeout": 120.0} | options))
        return made[-1]

    yield reached
    for client in made:
        client.close()


def test_connections_are_used_again(reach: Callable[..., Any], server: Server) -> None:
    client = reach(server.url + "/behind/")
    for event in ("a", "b/c ü"):
        assert client.decide("p q", TWO, event_id=event) == Choice(1, event)
    assert {(path, key) for path, key, _ in server.seen} == {("/behind/v1/policies/p%20q/decisions", "Bearer secret")}
    assert len({port for _, _, port in server.seen}) == 1


def test_one_client_serves_several_threads(server: Server) -> None:
    events = [f"event {number}" for number in range(40)]
    with Client(server.url, "secret", timeout=120.0) as client, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda event: client.decide("p", TWO, event_id=event), events))
    assert found == [Choice(1, event) for event in events]


def test_a_connection_that_is_cut_or_slow_may_have_lost_an_answer(reach: Callable[..., Any], server: Server) -> None:
    with pytest.raises(ServiceUnavailable) as cut:
        reach(server.url, retries=2).decide("p", TWO, event_id="cut")
    assert cut.value.lost
    assert len(server.seen) == 3
    with pytest.raises(ServiceUnavailable, match=r"(?i)time") as slow:
        reach(server.url, timeout=0.05, retries=0).decide("p", TWO, event_id="slow")
    assert slow.value.lost
    with pytest.raises(ServiceRefused) as moved:
        reach(server.url).decide("p", TWO, event_id="moved")
    assert moved.value.status == 307


def test_where_nobody_listens_nothing_is_lost(reach: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServiceUnavailable) as caught:
        reach(f"http://127.0.0.1:{port}", retries=1).decide("p", TWO)
    assert not caught.value.lost


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_is_checked(reach: Callable[..., Any], server: Server, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost"]
    subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.scheme = "https"
    with pytest.raises(ServiceUnavailable, match=r"(?i)certificate"):
        reach(server.url, retries=0).decide("p", TWO)
    trusting = ssl.create_default_context(cafile=str(certificate))
    assert reach(server.url, ssl_context=trusting).decide("p", TWO).arm == 1


def test_a_service_is_used_by_its_client_from_beginning_to_end(kind: Any, tmp_path: Path) -> None:
    with Running(tmp_path / "data") as running:
        client = kind(running.address, running.key, timeout=120.0)
        assert client.create("p", **STREAM)["mode"] == "online"
        choice = client.decide("p", TWO, event_id="a/b ü")
        client.reward("p", choice, 1.0)
        client.abandon("p", client.decide("p", TWO))
        made, bad = client.decide_batch("p", [{"contexts": TWO}, {"contexts": []}])
        assert made.answered
        assert bad.code == "invalid"
        assert client.mode("p", "off")["mode"] == "off"
        assert client.decide("p", TWO, event_id="a/b ü") == choice
        shown = client.decide("p", TWO, default_arm=1)
        assert (shown.arm, shown.answered) == (1, False)
        client.abandon("p", shown)
        assert not client.decide("no such", TWO, default_arm=1, always=True).answered
        (same,) = client.policies()
        assert same == client.policy("p")
        assert same["decisions"] == 3
        assert client.privacy("p")["target_epsilon"] == 1.0
        assert client.privacy()["policies"].keys() == {"p"}
        assert client.explain("p")
        client.close()
