"""The writer: groups of whatever waits, in order, answered after their commit; a failure ends the process."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tacit.errors import StoreFailed
from tacit.service.deployment import Deployment
from tacit.service.host import Answer, Host, Request, Reward
from tacit.service.http import writer as module
from tacit.service.http.logs import Log
from tacit.service.http.problems import Problem
from tacit.service.http.writer import Writer


class SlowHost:
    """Answers when it is allowed to, with the numbers that were asked for."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.allowed = threading.Semaphore(0)
        self.error: Exception | None = None

    def process(self, requests: Sequence[Request]) -> list[Answer]:
        numbers = [int(cast(Reward, request).event) for request in requests]
        self.groups.append(numbers)
        assert self.allowed.acquire(timeout=20.0)
        if self.error is not None:
            raise self.error
        return [Answer(number, True) for number in numbers]


class Ticking:
    def __init__(self) -> None:
        self.ticks = 0
        self.ticked = threading.Event()

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks >= 2:
            self.ticked.set()


def asked(*numbers: int) -> list[Request]:
    return [Reward(str(number).encode(), None) for number in numbers]


def made(deployment: Any = None, most_waiting: int = 1000) -> Writer:
    found = Writer(cast(Deployment, deployment or Ticking()), Log(io.StringIO()), most_waiting)
    found.start()
    return found


async def until(condition: Any) -> None:
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0.005)


def test_what_waits_is_carried_out_together_and_in_order() -> None:
    async def run() -> None:
        host, writer = SlowHost(), made()
        served = cast(Host, host)
        first = asyncio.ensure_future(writer.carry_out(served, asked(0)))
        await until(lambda: host.groups)
        rest = [asyncio.ensure_future(writer.carry_out(served, asked(*range(i, i + 3)))) for i in range(1, 300, 3)]
        await until(lambda: writer.waiting == 301)
        for _ in range(3):
            host.allowed.release()
        found = [[answer.arm for answer in await each if isinstance(answer, Answer)] for each in (first, *rest)]
        assert [number for numbers in found for number in numbers] == list(range(301))
        assert [len(group) for group in host.groups] == [1, 258, 42]
        assert writer.waiting == 0
        writer.stop()

    asyncio.run(run())


def test_policies_do_not_mix() -> None:
    async def run() -> None:
        hosts, writer = [SlowHost(), SlowHost()], made()
        for host in hosts:
            for _ in range(9):
                host.allowed.release()
        calls = [writer.carry_out(cast(Host, hosts[i % 2]), asked(i)) for i in range(8)]
        answers = await asyncio.gather(*calls)
        assert [answer[0].arm for answer in answers if isinstance(answer[0], Answer)] == list(range(8))
        assert sorted(number for group in hosts[1].groups for number in group) == [1, 3, 5, 7]
        writer.stop()

    asyncio.run(run())


def test_too_many_are_refused_at_once_and_counted_right() -> None:
    async def run() -> None:
        host, writer = SlowHost(), made(most_waiting=3)
        served = cast(Host, host)
        waiting = [asyncio.ensure_future(writer.carry_out(served, asked(i, i))) for i in range(2)]
        await until(lambda: writer.waiting == 4)
        with pytest.raises(Problem) as refused:
            await writer.carry_out(served, asked(9))
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        waiting[1].cancel()  # who has gone is not waited for, but what was asked is carried out
        host.allowed.release()
        host.allowed.release()
        await waiting[0]
        await until(lambda: writer.waiting == 0)
        assert sum(len(group) for group in host.groups) == 4
        writer.stop()

    asyncio.run(run())


def test_time_goes_on_when_nobody_asks_and_the_end_comes_after_what_waits() -> None:
    async def run() -> None:
        deployment, host = Ticking(), SlowHost()
        writer = made(deployment)
        assert await asyncio.to_thread(deployment.ticked.wait, 20.0)
        last = asyncio.ensure_future(writer.carry_out(cast(Host, host), asked(5)))
        await until(lambda: host.groups)
        host.allowed.release()
        await asyncio.to_thread(writer.stop)
        assert await last == [Answer(5, True)]
        writer.stop()  # a second time does nothing

    asyncio.run(run())


def test_a_failure_answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[BaseException] = []
    monkeypatch.setattr(module, "end_process", lambda log, error: errors.append(error))

    async def run() -> None:
        host, writer = SlowHost(), made()
        host.error = StoreFailed("disk")
        call = asyncio.ensure_future(writer.carry_out(cast(Host, host), asked(1)))
        await until(lambda: host.groups)
        host.allowed.release()
        await until(lambda: errors)
        assert errors == [host.error]
        assert not call.done()
        call.cancel()

    asyncio.run(run())
