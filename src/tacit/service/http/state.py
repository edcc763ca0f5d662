"""What the routes of one running service share: callers, their rates, and what other processes have done meanwhile.

**Rates.**  A decision and every other call is one request; a batch counts its decisions.  Whether a request is refused
depends on how often this key asked, and when, which is public; never on what it asked.  Rewards have a bucket of their
own, of the same rate: when a reward is reported is not public, and must not take a decision's place.

**Other processes** may change a shared store at any time.  A reader is shown all that was answered before by any
process; a key or a policy that is not known here is looked for in the store before it is refused.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final, ParamSpec, TypeVar

from tacit.errors import InvalidInput, JournalExists, StoreError, UnknownJournal
from tacit.service.deployment import Deployment, Served
from tacit.service.host import BEAT
from tacit.service.http.connections import CONNECTION, ASGIScope, header
from tacit.service.http.keys import Key, Keyring
from tacit.service.http.logs import JsonLog
from tacit.service.http.options import Options
from tacit.service.http.problems import no_key, too_often
from tacit.service.http.writer import Writer, end_process

LATENCIES: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Bounds of the groups in which latencies are counted, in seconds; a last group has all that are longer."""
BURST: Final = 2.0
"""Seconds of its rate that a key which has not asked for a while may use at once; at least one request."""
_MOST_FULL: Final = 1_000
"""Number of buckets from which on full ones are dropped: a new bucket is full too."""
_KEYS_PAUSE: Final = 1 / 30
"""Seconds between looks for keys: callers whose keys are wrong make the database no busier."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Bucket:
    """What is left of one key's rate: one number, the time at which all of it is there again.

    A request that finds at least one request in it passes, and may leave it in debt: a batch is not cut, and later
    calls wait for it.
    """

    __slots__ = ("_cost", "_slack", "full_at", "rate")

    def __init__(self, rate: float) -> None:
        self.rate, self._cost, self.full_at = rate, 1.0 / rate, -math.inf
        self._slack = max(BURST - self._cost, 0.0)

    def take(self, now: float) -> float:
        """Take one request: 0.0 where it passes, else the seconds until it would, and nothing is taken."""
        start = max(self.full_at, now)
        wait = start - now - self._slack
        if wait > 0.0:
            return wait
        self.full_at = start + self._cost
        return 0.0

    def charge(self, requests: int) -> None:
        """Take further requests of a call that has passed, whether or not they are there."""
        self.full_at += requests * self._cost


class Rates:
    """The buckets of all keys of one process; used by the event loop alone.

    ``rate`` is that of keys without one of their own.  ``clock`` counts seconds; a test passes one of its own.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._buckets: dict[tuple[str, bool], Bucket] = {}

    def take(self, key: Key, *, reward: bool = False) -> None:
        """Let a call of this key pass, or refuse it."""
        wait = self._bucket(key, reward).take(self._clock())
        if wait > 0.0:
            raise too_often(math.ceil(wait))

    def charge(self, key: Key, requests: int) -> None:
        """Count further requests of a call that has passed."""
        self._bucket(key, False).charge(requests)

    def _bucket(self, key: Key, reward: bool) -> Bucket:
        rate = self._rate if key.rate is None else key.rate
        found = self._buckets.get((key.name, reward))
        if found is None or found.rate != rate:  # a new key, or another one under the name of one that was revoked
            if len(self._buckets) >= _MOST_FULL:
                now = self._clock()
                self._buckets = {name: each for name, each in self._buckets.items() if each.full_at > now}
            found = self._buckets[key.name, reward] = Bucket(rate)
        return found


@dataclass(slots=True)
class Latency:
    """How long answers of a route took: the number in each group of `LATENCIES`, and the sum of all in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCIES) + 1))
    seconds: float = 0.0

    def note(self, seconds: float) -> None:
        """Count an answer."""
        self.counts[bisect_left(LATENCIES, seconds)] += 1
        self.seconds += seconds


class Looks:
    """Looks at what other processes have done: one at a time, shared by all callers that asked before it began.

    Two of them begin at least ``pause`` seconds apart.
    """

    def __init__(self, pause: float = 0.0) -> None:
        self._pause, self._lock, self._newest = pause, asyncio.Lock(), -math.inf

    async def take(self, look: Callable[[], Awaitable[object]], age: float = 0.0) -> None:
        """Return when a look has succeeded that began at most ``age`` seconds before this call, or later."""
        wanted = time.monotonic() - age
        async with self._lock:
            if self._newest < wanted:
                await asyncio.sleep(max(self._newest + self._pause - time.monotonic(), 0.0))
                begun = time.monotonic()
                await look()
                self._newest = begun


@dataclass
class Service:
    """One process that serves one deployment."""

    deployment: Deployment
    keyring: Keyring
    writer: Writer
    rewarder: Writer
    """Carries out rewards: the writer, or one of its own on a shared store, where decisions wait for a turn."""
    log: JsonLog
    options: Options
    answered: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often each route was answered with each status; what concerns rewards is raw data."""
    latencies: defaultdict[str, Latency] = field(default_factory=lambda: defaultdict(Latency))
    """How long answers of each route took, without refusals: they are quick, and would hide how long the rest takes."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    live: int = 0
    """Streams of changes that are open."""
    putting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One policy is made at a time."""

    def __post_init__(self) -> None:
        self.rates = Rates(self.options.key_rate)
        self._shared = self.deployment.store.shared
        self._finding = asyncio.Lock()
        self._key_looks, self._looks = Looks(_KEYS_PAUSE), defaultdict[str | None, Looks](Looks)
        self._name_looks, self._names = Looks(), set[str]()

    async def caller(self, scope: ASGIScope) -> Key:
        """Return the key of a request and tell its connection; refuse a request without one."""
        given = header(scope["headers"], b"authorization")
        key = self.keyring.holder(given)
        if key is None and given is not None:  # another process may have made it a moment ago
            await self.see_keys()
            key = self.keyring.holder(given)
        if CONNECTION in scope:
            scope[CONNECTION].places.show_key(scope[CONNECTION], key is not None)
        if key is None:
            raise no_key()
        return key

    async def found(self, name: str) -> Served:
        """Return the policy of this name, which another process may have made."""
        served = self.deployment.policies.get(name)
        if served is not None or not self._shared:
            return served or self.deployment.get(name)
        async with self._finding:
            return await self.aside(self.deployment.find, name)

    async def already_found(self, name: str) -> Served:
        """Return the policy of this name for a reward: no clock begins by it, and a beat or a decision finds it."""
        if self._shared and name not in self.deployment.policies:
            await self._name_looks.take(self._look_for_names)
            while name in self._names and name not in self.deployment.policies:
                await asyncio.sleep(BEAT)
        return self.deployment.get(name)

    async def _look_for_names(self) -> None:
        self._names = {journal.name for journal in await self.aside(self.deployment.store.journals)}

    # What other processes have done: nothing where the store is this one's alone

    async def newest(self, name: str) -> Served:
        """Return the policy of this name, with all that any process has answered before."""
        served = await self.found(name)
        await self.see(name)
        return served

    async def see(self, name: str | None = None, age: float = 0.0) -> None:
        """Catch up with a policy, or with all of them; what was read up to ``age`` seconds ago will do."""
        if self._shared:
            await self._looks[name].take(partial(self.aside, self.deployment.refresh, name), age)

    async def see_keys(self) -> None:
        """Catch up with the keys."""
        if self._shared:
            await self._key_looks.take(partial(self.aside, self.keyring.refresh))

    async def aside(
        self, work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Return what ``work`` on the store returns, in a thread; a store that fails ends the process."""
        try:
            return await asyncio.wrap_future(in_thread(partial(work, *arguments, **named)))
        except (InvalidInput, JournalExists, UnknownJournal):
            raise
        except StoreError as error:
            end_process(self.log, error)
            raise

    # What callers see of it

    def policies_of(self, key: Key) -> dict[str, Served]:
        """Return the policies that a key reaches, by name."""
        return {name: served for name, served in sorted(self.deployment.policies.items()) if key.reaches(name)}

    @property
    def status(self) -> str:
        """A public code that says whether requests are taken."""
        if self.stopping.is_set():
            return "stopping"
        return "overloaded" if self.writer.waiting >= self.options.most_waiting else "ok"  # rewards are not counted


def in_thread(work: Callable[[], Result]) -> Future[Result]:
    """Begin ``work`` in a thread of its own, which does not keep the process from ending."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # it cannot be cancelled any more

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="tacit-aside", daemon=True).start()
    return future
