"""Looks at what other processes have done: shared by all who wait, never older than who asked, and not too many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tacit.service.http.state import Looks


class Store:
    """Counts looks, each of which ends when it is let go."""

    def __init__(self) -> None:
        self.begun, self.ended, self.open = 0, 0, asyncio.Event()
        self.times: list[float] = []

    async def look(self) -> None:
        assert self.begun == self.ended  # one at a time
        self.begun += 1
        self.times.append(time.monotonic())
        await self.open.wait()
        self.ended += 1


def run(test: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def body() -> None:
        async with asyncio.timeout(120.0):
            await test(Store())

    asyncio.run(body())


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_who_asks_while_others_look_shares_the_next_look() -> None:
    async def test(store: Store) -> None:
        looks = Looks()
        first = asyncio.ensure_future(looks.take(store.look))
        await turns()
        late = [asyncio.ensure_future(looks.take(store.look)) for _ in range(50)]
        await turns()
        assert store.begun == 1  # which began before they came, and may have missed what they want to see
        store.open.set()
        await asyncio.gather(first, *late)
        assert store.begun == 2
        await looks.take(store.look)
        assert store.begun == 3
        await looks.take(store.look, age=1000.0)
        assert store.begun == 3

    run(test)


def test_looks_are_not_too_frequent() -> None:
    async def test(store: Store) -> None:
        looks = Looks(pause=0.05)
        store.open.set()
        for _ in range(4):
            await asyncio.gather(*(looks.take(store.look) for _ in range(20)))
        assert 4 <= store.begun <= 8
        assert all(later - sooner >= 0.049 for sooner, later in zip(store.times, store.times[1:], strict=False))

    run(test)


def test_a_look_that_fails_was_none() -> None:
    async def test(store: Store) -> None:
        looks = Looks()

        async def fail() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await looks.take(fail)
        store.open.set()
        await looks.take(store.look, age=1000.0)
        assert store.begun == 1

    run(test)
