"""A beat overtakes nothing that arrived before it, whatever holds that up: somebody's reward on a slow disk, say."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tacit.policies.log import Decided, LogEntry, Rewarded
from tacit.service.deployment import Deployment
from tacit.service.host import Answer, Refusal, Request
from tacit.service.http import writer as module
from tacit.service.http.logs import JsonLog
from tacit.service.http.writer import Answers, Writer
from tests.service.hosting import arms_of
from tests.service.parts import Clock, FaultyStore, body, quick_store

WAIT, OTHERS = 10.0, 20
DUE = 100.0 + WAIT
"""When the rows of the others are due; the replaced user, whose number is ``OTHERS``, has asked later."""
PATIENCE = 120.0
EVERY = 0.005
"""Seconds between beats."""


class World:
    """A policy whose decisions wait for rewards, on a clock that is set by hand, and what its log is given."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.store = Clock(DUE - WAIT), FaultyStore(quick_store(folder))
        self.deployment = Deployment(self.store, clock=self.clock)
        terms = {"reward_wait": WAIT, "event_memory": 5.0 * WAIT, "default_reward": 0.0}
        self.served, _ = self.deployment.put("p", body("joint-linucb", horizon=None, factorization="tree") | terms)
        self.served.host.process([self.ask(number) for number in range(OTHERS)])
        self.clock.now = DUE - 0.5 * WAIT
        self.served.host.process([self.ask(OTHERS)])
        self.logged: list[LogEntry] = []
        journal = self.served.host.journal
        keep = journal._log

        def log(entry: LogEntry) -> None:
            self.logged.append(entry)
            keep(entry)

        journal.policy.keep_log(log)

    def ask(self, number: int) -> Request:
        return self.served.intake.decision("n", contexts=arms_of(number).tolist(), event_id=str(number))[1]

    def report(self, number: int) -> Request:
        return self.served.intake.reward("n", str(number), reward=1.0)

    def play(self, asked: str, number: int, *, reward: bool) -> Answer | Refusal:
        """Carry out a request that arrives just before the others are due, and then a beat.

        With ``reward`` it waits behind the replaced user's reward, which the disk holds up until they are due.
        """
        return asyncio.run(self._played(asked, number, reward))

    async def _played(self, asked: str, number: int, reward: bool) -> Answer | Refusal:
        held, go, beaten = threading.Event(), threading.Event(), threading.Event()

        def hold_up(called: str) -> None:
            if called == "swap" and not held.is_set():
                held.set()
                assert go.wait(PATIENCE)

        def beat(stamp: float) -> None:
            self.deployment.tick(stamp)
            if stamp > DUE:
                beaten.set()

        writer = Writer(beat, self.clock, JsonLog(io.StringIO()), 1000, quick=0.0)
        writer.start()
        try:
            async with asyncio.timeout(PATIENCE):
                self.clock.now = DUE - 2e-3
                first: asyncio.Future[Answers] | None = None
                if reward:
                    self.store.before = hold_up
                    first = self._sent(writer, self.report(OTHERS))
                    assert await asyncio.to_thread(held.wait, PATIENCE)
                fillers = [self._sent(writer, self.report(1_000 + each)) for each in range(300 if reward else 0)]
                self.clock.now = DUE - 1e-3
                second = self._sent(writer, self.ask(number) if asked == "decision" else self.report(number))
                if first is None:
                    await second
                else:
                    await asyncio.sleep(10.0 * EVERY)
                self.clock.now = DUE + 1e-3
                go.set()
                (answer,) = await second
                await asyncio.gather(*fillers)  # of unknown ids: more than fit into one group
                assert await asyncio.to_thread(beaten.wait, PATIENCE)
                return answer
        finally:
            go.set()
            await asyncio.to_thread(writer.stop)

    def _sent(self, writer: Writer, request: Request) -> asyncio.Future[Answers]:
        return asyncio.ensure_future(writer.carry_out(self.served.host, [request]))

    def end(self) -> None:
        self.deployment.close()


@pytest.fixture
def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, World]]:
    """Two equal worlds, with beats so fast that one is always due."""
    monkeypatch.setattr(module, "BEAT", EVERY)
    pair = World(tmp_path / "without"), World(tmp_path / "with")
    yield pair
    for world in pair:
        world.end()


def test_a_decision_that_waits_behind_a_reward_sees_the_rows_that_it_would_see_without(
    worlds: tuple[World, World],
) -> None:
    for world, reward in zip(worlds, (False, True), strict=True):
        world.play("decision", 200, reward=reward)
        kinds = [type(entry) for entry in world.logged if isinstance(entry, Decided | Rewarded)]
        assert kinds == [Decided] + [Rewarded] * OTHERS


def test_a_reward_that_waits_behind_another_one_is_in_time(worlds: tuple[World, World]) -> None:
    for world, reward in zip(worlds, (False, True), strict=True):
        answer = world.play("reward", 3, reward=reward)
        assert isinstance(answer, Answer)
        assert answer.new
        learned = [entry.reward for entry in world.logged if isinstance(entry, Rewarded)]
        assert learned == [float(number == 3) for number in range(OTHERS)]
