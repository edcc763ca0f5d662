"""Policies that come to this process and leave it, one after the other, in a thread of its own.

Both take as long as a policy is large: a log is replayed, a snapshot is written.  Beats and answers go on meanwhile.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol

from tacit.errors import UnknownJournal
from tacit.service.cluster import Cluster
from tacit.service.deployment import Deployment
from tacit.service.host import Host
from tacit.service.http.logs import JsonLog
from tacit.service.http.problems import Problem


class Moving(Protocol):
    """What a process does when a policy comes or leaves."""

    def leaving(self, name: str) -> AbstractContextManager[None]:
        """Take no more requests about a policy, which leaves within."""

    def finish(self, host: Host) -> None:
        """Wait until everything that was asked of a host is carried out, or refuse with a `Problem`."""

    def moved(self) -> None:
        """A policy has come or gone."""

    def fail(self, error: BaseException) -> None:
        """Nobody knows what has become of a policy."""


class Moves:
    """Claims policies whose locks are here, and gives others up.

    ``process`` is told about it, and must end when a move does not succeed.
    """

    def __init__(self, deployment: Deployment, cluster: Cluster, process: Moving, log: JsonLog) -> None:
        self._deployment, self._cluster, self._process, self._log = deployment, cluster, process, log
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ending = False
        self._thread = threading.Thread(target=self._work, name="tacit-moves", daemon=True)

    def start(self) -> None:
        """Begin to move policies."""
        self._thread.start()

    def take(self, name: str) -> None:
        """Claim a policy, and serve it."""
        self._waiting.put(lambda: self._take(name))

    def give(self, name: str) -> None:
        """Close a policy, and let another process have it."""
        self._waiting.put(lambda: self._give(name))

    def give_all(self) -> Future[None]:
        """Let other processes have everything, and take nothing more."""
        self._ending = True
        done: Future[None] = Future()
        self._waiting.put(lambda: self._give_all(done))
        return done

    def _work(self) -> None:
        try:
            while True:
                self._waiting.get()()
                self._process.moved()
        except BaseException as error:
            self._process.fail(error)

    def _take(self, name: str) -> None:
        if self._ending:
            self._cluster.let_go(name)
            return
        self._deployment.claim(name)
        self._log.say("owns another policy", policies=len(self._deployment.policies))

    def _give(self, name: str) -> None:
        try:
            with self._process.leaving(name):
                self._deployment.release(name, self._process.finish)
        except (Problem, UnknownJournal):  # too much waits: another time; or it has gone before
            self._cluster.keep()
            return
        self._cluster.let_go(name)
        self._log.say("has handed a policy over", policies=len(self._deployment.policies))

    def _give_all(self, done: Future[None]) -> None:
        for name in list(self._deployment.policies):
            self._give(name)
        done.set_result(None)
