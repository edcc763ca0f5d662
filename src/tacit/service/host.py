"""A served policy: decisions under the callers' ids, rewards that are waited for, users who return.

Requests come in groups.  A group of decisions is a turn of the policy's journal: what other processes have done is
taken in, the group is applied to the policy in memory, committed to the store as one transaction, and only then
published and answered.  However the process ends in between, nothing was seen that the store does not hold.
A group of rewards takes no turn: each changes the row of its own event, and nothing else.

**The clock** counts the seconds that the service was up.  It is a public input of the mechanism (docs/theory.md, "The
clock of a service"): a decision is stamped when it arrives, before it waits for anything, and moves the clock to its
stamp; so does a *beat* at regular times, with or without requests.  A reward moves nothing but its own event: it
settles nothing, neither reads nor writes the clock for others, and contributes in the turn of a later decision or
beat.  Before a decision everything that is due by then has contributed, however much it is.

**What others may see** is the published copy: it is made of releases, the ledger and the clock of decisions.  Answers
to rewards tell their own caller whether the same reward came before.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple, cast

from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import Snapshot
from tacit.service.events import EVENTS, INBOX, Event, Hashes, Progress, Status, WaitingEvents, inbox_row
from tacit.service.journal import PolicyJournal, public_part
from tacit.service.published import ModeChange, Published, modes_of, newest_point, publish, releases_of
from tacit.service.store import Journal, Row, Store, Swap
from tacit.service.terms import DELETED, Mode, Terms
from tacit.service.users import USERS, UserCounts
from tacit.typing import FloatArray

BEAT: Final = 0.25
"""Seconds between beats; the clock of a beat is a multiple of it."""
KEPT_EVERY: Final = 5.0
"""Seconds after which a beat is written though nothing is due: so much of a waiting time can be lost by a crash."""
IDLE: Final = 600.0
"""Seconds after which a policy that nobody asks for, and of whose decisions none is remembered, leaves the memory."""
_SETTLED_AT_ONCE: Final = 4_096
"""Decisions that are settled in one turn; what is left over is settled by further ones before anything else."""
_LONGEST_TURN: Final = 0.3
"""Seconds after which a turn takes up no further request: other processes wait for its end."""
_LOCKED: Final = 0.005
"""Seconds after which a reward is tried again whose event is about to be settled."""


class Refusal(Enum):
    """Why a request changes nothing."""

    OTHER_CONTENT = "the event id was used for another request"
    OTHER_REWARD = "the decision has another reward"
    OTHER_ARM = "the decision has another arm"
    UNKNOWN_EVENT = "no decision has this event id"
    EXPIRED = "the waiting time of the decision is over"
    SWITCHED_OFF = "the policy is switched off"
    DELETED = "the policy was deleted"
    TOO_MANY_WAIT = "as many decisions wait for their rewards as the policy can keep"


REFUSING: Final[Mapping[str, Refusal]] = {"off": Refusal.SWITCHED_OFF, DELETED: Refusal.DELETED}


class Decide(NamedTuple):
    """Choose an arm; ``arms`` were admitted by the policy."""

    event: bytes
    """Hash of namespace and event id."""
    content: bytes
    """Hash of what was asked."""
    arms: FloatArray
    stamp: float
    """When it arrived, by the clock that the host was given."""
    user: bytes | None = None
    """Hash of the user, where the policy counts them."""


class Reward(NamedTuple):
    """The reward of a decision; None where the arm was never shown."""

    event: bytes
    reward: float | None
    stamp: float
    """When it arrived, by the clock that the host was given."""
    arm: int | None = None


class SetMode(NamedTuple):
    """Switch a policy on, off, or to watching."""

    mode: Mode


Request = Decide | Reward | SetMode


class Answer(NamedTuple):
    """A request was carried out, now or before."""

    arm: int
    new: bool
    """Whether it changed anything; False when the same was asked for before."""
    propensity: float | None = None
    """Probability with which the arm of a decision was to be chosen; None where it is unknown, and for rewards."""


def _beat_at(seconds: float) -> float:
    """The clock of the first beat that is not before this time."""
    return BEAT * math.ceil(seconds / BEAT) if math.isfinite(seconds) else seconds


class StoppableClock:
    """Seconds, as stamps and waiting times have them, by a clock that runs until it is stopped."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read

    def __call__(self) -> float:
        return self._read()

    def stop(self) -> None:
        """Let no time pass from now on: how long a service takes to stop may depend on rewards on their way."""
        self._read = self._read().__float__  # that of now, for ever


class Host:
    """A served policy.  ``process`` may be called from several threads.

    ``clock`` gives seconds, as stamps of requests have them, and ``wall`` seconds since 1970.  ``started`` is the
    reading of ``clock`` when this life began, and ``note`` that of the journal then.
    """

    def __init__(
        self,
        store: Store,
        journal: PolicyJournal,
        terms: Terms,
        hashes: Hashes,
        clock: Callable[[], float],
        wall: Callable[[], float],
        started: float,
        note: bytes,
    ) -> None:
        self.journal, self.terms, self.hashes = journal, terms, hashes
        self._store, self._clock, self._wall, self._lock = store, clock, wall, threading.Lock()
        self._note, self._progress = journal.note, Progress.of_note(journal.note, terms.memory)
        # Others may have gone on while this one was reading: its clock is that of then, or theirs if that is ahead.
        then = Progress.of_note(note, terms.memory).uptime
        self._since = min(started - then, clock() - self._progress.uptime)
        self._used_at = started
        self._uptime = self._progress.uptime
        """The clock as it was committed last."""
        self._moved = False
        """Whether the open group holds a decision, a beat or a change of mode: rewards alone keep no clock."""
        self._events = WaitingEvents(store, journal, self._progress, terms.memory - terms.reward_wait)
        self._users: UserCounts | None = None
        """Where users are counted."""
        if terms.user_level:
            most = journal.policy.config.rounds_per_user
            self._users = UserCounts(store, journal.name, most, self._progress.users)
        self._releases = releases_of(store, journal.name)
        self._modes = modes_of(store, journal.name)
        self._progress.modes = max(self._progress.modes, self._modes.number)  # which notes before 0.3 do not have
        self.published: Published = self._publish(None)
        """What others may see; replaced after each commit, never changed."""

    def process(self, requests: Sequence[Request], *, tending: bool = True) -> list[Answer | Refusal]:
        """Carry out a group of requests, in the order of their arrival; all of it is durable when this returns.

        Without ``tending`` upkeep that is due, such as a snapshot, and takes long is left to ``tend``.
        """
        rewards = [request for request in requests if isinstance(request, Reward)]
        if len(rewards) == len(requests):
            return self._keep_rewards(rewards)
        answers: list[Answer | Refusal] = []
        with self._lock:
            while len(answers) < len(requests):
                answers += self._turn(requests[len(answers) :])
            if tending:
                self.journal.tend()
        return answers

    def _turn(self, requests: Sequence[Request]) -> list[Answer | Refusal]:
        """Carry out the first of these requests: all of them, unless that would take long."""
        answers: list[Answer | Refusal] = []
        self._used_at = self._clock()
        with self.journal.working():
            self._take_over()
            self._look_up(requests)
            begun = time.monotonic()
            for request in requests:
                if isinstance(request, Decide) and self._advance(request.stamp - self._since):
                    break  # more is due before it
                answers.append(self._carry_out(request))
                if time.monotonic() - begun > _LONGEST_TURN:
                    break
            self._commit()
        return answers

    # What other processes have done

    def refresh(self, newest: Journal | None = None) -> None:
        """Take in what is in the store, without a turn, for those who read; ``newest`` is what it has just had."""
        with self._lock:
            self.journal.check()
            if newest is not None and newest.note == self._note:  # which changes with every decision, beat and mode
                return
            self._used_at = self._clock()
            self.journal.catch_up()
            self._take_over()

    def _take_over(self) -> None:
        """Go on from where another process has come to, as the journal has just found it."""
        if self.journal.note == self._note:
            return
        self._note, self._progress = self.journal.note, Progress.of_note(self.journal.note, self.terms.memory)
        progress = self._progress
        self._events.follow(progress)
        if self._users is not None:
            self._users.known = progress.users
        self._uptime = progress.uptime
        self._since = min(self._since, self._clock() - progress.uptime)  # no clock of another host is read
        self._releases.follow(progress.releases)
        self._modes.follow(progress.modes)
        self._show()

    @property
    def unsettled(self) -> int:
        """Decisions whose waiting time is not over: by the clock, whether or not they have a reward."""
        return self._progress.position - self._progress.settled

    def tick(self, stamp: float | None = None) -> None:
        """A beat, at the time of ``stamp`` or now.

        It settles what is due, and keeps the clock now and then, so that a crash loses little of it.
        Whether there is anything to do follows from decisions and the clock, never from rewards.
        """
        now = self._newest_beat(self._clock() if stamp is None else stamp)
        with self._lock:
            if self._next_beat(now) <= now:
                while (beat := self._next_beat(now)) <= now:
                    self._beat(beat)
                self.journal.tend()
            elif not (self._remembers or self.journal.resting) and self._clock() - self._used_at >= IDLE:
                self.journal.rest()

    def _newest_beat(self, stamp: float) -> float:
        """The clock of the newest beat that there could be by then: a multiple of ``BEAT``."""
        return BEAT * math.floor((stamp - self._since) / BEAT)

    @property
    def _remembers(self) -> bool:
        """Whether the memory of any decision is not over: by the clock, whatever has been deleted."""
        return self._progress.uptime < self._progress.until

    def _next_beat(self, now: float) -> float:
        """The clock of the next beat that is to be written, of those up to ``now`` that are late: none if it is later.

        A function of decisions and the clock, however late it is asked for: what holds a process up may be a reward.
        A beat is written when something is due, when the newest id is over, and every ``KEPT_EVERY`` seconds until
        then; of several of the latter that are late the last one stands for all.
        """
        progress, wanted = self._progress, self._events.oldest_due()
        if not self._remembers:
            return _beat_at(wanted)
        event, kept = _beat_at(min(wanted, progress.until)), _beat_at(progress.uptime + KEPT_EVERY)
        if event <= now:
            return event
        return kept + KEPT_EVERY * max(0.0, (now - kept) // KEPT_EVERY)

    def _beat(self, now: float, *, last: bool = False) -> None:
        """Let everything contribute that is due by now, unless another process has done so."""
        more = True
        while more:
            with self.journal.working():
                self._take_over()
                more = last or self._next_beat(now) <= now
                if more:
                    self._look_up(())
                    more = self._advance(now)
                    self._commit()
        self._forget()

    def _forget(self) -> None:
        """Delete all ids whose memory is over, in commits that move no clock."""
        before = -1
        while before < self._progress.forgotten and self._events.over(self._progress.uptime):
            before = self._progress.forgotten
            with self.journal.working():
                self._take_over()
                self._moved = True  # the note tells what is deleted
                self._commit()

    def tend(self) -> None:
        """Do upkeep that is due, such as a snapshot; no time passes by it."""
        with self._lock:
            self.journal.tend()

    def close(self) -> None:
        """A last beat and a snapshot; the host is not used any more."""
        now = self._newest_beat(self._clock())
        with self._lock:
            if self.journal.alive:
                if not self.journal.resting or self.journal.seq > self.journal.snapshot_seq:
                    self._beat(now, last=True)
                    self.journal.compact()
                self.journal.end()

    # Requests

    def _look_up(self, requests: Sequence[Request]) -> None:
        """Read what the store knows of the events and users of these requests, at once."""
        keys = {request.event for request in requests if not isinstance(request, SetMode)}
        self._events.look_up(keys, inbox=not self.terms.hold)
        if self._users is not None:
            asked = (request.user for request in requests if isinstance(request, Decide))
            self._users.look_up({user for user in asked if user is not None})

    def _carry_out(self, request: Request) -> Answer | Refusal:
        if isinstance(request, Decide):
            return self._decide(request)
        if isinstance(request, Reward):
            return self._reward(request)
        if self._progress.mode == DELETED:
            return Refusal.DELETED
        changed = request.mode != self._progress.mode
        if changed:
            self._change_mode(request.mode)
        return Answer(0, changed)

    def _change_mode(self, mode: Mode) -> None:
        number = self._modes.number + 1
        self._progress.mode, self._progress.modes, self._moved = mode, number, True
        change = ModeChange(number, self._wall(), self.journal.policy.decisions, mode)
        self._modes.record(self.journal.group, change, number)

    def _decide(self, request: Decide) -> Answer | Refusal:
        now = self._progress.uptime
        known = self._events.known(request.event, now)
        if known is not None:
            event = known[1]
            same = event.content == request.content
            return Answer(event.arm, False, event.propensity) if same else Refusal.OTHER_CONTENT
        if self._progress.mode in REFUSING:
            return REFUSING[self._progress.mode]
        if self.unsettled >= self.journal.policy.config.reward_window:
            return Refusal.TOO_MANY_WAIT  # by the clock; else the oldest reward, acknowledged and held, would be lost
        arms = request.arms[:, :1] if self._progress.mode == "apprentice" else request.arms
        released = self.journal.released_in_group
        decision = self.journal.policy.select_admitted(arms)
        if self.journal.released_in_group > released:
            self._record(self.journal.released_in_group - released)
        counts = self._users is None or request.user is None or self._users.counts(request.user, self.journal.group)
        if not counts:
            self.journal.policy.abandon(decision)
        due = now + self.terms.reward_wait
        arm, identity, propensity = decision[:3]
        event = Event(Status.WAITING, counts, arm, identity, due, request.content, propensity=propensity)
        self._events.add(request.event, event)
        return Answer(arm, True, propensity)

    # Rewards

    def _reward(self, request: Reward) -> Answer | Refusal:
        """Keep a reward in the turn of decisions that came with it."""
        arrived = request.stamp - self._since
        known = self._events.known(request.event, max(arrived, self._progress.uptime))
        judged = self._judged(request, known, arrived)
        if known is None or not isinstance(judged, Event):
            return cast(Answer | Refusal, judged)
        self._events.change(known[0], judged)
        if not self.terms.hold:
            self._events.await_turn(known[0], arrived)
        return Answer(judged.arm, True)

    def _keep_rewards(self, requests: Sequence[Reward]) -> list[Answer | Refusal]:
        """Keep each reward with its own event, without a turn; it contributes in that of a decision or a beat.

        A row that was changed since it was read is read again: by the same reward, sent twice, or because its waiting
        time was over.
        """
        self.journal.check()
        answers: dict[int, Answer | Refusal] = {}
        while open_ := [number for number in range(len(requests)) if number not in answers]:
            found = self._store.find(self.journal.name, EVENTS, {requests[number].event for number in open_})
            swaps: dict[bytes, tuple[int, Swap]] = {}
            for number in open_:
                request, arrived = requests[number], requests[number].stamp - self._since
                known = self._events.remembered(found.get(request.event), max(arrived, self._uptime))
                judged = self._judged(request, known, arrived)
                if not isinstance(judged, Event):
                    answers[number] = judged
                elif known is not None and request.event not in swaps:
                    beside = None if self.terms.hold else inbox_row(known[0], arrived)
                    swaps[request.event] = number, Swap(known[0], known[0]._replace(value=judged.pack()), beside)
            if swaps:
                done = self._store.swap(self.journal.name, EVENTS, [swap for _, swap in swaps.values()], INBOX)
                answers |= {swaps[key][0]: Answer(Event.unpack(swaps[key][1].new.value).arm, True) for key in done}
                if not done:
                    time.sleep(_LOCKED)
        return [answers[number] for number in range(len(requests))]

    def _judged(self, request: Reward, known: tuple[Row, Event] | None, arrived: float) -> Event | Answer | Refusal:
        """What becomes of an event by a reward that came at this time; or what is answered, where it stays as it is."""
        if known is None:
            return Refusal.UNKNOWN_EVENT
        event = known[1]
        if request.arm is not None and request.arm != event.arm:
            return Refusal.OTHER_ARM
        if event.status is Status.EXPIRED or (event.status is Status.WAITING and arrived > event.due):
            return Refusal.EXPIRED
        answer = self.hashes.reward(request.event, request.reward)
        if event.status is not Status.WAITING:
            return Answer(event.arm, False) if event.answer == answer else Refusal.OTHER_REWARD
        reward = math.nan if request.reward is None else request.reward
        return event._replace(answer=answer, status=Status.HELD, reward=reward)

    # Time

    def _advance(self, now: float) -> bool:
        """Move the clock to the time of a decision or a beat, and let everything contribute that is due by then.

        Returns whether more is due than one turn settles; the rest comes before anything else.
        """
        self._progress.uptime, self._moved = max(self._progress.uptime, now), True
        for row, event in self._events.arrived(self._progress.uptime):
            self._settle_one(row, event)
        for number, (row, event) in enumerate(self._events.settle(self._progress.uptime), start=1):
            self._settle_one(row, event)
            if number == _SETTLED_AT_ONCE:
                return True
        return False

    def _settle_one(self, row: Row, event: Event) -> None:
        """Let a decision teach what its reward was, the default, or nothing."""
        if event.status is Status.HELD:
            reward = None if math.isnan(event.reward) else event.reward
        elif event.status is Status.WAITING:
            reward = self.terms.default_reward
        else:
            return
        if event.counts and reward is None:
            self.journal.policy.abandon(event.decision)
        elif event.counts and reward is not None:
            self.journal.policy.update(event.decision, reward)
        self._events.change(row, event.settled())

    # After the work

    def _record(self, released: int) -> None:
        """Remember what a decision has released, and when."""
        self._progress.releases += released
        wall_at_zero = self._wall() - self._clock() + self._since
        point = newest_point(self.journal.policy, wall_at_zero + self._progress.uptime)
        self._releases.record(self.journal.group, point, self._progress.releases)

    def _commit(self) -> None:
        """Make everything durable, then let others see it; rewards alone change neither the clock nor what is seen."""
        if self._moved:
            self._events.forget(self._progress.uptime)
            self._note_progress()
        self.journal.commit()
        if self._moved:
            self._committed()

    def _note_progress(self) -> None:
        progress = self._progress
        progress.users = self._users.known if self._users is not None else 0
        self.journal.carried = progress.position - progress.forgotten + progress.users
        self.journal.group.note = json.dumps(vars(progress)).encode()

    def _committed(self) -> None:
        self._note, self._moved = self.journal.note, False
        self._events.committed()
        self._uptime = self._progress.uptime
        self._show()

    def _show(self) -> None:
        """Let others see what is committed."""
        if self._is_current(self.published):
            self.published = replace(self.published, decisions=self.journal.policy.decisions)
        else:
            self.published = self._publish(self.published)

    def _is_current(self, seen: Published) -> bool:
        """Whether all but the number of decisions would be the same in a copy that is made now.

        A function of what is public, and never of the time since the last copy: that would tell of requests in between.
        """
        policy = self.journal.policy
        if seen.releases != self._progress.releases or seen.modes is not self._modes.known:
            return False
        if not isinstance(policy, PrivatePolicy):
            return True
        horizon = policy.setting.horizon  # a report says by how many decisions a policy has outlived it
        lasting = horizon is None or policy.decisions <= horizon
        return lasting and len(policy.ledger.entries) == len(seen.privacy["entries"])

    def _publish(self, earlier: Published | None) -> Published:
        progress, releases, modes = self._progress, self._releases.known, self._modes.known
        return publish(
            self.journal.policy, progress.mode, progress.releases, releases, modes, earlier, lives=progress.lives
        )

    # Without rows

    def public_copy(self) -> tuple[bytes, Snapshot, bytes]:
        """The policy's configuration, what is public of its state, and the note of its journal, at one moment."""
        with self._lock:
            self.journal.check()
            self.journal.catch_up()
            return self.journal.config, self.journal.public_snapshot(), self.journal.note

    def delete(self) -> None:
        """Erase everything but what is public, for ever; nothing is left to do where that was done before.

        What was spent stays spent: the ledger remains, with releases and changes of mode.  Mode, rows and log change in
        one transaction.
        """
        with self._lock, self.journal.working():
            self._take_over()
            if self._progress.mode == DELETED:
                return
            self.journal.refuse_readers()
            self._change_mode(DELETED)
            self._progress.drop_waiting(self.journal.group)
            if self._users is not None:
                self.journal.group.forget[USERS] = self._users.known
                self._users.known = 0
            self._note_progress()
            self.journal.replace(public_part(self.journal.policy))
            self._events.follow(self._progress)
            self._committed()
