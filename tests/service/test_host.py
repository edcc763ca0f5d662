"""A served policy: every id is one decision, every reward counts once, and others see what is committed alone."""

from __future__ import annotations

import gc
import json
import math
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import JournalLost, StoreDamaged, StoreFailed
from tacit.policies.registry import make_policy
from tacit.service import events as events_module
from tacit.service import host as host_module
from tacit.service import journal as journal_module
from tacit.service import published as published_module
from tacit.service.events import EVENTS, INBOX, Event, Progress, Status
from tacit.service.host import BEAT, IDLE, KEPT_EVERY, Answer, Refusal, Request, SetMode
from tacit.service.packing import pack_snapshot
from tacit.service.published import MODE_CHANGES, ModeChange
from tacit.service.store import Row
from tests.service.hosting import Bench, arms_of
from tests.service.parts import arguments, quick_store, same_chance

WAIT = 10.0


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, reward_wait=WAIT)
    yield made
    made.close()


def served(folder: Path, policy: str = "joint-linucb", **changes: Any) -> Bench:
    return Bench(folder, policy, **({"reward_wait": WAIT} | changes))


# Decisions


def test_the_same_id_and_content_is_the_same_decision(bench: Bench) -> None:
    arm = bench.arm("a")
    for _ in range(3):
        assert bench.decide("a") == Answer(arm, False, 1.0)
    assert bench.decisions == 1
    assert bench.decide("a", number=5) is Refusal.OTHER_CONTENT
    assert bench.decisions == 1
    bench.crash()
    assert bench.decide("a") == Answer(arm, False, 1.0)
    assert bench.decide("a", number=5) is Refusal.OTHER_CONTENT
    assert bench.decisions == 1


def test_rows_of_events_keep_propensities_and_those_of_0_2_0_have_none() -> None:
    event = Event(Status.HELD, True, 2, 7, 30.5, b"c" * 16, 1.0, b"a" * 16, 0.25)
    assert Event.unpack(event.pack()) == event
    earlier = Event.unpack(event.pack()[:-8])
    assert earlier.propensity is None
    assert earlier._replace(propensity=0.25) == event
    for wrong in (event.pack()[:-1], event.pack()[:-16], event.pack() + bytes(8)):
        with pytest.raises(StoreDamaged, match="table of events"):
            Event.unpack(wrong)


def test_an_id_belongs_to_its_namespace(bench: Bench) -> None:
    bench.arm("a")
    (other,) = bench.process(bench.asks("a", 7, namespace="m"))
    assert isinstance(other, Answer)
    assert other.new
    assert bench.decisions == 2
    assert bench.process(bench.reports("a", 1.0, namespace="o")) == [Refusal.UNKNOWN_EVENT]


def test_one_id_several_times_in_one_group(bench: Bench) -> None:
    ask, again = bench.asks("a"), bench.asks("a")
    first, second, other, rewarded, twice = bench.process(
        ask, again, bench.asks("a", 9), bench.reports("a", 1.0), bench.reports("a", 1.0)
    )
    assert isinstance(first, Answer)
    assert (first.new, second, other) == (True, first._replace(new=False), Refusal.OTHER_CONTENT)
    assert (rewarded, twice) == (Answer(first.arm, True), Answer(first.arm, False))
    assert bench.decisions == 1
    bench.wait(WAIT)
    assert bench.learned == [(bench.row("a", first.arm), 1.0)]


def test_a_user_who_counts_once_asks_twice_in_one_group(tmp_path: Path) -> None:
    bench = served(tmp_path, user_level=True, hold=False, event_memory=2.0 * WAIT)
    bench.process(bench.asks("a", user="u"), bench.asks("b", user="u"), bench.asks("c", user="v"))
    for event in "abc":
        assert isinstance(bench.reward(event, 1.0), Answer)
    bench.wait(WAIT)
    assert len(bench.learned) == 2
    assert [event.counts for event in bench.events()] == [True, False, True]


# Rewards


@pytest.mark.parametrize("hold", [True, False])
def test_rewards_new_same_other_unknown_and_of_another_arm(hold: bool, tmp_path: Path) -> None:
    bench = served(tmp_path, hold=hold)
    arm = bench.arm("a")
    assert bench.reward("a", 1.0, arm=arm + 1) is Refusal.OTHER_ARM
    assert bench.reward("b", 1.0) is Refusal.UNKNOWN_EVENT
    assert bench.learned == []
    assert bench.reward("a", 1.0, arm=arm) == Answer(arm, True)
    for _ in range(2):
        assert bench.reward("a", 1.0) == Answer(arm, False)
        assert bench.reward("a", 0.5) is Refusal.OTHER_REWARD
        assert bench.reward("a", None) is Refusal.OTHER_REWARD
        bench.crash()
    assert bench.learned == []
    bench.arm("later")
    assert bench.learned == ([] if hold else [(bench.row("a", arm), 1.0)])
    bench.wait(WAIT)
    assert bench.learned == [(bench.row("a", arm), 1.0)]


def test_a_reward_of_either_zero_is_the_same(bench: Bench) -> None:
    arm = bench.arm("a")
    assert bench.reward("a", 0.0) == Answer(arm, True)
    assert bench.reward("a", -0.0) == Answer(arm, False)
    assert bench.reward("a", 0) == Answer(arm, False)


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("first", [None, 1.0])
def test_abandoned_or_rewarded_whatever_comes_first(first: float | None, hold: bool, tmp_path: Path) -> None:
    bench = served(tmp_path, hold=hold, event_memory=5 * WAIT)
    second = 1.0 if first is None else None
    arm = bench.arm("a")
    assert bench.reward("a", first) == Answer(arm, True)
    assert bench.reward("a", second) is Refusal.OTHER_REWARD
    assert bench.reward("a", first) == Answer(arm, False)
    bench.crash()
    bench.wait(WAIT)
    assert bench.reward("a", second) is Refusal.OTHER_REWARD
    assert bench.reward("a", first) == Answer(arm, False)
    assert bench.learned == ([] if first is None else [(bench.row("a", arm), 1.0)])


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("default", [None, 0.0, 0.25])
def test_a_reward_that_does_not_come(default: float | None, hold: bool, tmp_path: Path) -> None:
    bench = served(tmp_path, hold=hold, default_reward=default, event_memory=5 * WAIT)
    arm = bench.arm("a")
    bench.wait(WAIT - 0.001)
    assert bench.learned == []
    bench.wait(0.001)
    expected = [] if default is None else [(bench.row("a", arm), default)]
    assert bench.learned == expected
    for _ in range(2):
        assert bench.reward("a", 1.0) is Refusal.EXPIRED
        assert bench.reward("a", None) is Refusal.EXPIRED
        assert bench.reward("a", default if default is not None else 1.0) is Refusal.EXPIRED
        assert bench.decide("a") == Answer(arm, False, 1.0)
        bench.crash()
    bench.wait(10 * WAIT)
    assert bench.learned == expected
    assert bench.host.journal.policy._pending.to_arrays()["ids"].size == 0  # nothing waits for ever


def test_held_rewards_contribute_in_the_order_of_decisions(bench: Bench) -> None:
    """Whatever the order in which they came: the delay is no longer data."""
    arms = {event: bench.arm(event) for event in "abcd"}
    for event in "dbca":
        bench.clock.now += 1.0
        bench.reward(event, 1.0)
    assert bench.learned == []
    bench.wait(WAIT - 4.0)
    assert [row for row, _ in bench.learned] == [bench.row(event, arms[event]) for event in "abcd"]


def test_a_late_decision_is_settled_after_its_own_wait(bench: Bench) -> None:
    first = bench.arm("a")
    bench.clock.now += WAIT / 2
    second = bench.arm("b")
    bench.process(bench.reports("a", 1.0), bench.reports("b", 1.0))
    bench.wait(WAIT / 2)
    assert bench.learned == [(bench.row("a", first), 1.0)]
    bench.wait(WAIT / 2)
    assert bench.learned[1:] == [(bench.row("b", second), 1.0)]


@pytest.mark.parametrize("hold", [True, False])
def test_a_reward_is_late_by_its_own_time(hold: bool, tmp_path: Path) -> None:
    """By when it came, and not by whether somebody has asked or settled anything since."""
    bench = served(tmp_path, hold=hold, event_memory=9 * WAIT, default_reward=0.25)
    arms = {event: bench.arm(event) for event in "ab"}
    bench.clock.now += WAIT
    last = bench.reports("a", 1.0)
    bench.clock.now += 0.001
    assert bench.reward("b", 1.0) is Refusal.EXPIRED
    assert bench.process(last) == [Answer(arms["a"], True)]  # carried out late, arrived in time
    assert bench.learned == []
    bench.arm("c")
    assert bench.learned == [(bench.row("a", arms["a"]), 1.0), (bench.row("b", arms["b"]), 0.25)]
    assert bench.reward("b", 1.0) is Refusal.EXPIRED


# Time


def test_time_in_which_the_service_is_down_does_not_count(bench: Bench) -> None:
    arm = bench.arm("a")
    bench.wait(KEPT_EVERY)  # a beat, which is written
    bench.clock.now += 1000.0
    bench.crash()
    bench.host.tick()
    assert bench.reward("a", 1.0) == Answer(arm, True)
    assert bench.learned == []
    bench.wait(WAIT - KEPT_EVERY)
    assert bench.learned == [(bench.row("a", arm), 1.0)]


def test_a_clock_that_begins_anew_with_the_machine(bench: Bench) -> None:
    arm = bench.arm("a")
    bench.reward("a", 1.0)
    bench.clock.now = 3.0
    bench.crash()
    bench.wait(WAIT - 1.0)
    assert bench.learned == []
    bench.wait(1.0)
    assert bench.learned == [(bench.row("a", arm), 1.0)]


def test_a_good_end_commits_the_clock(tmp_path: Path) -> None:
    bench = served(tmp_path)
    bench.arm("a")
    bench.clock.now += WAIT - 1.0
    bench.host.close()
    bench.crash()
    bench.wait(1.0)
    assert bench.reward("a", 1.0) in (Refusal.EXPIRED, Refusal.UNKNOWN_EVENT)


def test_ids_are_forgotten_and_then_new(tmp_path: Path) -> None:
    bench = served(tmp_path, event_memory=3 * WAIT)
    arm = bench.arm("a")
    bench.reward("a", 1.0)
    bench.wait(3 * WAIT - 0.001)
    assert bench.decide("a") == Answer(arm, False, 1.0)
    assert len(bench.events()) == 1
    bench.wait(0.001)
    assert bench.events() == []
    assert bench.reward("a", 1.0) is Refusal.UNKNOWN_EVENT
    decided = bench.decide("a", 77)
    assert isinstance(decided, Answer)
    assert decided.new
    assert bench.decisions == 2
    assert len(bench.learned) == 1


def test_with_the_shortest_memory_nothing_is_forgotten_before_it_contributed(bench: Bench) -> None:
    arms = {event: bench.arm(event) for event in "abc"}
    for event in "abc":
        bench.reward(event, 1.0)
    bench.wait(50 * WAIT)
    assert len(bench.learned) == 3
    bench.crash()
    bench.host.tick()
    assert bench.events() == []
    assert [row for row, _ in bench.learned] == [bench.row(event, arms[event]) for event in "abc"]


@pytest.mark.parametrize("fails", [None, 1, 3])
def test_a_decision_settles_all_that_is_due_however_much_it_is(
    fails: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In transactions of bounded size; one that fails leaves the rest to the next decision."""
    monkeypatch.setattr(host_module, "_SETTLED_AT_ONCE", 8)
    monkeypatch.setattr(events_module, "_FEW", 5)
    bench = served(tmp_path, policy="random", event_memory=2 * WAIT)
    names = [f"event {number}" for number in range(30)]
    bench.process(*(bench.asks(name) for name in names))
    bench.process(*(bench.reports(name, 1.0) for name in names))
    bench.clock.now += WAIT
    assert bench.reward(names[-1], 0.0) is Refusal.OTHER_REWARD
    assert bench.learned == []
    if fails is not None:
        bench.store.fail("append", error=StoreFailed("disk full"), calls=fails)
        with pytest.raises(StoreFailed):
            bench.arm("later")
        bench.crash()
        del bench.learned[8 * fails :]
        assert bench.decisions == 30
    bench.arm("later")
    assert len(bench.learned) == len(set(bench.learned)) == 30
    bench.wait(WAIT)
    bench.wait(WAIT)
    assert bench.events() == []


def test_a_decision_sees_the_rewards_that_came_before_it_and_no_others(tmp_path: Path) -> None:
    """Also when it is carried out after them: where a row goes follows from when its own reward came."""
    bench = served(tmp_path, policy="random", hold=False)
    arm = bench.arm("a")
    asked = bench.asks("b")
    bench.clock.now += 1.0
    bench.reward("a", 1.0)
    bench.process(asked)
    assert bench.learned == []
    bench.crash()
    bench.clock.now += 2.0
    bench.arm("c")
    assert bench.learned == [(bench.row("a", arm), 1.0)]
    bench.arm("d")
    assert len(bench.learned) == 1


def test_decisions_of_one_group_are_settled_by_its_later_ones(tmp_path: Path) -> None:
    """A group is no unit of time: every decision has its own stamp, and sees what was due by then."""
    bench = served(tmp_path, policy="random", default_reward=0.25, event_memory=2 * WAIT)
    group = list[Request]()
    for event in "abc":
        group.append(bench.asks(event))
        if event == "a":
            group.append(bench.reports("a", 1.0))
        bench.clock.now += 0.6 * WAIT
    first, _, second, third = bench.process(*group)
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert bench.learned == [(bench.row("a", first.arm), 1.0)]
    bench.process(bench.asks("d"))
    assert bench.learned[1:] == [(bench.row("b", second.arm), 0.25)]
    bench.wait(0.0)
    assert [event.status for event in bench.events()] == [Status.DONE, Status.EXPIRED, Status.WAITING, Status.WAITING]
    assert isinstance(third, Answer)


@pytest.mark.parametrize("hold", [True, False])
def test_a_group_that_takes_long_takes_several_turns(
    hold: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for the end of a turn; what is answered, learned and released is the same as in one."""
    outcomes, turns = [], []
    for longest in (math.inf, -1.0):
        monkeypatch.setattr(host_module, "_LONGEST_TURN", longest)
        with same_chance():
            bench = served(tmp_path / str(longest), hold=hold, default_reward=0.25, event_memory=3 * WAIT)
            calls, group = list[str](), _long_group(bench)
            bench.store.before = calls.append
            answers = bench.process(*group)
        turns.append(calls.count("turn"))
        kept = [bench.store.scan("p", table, 0, 10**6) for table in (EVENTS, INBOX)]
        state = bench.host.journal.policy.fingerprint(), list(bench.store.read("p").entries)
        outcomes.append((answers, bench.learned, kept, bench.note(), state, bench.host.published.estimate))
        bench.close()
    assert turns == [1, len(group)]
    assert outcomes[0] == outcomes[1]
    refusals = {answer for answer in answers if isinstance(answer, Refusal)}
    assert refusals == {Refusal.OTHER_CONTENT, Refusal.OTHER_REWARD, Refusal.EXPIRED, Refusal.SWITCHED_OFF}
    assert bench.host.published.releases > 3


def _long_group(bench: Bench) -> list[Request]:
    """Decisions and rewards of all fates, over more than a waiting time; a change of mode at last."""
    group = list[Request]()
    for number in range(30):
        bench.clock.now += 1.0
        rewards = [bench.reports(f"event {each}", number % 2) for each in (number - number % 4, number // 2)]
        group += [bench.asks(f"event {number}"), *rewards]
    return [*group, bench.asks("event 3"), bench.asks("event 3", 9), SetMode("off"), bench.asks("a"), *rewards]


def test_rewards_neither_settle_nor_move_the_clock(tmp_path: Path) -> None:
    """Nor do they write it down: after a crash it goes on from the last decision or beat."""
    bench = served(tmp_path, event_memory=2 * WAIT, default_reward=0.0)
    arm = bench.arm("a")
    bench.clock.now += WAIT - 1.0
    bench.arm("b")
    note = bench.note()
    for _ in range(20):
        bench.clock.now += 1.01
        bench.reward("b", 1.0)
        bench.reward("c", 1.0)
        bench.reward("a", 1.0)
    assert (bench.learned, bench.note()) == ([], note)
    bench.crash()
    assert bench.reward("a", 1.0) == Answer(arm, True)  # a second of its waiting time is left
    assert bench.decide("a") == Answer(arm, False, 1.0)
    assert bench.learned == []


def test_beats_are_written_whether_or_not_anything_is_due(tmp_path: Path) -> None:
    bench = served(tmp_path, reward_wait=100.0)
    bench.arm("a")
    written = []
    for _ in range(40):
        bench.wait(0.6)
        written.append(bench.note())
    assert len(set(written)) == 5  # every five seconds
    bench.crash()
    bench.wait(100.0 - 24.0 - 1.0)
    assert isinstance(bench.reward("a", 1.0), Answer)
    idle = Bench(tmp_path / "idle", reward_wait=WAIT)
    idle.wait(1.0)
    note = idle.note()
    for _ in range(40):
        idle.wait(0.6)
    assert idle.note() == note  # nothing waits: nothing is written
    idle.close()


def test_no_beat_is_written_because_ids_are_left_to_be_deleted(bench: Bench) -> None:
    """How many are left depends on how decisions were grouped, and so on rewards."""
    bench.arm("a")
    bench.wait(BEAT)
    bench.clock.now += WAIT
    bench.arm("b")  # settles "a", which its own commit cannot delete
    before = bench.note()
    assert next(iter(bench.events())).due <= json.loads(before)["uptime"]
    bench.wait(4 * BEAT)
    assert bench.note() == before
    bench.wait(KEPT_EVERY)  # one that is written anyway deletes it
    assert json.loads(bench.note())["forgotten"] == 1


@pytest.mark.parametrize("late", [0.6, 1.9, 7.3, 19.0])
@pytest.mark.parametrize("hold", [True, False])
def test_beats_that_come_late_are_made_up_for(hold: bool, late: float, tmp_path: Path) -> None:
    """Somebody's reward may hold a beat up: what is written as the clock then, and later, must not tell of it."""
    worlds = []
    for name, held_up in (("on time", 0.0), ("late", late)):
        bench = served(tmp_path / name, hold=hold, default_reward=0.0, event_memory=10.0 * WAIT)
        events = iter([(0.1, "a"), (0.4, "b"), (3.3, "c"), (2.0 * WAIT + 0.05, "d"), (2.0 * WAIT + 2.6, "e")])
        began, (when, event) = bench.clock.now, next(events)
        kept, learned = list[float](), list[int]()
        for beat in range(1, int(6 * WAIT / BEAT)):
            while when < beat * BEAT:
                bench.clock.now = began + when
                bench.arm(event)
                learned.append(len(bench.learned))
                when, event = next(events, (math.inf, ""))
            bench.clock.now = began + beat * BEAT
            if not any(start < beat * BEAT <= start + held_up for start in (0.95 * WAIT, 3.1 * WAIT)):
                bench.host.tick()
                kept.append(json.loads(bench.note())["uptime"])
        worlds.append(([*learned, len(bench.learned)], kept[-20:], json.loads(bench.note())))
    assert worlds[0] == worlds[1]


def test_of_late_beats_that_only_keep_the_clock_one_is_written(tmp_path: Path) -> None:
    bench = served(tmp_path, event_memory=100.0 * WAIT)
    bench.arm("a")
    bench.wait(WAIT)
    calls: list[str] = []
    bench.store.after = calls.append
    bench.wait(50.0 * WAIT)
    assert calls.count("append") == 1
    assert json.loads(bench.note())["uptime"] == 51.0 * WAIT


def test_a_beat_that_waits_settles_what_was_due_when_it_was_asked_for(bench: Bench) -> None:
    bench.arm("a")
    bench.reward("a", 1.0)
    asked = bench.clock.now + WAIT - BEAT
    bench.clock.now += WAIT + BEAT
    bench.deployment.tick(asked)
    assert bench.learned == []
    bench.deployment.tick()
    assert len(bench.learned) == 1


def test_an_id_that_is_used_again_keeps_no_other_from_being_deleted(tmp_path: Path) -> None:
    bench = served(tmp_path, event_memory=WAIT)
    bench.process(*(bench.asks(str(number), number) for number in range(40)))
    bench.clock.now += WAIT
    bench.arm("0")
    bench.wait(KEPT_EVERY)
    assert len(bench.events()) == 1


def test_many_ids_are_deleted_by_one_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last beat deletes all of them, in several commits of one time; then nothing is written any more."""
    monkeypatch.setattr(events_module, "_FORGOTTEN_AT_ONCE", events_module._FEW)
    bench = served(tmp_path)
    bench.process(*(bench.asks(str(number), number) for number in range(150)))
    bench.wait(BEAT)
    bench.wait(WAIT)
    assert bench.events() == []
    note = bench.note()
    bench.wait(2.0 * KEPT_EVERY)
    assert bench.note() == note


def test_a_note_of_an_earlier_version_keeps_the_clock_while_ids_are_known() -> None:
    """0.2.0 did not write until when: for as long as an id of the newest decision may be known."""
    assert Progress.of_note(b'{"uptime": 30.0, "position": 7, "forgotten": 6}', 25.0).until == 55.0
    assert Progress.of_note(b'{"uptime": 30.0, "position": 7, "forgotten": 7}', 25.0).until == 0.0
    assert Progress.of_note(b'{"uptime": 30.0, "position": 7, "until": 40.0}', 25.0).until == 40.0
    assert Progress.of_note(b"", 25.0) == Progress()


def test_an_id_is_known_by_the_clock_deleted_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module.WaitingEvents, "forget", lambda self, now: None)
    bench = served(tmp_path, event_memory=2 * WAIT)
    arm = bench.arm("a")
    bench.reward("a", 1.0)
    bench.clock.now += 2 * WAIT - 0.001
    assert bench.decide("a") == Answer(arm, False, 1.0)
    assert bench.reward("a", 1.0) == Answer(arm, False)
    bench.clock.now += 0.001
    assert bench.reward("a", 1.0) is Refusal.UNKNOWN_EVENT
    bench.arm("a")
    assert len(bench.events()) == 1


def test_the_store_stays_flat(tmp_path: Path) -> None:
    bench = served(tmp_path, policy="random", hold=False)
    sizes = []
    for number in range(400):
        bench.arm(f"event {number}")
        bench.wait(1.0)
        sizes.append(len(bench.events()))
    assert max(sizes) <= WAIT + 2
    assert len(bench.host.journal.policy._pending.to_arrays()["ids"]) <= WAIT + 2


# Users who return


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("rounds", [1, 3])
def test_the_first_decisions_of_a_user_count(rounds: int, hold: bool, tmp_path: Path) -> None:
    """Rewarded or not; later ones are answered, rewarded and refused in the very same words."""
    bench = served(tmp_path, user_level=True, rounds_per_user=rounds, hold=hold, event_memory=9 * WAIT)
    answers = []
    for number in range(5):
        name = f"event {number}"
        arm = bench.arm(name, user="u")
        if number % 2:
            told = bench.reward(name, 1.0, arm=arm + 1), bench.reward(name, 1.0), bench.reward(name, 1.0)
            answers.append([answer if isinstance(answer, Refusal) else answer.new for answer in told])
        bench.crash()
    assert answers == [[Refusal.OTHER_ARM, True, False]] * 2
    bench.wait(WAIT)
    assert len(bench.learned) == sum(number % 2 for number in range(rounds))
    assert [event.counts for event in bench.events()] == [number < rounds for number in range(5)]
    expected = [Status.DONE if number % 2 else Status.EXPIRED for number in range(5)]
    assert [event.status for event in bench.events()] == expected
    refused = [bench.reward(f"event {number}", 0.5) for number in range(5)]
    assert refused == [Refusal.OTHER_REWARD if number % 2 else Refusal.EXPIRED for number in range(5)]


def test_counters_outlive_events(tmp_path: Path) -> None:
    bench = served(tmp_path, user_level=True)
    bench.arm("a", user="u")
    bench.wait(WAIT)
    bench.wait(WAIT)
    assert bench.events() == []
    bench.arm("a", user="u")
    assert [event.counts for event in bench.events()] == [False]


def test_later_decisions_of_a_user_leave_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy is, to the bit, one that was asked as often and never had those rewards."""
    monkeypatch.setattr(journal_module, "_refuse_what_nobody_may_serve", lambda policy: None)
    bench = served(tmp_path, user_level=True, rounds_per_user=2, seed=4, hold=False)
    alone = make_policy(
        "joint-linucb", **arguments("joint-linucb", horizon=None, seed=4, rounds_per_user=2, reward_window=1_000_000)
    )
    log: list[Any] = []
    alone.keep_log(log.append)
    seen: dict[str, int] = {}
    for number in range(60):
        user = f"u{(number * number) % 7}"
        arm = bench.arm(f"event {number}", number, user=user)
        decision = alone.select(arms_of(number))
        assert decision.arm == arm
        seen[user] = seen.get(user, 0) + 1
        if number % 5:
            bench.reward(f"event {number}", 1.0)
            if seen[user] <= 2:
                alone.update(decision, 1.0)
            else:
                alone.abandon(decision)
        elif seen[user] > 2:
            alone.abandon(decision)
    assert max(seen.values()) > 3
    assert len(bench.learned) < 20
    assert bench.host.journal.policy.fingerprint() == alone.fingerprint()
    bench.crash()
    assert bench.host.journal.policy.fingerprint() == alone.fingerprint()


# Modes


def test_an_apprentice_answers_arm_0_and_learns_from_it(bench: Bench) -> None:
    bench.mode("apprentice")
    assert bench.host.published.mode == "apprentice"
    for event in "abc":
        assert bench.arm(event) == 0
        bench.reward(event, 1.0, arm=0)
    bench.crash()
    assert bench.host.published.mode == "apprentice"
    assert bench.arm("d") == 0
    bench.wait(WAIT)
    assert bench.learned == [(bench.row(event, 0), 1.0) for event in "abc"]
    assert bench.decisions == 4


def test_switched_off_refuses_decisions_and_takes_rewards(bench: Bench) -> None:
    arm = bench.arm("a")
    bench.mode("off")
    assert bench.decide("b") is Refusal.SWITCHED_OFF
    assert bench.decide("a") == Answer(arm, False, 1.0)
    assert bench.decisions == 1
    assert bench.host.published.decisions == 1
    bench.crash()
    assert bench.decide("b") is Refusal.SWITCHED_OFF
    assert bench.reward("b", 1.0) is Refusal.UNKNOWN_EVENT
    assert bench.reward("a", 1.0) == Answer(arm, True)
    bench.wait(WAIT)
    assert bench.learned == [(bench.row("a", arm), 1.0)]
    bench.mode("online")
    bench.arm("b")


def test_changes_of_mode_are_public_events_that_survive(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_module, "MOST_MODES", 3)
    assert not _looks(bench).modes
    bench.arm("a")
    bench.mode("online")  # as it was: no change
    bench.process(SetMode("off"), SetMode("online"))  # in one group: both are seen, though the mode is as before
    start = time.time()
    before = bench.host.published
    assert [(change.decisions, change.mode) for change in before.modes] == [(1, "off"), (1, "online")]
    assert all(abs(change.time - start) < 60.0 for change in before.modes)
    bench.crash()
    assert bench.host.published.modes == before.modes
    bench.arm("b")
    bench.store.fail("append", error=StoreFailed("disk full"), after=False)
    look = bench.host.published
    with pytest.raises(StoreFailed):
        bench.mode("off")
    assert bench.host.published is look
    bench.crash()
    assert bench.host.published.modes == before.modes
    bench.mode("apprentice")
    bench.mode("off")
    kept = [(change.number, change.decisions, change.mode) for change in bench.host.published.modes]
    assert kept == [(2, 1, "online"), (3, 2, "apprentice"), (4, 2, "off")]
    shown = bench.host.published.modes
    bench.crash()
    assert bench.host.published.modes == shown
    bench.mode("online")
    assert bench.host.published.modes[-1].number == 5


def test_a_store_from_before_modes_were_logged_is_opened(bench: Bench) -> None:
    bench.mode("off")
    bench.host.journal.group.forget[MODE_CHANGES] = 1
    bench.host.journal.commit()
    bench.crash()
    assert (bench.host.published.mode, bench.host.published.modes) == ("off", ())
    bench.mode("online")
    assert [change.number for change in bench.host.published.modes] == [1]


@pytest.mark.parametrize("value", [b"", b"[]", b'[1.0, 2, "on"]', b'[null, 2, "off"]', b"{", b"\xff"])
def test_a_change_of_mode_that_cannot_be_read_is_damage(value: bytes) -> None:
    with pytest.raises(StoreDamaged, match="table of modes"):
        ModeChange.from_row(Row(bytes(8), 1, value))


# What others see


def _looks(bench: Bench) -> Any:
    return bench.host.published


def _last_look(bench: Bench, error: type[BaseException]) -> Any:
    """What others saw before the first decision that fails so; one of the next ones does."""
    for number in range(30, 60):
        before = _looks(bench)
        try:
            bench.decide(f"event {number}")
        except error:
            return before
    return None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["append", "find", "scan", "compact"])
def test_nothing_is_published_that_is_not_committed(
    method: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = served(tmp_path)
    monkeypatch.setattr(bench.host.journal, "_every", 25)
    bench.arm("a")
    for number in range(9):
        bench.arm(f"event {number}")
    bench.clock.now += WAIT
    bench.store.fail(method, error=StoreFailed("disk full"), after=after)
    before, shown = _last_look(bench, StoreFailed), _looks(bench)
    assert before is not None
    if method == "compact":  # comes after the commit of its group, which may be seen
        assert shown.decisions == before.decisions + 1
    else:
        assert shown is before
    with pytest.raises(StoreFailed, match="cannot go on"):
        bench.process()
    bench.store.after = bench.store.before = lambda called: None
    with pytest.raises(StoreFailed, match="cannot go on"):
        bench.process()  # also when the disk is well again: memory is not
    bench.host.close()  # writes nothing
    bench.crash()
    assert bench.decisions - shown.decisions in (0, 1)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug"), JournalLost("another owner")])
@pytest.mark.parametrize("where", ["_look_up", "add", "_record"])
def test_whatever_interrupts_a_group_ends_the_host(where: str, error: BaseException, tmp_path: Path) -> None:
    """Also between the policy's work and the rows that belong to it: half a group is never committed."""
    bench = served(tmp_path)
    bench.arm("a")

    def strike(*given: Any) -> Any:
        raise error

    owner = bench.host._events if where == "add" else bench.host
    setattr(owner, where, strike)
    assert _last_look(bench, type(error)) is _looks(bench)
    delattr(owner, where)
    rows = len(bench.events())
    with pytest.raises(StoreFailed, match="cannot go on"):
        bench.process()
    bench.crash()
    assert bench.decisions == rows == len(bench.events())


@pytest.mark.parametrize("policy", ["joint-linucb", "stream-glm", "shuffle-linucb", "joint-glm"])
def test_what_was_published_is_published_again_after_a_crash(policy: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"horizon": 400} if policy in ("shuffle-linucb", "joint-glm") else {}
    bench = served(tmp_path, policy, hold=False, **changes)
    for number in range(90):
        bench.clock.now += 0.01
        bench.arm(f"event {number}")
        bench.reward(f"event {number}", float(number % 2))
        if number % 9 == 0:
            before = _looks(bench)
            bench.crash()
            after = _looks(bench)
            for name in ("mode", "decisions", "releases", "estimate", "history", "spent_mu"):
                assert getattr(after, name) == getattr(before, name), name
    assert _looks(bench).releases > 1
    assert len(_looks(bench).history) == len({point.time for point in _looks(bench).history})


def test_no_number_of_releases_is_seen_with_two_estimates(tmp_path: Path) -> None:
    bench = served(tmp_path, hold=False)
    seen: dict[int, Any] = {}
    for number in range(80):
        if number % 7 == 3:
            bench.store.fail("append", error=StoreFailed("disk full"), after=bool(number % 2))
            with pytest.raises(StoreFailed):
                bench.decide(f"event {number}")
            bench.crash()
        bench.decide(f"event {number}")
        bench.reward(f"event {number}", 1.0)
        look = _looks(bench)
        assert seen.setdefault(look.releases, look.estimate) == look.estimate
    assert len(seen) > 10


def test_history_and_its_rows_are_bounded_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups with several releases: what is remembered in memory is what a restart finds."""
    monkeypatch.setattr(published_module, "MOST_RELEASES", 6)
    bench = served(tmp_path, factorization="tree", hold=False)  # which releases with every decision
    for number in range(12):
        names = [f"event {number} {place}" for place in range(4)]
        bench.process(*(bench.asks(name) for name in names))
        bench.process(*(bench.reports(name, 1.0) for name in names))
    before = _looks(bench)
    assert before.releases > 40
    bench.crash()
    assert _looks(bench).history == before.history
    assert 0 < len(before.history) <= 6


def test_a_policy_without_privacy_shows_no_estimate(tmp_path: Path) -> None:
    bench = served(tmp_path, "greedy-mle")
    for number in range(10):
        bench.arm(f"event {number}")
    look = _looks(bench)
    assert (look.estimate, look.explanation, look.decisions) == (None, None, 10)
    assert math.isinf(look.spent_mu)


def test_rows_of_settled_decisions_do_not_keep_rewards(tmp_path: Path) -> None:
    bench = served(tmp_path, event_memory=2.0 * WAIT)
    bench.arm("a")
    bench.reward("a", 1.0)
    assert [event.reward for event in bench.events()] == [1.0]
    bench.wait(WAIT)
    assert [math.isnan(event.reward) for event in bench.events()] == [True]


def test_the_table_of_events_names_nobody(tmp_path: Path) -> None:
    bench = served(tmp_path, user_level=True)
    bench.arm("alice@example.org", user="Alice Liddell")
    bench.host.journal.compact()
    rows = bench.store.scan("p", EVENTS, 0, 10) + bench.store.scan("p", "users", 0, 10)
    assert len(rows) == 2
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for word in (b"alice@example.org", b"Alice Liddell"):
        assert word not in files
        assert all(word not in row.key + row.value for row in rows)


def test_many_threads_are_answered_in_turn(tmp_path: Path) -> None:
    bench = served(tmp_path, "random", hold=False)
    answers: dict[str, set[int]] = {f"event {number}": set() for number in range(40)}

    def work() -> None:
        for name in answers:
            found = bench.decide(name)
            assert isinstance(found, Answer)
            answers[name].add(found.arm)
            bench.reward(name, 1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(arms) == 1 for arms in answers.values())
    assert bench.decisions == 40
    bench.wait(WAIT)
    assert len(bench.learned) == 40


def test_no_acknowledged_reward_is_lost_to_the_window(tmp_path: Path) -> None:
    """A policy keeps as many waiting rows as its reward_window has: further decisions are refused, by the clock."""
    bench = Bench(tmp_path / "store", reward_wait=WAIT, reward_window=3)
    arms = [bench.arm(event) for event in "abc"]
    for event, arm in zip("abc", arms, strict=True):
        assert bench.reward(event, 1.0) == Answer(arm, True)
    assert bench.decide("d") is Refusal.TOO_MANY_WAIT
    assert bench.decisions == 3
    bench.wait(WAIT)
    assert bench.learned == [(bench.row(event, arm), 1.0) for event, arm in zip("abc", arms, strict=True)]
    assert isinstance(bench.decide("d"), Answer)


# Policies that nobody asks for


@pytest.mark.parametrize("processes", [1, 2])
def test_a_policy_that_nobody_asks_for_leaves_the_memory(tmp_path: Path, processes: int) -> None:
    """Every process would keep every policy for ever."""
    bench = Bench(tmp_path, processes=processes, reward_wait=WAIT)
    for number in range(20):
        bench.arm(f"event {number}")
        bench.reward(f"event {number}", 1.0)
    bench.wait(WAIT)
    bench.wait(BEAT)  # ids are forgotten
    before, state = bench.host.published, bench.host.journal.policy.snapshot()
    memory = weakref.ref(bench.host.journal.policy)
    for process in range(processes):
        bench.switch(process)
        bench.host.refresh()  # somebody looks
        bench.wait(IDLE - 1.0)
        assert not bench.host.journal.resting
        bench.wait(1.0)
        assert bench.host.journal.resting
    gc.collect()
    assert memory() is None
    bench.deployment.refresh()  # nothing is new
    bench.wait(IDLE)
    assert bench.reward("event 3", 1.0) is Refusal.UNKNOWN_EVENT
    assert bench.host.journal.resting
    assert bench.host.published == before
    bench.host.public_copy()
    assert pack_snapshot(bench.host.journal.policy.snapshot()) == pack_snapshot(state)
    bench.wait(IDLE)
    assert bench.host.journal.resting
    bench.arm("another")  # it is found again
    assert (bench.decisions, bench.host.unsettled) == (21, 1)
    for seconds in (WAIT, BEAT, IDLE):
        bench.wait(seconds)
    assert bench.host.journal.resting
    bench.deployment.close()
    with closing(quick_store(tmp_path)) as store:
        assert list(store.read("p").entries) == []  # a snapshot is written at the end all the same


def test_a_policy_with_decisions_that_wait_stays_in_memory(tmp_path: Path) -> None:
    bench = served(tmp_path, reward_wait=3.0 * IDLE)
    bench.arm("a")
    for _ in range(2):
        bench.wait(IDLE)
        assert not bench.host.journal.resting
    assert bench.reward("a", 1.0) == Answer(bench.events()[0].arm, True)
    bench.close()
