"""Several processes on one database, and callers that go on whatever happens to one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from tacit.client import Client
from tests.service.http.running import PATIENCE, TWO, Running

PAUSE = 0.02
"""Seconds between two decisions of a caller: so there are not too many to be looked for afterwards."""


def another(tmp_path: Path, database: str, first: Running, name: str = "other") -> Running:
    """A process on the database of the first one, with its key."""
    folder = tmp_path / name
    folder.mkdir(mode=0o700)
    (folder / "admin.key").write_text(first.key)
    return Running(folder, database=database)


@contextmanager
def processes(tmp_path: Path, database: str, count: int = 2) -> Iterator[list[Running]]:
    """Processes that are ended in any case; more may be added."""
    found = [Running(tmp_path / "first", database=database)]
    try:
        while len(found) < count:
            found.append(another(tmp_path, database, found[0], f"process{len(found)}"))
        yield found
    finally:
        for process in found:
            if process.process.poll() is None:
                process.kill()


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class Load:
    """A caller that decides through one process and rewards through another, and remembers every answer.

    It never asks a second time: one answer that fails is its end.
    """

    def __init__(self, decides: Running, rewards: Running, path: str) -> None:
        self.path, self._decides, self._rewards = path, decides, rewards
        self.arms: dict[str, int] = {}
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        name = self.path.rpartition("/")[2]
        try:
            with _client(self._decides) as decides, _client(self._rewards) as rewards:
                while not self._stop.is_set():
                    choice = decides.decide(name, TWO)
                    rewards.reward(name, choice, 1.0)
                    self.arms[choice.event_id] = choice.arm
                    time.sleep(PAUSE)
        except BaseException as error:
            self.error = error

    def grow(self, count: int) -> None:
        """Wait until so many more were answered."""
        wanted = len(self.arms) + count
        wait_until(lambda: len(self.arms) >= wanted or self.error is not None)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.error is None, repr(self.error)

    def ended(self) -> bool:
        """Whether it was not answered; the request that failed may have been carried out."""
        return self.error is not None

    def check_kept(self, through: Running) -> None:
        """Every decision is known with its arm and its reward."""
        with through.client() as client, ThreadPoolExecutor(4) as threads:
            for status, arm, rewarded in threads.map(lambda event: self._again(client, event), self.arms):
                assert (status, arm, rewarded) == (200, True, 200)

    def _again(self, client: httpx.Client, event: str) -> tuple[int, bool, int]:
        asked = client.post(f"{self.path}/decisions", json={"contexts": TWO, "event_id": event})
        rewarded = client.put(f"{self.path}/decisions/{event}/reward", json={"reward": 1.0})
        return asked.status_code, asked.json()["arm"] == self.arms[event], rewarded.status_code


def _client(process: Running) -> Client:
    return Client(process.address, process.key, timeout=PATIENCE, retries=0)
