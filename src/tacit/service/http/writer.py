"""Between HTTP and the hosts: one group of requests at a time is carried out, and a group is all that waits.

While a group is being committed, others gather; the next group takes all of them.  Answers go back in the order of
commits.  The queue is bounded, for rewards and for everything else apart: what comes when too much of its own kind
waits is refused at once, before anything is changed.  So whether a decision is taken never depends on rewards.

**A beat waits its turn.**  It is stamped when it is time for it, and is carried out behind everything that has arrived
before: a decision or a reward that waits behind a slow commit, of somebody's reward perhaps, is not overtaken by it.

**Where a group is carried out.**  On a disk that syncs in a fraction of a millisecond the event loop does it by itself:
to hand a group to another thread and back takes longer than its commit, since Python runs one thread at a time.  What
may take longer (a slow disk, a snapshot, much that is due at once) is left to the writer's thread, and callers who
only read are answered meanwhile.  On a store that several processes share, all is left to threads: one for decisions,
which take turns with those processes, and one for rewards, which never wait for a turn nor hold one up.

**When a group fails, none of it is answered and the process ends.**  Memory runs ahead of the store then, by an unknown
amount; what was answered before is in the store, and a new process goes on from there.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from tacit.service.host import BEAT, Answer, Host, Refusal, Request, Reward
from tacit.service.http.logs import JsonLog
from tacit.service.http.problems import overloaded

Answers = list[Answer | Refusal]
Result = TypeVar("Result")
EXIT_CODE: Final = 70
"""Exit code of a process whose store has failed (EX_SOFTWARE)."""
_LARGEST_GROUP: Final = 256
_EMPTY_TURNS: Final = 3
"""Turns of the event loop without anything new after which a group begins; each takes some microseconds."""
QUICK: Final = 0.003
"""Seconds that groups may take, on average, for the event loop to wait for them."""
_WEIGHT: Final = 0.1
"""Weight of the newest group in the average time of a group."""


class Job(NamedTuple):
    """Requests of one caller for one policy, and the future of their answers."""

    host: Host
    requests: Sequence[Request]
    future: asyncio.Future[Answers]
    rewards: bool
    """Whether they report rewards; one caller's requests are of one kind."""


class Beat(NamedTuple):
    """It is time for a beat."""

    stamp: float
    """When, by the clock of decisions."""


Answered = list[tuple[Job, Answers]]


class Writer:
    """Carries out groups: in the event loop where that is quick, else in a thread, which also calls ``beat``.

    ``beat`` is called with the stamp of a beat, by ``clock``.  ``quick`` is how many seconds a group may take, on
    average, in the event loop; 0 leaves all to the thread.  ``fail`` is called with the error that interrupted a group,
    which is not answered: by default the process ends.
    """

    def __init__(
        self,
        beat: Callable[[float], object],
        clock: Callable[[], float],
        log: JsonLog,
        most_waiting: int,
        quick: float = QUICK,
        fail: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._beat, self._clock, self._bound, self._quick = beat, clock, most_waiting, quick
        self._fail = fail or (lambda error: end_process(log, error))
        self._arrived: list[Job | Beat] = []
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, name="tacit-writer", daemon=True)
        self._turn = threading.Lock()
        """Held while a group is carried out, what is due is settled or a snapshot is written."""
        self._usual = 0.0
        """Seconds that a group takes, on average."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._postponed = False
        """Whether something has arrived that waits for the turn."""
        self._aside = False
        """Whether the thread has a group or a beat; changed by the event loop alone."""
        self._beat_waits = False
        """Whether a beat is among what has arrived; changed by the event loop alone."""
        self.waiting = 0
        """Requests that have no answer yet, rewards aside; changed by the event loop alone."""
        self.waiting_rewards = 0
        """Rewards that have no answer yet."""

    def start(self) -> None:
        """Begin to take requests."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what the thread has begun, and end it."""
        if self._thread.is_alive():
            self._work.put(None)
            self._thread.join()

    async def carry_out(self, host: Host, requests: Sequence[Request]) -> Answers:
        """Return the answers to these requests when they are durable; refuse at once when too many of a kind wait."""
        rewards = bool(requests) and isinstance(requests[0], Reward)
        if (self.waiting_rewards if rewards else self.waiting) >= self._bound:
            raise overloaded()
        loop = self._loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[Answers] = loop.create_future()
        self._count(rewards, len(requests))
        self._arrived.append(Job(host, requests, future, rewards))
        if len(self._arrived) == 1:
            loop.call_soon(self._gather, 1, 0)
        return await future

    # In the event loop

    def _count(self, rewards: bool, change: int) -> None:
        """Add to the number of requests that wait for an answer."""
        if rewards:
            self.waiting_rewards += change
        else:
            self.waiting += change

    def _gather(self, known: int, empty: int) -> None:
        """Begin a group when nothing new has come: a larger group costs each of its requests less."""
        arrived = len(self._arrived)
        empty = 0 if arrived > known else empty + 1
        if empty < _EMPTY_TURNS and arrived < _LARGEST_GROUP:
            asyncio.get_running_loop().call_soon(self._gather, arrived, empty)
        else:
            self._begin()

    def _begin(self) -> None:
        """Carry out what has arrived, here or in the thread; later, if a group is under way."""
        if not self._arrived:
            return
        first = self._arrived[0]
        if isinstance(first, Beat) or self._usual >= self._quick:
            if not self._aside:
                self._aside = True
                self._work.put(self._next_aside(first))
            return
        self._postponed = True  # before the turn is asked for: the thread looks at this after letting go of it
        if self._aside or not self._turn.acquire(blocking=False):
            return
        self._postponed = False
        jobs = self._taken()
        try:
            self._hand_back(self._answered(jobs, tending=False))
        except BaseException as error:
            self._fail(error)
        finally:
            self._turn.release()
        for host in dict.fromkeys(job.host for job in jobs):
            if host.journal.upkeep_due:  # a snapshot, say, which takes long
                self._work.put(partial(self.alone, host.tend))
        if self._arrived:
            asyncio.get_running_loop().call_soon(self._begin)

    def _next_aside(self, first: Job | Beat) -> Callable[[], None]:
        """Take what the thread is to do next out of the queue, which begins with ``first``."""
        if isinstance(first, Beat):
            del self._arrived[0]
            self._beat_waits = False
            return partial(self._beat_aside, first)
        return partial(self._carry_out_aside, self._taken())

    def _arrive(self, beat: Beat) -> None:
        if self._beat_waits:
            return  # the next one makes up for it, since a host writes all beats that are late
        self._beat_waits = True
        self._arrived.append(beat)
        if len(self._arrived) == 1:
            self._begin()

    def _come_back(self, answered: Answered) -> None:
        self._aside = False
        self._hand_back(answered)
        self._begin()

    def _taken(self) -> list[Job]:
        """Take the jobs that arrived before the next beat out of the queue, up to the size of a group."""
        taken: list[Job] = []
        count = 0
        for job in self._arrived:
            if isinstance(job, Beat) or count >= _LARGEST_GROUP:
                break
            taken.append(job)
            count += len(job.requests)
        del self._arrived[: len(taken)]
        return taken

    def _hand_back(self, answered: Answered) -> None:
        """Give the answers to all callers who still wait."""
        for job, answers in answered:
            if not job.future.done():
                job.future.set_result(answers)
            self._count(job.rewards, -len(job.requests))

    # In the event loop or in the thread

    def _answered(self, jobs: Sequence[Job], *, tending: bool) -> Answered:
        """Return the jobs of each host with their answers, all of them committed."""
        started = time.perf_counter()
        by_host: defaultdict[Host, list[Job]] = defaultdict(list)
        for job in jobs:
            by_host[job.host].append(job)
        answered: Answered = []
        for host, own in by_host.items():
            answers = iter(host.process([request for job in own for request in job.requests], tending=tending))
            answered += [(job, list(islice(answers, len(job.requests)))) for job in own]
        self._usual += _WEIGHT * (time.perf_counter() - started - self._usual)
        return answered

    # In the thread

    def _live(self) -> None:
        next_beat = time.monotonic() + BEAT
        try:
            while True:
                if next_beat <= time.monotonic():  # even if there is much else to do
                    self._ask_for_beat()
                    next_beat = time.monotonic() + BEAT
                try:
                    work = self._work.get(timeout=max(0.0, next_beat - time.monotonic()))
                except queue.Empty:
                    continue
                if work is None:
                    return
                work()
        except BaseException as error:
            self._fail(error)

    def _ask_for_beat(self) -> None:
        beat = Beat(self._clock())
        if self._loop is None:  # nothing has arrived yet
            self.alone(partial(self._beat, beat.stamp))
        else:
            self._in_loop(self._arrive, beat)

    def alone(self, work: Callable[[], Result]) -> Result:
        """Return what this work returns, in a thread, while no group is carried out: it may take long."""
        with self._turn:
            result = work()
        if self._postponed:
            self._in_loop(self._begin)
        return result

    def _carry_out_aside(self, jobs: Sequence[Job]) -> None:
        with self._turn:
            answered = self._answered(jobs, tending=True)
        self._in_loop(self._come_back, answered)

    def _beat_aside(self, beat: Beat) -> None:
        with self._turn:
            self._beat(beat.stamp)
        self._in_loop(self._come_back, [])

    def _in_loop(self, call: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop has ended: the callers are gone, and may ask again
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call, *arguments)


def end_process(log: JsonLog, error: BaseException, leave: Callable[[int], None] = os._exit) -> None:
    """Log why, and end before any answer is sent: no handlers, no other threads, nothing more to the disk."""
    log.failure("the store failed, or a call was interrupted: ending without an answer", error)
    leave(EXIT_CODE)
