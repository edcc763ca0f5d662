"""Several processes on one PostgreSQL database: any of them takes any request, and rewards move nobody's row."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import zip_longest
from typing import Any

import pytest

from tacit.errors import StoreMoved, UnknownJournal
from tacit.policies.log import Decided, LogEntry, Released, Rewarded
from tacit.policies.private_policy import PrivatePolicy
from tacit.service.backup import adopt_store
from tacit.service.deployment import Deployment, Served
from tacit.service.events import EVENTS, INBOX
from tacit.service.host import BEAT, Answer, Decide, Refusal, Reward
from tacit.service.http import hot
from tacit.service.http.keys import Key, Keyring
from tacit.service.http.logs import JsonLog
from tacit.service.http.options import Options
from tacit.service.http.state import Service
from tacit.service.http.writer import Writer
from tacit.service.journal import PolicyJournal
from tacit.service.packing import pack_entry, unpack_entry
from tests.service.hosting import arms_of
from tests.service.parts import Clock, body, same_chance, same_state

pytestmark = pytest.mark.slow

WAIT = 10.0
PATIENCE = 120.0
OWN = "own"
"""An event whose arms are zeros: its row adds nothing, so that releases are made of others' rows alone."""


class Processes:
    """So many processes in one, each with a store and a memory of its own, under one clock.

    What each of them reads is ``ahead`` of it by so many seconds.
    """

    def __init__(
        self,
        database: str,
        count: int = 2,
        policy: str = "joint-linucb",
        *,
        ahead: Sequence[float] = (0.0, 0.0, 0.0),
        **changes: Any,
    ) -> None:
        from tacit.service.postgres_store import PostgresStore

        self.clock = Clock()
        self.deployments = [
            Deployment(PostgresStore(database), clock=partial(self._read, seconds), wall=self.clock)
            for seconds in ahead[:count]
        ]
        self.deployments[0].put("p", body(policy, horizon=None) | {"reward_wait": WAIT, "mode": "online"} | changes)

    def _read(self, ahead: float) -> float:
        return self.clock.now + ahead

    def __getitem__(self, process: int) -> Served:
        return self.deployments[process].find("p")

    def asks(self, process: int, event: str) -> Decide:
        contexts = arms_of(sum(event.encode())) * (event != OWN)
        return self[process].intake.decision("n", contexts=contexts.tolist(), event_id=event)[1]

    def reports(self, process: int, event: str, reward: float | None) -> Reward:
        return self[process].intake.reward("n", event, reward=reward, abandoned=reward is None)

    def decide(self, process: int, event: str) -> Answer | Refusal:
        return self[process].host.process([self.asks(process, event)])[0]

    def reward(self, process: int, event: str, reward: float | None) -> Answer | Refusal:
        return self[process].host.process([self.reports(process, event, reward)])[0]

    def log(self) -> list[LogEntry]:
        return [unpack_entry(entry) for entry in self.deployments[0].store.read("p").entries]

    def close(self) -> None:
        for deployment in self.deployments:
            deployment.store.close()


@contextmanager
def serving(database: str, count: int = 2, policy: str = "joint-linucb", **changes: Any) -> Iterator[Processes]:
    made = Processes(database, count, policy, **changes)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("policy", ["stream-glm", "joint-linucb", "joint-glm", "shuffle-glm", "greedy-mle"])
@pytest.mark.parametrize("hold", [True, False])
def test_processes_that_alternate_are_one_service(policy: str, hold: bool, database: str) -> None:
    changes: dict[str, Any] = {"horizon": 400} if policy in ("joint-glm", "shuffle-glm") else {}
    with serving(database, 3, policy, hold=hold, default_reward=0.0, **changes) as several:
        for number in range(90):
            several.clock.now += 0.4
            asked = number % 3
            found = several.decide(asked, f"event {number}")
            assert isinstance(found, Answer)
            assert several.decide((asked + 1) % 3, f"event {number}") == found._replace(new=False)
            if number % 4:
                assert several.reward((asked + 2) % 3, f"event {number}", 1.0) == Answer(found.arm, True)
                assert several.reward(asked, f"event {number}", 1.0) == Answer(found.arm, False)
                assert several.reward((asked + 1) % 3, f"event {number}", 0.0) is Refusal.OTHER_REWARD
            if number == 60:
                several[1].host.journal.compact()
        several.clock.now += WAIT
        several.decide(0, "last")
        for deployment in several.deployments:
            deployment.refresh()
        first, *others = [several[process].host for process in range(3)]
        assert first.published.decisions == 91
        assert first.unsettled == 1
        for other in others:
            same_state(first.journal.policy, other.journal.policy, rounding=policy == "shuffle-glm")
            for name in ("mode", "decisions", "releases", "estimate", "history", "spent_mu"):
                assert getattr(other.published, name) == getattr(first.published, name), name
        again = PolicyJournal(several.deployments[0].store, "p").policy
        same_state(first.journal.policy, again, rounding=policy == "shuffle-glm")


def _moves(several: Processes, delays: dict[int, float], last: int) -> list[tuple[Any, ...]]:
    """Decisions at public times by both processes in turn, rewards in between; what the log says of who went where."""
    begun = several.clock.now
    times = [(0.5 * number, 0, number) for number in range(last)]
    times += [(0.5 * number + delay, 1, number) for number, delay in delays.items()]
    for at, kind, number in sorted(times):
        several.clock.now = begun + at
        if kind == 0:
            several.decide(number % 2, f"event {number}")
        else:
            several.reward((number + 1) % 2, f"event {number}", 1.0)
    first = next(entry.first for entry in several.log() if isinstance(entry, Decided))
    moves: list[tuple[Any, ...]] = []
    for entry in several.log():
        if isinstance(entry, Rewarded):
            moves.append(("rewarded", entry.decision - first))
        elif isinstance(entry, Decided):
            moves.append(("decided", entry.first - first))
        elif isinstance(entry, Released):
            moves.append(("released",))
    return moves


def test_with_hold_the_time_of_rewards_moves_nothing(postgres: Any) -> None:
    """Neither the row that they belong to nor any other one: the logs of two worlds differ in nothing but values."""
    early, late = dict.fromkeys(range(40), 0.1), {number: 0.1 + 0.2 * (number % 45) for number in range(40)}
    logs = []
    for delays in (early, late):
        with postgres.database() as database, serving(database) as several:
            logs.append(_moves(several, delays, 60))
    assert logs[0] == logs[1]
    assert sum(move[0] == "rewarded" for move in logs[0]) == 40
    assert ("released",) in logs[0]


def test_without_hold_a_reward_moves_its_own_row_alone(postgres: Any) -> None:
    usual = dict.fromkeys(range(30), 0.1)
    logs = []
    for delays in (usual, usual | {7: 3.2}):
        with postgres.database() as database, serving(database, hold=False) as several:
            logs.append([move for move in _moves(several, delays, 50) if move != ("rewarded", 7)])
    assert logs[0] == logs[1]


@contextmanager
def alike(postgres: Any, **changes: Any) -> Iterator[Processes]:
    """Two processes on a database of their own, which draw what others do that are made so."""
    with same_chance(), postgres.database() as database, serving(database, default_reward=0.0, **changes) as several:
        yield several


class Held:
    """Work in a thread, which waits before the next call of a method of a store until it may go on."""

    def __init__(self, lane: ThreadPoolExecutor, store: Any, method: str, work: Callable[[], Any]) -> None:
        reached, self.opened, usual = threading.Event(), threading.Event(), getattr(store, method)

        def arrive(*_: object) -> None:
            setattr(store, method, usual)
            reached.set()

        def wait(*given: Any) -> Any:
            arrive()
            assert self.opened.wait(PATIENCE)
            return usual(*given)

        setattr(store, method, wait)
        self._done = lane.submit(work)
        self._done.add_done_callback(arrive)  # without such a call
        assert reached.wait(PATIENCE)

    def go_on(self) -> Any:
        """What the work gives."""
        self.opened.set()
        return self._done.result(PATIENCE)


def _seen_by_others(several: Processes, call: str = "", until: int = 0) -> tuple[list[Any], Answer | Refusal | None]:
    """What others see, step by step, and where their rows go; and the answer to a reward that is held up at a call.

    It goes on after a later decision; without a call there is no such reward.
    """
    seen, log, answer = list[Any](), list[LogEntry](), None
    several[1].host._since += 2.0  # it was paused
    with ThreadPoolExecutor(1) as lane, ExitStack() as at_last:
        for number in range(32):
            several.clock.now += 0.25
            event = f"event {number}" if number != 5 else OWN
            found = several.decide(number % 2, event)
            if event != OWN:
                several.reward(number % 2, event, 1.0)
            several.clock.now += 0.25
            several.deployments[number // 2 % 2].tick()
            if call and number == 20:
                held = Held(lane, several.deployments[1].store, call, partial(several.reward, 1, OWN, 1.0))
                at_last.callback(held.opened.set)
            if number == 21:
                log = several.log()
                several[0].host.journal.compact()
            if call and number == until:
                answer = held.go_on()
            (journal,) = several.deployments[0].store.journals()
            seen.append((found, journal.note, several[0].host.published, several[1].host.published))
    return seen + _rows_of_others(several, log), answer


def _rows_of_others(several: Processes, earlier: Sequence[LogEntry]) -> list[Any]:
    """What is logged of others and kept for them; with ``hold`` also when the row of its own was added."""
    log, store = [*earlier, *several.log()], several.deployments[0].store
    own = next(entry.first for entry in log if isinstance(entry, Decided)) + 5
    entries = [b"" if getattr(entry, "decision", None) == own else pack_entry(entry) for entry in log]
    rows = [row for table in (EVENTS, INBOX) for row in store.scan("p", table, 0, 99) if row.position != 6]
    assert sum(isinstance(entry, Released) for entry in log) > 3
    return rows + [entry for entry in entries if entry or several[0].terms.hold]


def _differences(worlds: Sequence[Sequence[Any]]) -> list[int]:
    """The places at which not all worlds have the same."""
    return [place for place, (first, *others) in enumerate(zip_longest(*worlds)) if others != [first] * len(others)]


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("call", ["find", "swap"])
def test_a_reward_that_is_held_up_moves_nothing_of_others(call: str, hold: bool, postgres: Any) -> None:
    """Before its event is read, and between that and the write, others decide, settle and write a snapshot.

    What they see, and where their rows go, is the same without it: until its own waiting time is over, or longer.
    """
    worlds, answers = [], []
    for held in (("", 0), (call, 20), (call, 22), (call, 28)):
        with alike(postgres, hold=hold, event_memory=3 * WAIT) as several:
            seen, answer = _seen_by_others(several, *held)
        worlds.append(seen)
        answers.append(answer)
    assert _differences(worlds) == []
    assert answers == [None, Answer(0, True), Answer(0, True), Refusal.EXPIRED]


@pytest.mark.parametrize("hold", [True, False])
def test_clocks_of_hosts_may_differ(hold: bool, postgres: Any) -> None:
    """What waits and what is due is counted in each one's own seconds: no clock is compared with another's."""
    worlds = []
    for ahead in ((0.0, 0.0), (1e6, 0.0), (-750.0, 1e6)):
        with alike(postgres, ahead=ahead, hold=hold) as several:
            seen, answer = _seen_by_others(several, "swap", 22)
            worlds.append([*seen, answer, several[0].host.unsettled, several[1].host.unsettled])
    assert _differences(worlds) == []
    assert worlds[0][-3] == Answer(0, True)


@pytest.mark.parametrize("hold", [True, False])
def test_a_reward_waits_for_no_turn_and_no_turn_for_a_reward(hold: bool, database: str) -> None:
    """While one process holds the lock, rewards of other events are answered, by all processes."""
    with serving(database, hold=hold) as several:
        for event in "abc":
            several.decide(0, event)
        with several[0].host.journal.working(), ThreadPoolExecutor(1) as lane:
            for process, event in enumerate("ab"):
                told = [
                    lane.submit(several.reward, each, event, 1.0).result(PATIENCE) for each in (process, 1 - process)
                ]
                assert [answer.new for answer in told if isinstance(answer, Answer)] == [True, False]
        several.clock.now += 0.5
        assert isinstance(several.decide(1, "d"), Answer)
        assert sum(isinstance(entry, Rewarded) for entry in several.log()) == (0 if hold else 2)


def test_a_reward_of_an_event_that_is_being_settled_is_answered_after_that(database: str) -> None:
    with serving(database) as several:
        several.decide(0, "a")
        request = several.reports(1, "a", 1.0)
        store = several.deployments[0].store
        answers: list[Answer | Refusal] = []
        thread = threading.Thread(target=lambda: answers.extend(several[1].host.process([request])))
        with several[0].host.journal.working():
            assert len(store.scan("p", EVENTS, 0, 10)) == 1  # locked until the turn ends
            thread.start()
            thread.join(0.2)
            assert answers == []
        thread.join(PATIENCE)
        assert [isinstance(answer, Answer) for answer in answers] == [True]


def test_a_policy_made_elsewhere_is_found(database: str) -> None:
    with serving(database) as several:
        several.deployments[0].put("q", body("random") | {"mode": "off"})
        found = several.deployments[1].find("q")
        assert found.host.published.mode == "off"
        assert several.deployments[1].put("q", body("random"))[1] is False
        several.deployments[1].set_mode("q", "online")
        several.deployments[0].refresh("q")
        assert several.deployments[0].get("q").host.published.mode == "online"
        assert [change.number for change in several.deployments[0].get("q").host.published.modes] == [1, 2]


def test_no_reward_begins_a_clock(database: str) -> None:
    """Else the time of a first reward would say when decisions of others are due in that process."""
    with serving(database) as several:
        several.decide(0, "event")
        deployment = several.deployments[1]
        options, log = Options(), JsonLog(io.StringIO())
        writer = Writer(deployment.tick, deployment.clock, log, options.most_waiting)
        service = Service(deployment, Keyring(deployment.store), writer, writer, log, options)
        key = Key("caller", ("reward",), "n", "")

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b'{"reward": 1.0}'}

        async def reported() -> None:
            asked = asyncio.create_task(hot.reward(service, key, ("p", "event"), {"headers": []}, receive))
            assert await asyncio.wait([asked], timeout=3.0 * BEAT) == (set(), {asked})
            assert not deployment.policies
            several.clock.now += 1.0
            deployment.tick()
            assert (await asked)[0] == 201
            with pytest.raises(UnknownJournal):
                await hot.reward(service, key, ("q", "event"), {"headers": []}, receive)

        asyncio.run(reported())


def test_a_policy_that_one_process_deletes_is_deleted_for_all(database: str) -> None:
    with closing(Processes(database)) as several:
        for number in range(20):
            several.decide(number % 2, f"event {number}")
        before = several[1].host.published
        several[0].host.delete()
        assert several.reward(1, "event 3", 1.0) is Refusal.UNKNOWN_EVENT
        assert several.decide(1, "another") is Refusal.DELETED
        for process in range(2):
            seen = several[process].host.published
            assert (seen.mode, seen.releases, seen.estimate) == ("deleted", before.releases, before.estimate)
        assert several.log() == []
        assert several.deployments[1].store.scan("p", EVENTS, 0, 9) == []


def test_a_standby_that_was_promoted_is_adopted(postgres: Any, database: str) -> None:
    """It goes on in a timeline of its own, from what is public, as a new cohort."""
    from tacit.service.postgres_store import PostgresStore

    with closing(Processes(database)) as several:
        for number in range(20):
            several.decide(number % 2, f"event {number}")
        several.deployments[0].refresh()
        before = several[0].host.published
    with postgres.connected(database) as server:
        server.execute(
            "UPDATE tacit.meta SET value = replace(value, 'timeline 0', 'timeline 7') WHERE name = 'identity'"
        )
    with pytest.raises(StoreMoved, match="`tacit adopt` lets this one take over"):
        PostgresStore(database)
    with closing(PostgresStore(database, moved_too=True)) as store:
        adopt_store(store)
    with closing(PostgresStore(database)) as store:
        assert (store.scan("p", EVENTS, 0, 9), list(store.read("p").entries)) == ([], [])
        host = Deployment(store).get("p").host
        seen = host.published
        assert (seen.decisions, seen.estimate, seen.history) == (before.decisions, before.estimate, before.history)
        assert isinstance(host.journal.policy, PrivatePolicy)
        assert len(host.journal.policy._recovered_at) == 1


def test_the_clock_goes_on_from_what_others_have_written(database: str) -> None:
    """A process that counts less time than others goes on from the newest decision, and never goes back."""
    with serving(database) as several:
        several.decide(0, "a")
        several[1].host._since += 4.0  # it was paused
        several.clock.now += WAIT - 1.0
        several.decide(0, "b")
        several.decide(1, "c")  # at the time of b, by which a is not due
        several.clock.now += 1.0
        several.decide(1, "d")
        several.deployments[0].refresh()
        assert several[0].host.unsettled == 3
        assert several.reward(0, "a", 1.0) is Refusal.UNKNOWN_EVENT
