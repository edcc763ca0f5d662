"""Policies that come and leave: in which order everything happens, and what ends the process."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from tacit.errors import JournalLost, UnknownJournal
from tacit.service.cluster import Cluster
from tacit.service.deployment import Deployment
from tacit.service.host import Host
from tacit.service.http.logs import JsonLog
from tacit.service.http.moves import Moves
from tacit.service.http.problems import overloaded
from tacit.service.http.several import Process
from tacit.service.http.writer import Writer
from tests.service.http.test_writer import SlowHost, asked, run, until


class World:
    """A deployment, a cluster and a process in one, which write down what they are told."""

    def __init__(self, *own: str) -> None:
        self.policies, self.said = dict.fromkeys(own), list[str]()
        self.refusal: Exception | None = None
        self.still = threading.Event()
        self.moves = Moves(cast(Deployment, self), cast(Cluster, self), self, JsonLog(io.StringIO()))
        self.moves.start()

    def claim(self, name: str) -> None:
        self.said.append(f"claim {name}")
        if self.refusal is not None:
            raise self.refusal
        self.policies[name] = None

    def release(self, name: str, finish: Callable[[Host], None]) -> None:
        if name not in self.policies:
            raise UnknownJournal(name)
        finish(cast(Host, name))
        del self.policies[name]
        self.said.append(f"release {name}")

    def let_go(self, name: str) -> None:
        self.said.append(f"let go {name}")

    def keep(self) -> None:
        self.said.append("keep")

    @contextmanager
    def leaving(self, name: str) -> Iterator[None]:
        self.said.append(f"leaving {name}")
        try:
            yield
        finally:
            self.said.append("left")

    def finish(self, host: Host) -> None:
        self.said.append(f"finish {host}")
        if self.refusal is not None:
            raise self.refusal

    def moved(self) -> None:
        self.still.set()

    def fail(self, error: BaseException) -> None:
        self.said.append(type(error).__name__)
        self.still.set()

    def done(self) -> list[str]:
        """What was said until a move was over."""
        assert self.still.wait(120.0)
        self.still.clear()
        said, self.said = self.said, []
        return said


def test_policy_is_claimed_and_given_up_in_order() -> None:
    world = World()
    world.moves.take("p")
    assert world.done() == ["claim p"]
    world.moves.give("p")
    assert world.done() == ["leaving p", "finish p", "release p", "left", "let go p"]
    world.moves.give("p")
    assert world.done() == ["leaving p", "left", "keep"]


def test_policy_with_too_much_to_do_stays() -> None:
    world = World("p")
    world.refusal = overloaded()
    world.moves.give("p")
    assert world.done() == ["leaving p", "finish p", "left", "keep"]
    assert "p" in world.policies


def test_who_leaves_gives_everything_up_and_takes_nothing_more() -> None:
    world = World("p", "q")
    world.moves.give_all().result(120.0)
    assert not world.policies
    assert [word for word in world.done() if word.startswith("let go")] == ["let go p", "let go q"]
    world.moves.take("r")
    assert world.done() == ["let go r"]


def test_claim_that_fails_ends_the_process() -> None:
    world = World()
    world.refusal = JournalLost("another owner has claimed it")
    world.moves.take("p")
    assert world.done() == ["claim p", "JournalLost"]


@pytest.mark.parametrize("count", [1, 3])
def test_policy_is_finished_when_all_that_waits_for_the_writer_is_carried_out(count: int) -> None:
    async def scenario(writer: Writer) -> None:
        host: Any = SlowHost()
        process = Process.__new__(Process)
        process._writer, process._loop = writer, asyncio.get_running_loop()
        first = [asyncio.create_task(writer.carry_out(host, asked(number))) for number in range(count)]
        await until(lambda: host.groups)
        finishing = asyncio.create_task(asyncio.to_thread(process.finish, host))
        await asyncio.sleep(0.05)
        assert not finishing.done()
        for _ in range(count + 1):
            host.allowed.release()
        await asyncio.wait_for(finishing, 120.0)
        assert all(task.done() for task in first)

    run(scenario)
