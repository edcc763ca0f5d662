"""Which process answers: requests find the owner of their policy while policies come, go and are made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tacit.errors import InvalidInput, JournalExists
from tacit.service.cluster import Cluster
from tacit.service.deployment import Deployment
from tacit.service.http import others as others_module
from tacit.service.http import routing
from tacit.service.http.exchange import Exchange, Unreachable
from tacit.service.http.keys import Key
from tacit.service.http.options import Options
from tacit.service.http.others import Others
from tacit.service.http.problems import Problem
from tacit.service.http.relay import Elsewhere, Passed, Relay
from tacit.service.http.routing import Router
from tacit.service.http.state import Service
from tacit.service.sharing import Member, View

ME, OTHER, THIRD = (Member(name, f"http://{name}:1", True) for name in ("me", "other", "third"))
KEY, BOUND = (b"authorization", b"Bearer k"), (b"authorization", b"Bearer b")
HOLDER = Key("k", ("admin",), "default", "")
HOLDERS = {KEY[1]: HOLDER, BOUND[1]: Key("b", ("admin",), "default", "", policies=("a", "b*"))}
HOP = (b"tacit-hop", b"1")


class Clusters:
    """Views one after the other: each look shows the next."""

    id = "me"

    def __init__(self, *owners: Mapping[str, str | None], taken: bool = False) -> None:
        self.views = [View((ME, OTHER, THIRD), each) for each in owners]
        self.view, self.taken = self.views[0], taken
        self.said: list[str] = []

    def fresh(self) -> Future[View]:
        self.views = self.views[1:] or self.views
        self.view = self.views[0]
        return done(self.view)

    def reserve(self, name: str) -> Future[bool]:
        self.said.append(f"reserve {name}")
        return done(not self.taken)

    def let_go(self, name: str) -> None:
        self.said.append(f"let go {name}")

    def tell(self) -> None:
        self.said.append("tell")


def done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


class World:
    """A router whose application, relay and keys are made up; remembers who has answered what."""

    def __init__(self, clusters: Clusters, *own: str) -> None:
        self.cluster, self.answered, self.not_there = clusters, list[tuple[str, bytes]](), set[str]()
        self.deployment = SimpleNamespace(policies=dict.fromkeys(own))
        others = Others(cast(Cluster, clusters), cast(Deployment, self.deployment), Exchange())
        keyring: Any = SimpleNamespace(holder=HOLDERS.get)
        nothing = cast(Any, None)
        self.service = Service(cast(Deployment, self.deployment), keyring, nothing, nothing, Options())
        self.service.neighbours = others
        relay = SimpleNamespace(pass_on=self._pass_on)
        self.router = Router(self.service, self._app, cast(Cluster, clusters), cast(Relay, relay))

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.answered.append(("me", (await receive())["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def _pass_on(self, address: str, there: Callable[[], bool], request: Passed) -> None:
        assert there()
        name = address[7:-2]
        if name in self.not_there:
            self.not_there.discard(name)
            raise Elsewhere
        self.answered.append((name, request.body))
        await request.send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(self, method: str, path: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
        """The beginning of the answer."""
        sent: list[dict[str, Any]] = []
        parts = [{"type": "http.request", "body": b"{}"}]

        async def receive() -> Any:
            return parts.pop() if parts else await asyncio.Event().wait()

        async def send(part: Any) -> None:
            sent.append(part)

        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": list(headers)}
        await self.router(scope, receive, send)
        return sent[0]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes at all is waited for."""
    monkeypatch.setattr(routing, "PATIENCE", 120.0)
    monkeypatch.setattr(others_module, "_PATIENCE", 120.0)


@pytest.fixture
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what never comes nothing is expected: the wait for it ends soon."""
    monkeypatch.setattr(routing, "PATIENCE", 0.3)
    monkeypatch.setattr(others_module, "_PATIENCE", 0.3)


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(cast(Any, work()))


@pytest.mark.parametrize(
    ("owner", "headers", "status", "who"),
    [
        ("me", [KEY], 200, "me"),
        ("other", [KEY], 200, "other"),
        ("other", [KEY, HOP], 503, None),
        (None, [KEY], 503, None),
        ("other", [], 200, "me"),  # whose application refuses whoever has no key, or is not bound to the policy
        ("other", [BOUND], 200, "me"),
        (None, [BOUND], 200, "me"),
    ],
)
def test_the_owner_answers(
    owner: str | None, headers: list[Any], status: int, who: str | None, request: pytest.FixtureRequest
) -> None:
    if status == 503:
        request.getfixturevalue("_hurried")

    async def work() -> None:
        world = World(Clusters({"p": owner}), *(["p"] if owner == "me" else []))
        answer = await world.ask("POST", "/v1/policies/p/decisions", *headers)
        assert answer["status"] == status
        assert [name for name, _ in world.answered] == ([who] if who else [])
        assert ((b"tacit-elsewhere", b"1") in answer["headers"]) == (HOP in headers)

    run(work)


def test_owner_that_has_just_let_go_is_not_the_last_that_is_asked() -> None:
    async def work() -> None:
        world = World(Clusters({"p": "other"}, {"p": None}, {"p": "third"}))
        world.not_there = {"other"}
        asking = asyncio.create_task(world.ask("PUT", "/v1/policies/p/decisions/e/reward", KEY))
        await asyncio.sleep(0.05)
        world.cluster.fresh()
        world.router.news.spread()
        assert (await asking)["status"] == 200
        assert world.answered == [("third", b"{}")]

    run(work)


def test_policy_that_comes_here_is_waited_for() -> None:
    async def work() -> None:
        world = World(Clusters({"p": "me"}))
        asking = asyncio.create_task(world.ask("POST", "/v1/policies/p/decisions", KEY, HOP))
        await asyncio.sleep(0.05)
        assert not asking.done()
        world.deployment.policies["p"] = None
        world.router.news.spread()
        assert (await asking)["status"] == 200
        assert world.answered == [("me", b"{}")]

    run(work)


@pytest.mark.usefixtures("_hurried")
def test_policy_that_leaves_takes_no_new_requests_and_ends_those_that_it_has() -> None:
    async def work() -> None:
        world = World(Clusters({"p": "me"}), "p")
        world.router._busy["p"] = 1  # a request that takes its time
        leaving = asyncio.create_task(world.router.begin_to_leave("p"))
        await asyncio.sleep(0.05)
        assert not leaving.done()
        assert (await world.ask("POST", "/v1/policies/p/decisions", KEY))["status"] == 503
        del world.router._busy["p"]
        await asyncio.wait_for(leaving, 120.0)
        world.router.leave("p")
        assert (await world.ask("POST", "/v1/policies/p/decisions", KEY))["status"] == 200

    run(work)


@pytest.mark.parametrize(
    ("method", "headers", "who"),
    [("PUT", [KEY], "third"), ("PUT", [KEY, HOP], "me"), ("GET", [KEY], "me"), ("POST", [KEY], "me")],
)
def test_new_policies_are_made_where_they_should_be(method: str, headers: list[Any], who: str) -> None:
    async def work() -> None:
        world = World(Clusters({"a": "me", "b": "other"}), "a")
        await world.ask(method, "/v1/policies/new", *headers)
        assert [name for name, _ in world.answered] == [who]

    run(work)


def test_policy_that_was_made_a_moment_ago_is_found() -> None:
    async def work() -> None:
        world = World(Clusters({}, {"p": "other"}))
        assert (await world.ask("GET", "/v1/policies/p", KEY))["status"] == 200
        assert world.answered == [("other", b"")]

    run(work)


def test_policy_of_another_process_is_refused_for_now_and_not_unknown() -> None:
    cluster = Clusters({"p": "other"})
    deployment = SimpleNamespace(policies={}, get=lambda name: name)
    nothing = cast(Any, None)
    found = Service(cast(Deployment, deployment), nothing, nothing, nothing, Options())
    found.neighbours = Others(cast(Cluster, cluster), cast(Deployment, deployment), Exchange())
    assert found.names == {"p"}
    with pytest.raises(Problem) as problem:
        found.served("p")
    assert problem.value.code == "no-owner"
    assert found.served("q") == cast(Any, "q")  # which says that there is none


# Making policies, and lists of all


def test_policy_is_made_under_its_lock() -> None:
    world = World(Clusters({}))
    with world.service.neighbours.making("p"):
        assert world.cluster.said == ["reserve p"]
        world.deployment.policies["p"] = None
    with world.service.neighbours.making("p"):
        pass
    assert world.cluster.said == ["reserve p", "tell"]
    with pytest.raises(JournalExists), world.service.neighbours.making("p"):
        raise JournalExists("another configuration")


def test_policy_that_another_process_makes_is_asked_for_again() -> None:
    world = World(Clusters({}, taken=True))
    with pytest.raises(Problem) as found, world.service.neighbours.making("p"):
        pytest.fail("another process has its lock")
    assert found.value.code == "no-owner"
    world.cluster.taken = False
    with pytest.raises(Problem) as found, world.service.neighbours.making("p"):
        raise JournalExists("made meanwhile")
    assert found.value.code == "no-owner"
    assert world.cluster.said[-1] == "let go p"


def test_lock_of_a_policy_that_could_not_be_made_is_let_go() -> None:
    """Whether or not it is in the store by now: the next request finds out, in whichever process."""
    world = World(Clusters({}))
    for error in (RuntimeError("cannot join thread"), InvalidInput("no such policy")):
        with pytest.raises(type(error)), world.service.neighbours.making("p"):
            raise error
        assert world.cluster.said[-2:] == ["reserve p", "let go p"]


class Parts(Exchange):
    """What other processes answer; a number stands for a status without an answer."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        self.parts, self.asked = parts, 0

    def answering(self, address: str, scope: Any, body: bytes) -> Any:
        self.asked += 1
        return _Answer(self.parts.get(address[7:-2]))


class _Answer:
    def __init__(self, part: Any) -> None:
        self._part = part

    async def __aenter__(self) -> Any:
        if self._part is None:
            raise Unreachable
        return self._said()

    async def _said(self) -> Any:
        status = self._part if isinstance(self._part, int) else 200
        yield {"status": status, "headers": []}
        yield {"body": b"" if status != 200 else msgspec.json.encode(self._part)}

    async def __aexit__(self, *error: object) -> None:
        return


def whole(clusters: Clusters, exchange: Exchange, key: Key = HOLDER, **own: int) -> Any:
    """What is put together."""
    others = Others(cast(Cluster, clusters), cast(Deployment, None), exchange)
    return asyncio.run(others.whole({"path": "/", "method": "HEAD", "tacit.key": key}, lambda: own))


def test_lists_are_put_together_from_all_processes() -> None:
    clusters = Clusters({"a": "me", "b": "other", "c": "third"})
    assert whole(clusters, Parts(other={"b": 2}, third={"c": 3}), a=1) == {"a": 1, "b": 2, "c": 3}
    assert whole(clusters, Parts(other={"b": 2, "c": 3}), a=1) == {"a": 1, "b": 2, "c": 3}  # nothing is missing
    assert whole(Clusters({"a": "me"}), Parts(other={"new": 5}), a=1) == {"a": 1, "new": 5}  # made since


@pytest.mark.usefixtures("_hurried")
@pytest.mark.parametrize("part", [None, 503, 401, {"c": 3}])
def test_list_that_misses_a_policy_is_refused(part: Any) -> None:
    with pytest.raises(Problem) as found:
        whole(Clusters({"a": "me", "b": "other"}), Parts(other=part), a=1)
    assert (found.value.status, found.value.headers) == (503, {"Retry-After": "1"})


@pytest.mark.usefixtures("_hurried")
def test_list_for_a_key_that_is_bound_misses_nothing_but_its_own() -> None:
    bound = HOLDERS[BOUND[1]]
    assert whole(Clusters({"a": "me", "p": "other", "q": None}), Parts(), bound, a=1) == {"a": 1}
    with pytest.raises(Problem):
        whole(Clusters({"a": "me", "bb": "other"}), Parts(), bound, a=1)


def test_lists_that_may_be_a_little_old_are_shared() -> None:
    async def work() -> None:
        parts = Parts(other={"b": 2}, third={})
        others = Others(cast(Cluster, Clusters({"b": "other"})), cast(Deployment, None), parts)
        scope = {"path": "/v1/live", "tacit.key": HOLDER}
        asked = [others.whole(scope, lambda: {}, age=60.0) for _ in range(5)]
        assert await asyncio.gather(*asked) == [{"b": 2}] * 5
        assert parts.asked == 2  # each of the others once
        assert await others.whole(scope, lambda: {"a": 1}) == {"a": 1, "b": 2}
        bound = scope | {"tacit.key": HOLDERS[BOUND[1]]}
        assert await others.whole(bound, lambda: {"a": 1}, age=60.0) == {"a": 1, "b": 2}  # not what others were shown

    run(work)
