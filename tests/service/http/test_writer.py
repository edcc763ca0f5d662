"""The writer: groups of whatever waits, in order, answered after their commit; a failure ends the process."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from tacit.errors import StoreFailed
from tacit.service.host import Answer, Decide, Host, Request, Reward
from tacit.service.http import writer as module
from tacit.service.http.logs import JsonLog
from tacit.service.http.problems import Problem
from tacit.service.http.state import Service
from tacit.service.http.writer import Answers, Writer
from tests.service.parts import Clock

EVERY_GROUP, NO_GROUP = 1e9, 0.0
"""Seconds that a group may take in the event loop: whatever it takes, or nothing."""


class SlowHost:
    """Answers when it is allowed to, with the numbers that were asked for."""

    def __init__(self, allowed: int = 0) -> None:
        self.groups: list[list[int]] = []
        self.threads: list[threading.Thread] = []
        self.tended: list[threading.Thread] = []
        self.allowed = threading.Semaphore(allowed)
        self.error: Exception | None = None
        self.journal = SimpleNamespace(upkeep_due=False)

    def tend(self) -> None:
        self.journal.upkeep_due = False
        self.tended.append(threading.current_thread())

    def process(self, requests: Sequence[Request], *, tending: bool = True) -> list[Answer]:
        numbers = [int(cast(Decide | Reward, request).event) for request in requests]
        if self.journal.upkeep_due and tending:
            self.tend()
        if not numbers:
            return []
        self.groups.append(numbers)
        self.threads.append(threading.current_thread())
        assert self.allowed.acquire(timeout=120.0)
        if self.error is not None:
            raise self.error
        return [Answer(number, True) for number in numbers]


class Ticking:
    def __init__(self, work: Callable[[], object] = lambda: None) -> None:
        self.ticks, self._work = 0, work
        self.ticked = threading.Event()

    def tick(self, stamp: float) -> None:
        self.ticks += 1
        self._work()
        if self.ticks >= 2:
            self.ticked.set()


def asked(*numbers: int) -> list[Request]:
    return [Decide(str(number).encode(), b"", np.eye(1), 0.0) for number in numbers]


def reported(*numbers: int) -> list[Request]:
    return [Reward(str(number).encode(), None, 0.0) for number in numbers]


def run(test: Callable[[Writer], Awaitable[None]], deployment: Ticking | None = None, quick: float = NO_GROUP) -> None:
    """A test with a writer of its own, in an event loop."""

    async def body() -> None:
        writer = Writer((deployment or Ticking()).tick, time.monotonic, JsonLog(io.StringIO()), 1000, quick)
        writer.start()
        try:
            async with asyncio.timeout(120.0):
                await test(writer)
        finally:
            await asyncio.to_thread(writer.stop)

    asyncio.run(body())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def begun(writer: Writer, host: SlowHost, *numbers: int) -> asyncio.Future[Answers]:
    return asyncio.ensure_future(writer.carry_out(cast(Host, host), asked(*numbers)))


def arms(answers: Sequence[Answers]) -> list[int]:
    return [answer.arm for each in answers for answer in each if isinstance(answer, Answer)]


def test_what_waits_is_carried_out_together_and_in_order() -> None:
    async def test(writer: Writer) -> None:
        host = SlowHost()
        first = begun(writer, host, 0)
        await until(lambda: host.groups)
        rest = [begun(writer, host, *range(i, i + 3)) for i in range(1, 300, 3)]
        await until(lambda: writer.waiting == 301)
        for _ in range(3):
            host.allowed.release()
        assert arms([await each for each in (first, *rest)]) == list(range(301))
        assert [len(group) for group in host.groups] == [1, 258, 42]
        assert writer.waiting == 0

    run(test)


def test_on_a_quick_disk_the_event_loop_carries_out_what_has_arrived() -> None:
    async def test(writer: Writer) -> None:
        host = SlowHost(allowed=9)
        for _ in range(2):
            answers = await asyncio.gather(*(begun(writer, host, *range(i, i + 3)) for i in range(0, 300, 3)))
            assert arms(answers) == list(range(300))
        assert [len(group) for group in host.groups] == [258, 42, 258, 42]
        assert set(host.threads) == {threading.main_thread()}
        assert writer.waiting == 0

    run(test, quick=EVERY_GROUP)


def test_requests_that_come_one_after_the_other_share_a_group() -> None:
    async def test(writer: Writer) -> None:
        host, calls = SlowHost(allowed=9), []
        for number in range(5):
            calls.append(begun(writer, host, number))
            await asyncio.sleep(0)  # a turn of the event loop
        assert arms(await asyncio.gather(*calls)) == list(range(5))
        assert host.groups == [[0, 1, 2, 3, 4]]

    run(test, quick=EVERY_GROUP)


def test_a_disk_that_becomes_slow_is_left_to_the_thread_and_one_that_recovers_is_not() -> None:
    async def test(writer: Writer) -> None:
        host = SlowHost(allowed=9)
        await begun(writer, host, 1)
        writer._usual = 1.0
        await begun(writer, host, 2)
        writer._usual = 0.0
        await begun(writer, host, 3)
        assert [thread.name for thread in host.threads] == ["MainThread", "tacit-writer", "MainThread"]

    run(test, quick=0.5)


def test_what_takes_long_is_done_by_the_thread() -> None:
    async def test(writer: Writer) -> None:
        host = SlowHost(allowed=9)
        host.journal.upkeep_due = True
        await begun(writer, host, 1)
        await until(lambda: host.tended)
        assert [thread.name for thread in host.threads + host.tended] == ["MainThread", "tacit-writer"]

    run(test, quick=EVERY_GROUP)


def test_a_group_waits_while_the_thread_settles_what_is_due_and_others_are_answered() -> None:
    settling, settled = threading.Event(), threading.Event()

    def work() -> None:
        settling.set()
        assert settled.wait(120.0)

    async def test(writer: Writer) -> None:
        host = SlowHost(allowed=9)
        await until(settling.is_set)
        calls = [begun(writer, host, number) for number in range(3)]
        await asyncio.sleep(0.05)  # the event loop goes on
        assert host.groups == []
        settled.set()
        assert arms(await asyncio.gather(*calls)) == [0, 1, 2]
        assert host.groups == [[0, 1, 2]]

    run(test, Ticking(work), quick=EVERY_GROUP)


@pytest.mark.parametrize("quick", [NO_GROUP, EVERY_GROUP])
def test_policies_do_not_mix(quick: float) -> None:
    async def test(writer: Writer) -> None:
        hosts = [SlowHost(allowed=9), SlowHost(allowed=9)]
        answers = await asyncio.gather(*(begun(writer, hosts[i % 2], i) for i in range(8)))
        assert arms(answers) == list(range(8))
        assert sorted(number for group in hosts[1].groups for number in group) == [1, 3, 5, 7]

    run(test, quick=quick)


def test_too_many_are_refused_at_once_and_counted_right() -> None:
    async def test(writer: Writer) -> None:
        host = SlowHost()
        writer._bound = 3
        waiting = [begun(writer, host, i, i) for i in range(2)]
        await until(lambda: writer.waiting == 4)
        with pytest.raises(Problem) as refused:
            await writer.carry_out(cast(Host, host), asked(9))
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        waiting[1].cancel()  # who has gone is not waited for, but what was asked is carried out
        host.allowed.release()
        host.allowed.release()
        await waiting[0]
        await until(lambda: writer.waiting == 0)
        assert sum(len(group) for group in host.groups) == 4

    run(test)


def test_decisions_and_rewards_are_refused_for_their_own_kind_alone() -> None:
    """Whether a decision is taken tells nothing of rewards that wait, and the other way round."""

    async def test(writer: Writer) -> None:
        host = SlowHost(allowed=9)
        writer._bound = 2
        first = begun(writer, host, 0)
        rewards = asyncio.ensure_future(writer.carry_out(cast(Host, host), reported(1, 2)))
        await asyncio.sleep(0)
        assert (writer.waiting, writer.waiting_rewards) == (1, 2)
        options = SimpleNamespace(most_waiting=2)
        seen = SimpleNamespace(stopping=threading.Event(), writer=writer, options=options)
        assert Service.status.fget(seen) == "ok"  # type: ignore[attr-defined]
        with pytest.raises(Problem):
            await writer.carry_out(cast(Host, host), reported(3))
        second = begun(writer, host, 4)
        assert arms(await asyncio.gather(first, rewards, second)) == [0, 1, 2, 4]
        assert (writer.waiting, writer.waiting_rewards) == (0, 0)

    run(test, quick=EVERY_GROUP)


def test_a_beat_that_waits_has_the_stamp_of_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT", 0.005)
    clock, stamps, host = Clock(1.0), list[float](), SlowHost()

    async def test() -> None:
        writer = Writer(stamps.append, clock, JsonLog(io.StringIO()), 1000, NO_GROUP)
        first = begun(writer, host, 0)  # before the thread begins, which then has it to do first
        await asyncio.sleep(0.05)
        writer.start()
        await until(lambda: host.groups)
        second = begun(writer, host, 1)
        await until(lambda: writer.waiting == 2)
        stamps.clear()
        host.allowed.release()  # the thread asks for a beat, and has the second group first
        await until(lambda: len(host.groups) == 2)
        await until(lambda: writer._beat_waits)
        clock.now = 2.0
        host.allowed.release()
        await asyncio.gather(first, second)
        await until(lambda: stamps)
        assert stamps[0] == 1.0
        await asyncio.to_thread(writer.stop)

    asyncio.run(test())


def test_of_beats_that_wait_there_is_one() -> None:
    async def test(writer: Writer) -> None:
        writer._aside = True  # the thread is busy
        for stamp in (1.0, 2.0, 3.0):
            writer._arrive(module.Beat(stamp))
        assert writer._arrived == [module.Beat(1.0)]
        writer._come_back([])
        await until(lambda: not writer._arrived)

    run(test)


def test_time_goes_on_when_nobody_asks_and_the_end_comes_after_what_was_begun() -> None:
    deployment = Ticking()

    async def test(writer: Writer) -> None:
        host = SlowHost()
        assert await asyncio.to_thread(deployment.ticked.wait, 120.0)
        last = begun(writer, host, 5)
        await until(lambda: host.groups)
        host.allowed.release()
        await asyncio.to_thread(writer.stop)
        assert await last == [Answer(5, True)]
        writer.stop()  # a second time does nothing

    run(test, deployment)


@pytest.mark.parametrize("quick", [NO_GROUP, EVERY_GROUP])
def test_a_failure_answers_nobody(quick: float, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[BaseException] = []
    monkeypatch.setattr(module, "end_process", lambda log, error: errors.append(error))

    async def test(writer: Writer) -> None:
        host = SlowHost(allowed=1)
        host.error = StoreFailed("disk")
        call = begun(writer, host, 1)
        await until(lambda: errors)
        assert errors == [host.error]
        assert not call.done()
        call.cancel()

    run(test, quick=quick)
