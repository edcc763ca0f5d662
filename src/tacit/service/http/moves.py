"""Policies that come to this process and leave it, one after the other, in a thread of its own.

Both take as long as a policy is large: a log is replayed, a snapshot is written.  Beats and answers go on meanwhile.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

from tacit.service.cluster import Cluster
from tacit.service.deployment import Deployment
from tacit.service.host import Host
from tacit.service.http.logs import Log
from tacit.service.http.problems import Problem


class Moves:
    """Claims policies whose locks are here, and gives others up.

    ``finish`` waits until everything that was asked of a host is carried out, or refuses with a `Problem`; ``changed``
    is called after each move; ``fail`` when one does not succeed: this process must end then.
    """

    def __init__(
        self,
        deployment: Deployment,
        cluster: Cluster,
        log: Log,
        *,
        finish: Callable[[Host], None],
        changed: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._deployment, self._cluster, self._log = deployment, cluster, log
        self._finish, self._changed, self._fail = finish, changed, fail
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
                self._changed()
        except BaseException as error:
            self._fail(error)

    def _take(self, name: str) -> None:
        if self._ending:
            self._cluster.let_go(name)
            return
        self._deployment.claim(name)
        self._log.say("owns a policy", policy=name)

    def _give(self, name: str) -> None:
        if name not in self._deployment.policies:
            return
        try:
            self._deployment.release(name, self._finish)
        except Problem:  # too much waits: another time
            self._cluster.keep()
            return
        self._cluster.let_go(name)
        self._log.say("has handed a policy over", policy=name)

    def _give_all(self, done: Future[None]) -> None:
        for name in list(self._deployment.policies):
            self._give(name)
        done.set_result(None)
