"""A whole service in this process, call by call, under a clock that is set by hand; `tacit audit service` drives it.

Calls go through the ASGI application, with keys, and come back as the bytes that a caller is sent.  Nothing runs by
itself: beats, upkeep, crashes and restarts happen when they are asked for.  `InProcessService` is one process on a
store, `SharedInProcessService` two that take turns.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tacit.extras import named_extras
from tacit.policies.policy import Policy

with named_extras():
    from tacit.service.backup import back_up_store, restore_store
    from tacit.service.deployment import Deployment
    from tacit.service.http.app import App
    from tacit.service.http.keys import Keyring
    from tacit.service.http.logs import JsonLog
    from tacit.service.http.operations import OPERATIONS
    from tacit.service.http.options import Options
    from tacit.service.http.state import Service
    from tacit.service.http.writer import Writer
    from tacit.service.sqlite_store import SQLiteStore
    from tacit.service.store import Behind, Tail


_NAME: Final = "audited"
_PATH: Final = f"/v1/policies/{_NAME}"
_READER: Final = "reader"
_EPOCH: Final = 1_800_000_000.0
"""Seconds since 1970 when the clock begins."""
_ENDLESS: Final = "/v1/live"
_SHOWN: Final = tuple(
    operation.path.replace("{name}", _NAME)
    for operation in OPERATIONS
    if operation.method == "GET" and operation.scope in (None, "read")
)
_TIMES: Final = re.compile(r'"(time|microseconds)":[0-9.]+,?')
_ALWAYS_QUICK: Final = 1e9
"""Seconds that groups may take in the event loop, so that no thread is needed."""


Call = tuple[float, str, str, str, object]
"""When it arrived, its key, method, path and body."""


class _Process:
    """One process on the store, without a thread and without a socket."""

    def __init__(self, store: SQLiteStore, clock: Callable[[], float], fail: Callable[[BaseException], None]) -> None:
        self.deployment = Deployment(store, clock=clock, wall=lambda: _EPOCH + clock())
        self.words, options = io.StringIO(), Options()
        log = JsonLog(self.words)
        writer = Writer(self.deployment.tick, clock, log, options.most_waiting, _ALWAYS_QUICK, fail)
        self.keyring = Keyring(store)
        self.service = Service(self.deployment, self.keyring, writer, writer, log, options)
        self.app = App(self.service)
        self.randomness = self.policy.randomness
        """Random sources of the policy when it is not watched."""

    @property
    def policy(self) -> Policy:
        return self.deployment.get(_NAME).host.journal.policy


class InProcessService:
    """One policy behind the application; ``watch`` is called with it whenever it begins to be served.

    ``body`` is what the policy is made from, as in ``PUT /v1/policies/{name}``.  Calls *arrive* at the time of the
    clock, and are carried out together by ``answers``.
    """

    _count = 1

    def __init__(self, folder: Path, body: Mapping[str, Any], watch: Callable[[Policy], None]) -> None:
        self._folder, self._watch, self._lives = folder, watch, 0
        self.now = 0.0
        """Seconds of the clock; it never goes back."""
        self._arrived: list[Call] = []
        self._asked: set[str] = set()
        """Where rewards of decisions go that have arrived since ``answers`` were given."""
        folder.mkdir(exist_ok=True)
        self._under_way: list[asyncio.Task[bytes]] = []
        self._error: BaseException | None = None
        self._runner = asyncio.Runner()
        self._store = self._opened()
        Deployment(self._store, clock=lambda: self.now, wall=lambda: _EPOCH + self.now).put(_NAME, body)
        self._serve()

    def _opened(self) -> SQLiteStore:
        return SQLiteStore(self._folder / f"life {self._lives}", synchronous="OFF")

    def _serve(self) -> None:
        """Begin to serve what the store has, in processes that know nothing else."""
        self._processes = [_Process(self._store, lambda: self.now, self._fail) for _ in range(self._count)]
        self._keys: dict[str, str] = {}
        self._enter(self._processes[0])

    def _enter(self, process: _Process) -> None:
        """Let this process decide from now on."""
        self._process = process
        self._watch(process.policy)

    def _key(self, caller: str) -> str:
        """The key of a caller, whose event ids are in a namespace of their own."""
        if caller not in self._keys:
            self._process.keyring.revoke(caller)
            scopes = ("read",) if caller == _READER else ("decide", "reward")
            self._keys[caller] = self._process.keyring.add(caller, scopes, caller)[0]
            for other in self._processes:
                other.keyring.refresh()
        return self._keys[caller]

    # Calls

    def decide(self, caller: str, event_id: str, contexts: Sequence[Sequence[float]], user_id: str) -> None:
        """A request for one decision arrives."""
        self._asked.add(_reward_path(event_id))
        self._arrive(caller, "POST", f"{_PATH}/decisions", _decision(event_id, contexts, user_id))

    def decide_batch(self, caller: str, asked: Sequence[tuple[str, Sequence[Sequence[float]], str]]) -> None:
        """A request for many decisions arrives: event id, contexts and user id of each."""
        requests = [_decision(*each) for each in asked]
        self._asked |= {_reward_path(event_id) for event_id, _, _ in asked}
        self._arrive(caller, "POST", f"{_PATH}/decisions:batch", {"requests": requests})

    def reward(self, caller: str, event_id: str, reward: float | None) -> None:
        """A reward arrives; None says that the arm was never shown."""
        body: dict[str, object] = {"abandoned": True} if reward is None else {"reward": reward}
        self._arrive(caller, "PUT", _reward_path(event_id), body)

    def _arrive(self, caller: str, method: str, path: str, body: object) -> None:
        self._arrived.append((self.now, self._key(caller), method, path, body))

    def answers(self) -> list[bytes]:
        """Carry out what has arrived, as one group where the service makes groups; what each caller is sent."""
        arrived, self._arrived, self._asked = self._arrived, [], set()
        return self._runner.run(self._carried_out(arrived))

    async def _carried_out(self, arrived: Sequence[Call]) -> list[bytes]:
        now = self.now
        for self.now, key, method, path, body in arrived:
            self._under_way.append(asyncio.create_task(self._sent(key, method, path, body)))
            await asyncio.sleep(0)  # it is stamped, and waits: groups begin when nothing more comes
        self.now = now
        answers = await asyncio.gather(*self._under_way, return_exceptions=True)
        self._under_way = []
        if self._error is not None:
            raise self._error
        return [answer for answer in answers if isinstance(answer, bytes)]

    def _fail(self, error: BaseException) -> None:
        """A group was interrupted: where a process of its own would end, no caller is answered."""
        self._error = error
        for task in self._under_way:
            task.cancel()

    async def _sent(self, key: str, method: str, path: str, body: object) -> bytes:
        """The answer to one call: status, headers and body."""
        parts: list[bytes] = []
        asked = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]
        begun = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not asked:
                await asyncio.Event().wait()  # the caller stays
            return asked.pop()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                head = b"".join(name + b": " + value + b"\n" for name, value in message["headers"])
                parts.append(f"{message['status']}\n".encode() + head)
            elif message["body"]:
                parts.append(message["body"])
                begun.set()

        headers = [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")]
        raw = path.encode()
        scope = {"type": "http", "method": method, "path": path, "raw_path": raw, "headers": headers}
        scope |= {"query_string": b"", "root_path": "", "http_version": "1.1"}
        if path != _ENDLESS:
            await self._process.app(scope, receive, send)
        else:  # its first message
            answering = asyncio.ensure_future(self._process.app(scope, receive, send))
            await begun.wait()
            answering.cancel()
            await asyncio.wait([answering])
        return b"".join(parts)

    def look(self) -> dict[str, bytes]:
        """Everything that a reader is shown, by path; and lines of the log, without when and how long it took."""
        seen = {path: self._runner.run(self._sent(self._key(_READER), "GET", path, None)) for path in _SHOWN}
        for process in self._processes:
            process.service.log.flush()
        words = "".join(process.words.getvalue() for process in self._processes)
        return seen | {"log": "\n".join(sorted(_TIMES.sub("", words).splitlines())).encode()}

    # What happens to a service

    def tick(self) -> None:
        """A beat."""
        self._process.deployment.tick()

    def tend(self) -> None:
        """Upkeep: a snapshot takes the place of the log."""
        host = self._process.deployment.get(_NAME).host
        host.tend()
        host.journal.compact()

    def crash(self) -> None:
        """The process is gone in the middle of nothing, and another one begins from the store."""
        self._serve()

    def restart(self) -> None:
        """The service is stopped, as by SIGTERM, and started again."""
        self._process.deployment.close()
        self._store = self._opened()
        self._serve()

    def restore(self) -> None:
        """The service is stopped, backed up, and restored somewhere else; the earlier life does not go on."""
        self._process.deployment.close()
        path = self._folder / f"backup {self._lives}"
        store = self._opened()
        try:
            back_up_store(store, path)
        finally:
            store.close()
        self._lives += 1
        self._store = self._opened()
        restore_store(path, self._store, nothing_released_since=True)
        self._serve()

    def close(self) -> None:
        """Let go of everything."""
        self._process.deployment.close()
        self._runner.close()


class _SharedStore(SQLiteStore):
    """Gives the turns of processes what others have appended, as PostgreSQL does."""

    shared = True

    @contextmanager
    def turn(self, name: str, after: int) -> Iterator[Tail]:
        tail = self.read(name, after)
        if tail.snapshot is not None:
            raise Behind
        yield tail


class SharedInProcessService(InProcessService):
    """Two processes on one store, which decide in turn; the one that has decided last keeps rewards.

    Rewards have a lane of their own: those of decisions that were answered before are kept before any decision that
    waits is made, also where they have arrived after it.
    """

    _count, _decided = 2, 0

    def _opened(self) -> SQLiteStore:
        return _SharedStore(self._folder / f"life {self._lives}", synchronous="OFF")

    def _enter(self, process: _Process) -> None:
        """Bring a process to what the other has done; what it draws in that replay is not watched."""
        process.policy.randomness = process.randomness
        process.deployment.refresh()
        process.randomness = process.policy.randomness  # it may have begun anew from a snapshot
        super()._enter(process)

    def answers(self) -> list[bytes]:
        """Carry out what has arrived, lane by lane; what each caller is sent, in the order of arrival."""
        arrived, self._arrived, asked, self._asked = self._arrived, [], self._asked, set()
        early = [number for number, call in enumerate(arrived) if call[2] == "PUT" and call[3] not in asked]
        others = [number for number in range(len(arrived)) if number not in early]
        answers: dict[int, bytes] = {}
        for lane in (early, *([number] for number in others)):
            if lane and arrived[lane[0]][2] == "POST":  # which process is asked is public: every third time the other
                self._decided += 1
                self._enter(self._processes[self._decided // 3 % 2])
            found = self._runner.run(self._carried_out([arrived[number] for number in lane]))
            answers |= zip(lane, found, strict=True)
        return [answers[number] for number in sorted(answers)]

    def look(self) -> dict[str, bytes]:
        """Ask the first process, also where the other one has decided last."""
        self._enter(self._processes[0])
        return super().look()


def _reward_path(event_id: str) -> str:
    return f"{_PATH}/decisions/{quote(event_id, safe='')}/reward"


def _decision(event_id: str, contexts: Sequence[Sequence[float]], user_id: str) -> dict[str, object]:
    return {"event_id": event_id, "contexts": contexts, "user_id": user_id}
