"""A host against a few lines of plain Python: any order of requests, waits, crashes and failing commits."""

from __future__ import annotations

import copy
import json
import math
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tacit.errors import StoreFailed
from tacit.service.host import BEAT, KEPT_EVERY, Answer, Decide, Refusal, Request, SetMode
from tests.service.hosting import Bench, arms_of

WAIT = 10.0
EVENTS = st.sampled_from("abc")
NUMBERS = st.sampled_from([0, 0, 0, 1])
USERS = st.sampled_from("uuv")
REWARDS = st.sampled_from([1.0, 1.0, 0.5, None])
ASKED = st.tuples(st.just("decide"), EVENTS, NUMBERS, USERS)
REPORTED = st.tuples(st.just("reward"), EVENTS, REWARDS)
SWITCHED = st.tuples(st.just("switch"), st.sampled_from(["online", "online", "apprentice", "off"]))
SMALL = st.lists(st.one_of(ASKED, ASKED, ASKED, REPORTED, REPORTED), max_size=4)
GROUPS = st.one_of(SMALL, SMALL, SMALL, SMALL, st.lists(SWITCHED, min_size=1, max_size=1))
SECONDS = st.sampled_from([0.0, 0.0, 1.0, 4.0, 10.0, 15.0, 30.0])


@dataclass
class Known:
    """An event as the model has it; the arm is not known where its answer was lost."""

    name: str
    number: int
    user: str
    counts: bool
    due: float
    arm: int | None = None
    answer: Any = "none"
    reward: float | None = None
    """What has come and has not contributed."""
    came: float = 0.0
    """When, by the clock of the process that took it: a crash can set the next one's clock back."""
    over: bool = False


@dataclass
class Model:
    """What a host should do."""

    hold: bool
    default: float | None
    rounds: int | None
    memory: float
    uptime: float = 0.0
    until: float = 0.0
    """When the newest decision's id is forgotten."""
    mode: str = "online"
    decisions: int = 0
    events: dict[str, Known] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    learned: list[tuple[Known, float]] = field(default_factory=list)

    def process(self, now: float, steps: list[tuple[Any, ...]]) -> list[Any]:
        """Answers to a group that came at one time: a refusal, or whether it is new, and the event."""
        return [getattr(self, step[0])(now, *step[1:]) for step in steps]

    def advance(self, now: float) -> None:
        """A decision or a beat: the clock moves, and all that is due contributes."""
        self.uptime = max(self.uptime, now)
        for event in self.events.values():
            if not self.hold and event.reward is not None and event.came <= self.uptime and not event.over:
                self._learn(event, event.reward)
                event.reward = None
        for event in self.events.values():
            if event.due <= self.uptime and not event.over:
                self._settle(event)
        self.events = {name: event for name, event in self.events.items() if self._known(event, self.uptime)}

    def beats(self, now: float) -> None:
        """All beats that are to be written by now, one after the other."""
        while True:
            wanted = [event.due for event in self.events.values() if not event.over]
            if self.uptime < self.until:
                wanted += [self.until, self.uptime + KEPT_EVERY]
            beat = BEAT * math.ceil(min(wanted) / BEAT) if wanted else math.inf
            if beat > now:
                return
            self.advance(beat)

    def _known(self, event: Known | None, now: float) -> bool:
        return event is not None and now < event.due + self.memory - WAIT

    def _settle(self, event: Known) -> None:
        event.over = True
        if event.answer == "none":
            event.answer = "expired"
            self._learn(event, self.default)
        elif event.reward is not None:
            self._learn(event, event.reward)

    def _learn(self, event: Known, reward: float | None) -> None:
        if event.counts and reward is not None:
            self.learned.append((event, reward))

    def decide(self, now: float, name: str, number: int, user: str) -> Any:
        self.advance(now)
        known = self.events.get(name)
        if known is not None:
            same = known.number == number and (self.rounds is None or known.user == user)
            return (False, known) if same else Refusal.OTHER_CONTENT
        if self.mode == "off":
            return Refusal.SWITCHED_OFF
        self.decisions += 1
        counts = self.rounds is None or self.users.get(user, 0) < self.rounds
        self.users[user] = self.users.get(user, 0) + 1
        arm = 0 if self.mode == "apprentice" else None
        self.until = self.uptime + self.memory
        self.events[name] = Known(name, number, user, counts, self.uptime + WAIT, arm)
        return True, self.events[name]

    def reward(self, now: float, name: str, reward: float | None) -> Any:
        known = self.events.get(name)
        if known is None or not self._known(known, max(now, self.uptime)):
            return Refusal.UNKNOWN_EVENT
        if known.answer == "expired" or (known.answer == "none" and now > known.due):
            return Refusal.EXPIRED
        if known.answer != "none":
            return (False, known) if known.answer == reward else Refusal.OTHER_REWARD
        known.answer = known.reward = reward
        known.came = now
        return True, known

    def switch(self, now: float, mode: str) -> Any:
        changed, self.mode = mode != self.mode, mode
        return changed, None


def _arms(name: str, number: int) -> int:
    return 2 * ord(name) + number


class HostMachine(RuleBasedStateMachine):
    """The same requests to both."""

    @initialize(
        hold=st.booleans(),
        default=st.sampled_from([None, 0.0, 0.25]),
        rounds=st.sampled_from([None, 1, 2]),
        processes=st.sampled_from([1, 2]),
        memory=st.sampled_from([WAIT, 2.5 * WAIT]),
    )
    def begin(self, hold: bool, default: float | None, rounds: int | None, processes: int, memory: float) -> None:
        self.folder = Path(tempfile.mkdtemp())
        levels = {} if rounds is None else {"user_level": True, "rounds_per_user": rounds}
        terms: dict[str, Any] = {"reward_wait": WAIT, "event_memory": memory, "hold": hold, "default_reward": default}
        self.bench = Bench(self.folder, processes=processes, **(terms | levels))
        self._compact_often()
        self.model = Model(hold, default, rounds, memory)
        self.since, self.committed = self.bench.clock.now, 0.0
        self.releases: dict[int, Any] = {}
        self.reads = False

    def _compact_often(self) -> None:
        for deployment in self.bench.deployments:
            deployment.get("p").host.journal._every = 23

    @rule(process=st.integers(0, 1), reads=st.booleans())
    def switch(self, process: int, reads: bool) -> None:
        """Another process is asked, which has not seen what was done since it was asked last; or somebody reads it."""
        self.reads = reads
        self.bench.switch(process % len(self.bench.deployments))

    @rule(group=GROUPS, seconds=SECONDS)
    def process(self, group: list[tuple[Any, ...]], seconds: float) -> None:
        self.bench.clock.now += seconds
        answers = self.bench.process(*self._requests(group))
        self._compare(group, answers, self.model.process(self.bench.clock.now - self.since, group))
        self.committed = self.model.uptime

    @rule(seconds=SECONDS)
    def tick(self, seconds: float) -> None:
        """A beat, at a multiple of a quarter of a second: it is written when anything is due, and now and then.

        Never because of ids that are left to be deleted: how many are left depends on groups.
        """
        self.bench.clock.now += seconds
        behind, now = self._behind, BEAT * math.floor((self.bench.clock.now - self.since) / BEAT)
        before = copy.deepcopy(self.model)
        self.model.beats(now)
        self.bench.host.tick()
        kept = float(json.loads(self.bench.note() or b"{}").get("uptime", 0.0))
        if behind and kept == self.committed:
            self.model = before  # one that knows what was decided will do it
        assert kept == max(self.committed, self.model.uptime)
        self.committed = kept

    @rule(seconds=SECONDS)
    def crash(self, seconds: float) -> None:
        self.bench.clock.now += seconds
        self.bench.crash()
        self._compact_often()
        self.since = self.bench.clock.now - self.committed

    @rule(group=SMALL, seconds=SECONDS, after=st.booleans())
    def fail(self, group: list[tuple[Any, ...]], seconds: float, after: bool) -> None:
        """The commit of a group fails, before or after it was made; nobody has an answer."""
        self.bench.clock.now += seconds
        before, learned = copy.deepcopy(self.model), len(self.bench.learned)
        self.bench.store.fail("append", "swap", error=StoreFailed("disk full"), after=after)
        behind, published = self._behind, self.bench.host.published
        requests = self._requests(group)
        answers = None
        try:
            answers = self.bench.process(*requests)
        except StoreFailed:
            assert behind or self.bench.host.published is published
        expected = self.model.process(self.bench.clock.now - self.since, group)
        if answers is not None:  # nothing was to be committed
            assert not any(isinstance(request, Decide) for request in requests)
            assert not any(answer.new for answer in answers if isinstance(answer, Answer))
            self._compare(group, answers, expected)
            self.bench.store.before = self.bench.store.after = lambda called: None
            return
        if after:
            self.committed = self.model.uptime
        else:
            self.model = before
            del self.bench.learned[learned:]
        self.crash(0.0)

    def _requests(self, group: list[tuple[Any, ...]]) -> list[Request]:
        return [self._request(*step) for step in group]

    def _request(self, kind: str, *rest: Any) -> Request:
        if kind == "decide":
            name, number, user = rest
            return self.bench.asks(name, _arms(name, number), user=user)
        return self.bench.reports(*rest) if kind == "reward" else SetMode(rest[0])

    def _compare(self, group: list[tuple[Any, ...]], answers: list[Any], expected: list[Any]) -> None:
        for answer, right, step in zip(answers, expected, group, strict=True):
            if isinstance(right, Refusal):
                assert answer is right, step
                continue
            new, event = right
            assert isinstance(answer, Answer), (answer, step)
            assert answer.new == new, step
            if event is not None:
                assert event.arm in (None, answer.arm), step
                event.arm = answer.arm

    @property
    def _behind(self) -> bool:
        """Whether another process was asked: this one will know in its next turn."""
        return bool(self.bench.store.journals()[0].note != self.bench.host._note)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        if self.reads:
            self.bench.deployment.refresh()
        elif self._behind:
            return
        assert self.bench.decisions == self.model.decisions
        learned = self.bench.learned
        assert len(learned) == len(self.model.learned)
        for (row, reward), (event, right) in zip(learned, self.model.learned, strict=True):
            assert reward == right
            assert row in {arm.tobytes() for arm in arms_of(_arms(event.name, event.number))}
            assert event.arm is None or row == arms_of(_arms(event.name, event.number))[event.arm].tobytes()
        look = self.bench.host.published
        assert (look.decisions, look.mode) == (self.model.decisions, self.model.mode)
        assert self.releases.setdefault(look.releases, look.estimate) == look.estimate
        assert len(self.bench.events()) >= len(self.model.events)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
            shutil.rmtree(self.folder)


TestHostAgainstPython = HostMachine.TestCase
TestHostAgainstPython.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
