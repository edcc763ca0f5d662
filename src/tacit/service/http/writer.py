"""The bridge between the event loop and the hosts: one thread that writes, and groups by whatever waits.

While a group is being committed, others gather; the next group takes all of them.  Answers go back in the order of
commits.  The queue is bounded: whoever comes when it is full is refused at once, before anything is changed.

**When a group fails, nobody is answered and the process ends.**  Memory runs ahead of the store then, and nobody knows
by how much; what was answered before is in the store, and a new process goes on from there.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tacit.service.deployment import Deployment
from tacit.service.host import Answer, Host, Refusal, Request
from tacit.service.http.logs import Log
from tacit.service.http.problems import overloaded

Answers = list[Answer | Refusal]
EXIT_CODE: Final = 70
"""Of a process whose store has failed (EX_SOFTWARE)."""
_LARGEST_GROUP: Final = 256
_TICK: Final = 0.25
"""Seconds between looks at what is due."""


@dataclass(frozen=True)
class Job:
    """Requests of one caller for one policy, and who waits for their answers."""

    host: Host
    requests: Sequence[Request]
    future: asyncio.Future[Answers]


class Writer:
    """The only thread that decides and learns."""

    def __init__(self, deployment: Deployment, log: Log, most_waiting: int) -> None:
        self._deployment, self._log, self._bound = deployment, log, most_waiting
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tacit-writer", daemon=True)
        self._last_tick = time.monotonic()
        self.waiting = 0
        """Requests that have no answer yet; changed by the event loop alone."""

    def start(self) -> None:
        """Begin to take requests."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, and end."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    async def carry_out(self, host: Host, requests: Sequence[Request]) -> Answers:
        """The answers to these requests, when they are durable; refused at once when too many wait."""
        if self.waiting >= self._bound:
            raise overloaded()
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self.waiting += len(requests)
        self._queue.put(Job(host, requests, future))
        return await future

    # In the thread

    def _work(self) -> None:
        try:
            while (jobs := self._gathered()) is not None:
                for host, own in _by_host(jobs):
                    self._process(host, own)
                if time.monotonic() - self._last_tick >= _TICK:
                    self._deployment.tick()
                    self._last_tick = time.monotonic()
        except BaseException as error:
            end_process(self._log, error)

    def _gathered(self) -> list[Job] | None:
        """Everything that waits, up to the size of a group; nothing when it is time for a tick, None at the end."""
        jobs: list[Job] = []
        count = 0
        try:
            job = self._queue.get(timeout=_TICK)
            while job is not None:
                jobs.append(job)
                count += len(job.requests)
                if count >= _LARGEST_GROUP:
                    return jobs
                job = self._queue.get_nowait()
        except queue.Empty:
            return jobs
        if jobs:
            self._queue.put(None)  # the end comes after what was asked before
        return jobs or None

    def _process(self, host: Host, jobs: Sequence[Job]) -> None:
        answers = host.process([request for job in jobs for request in job.requests])
        loop = jobs[0].future.get_loop()
        try:
            loop.call_soon_threadsafe(self._hand_back, jobs, answers)
        except RuntimeError:  # the loop has ended: whoever asked is gone, and may ask again
            return

    def _hand_back(self, jobs: Sequence[Job], answers: Answers) -> None:
        """In the event loop: wake up all who wait."""
        start = 0
        for job in jobs:
            end = start + len(job.requests)
            if not job.future.done():
                job.future.set_result(answers[start:end])
            start = end
        self.waiting -= start


def _by_host(jobs: Sequence[Job]) -> Iterable[tuple[Host, list[Job]]]:
    """The jobs of each host, in the order in which they came."""
    found: dict[int, tuple[Host, list[Job]]] = {}
    for job in jobs:
        found.setdefault(id(job.host), (job.host, []))[1].append(job)
    return found.values()


def end_process(log: Log, error: BaseException, leave: Callable[[int], None] = os._exit) -> None:
    """Say why, and be gone before anybody is answered: no handlers, no other threads, nothing more to the disk."""
    log.failure("the store failed, or a call was interrupted: ending without an answer", error)
    leave(EXIT_CODE)
