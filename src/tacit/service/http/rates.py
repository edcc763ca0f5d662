"""How often a key may ask: a bucket of requests for each key, which fills up as time goes by.

A decision and every other call is one request; a batch counts its decisions.  Whether a request is refused depends on
how often this key asked, and when, which is public; never on what it asked.  Rewards have a bucket of their own, of the
same rate: when somebody reports one is not public, and must not take a decision's place.

A bucket is one number, the time at which it is full again.  A request that finds at least one request in it passes,
and may leave it in debt: a batch is not cut, and later calls wait for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from tacit.service.http.keys import Key
from tacit.service.http.problems import too_often

BURST: Final = 2.0
"""Seconds of its rate that a key which has not asked for a while may use at once; at least one request."""
_MOST_FULL: Final = 1_000
"""Buckets that are kept before those that are full, which are as good as none, are let go."""


class Bucket:
    """What is left of one key's rate."""

    __slots__ = ("_cost", "_full_at", "_slack", "rate")

    def __init__(self, rate: float) -> None:
        self.rate, self._cost, self._full_at = rate, 1.0 / rate, -math.inf
        self._slack = max(BURST - self._cost, 0.0)

    def take(self, now: float) -> float:
        """Take one request: 0.0 where it passes, else the seconds until it would, and nothing is taken."""
        start = max(self._full_at, now)
        wait = start - now - self._slack
        if wait > 0.0:
            return wait
        self._full_at = start + self._cost
        return 0.0

    def charge(self, requests: int) -> None:
        """Take further requests of a call that has passed, whether or not they are there."""
        self._full_at += requests * self._cost

    def full(self, now: float) -> bool:
        """Whether nothing was taken that is not there again."""
        return self._full_at <= now


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
            self._drop_full()
            found = self._buckets[key.name, reward] = Bucket(rate)
        return found

    def _drop_full(self) -> None:
        if len(self._buckets) >= _MOST_FULL:
            now = self._clock()
            self._buckets = {name: each for name, each in self._buckets.items() if not each.full(now)}
