"""Several processes on one database: any of them takes any request, and owners are replaced."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tacit.client import Client
from tacit.errors import InvalidInput
from tacit.service.http.options import Options
from tests.cli.test_commands import tacit
from tests.service.http.running import TWO, Running, problem
from tests.service.postgres_server import Server

TAKEOVER = 5.0


@contextmanager
def pair(tmp_path: Path, database: str) -> Iterator[tuple[Running, Running]]:
    """An owner and a process that stands by."""
    owner = Running(tmp_path / "owner", database=database)
    other = None
    try:
        folder = tmp_path / "other"
        folder.mkdir(mode=0o700)
        (folder / "admin.key").write_text(owner.key)
        other = Running(folder, database=database)
        yield owner, other
    finally:
        for process in (owner, other):
            if process is not None and process.process.poll() is None:
                process.kill()


class Load:
    """A caller that decides and rewards through one process, again and again, and remembers every answer."""

    def __init__(self, through: Running, path: str) -> None:
        self.name, self._through = path.rpartition("/")[2], through
        self.arms: dict[str, int] = {}
        self.slowest = 0.0
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Client(self._through.address, self._through.key, timeout=20.0, retries=200) as client:
                while not self._stop.is_set():
                    start = time.monotonic()
                    choice = client.decide(self.name, TWO)
                    client.reward(self.name, choice, 1.0)
                    self.slowest = max(self.slowest, time.monotonic() - start)
                    self.arms[choice.event_id] = choice.arm
        except BaseException as error:
            self.error = error

    def grow(self, count: int) -> None:
        """Wait until so many more were answered."""
        end, wanted = time.monotonic() + 30.0, len(self.arms) + count
        while len(self.arms) < wanted and self.error is None:
            assert time.monotonic() < end
            time.sleep(0.01)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.error is None, repr(self.error)

    def check_kept(self, path: str) -> None:
        """Every decision is known with its arm and its reward, and there are no others."""
        with self._through.client() as client:
            assert client.get(path).json()["decisions"] == len(self.arms)
            for event, arm in self.arms.items():
                again = client.post(f"{path}/decisions", json={"contexts": TWO, "event_id": event})
                assert (again.status_code, again.json()["arm"]) == (200, arm)
                assert client.put(f"{path}/decisions/{event}/reward", json={"reward": 1.0}).status_code == 200


def test_process_that_stands_by_takes_every_request(tmp_path: Path, database: str) -> None:
    with pair(tmp_path, database) as (owner, other):
        path = other.policy()
        with other.client() as there, owner.client() as here:
            made = there.post(f"{path}/decisions", json={"contexts": TWO, "event_id": "a/b ü"})
            assert made.status_code == 201
            assert here.post(f"{path}/decisions", json={"contexts": TWO, "event_id": "a/b ü"}).json() == made.json()
            assert there.put(f"{path}/decisions/a%2Fb%20%C3%BC/reward", json={"reward": 1.0}).status_code == 201
            assert there.get(path).json() == here.get(path).json()
            assert there.get("/v1/policies").json() == here.get("/v1/policies").json()
            assert there.get("/").text == here.get("/").text
            assert there.head("/").status_code == here.head("/").status_code
            for address in ("/healthz", "/readyz"):
                assert there.get(address).json() == {"status": "ok"}
            problem(there.get("/v1/policies", headers={"Tacit-Hop": "1"}), 503, "no-owner")
            problem(there.post(f"{path}/decisions", json={"contexts": []}), 422, "invalid")
            with there.stream("GET", "/v1/live") as stream:
                assert next(stream.iter_lines()).startswith("data: ")
        with other.client("") as nobody:
            problem(nobody.get("/v1/policies"), 401, "key")
        assert other.stop() == 0
        assert owner.stop() == 0


def _killed(owner: Running) -> None:
    owner.kill()


def _stopped(owner: Running) -> None:
    assert owner.stop() == 0


def _paused(owner: Running) -> None:
    owner.process.send_signal(signal.SIGSTOP)


@pytest.mark.parametrize(("leave", "within"), [(_killed, TAKEOVER), (_stopped, TAKEOVER), (_paused, 2 * TAKEOVER)])
def test_owner_is_replaced_and_nothing_is_lost(
    tmp_path: Path, database: str, leave: Callable[[Running], None], within: float
) -> None:
    with pair(tmp_path, database) as (owner, other):
        path = owner.policy(reward_wait=1000.0)
        load = Load(other, path)
        load.grow(20)
        leave(owner)
        load.grow(20)
        if leave is _paused:
            owner.process.send_signal(signal.SIGCONT)  # finds its sessions ended, and ends
            assert owner.wait() == 70
        load.finish()
        assert load.slowest < within
        load.check_kept(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": "0.0.0.0"}, "address is needed where host is 0.0.0.0"),
        ({"address": "https://a:1"}, "address must be http://HOST:PORT"),
        ({"address": "http://a"}, "address must be http://HOST:PORT"),
    ],
)
def test_address_must_be_one_that_others_reach(options: dict[str, str], words: str) -> None:
    from tacit.service.http.several import reached_at

    with pytest.raises(InvalidInput, match=words):
        reached_at(Options(**options), f"http://{options.get('host', '127.0.0.1')}:8470")  # type: ignore[arg-type]
    assert reached_at(Options(host="0.0.0.0", address="http://a:1"), "http://0.0.0.0:1") == "http://a:1"


def test_backups_need_a_database_that_nobody_serves(tmp_path: Path, postgres: Server, database: str) -> None:
    file = str(tmp_path / "backup")
    owner = Running(tmp_path / "owner", database=database)
    path = owner.policy()
    refused = tacit("backup", database, file, code=2)
    assert "a process serves the database" in " ".join(refused.output.split())
    with owner.client() as client:
        assert client.post(f"{path}/decisions", json={"contexts": TWO}).status_code == 201  # nobody has claimed it
    assert owner.stop() == 0
    assert "1 policies" in tacit("backup", database, file).output
    with postgres.database() as other:
        assert "1 policies are in the database" in " ".join(tacit("restore", file, other).output.split())
        restored = Running(tmp_path / "restored", database=other)
        with restored.client() as client:
            assert client.get(path).json()["decisions"] == 1
        assert restored.stop() == 0


def test_without_any_owner_callers_are_told_to_come_again(tmp_path: Path, database: str) -> None:
    with pair(tmp_path, database) as (owner, other):
        path = owner.policy()
        owner.process.send_signal(signal.SIGSTOP)
        end = time.monotonic() + 20.0
        with other.client() as client:
            while (found := _asked(client, path)).status_code != 201:
                assert found.status_code == 503
                assert int(found.headers["retry-after"]) >= 1
                assert time.monotonic() < end
        owner.kill()


def _asked(client: httpx.Client, path: str) -> httpx.Response:
    """A decision, or what comes in its place: the owner may be paused with the request in its hands."""
    try:
        return client.post(f"{path}/decisions", json={"contexts": TWO}, timeout=1.0)
    except httpx.TimeoutException:
        return httpx.Response(503, headers={"retry-after": "1"})
