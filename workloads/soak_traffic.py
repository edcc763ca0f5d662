"""The mixed traffic of `workloads/soak.py`: stories that callers of a decision service live through.

Every answer has an expected status.  What depends on time (a reward in time, too late, of an event that is forgotten)
is expected by the moments at which the requests were sent and answered, so that a slow machine is no surprise.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import numpy as np

from tacit.service.http.hot import BATCHES, DECISIONS, REWARDS
from tacit.service.http.page import FOLDER
from workloads.load.connection import Connection, Reply, connect
from workloads.soak_calls import OTHER, Calls

ARRAYS, RECORDS = "arrays", "records"
TOPICS: Final = ("news", "sport", "arts")
DEVICES: Final = ("ios", "android", "web")
USERS: Final = 2_000
"""Users who return: counters of users live as long as their policy, so that ever new ones would fill the store."""
BATCH: Final = 100
"""Decisions of a batch: enough for a snapshot of each policy about every half minute."""
_SURE: Final = 5.0
"""Seconds after event_memory from which on an event must be forgotten."""

BODIES: Final[dict[str, dict[str, Any]]] = {
    ARRAYS: {"policy": "stream-glm", "dim": 5, "epsilon": 4.0, "delta": 1e-6, "theta_bound": 3.5},
    RECORDS: {
        "policy": "stream-glm",
        "epsilon": 1.0,
        "delta": 1e-6,
        "theta_bound": 4.0,
        "default_reward": 0.0,
        "user_level": True,
        "rounds_per_user": 3,
        "features": {
            "user": [{"kind": "category", "name": "device", "values": list(DEVICES)}],
            "arm": [{"kind": "category", "name": "topic", "values": list(TOPICS)}],
            "crosses": [["device", "topic"]],
        },
    },
}


class Waits(NamedTuple):
    """Seconds for which a policy waits for rewards, and remembers events."""

    reward: float
    memory: float


class Decided(NamedTuple):
    """A decision that was answered."""

    policy: str
    event: str
    asked: dict[str, Any]
    arm: int
    sent: float
    answered: float


class Traffic:
    """Callers who live through stories."""

    def __init__(self, calls: Calls, waits: Waits, seed: int) -> None:
        self._calls, self.heard, self._waits = calls, calls.heard, waits
        self._random, self._numbers = random.Random(seed), itertools.count()
        self._later: list[tuple[float, int, Decided]] = []
        rows = np.random.default_rng(seed).standard_normal((64, 20, 5))
        self._rows = (rows / np.linalg.norm(rows, axis=2, keepdims=True) * 0.99).round(6).tolist()
        files = (path for path in FOLDER.rglob("*") if path.suffix in (".js", ".css", ".svg"))
        self._shown = ["/", *(f"/static/{path.relative_to(FOLDER).as_posix()}" for path in files)]

    async def run(self, seconds: float, callers: int = 16) -> None:
        """Live through stories until the time is over."""
        end = time.perf_counter() + seconds
        live = asyncio.create_task(self._calls.watch())
        try:
            await asyncio.gather(*(self._caller(end, number) for number in range(callers)))
            self.heard.expect(not live.done(), "the live stream has ended")
        finally:
            live.cancel()
            await asyncio.gather(live, return_exceptions=True)

    async def _caller(self, end: float, number: int) -> None:
        connection = await connect(self._calls.ports[number % len(self._calls.ports)])
        stories = list(_STORIES)
        weights = [_STORIES[story] for story in stories]
        while (now := time.perf_counter()) < end:
            if self._later and self._later[0][0] <= now:
                await self._report(connection, heapq.heappop(self._later)[2])
            else:
                await self._random.choices(stories, weights)[0](self, connection)
        connection.close()

    def _question(self, policy: str) -> dict[str, Any]:
        pick = self._random.choice
        if policy == ARRAYS:
            return {"event_id": f"e{next(self._numbers)}", "contexts": pick(self._rows)}
        user = {"user": {"device": pick(DEVICES)}, "user_id": f"u{self._random.randrange(USERS)}"}
        return {"event_id": f"e{next(self._numbers)}", "arms": [{"topic": topic} for topic in TOPICS], **user}

    async def _decide(self, connection: Connection) -> Decided:
        policy = self._random.choice((ARRAYS, RECORDS))
        asked, sent = self._question(policy), time.perf_counter()
        reply = await self._post(connection, policy, asked)
        self.heard.check(reply, (201,), "a decision")
        return Decided(policy, asked["event_id"], asked, _arm(reply), sent, time.perf_counter())

    async def _post(self, connection: Connection, policy: str, asked: dict[str, Any]) -> Reply:
        path = f"/v1/policies/{policy}/decisions"
        reply = await self._calls.ask(connection, "POST", path, json.dumps(asked).encode(), route=DECISIONS)
        self.heard.decisions[policy] += reply.status == 201
        return reply

    async def _reward(self, connection: Connection, decided: Decided, body: dict[str, Any]) -> Reply:
        path = f"/v1/policies/{decided.policy}/decisions/{decided.event}/reward"
        return await self._calls.ask(connection, "PUT", path, json.dumps(body).encode(), route=REWARDS)

    # Stories

    async def _report(self, connection: Connection, decided: Decided) -> None:
        """A reward that comes later; what is right depends on how much later it is."""
        sent = time.perf_counter()
        reply = await self._reward(connection, decided, {"reward": 1.0})
        youngest, oldest = sent - decided.answered, time.perf_counter() - decided.sent
        self.heard.check(reply, due_statuses(youngest, oldest, self._waits), f"a reward after {oldest:.2f} s")

    def _remind(self, decided: Decided, seconds: float) -> None:
        heapq.heappush(self._later, (time.perf_counter() + seconds, next(self._numbers), decided))

    async def at_once(self, connection: Connection) -> None:
        """A decision and its reward."""
        await self._report(connection, await self._decide(connection))

    async def late(self, connection: Connection) -> None:
        """A reward that comes in time."""
        self._remind(await self._decide(connection), self._random.uniform(0.05, 0.9) * self._waits.reward)

    async def too_late(self, connection: Connection) -> None:
        """A reward after the waiting time, or after the event is forgotten."""
        within = self._random.uniform(self._waits.reward, self._waits.memory)
        beyond = self._waits.memory + 1.2 * _SURE
        self._remind(await self._decide(connection), self._random.choice((within, within, beyond)))

    async def never(self, connection: Connection) -> None:
        """No reward: the default one, or nothing, is learned."""
        await self._decide(connection)

    async def abandoned(self, connection: Connection) -> None:
        """The arm was never shown."""
        decided = await self._decide(connection)
        reply = await self._reward(connection, decided, {"abandoned": True})
        self.heard.check(reply, self._or_over(decided, 201), "an abandoned decision")

    async def repeated(self, connection: Connection) -> None:
        """The same ids again: the same answers, and refusals of anything else."""
        decided = await self._decide(connection)
        again = await self._post(connection, decided.policy, decided.asked)
        self.heard.check(again, self._or_over(decided, 200), "a decision that was asked for again")
        self.heard.expect(again.status != 200 or _arm(again) == decided.arm, f"{decided.event} has two arms")
        other = await self._post(
            connection, decided.policy, self._question(decided.policy) | {"event_id": decided.event}
        )
        self.heard.check(
            other, (200, 409), "another decision under the same id"
        )  # 200: the same content was drawn again
        for body, status in (({"reward": 1.0}, 201), ({"reward": 1.0}, 200), ({"reward": 0.0}, 409)):
            reply = await self._reward(connection, decided, body)
            self.heard.check(reply, self._or_over(decided, status), f"{body} after another one")

    def _or_over(self, decided: Decided, *statuses: int) -> tuple[int, ...]:
        """These statuses, or any when a slow machine has let the waiting time pass in the middle of a story."""
        over = time.perf_counter() - decided.sent >= self._waits.reward
        return (*statuses, 200, 201, 404, 409, 410) if over else statuses

    async def batch(self, connection: Connection) -> None:
        """Many decisions, one of them bad, and rewards for some."""
        policy = self._random.choice((ARRAYS, RECORDS))
        asked, sent = [self._question(policy) for _ in range(BATCH)], time.perf_counter()
        body = json.dumps({"requests": [*asked, {"contexts": [["no number"]]}]}).encode()
        reply = await self._calls.ask(connection, "POST", f"/v1/policies/{policy}/decisions:batch", body, route=BATCHES)
        self.heard.check(reply, (200,), "a batch")
        entries = json.loads(reply.body)["decisions"] if reply.status == 200 else []
        statuses = [entry["status"] for entry in entries]
        self.heard.expect(statuses == [201] * BATCH + [422], f"a batch has {Counter(statuses)}")
        self.heard.decisions[policy] += statuses.count(201)
        answered = time.perf_counter()
        for one, entry in itertools.islice(zip(asked, entries, strict=False), 2):
            decided = Decided(policy, one["event_id"], one, entry.get("arm", -1), sent, answered)
            self._remind(decided, self._random.uniform(0.0, 0.9) * self._waits.reward)

    async def bad(self, connection: Connection) -> None:
        """Something that is refused."""
        method, path, body, status, route = self._random.choice(_BAD)
        self.heard.check(
            await self._calls.ask(connection, method, path, body, route=route, known=status != 401),
            (status,),
            f"{method} {path}",
        )

    async def read(self, connection: Connection) -> None:
        """What may be seen of a policy, or of all."""
        path = self._random.choice(_READS)
        self.heard.check(await self._calls.ask(connection, "GET", path), (200,), path)

    async def page(self, connection: Connection) -> None:
        """The page or one of its files."""
        path = self._random.choice(self._shown)
        self.heard.check(await self._calls.ask(connection, "GET", path), (200,), path)


def due_statuses(youngest: float, oldest: float, waits: Waits) -> tuple[int, ...]:
    """How the first reward of a decision may be answered, whose age is between these."""
    limits = ((201, -math.inf, waits.reward), (410, waits.reward, waits.memory + _SURE), (404, waits.memory, math.inf))
    return tuple(status for status, first, last in limits if oldest >= first and youngest <= last)


def _arm(reply: Reply) -> int:
    return int(json.loads(reply.body).get("arm", -1))


Story = Callable[[Traffic, Connection], Awaitable[None]]
_STORIES: Final[dict[Story, float]] = {
    Traffic.at_once: 30.0,
    Traffic.late: 15.0,
    Traffic.too_late: 5.0,
    Traffic.never: 8.0,
    Traffic.abandoned: 5.0,
    Traffic.repeated: 6.0,
    Traffic.batch: 6.0,
    Traffic.bad: 6.0,
    Traffic.read: 12.0,
    Traffic.page: 4.0,
}
_POLICY: Final = f"/v1/policies/{ARRAYS}"
_BAD: Final = (
    ("POST", f"{_POLICY}/decisions", b"{no json", 400, DECISIONS),
    ("POST", f"{_POLICY}/decisions", b'{"contexts": [[1.0, 2.0]]}', 422, DECISIONS),
    ("POST", f"{_POLICY}/decisions", b'{"contexts": [[9.0, 9.0, 9.0, 9.0, 9.0]]}', 422, DECISIONS),
    ("POST", f"/v1/policies/{RECORDS}/decisions", b'{"user": {}, "arms": []}', 422, DECISIONS),
    ("POST", "/v1/policies/unknown/decisions", b'{"contexts": [[1.0]]}', 404, DECISIONS),
    ("GET", f"{_POLICY}/decisions", b"", 405, DECISIONS),
    ("PUT", f"{_POLICY}/decisions/unknown/reward", b'{"reward": 1.0}', 404, REWARDS),
    ("PUT", f"{_POLICY}/decisions/unknown/reward", b'{"reward": "much"}', 422, REWARDS),
    ("PUT", _POLICY, b'{"policy": "stream-glm", "dim": 3, "epsilon": 1.0, "delta": 1e-6}', 409, OTHER),
    ("POST", f"{_POLICY}/decisions", b"{}", 401, DECISIONS),
    ("GET", "/v1/nowhere", b"", 404, OTHER),
)
_READS: Final = (
    "/v1/policies",
    "/v1/privacy",
    "/metrics",
    "/healthz",
    "/readyz",
    "/openapi.json",
    *(f"/v1/policies/{name}{part}" for name in BODIES for part in ("", "/privacy", "/history", "/explanation")),
)
